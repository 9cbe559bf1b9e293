/* The OpenCL queue: its lifetime, its waits, the fault record and the trace. */
#include "hal/opencl/queue.h"

#include <string.h>

#include "platform/platform.h"

static const ingot_allocator_t *ingot_opencl_allocator(const ingot_opencl_queue_t *queue) {
  return ingot_hal_device_allocator(queue->base.device);
}

/* -- lifetime -------------------------------------------------------------------------------- */

static ingot_status_t ingot_opencl_queue_open(ingot_opencl_queue_t *queue, bool is_profiling) {
  const ingot_opencl_device_t *device = ingot_opencl_queue_device(queue);
  int32_t error = 0;
  ingot_cl_queue_t opened = device->cl->CreateCommandQueue(
      device->context, device->device, is_profiling ? INGOT_CL_QUEUE_PROFILING : 0, &error);
  if (error) {
    return ingot_opencl_status(ingot_opencl_allocator(queue), "clCreateCommandQueue", error);
  }
  if (queue->queue) { /* it may still clear the fault record */
    (void)device->cl->Finish(queue->queue);
    (void)device->cl->ReleaseCommandQueue(queue->queue);
  }
  queue->queue = opened;
  queue->is_profiling = is_profiling;
  return NULL;
}

/* The application's own queue, if that is what sessions are to use. */
static ingot_status_t ingot_opencl_queue_share(ingot_opencl_queue_t *queue) {
  const ingot_opencl_device_t *device = ingot_opencl_queue_device(queue);
  const ingot_allocator_t *allocator = ingot_opencl_allocator(queue);
  uint64_t properties = 0;
  INGOT_OPENCL_TRY(allocator, device->cl, GetCommandQueueInfo, device->queue,
                   INGOT_CL_QUEUE_PROPERTIES, sizeof(properties), &properties, NULL);
  INGOT_OPENCL_TRY(allocator, device->cl, RetainCommandQueue, device->queue);
  queue->queue = device->queue;
  queue->is_profiling = (properties & INGOT_CL_QUEUE_PROFILING) != 0;
  return NULL;
}

/* Memory of the queue's own. */
static ingot_status_t ingot_opencl_queue_allocate(const ingot_opencl_queue_t *queue, uint64_t flags,
                                                  size_t length, ingot_cl_memory_t *out_memory) {
  const ingot_opencl_device_t *device = ingot_opencl_queue_device(queue);
  int32_t error = 0;
  ingot_cl_memory_t memory = device->cl->CreateBuffer(device->context, flags, length, NULL, &error);
  if (error) return ingot_opencl_status(ingot_opencl_allocator(queue), "clCreateBuffer", error);
  *out_memory = memory;
  return NULL;
}

/* No fault so far. */
static ingot_status_t ingot_opencl_clear_fault(ingot_opencl_queue_t *queue) {
  static const uint32_t zero = 0;
  INGOT_OPENCL_TRY(ingot_opencl_allocator(queue), ingot_opencl_queue_device(queue)->cl,
                   EnqueueFillBuffer, queue->queue, queue->fault, &zero, sizeof(zero), 0,
                   sizeof(ingot_opencl_fault_t), 0, NULL, NULL);
  return NULL;
}

static ingot_status_t ingot_opencl_queue_load(ingot_opencl_queue_t *queue) {
  const ingot_opencl_device_t *device = ingot_opencl_queue_device(queue);
  void *records;
  INGOT_TRY(device->is_queue_shared ? ingot_opencl_queue_share(queue)
                                    : ingot_opencl_queue_open(queue, false));
  INGOT_TRY(ingot_allocate_array(ingot_opencl_allocator(queue), INGOT_OPENCL_MAX_RECORDS,
                                 sizeof(ingot_opencl_record_t), &records));
  queue->records = records;
  INGOT_TRY(ingot_opencl_queue_allocate(queue, INGOT_CL_MEM_READ_WRITE,
                                        sizeof(ingot_opencl_fault_t), &queue->fault));
  INGOT_TRY(ingot_opencl_clear_fault(queue));
  INGOT_TRY(ingot_opencl_queue_allocate(queue,
                                        INGOT_CL_MEM_READ_WRITE | INGOT_CL_MEM_ALLOC_HOST_PTR,
                                        INGOT_OPENCL_STAGING_LENGTH, &queue->staging_memory));
  int32_t error = 0;
  void *staging = device->cl->EnqueueMapBuffer(queue->queue, queue->staging_memory, 1,
                                               INGOT_CL_MAP_READ | INGOT_CL_MAP_WRITE, 0,
                                               INGOT_OPENCL_STAGING_LENGTH, 0, NULL, NULL, &error);
  if (error) {
    return ingot_opencl_status(ingot_opencl_allocator(queue), "clEnqueueMapBuffer", error);
  }
  queue->staging = staging;
  return NULL;
}

/* Also of a queue that was made in part. */
static void ingot_opencl_queue_free(ingot_opencl_queue_t *queue) {
  const ingot_cl_functions_t *cl = ingot_opencl_queue_device(queue)->cl;
  if (queue->staging) {
    (void)cl->EnqueueUnmapMemObject(queue->queue, queue->staging_memory, queue->staging, 0, NULL,
                                    NULL);
  }
  if (queue->queue) (void)cl->Finish(queue->queue);
  if (queue->staging_memory) (void)cl->ReleaseMemObject(queue->staging_memory);
  if (queue->scratch) (void)cl->ReleaseMemObject(queue->scratch);
  if (queue->fault) (void)cl->ReleaseMemObject(queue->fault);
  if (queue->queue) (void)cl->ReleaseCommandQueue(queue->queue);
  ingot_release_memory(ingot_opencl_allocator(queue), queue->records);
  ingot_release_memory(ingot_opencl_allocator(queue), queue);
}

ingot_status_t ingot_opencl_queue_create(ingot_device_t *base, ingot_hal_queue_t **out_queue) {
  ingot_opencl_device_t *device = (ingot_opencl_device_t *)base;
  void *memory;
  INGOT_TRY(
      ingot_allocate(ingot_hal_device_allocator(base), sizeof(ingot_opencl_queue_t), &memory));
  ingot_opencl_queue_t *queue = memory;
  queue->base.device = base;
  atomic_init(&queue->is_busy, false);
  ingot_status_t status = ingot_opencl_queue_load(queue);
  if (status) {
    ingot_opencl_queue_free(queue);
    return status;
  }
  ingot_hal_device_retain(base);
  ingot_mutex_lock(&device->mutex);
  queue->bit = UINT64_C(1) << (device->queue_count++ % 64);
  queue->next = device->queues;
  device->queues = queue;
  ingot_mutex_unlock(&device->mutex);
  *out_queue = &queue->base;
  return NULL;
}

void ingot_opencl_queue_destroy(ingot_hal_queue_t *base) {
  ingot_opencl_queue_t *queue = (ingot_opencl_queue_t *)base;
  ingot_opencl_device_t *device = ingot_opencl_queue_device(queue);
  ingot_status_free(ingot_opencl_queue_wait(base));
  ingot_mutex_lock(&device->mutex);
  ingot_opencl_queue_t **link = &device->queues;
  while (*link != queue) link = &(*link)->next;
  *link = queue->next;
  ingot_mutex_unlock(&device->mutex);
  ingot_opencl_queue_free(queue);
  ingot_hal_device_release(&device->base);
}

ingot_status_t ingot_opencl_device_finish(ingot_opencl_device_t *device, uint64_t users) {
  int32_t error = 0;
  ingot_mutex_lock(&device->mutex);
  for (ingot_opencl_queue_t *queue = device->queues; queue; queue = queue->next) {
    /* It stays busy: its faults and its trace are its owner's. */
    bool is_awaited = (queue->bit & users) && atomic_load(&queue->is_busy);
    if (is_awaited && !error) error = device->cl->Finish(queue->queue);
  }
  ingot_mutex_unlock(&device->mutex);
  return error ? ingot_opencl_status(ingot_hal_device_allocator(&device->base), "clFinish", error)
               : NULL;
}

/* -- records --------------------------------------------------------------------------------- */

ingot_status_t ingot_opencl_begin(ingot_opencl_queue_t *queue, ingot_opencl_record_t *record) {
  record->is_traced = queue->base.trace != NULL;
  if (queue->record_count == INGOT_OPENCL_MAX_RECORDS) {
    INGOT_TRY(ingot_opencl_settle(queue, NULL));
  }
  if (record->is_traced && !queue->is_profiling &&
      !ingot_opencl_queue_device(queue)->is_queue_shared) {
    INGOT_TRY(ingot_opencl_settle(queue, NULL));
    ingot_mutex_lock(&ingot_opencl_queue_device(queue)->mutex); /* others may finish it */
    ingot_status_t status = ingot_opencl_queue_open(queue, true);
    ingot_mutex_unlock(&ingot_opencl_queue_device(queue)->mutex);
    if (status) return status;
  }
  if (record->is_traced) record->begin = ingot_clock();
  return NULL;
}

ingot_status_t ingot_opencl_end(ingot_opencl_queue_t *queue, ingot_opencl_record_t *record) {
  const ingot_cl_functions_t *cl = ingot_opencl_queue_device(queue)->cl;
  atomic_store(&queue->is_busy, true);
  if (record->executable || record->is_traced) queue->records[queue->record_count++] = *record;
  if (record->is_traced && !record->event) { /* the application's queue, without times */
    INGOT_OPENCL_TRY(ingot_opencl_allocator(queue), cl, Finish, queue->queue);
    queue->records[queue->record_count - 1].end = ingot_clock();
  }
  if (++queue->unflushed_count < INGOT_OPENCL_FLUSH_STEP) return NULL;
  queue->unflushed_count = 0;
  INGOT_OPENCL_TRY(ingot_opencl_allocator(queue), cl, Flush, queue->queue);
  return NULL;
}

/* The device's times of an operation; its clock is not the host's. */
static void ingot_opencl_read_times(const ingot_opencl_queue_t *queue,
                                    ingot_opencl_record_t *record) {
  const ingot_cl_functions_t *cl = ingot_opencl_queue_device(queue)->cl;
  uint64_t begin = 0, end = 0;
  if (!record->event) return;
  (void)cl->GetEventProfilingInfo(record->event, INGOT_CL_PROFILING_COMMAND_START, sizeof(begin),
                                  &begin, NULL);
  (void)cl->GetEventProfilingInfo(record->event, INGOT_CL_PROFILING_COMMAND_END, sizeof(end), &end,
                                  NULL);
  (void)cl->ReleaseEvent(record->event);
  record->begin = (int64_t)begin;
  record->end = end > begin ? (int64_t)end : (int64_t)begin;
}

/* Tells the trace of all records, which have ended just now: the last one's end is the present,
 * and the others keep their distance from it. */
static void ingot_opencl_tell_trace(ingot_opencl_queue_t *queue) {
  int64_t difference = 0;
  for (uint32_t r = queue->record_count; r-- > 0;) {
    ingot_opencl_record_t *record = &queue->records[r];
    record->is_device = record->event != NULL;
    ingot_opencl_read_times(queue, record);
    if (!record->is_device) continue;
    if (difference == 0) difference = ingot_clock() - record->end;
    record->begin += difference;
    record->end += difference;
  }
  for (uint32_t r = 0; r < queue->record_count; r++) {
    const ingot_opencl_record_t *record = &queue->records[r];
    if (!record->is_traced || !queue->base.trace) continue;
    const ingot_hal_trace_t trace = {
        record->site, record->kernel, record->begin,
        record->end,  record->length, record->is_device ? INGOT_TRACE_DEVICE : INGOT_TRACE_HOST};
    queue->base.trace(queue->base.trace_user, &trace);
  }
}

/* Tells the trace that the thread has waited since `begin`, for what the code asked for. */
static void ingot_opencl_tell_wait(const ingot_opencl_queue_t *queue, int64_t begin) {
  if (!queue->base.trace || queue->record_count == 0) return;
  const void *site = queue->records[queue->record_count - 1].site;
  if (!site) return;
  const ingot_hal_trace_t trace = {site, "wait", begin, ingot_clock(), 0, INGOT_TRACE_WAIT};
  queue->base.trace(queue->base.trace_user, &trace);
}

/* -- waits ----------------------------------------------------------------------------------- */

/* A dispatch as far as messages need it. */
static ingot_hal_dispatch_t ingot_opencl_recorded(const ingot_opencl_record_t *record) {
  return (ingot_hal_dispatch_t){
      .executable = record->executable, .entry = record->entry, .site = record->site};
}

/* Whether the call was to end before its last dispatch did. */
static ingot_status_t ingot_opencl_check_stop(const ingot_opencl_queue_t *queue) {
  if (!ingot_stop_is_due(queue->base.stop, true)) return NULL;
  for (uint32_t r = queue->record_count; r-- > 0;) {
    const ingot_opencl_record_t *record = &queue->records[r];
    if (!record->executable) continue;
    const ingot_hal_dispatch_t dispatch = ingot_opencl_recorded(record);
    return ingot_hal_stop_status(&queue->base, &dispatch);
  }
  return NULL;
}

/* The status of the fault that the device has reported, whose record is cleared. */
static ingot_status_t ingot_opencl_take_fault(ingot_opencl_queue_t *queue) {
  ingot_opencl_fault_t fault;
  memcpy(&fault, queue->staging, sizeof(fault));
  if (fault.ticket == 0) return NULL;
  INGOT_TRY(ingot_opencl_clear_fault(queue));
  uint32_t record = (uint32_t)fault.ticket - 1;
  if (record >= queue->record_count || !queue->records[record].executable) {
    return ingot_status_create(ingot_opencl_allocator(queue), INGOT_STATUS_INTERNAL,
                               "a kernel reports a fault of dispatch %d, which does not exist: it "
                               "has written outside of its buffers",
                               (int)fault.ticket);
  }
  const ingot_hal_dispatch_t dispatch = ingot_opencl_recorded(&queue->records[record]);
  const ingot_kernel_fault_t reported = {fault.code, fault.operand, fault.index, fault.bound};
  return ingot_hal_fault_status(&queue->base, &dispatch, &reported);
}

/* Queues the reads of the fault record and of what the caller wants. */
static ingot_status_t ingot_opencl_queue_reads(ingot_opencl_queue_t *queue,
                                               const ingot_opencl_read_t *read) {
  const ingot_cl_functions_t *cl = ingot_opencl_queue_device(queue)->cl;
  const ingot_allocator_t *allocator = ingot_opencl_allocator(queue);
  if (queue->record_count > 0) {
    INGOT_OPENCL_TRY(allocator, cl, EnqueueReadBuffer, queue->queue, queue->fault, 0, 0,
                     sizeof(ingot_opencl_fault_t), queue->staging, 0, NULL, NULL);
  }
  if (!read || read->length == 0) return NULL;
  INGOT_OPENCL_TRY(allocator, cl, EnqueueReadBuffer, queue->queue, read->memory, 0, read->offset,
                   read->length, queue->staging + INGOT_OPENCL_STAGING_READ, 0, NULL, NULL);
  return NULL;
}

ingot_status_t ingot_opencl_settle(ingot_opencl_queue_t *queue, const ingot_opencl_read_t *read) {
  if (!read && !atomic_load(&queue->is_busy)) return NULL;
  memset(queue->staging, 0, sizeof(ingot_opencl_fault_t));
  ingot_status_t status = ingot_opencl_queue_reads(queue, read);
  int64_t begin = queue->base.trace ? ingot_clock() : 0;
  int32_t error = ingot_opencl_queue_device(queue)->cl->Finish(queue->queue);
  if (!status && error)
    status = ingot_opencl_status(ingot_opencl_allocator(queue), "clFinish", error);
  atomic_store(&queue->is_busy, false);
  queue->unflushed_count = 0;
  queue->staging_used = 0;
  ingot_opencl_tell_trace(queue);
  ingot_opencl_tell_wait(queue, begin); /* it ends no earlier than what it waited for */
  if (!status) status = ingot_opencl_take_fault(queue);
  else ingot_status_free(ingot_opencl_clear_fault(queue)); /* its ticket would be another's */
  if (!status) status = ingot_opencl_check_stop(queue);
  queue->record_count = 0;
  if (!status && read && read->length > 0) {
    memcpy(read->data, queue->staging + INGOT_OPENCL_STAGING_READ, read->length);
  }
  return status;
}

/* Makes what the device wrote to wrapped bytes visible in them. */
static ingot_status_t ingot_opencl_bring_back(const ingot_opencl_queue_t *queue,
                                              ingot_opencl_buffer_t *buffer) {
  return ingot_opencl_transfer(ingot_opencl_queue_device(queue), buffer->memory, 0,
                               buffer->base.length, false, buffer->wrapped);
}

/* Brings the written wraps up to date if `status` is success, and lets them go. */
static ingot_status_t ingot_opencl_bring_all_back(ingot_opencl_queue_t *queue,
                                                  ingot_status_t status) {
  for (uint32_t w = 0; w < queue->written_count; w++) {
    if (!status) status = ingot_opencl_bring_back(queue, queue->written[w]);
    ingot_hal_buffer_release(&queue->written[w]->base);
  }
  queue->written_count = 0;
  return status;
}

ingot_status_t ingot_opencl_queue_wait(ingot_hal_queue_t *base) {
  ingot_opencl_queue_t *queue = (ingot_opencl_queue_t *)base;
  return ingot_opencl_bring_all_back(queue, ingot_opencl_settle(queue, NULL));
}

ingot_status_t ingot_opencl_reserve_written(ingot_opencl_queue_t *queue, uint32_t count) {
  if (queue->written_count + count <= INGOT_OPENCL_MAX_WRITTEN) return NULL;
  return ingot_opencl_queue_wait(&queue->base);
}

void ingot_opencl_will_write(ingot_opencl_queue_t *queue, ingot_buffer_t *buffer) {
  ingot_opencl_buffer_t *root = ingot_opencl_root(buffer);
  ingot_opencl_will_use(queue, buffer);
  if (!root->wrapped) return;
  for (uint32_t w = 0; w < queue->written_count; w++) {
    if (queue->written[w] == root) return;
  }
  ingot_hal_buffer_retain(&root->base);
  queue->written[queue->written_count++] = root;
}
