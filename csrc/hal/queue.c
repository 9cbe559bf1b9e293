/* Queues: every operation's arguments are checked here, then the driver runs it. */
#include <inttypes.h>
#include <stdio.h>

#include "base/arithmetic.h"
#include "hal/check.h"
#include "hal/host.h"
#include "hal/hal.h"
#include "platform/platform.h"

/* A grid beyond this could not be counted through, and claiming ranges could overflow. */
#define INGOT_HAL_MAX_WORKGROUPS (INT64_C(1) << 62)

ingot_status_t ingot_hal_queue_create(ingot_device_t *device, ingot_hal_queue_t **out_queue) {
  return device->vtable->queue_create(device, out_queue);
}

void ingot_hal_queue_destroy(ingot_hal_queue_t *queue) {
  if (!queue) return;
  ingot_hal_queue_destroy(queue->host);
  queue->device->vtable->queue_destroy(queue);
}

/* Tells the trace of work that began at `begin` and has just ended. */
static __attribute__((noinline)) void ingot_hal_trace(const ingot_hal_queue_t *queue,
                                                      const void *site, const char *kernel,
                                                      int64_t begin, int64_t length) {
  const ingot_hal_trace_t trace = {site, kernel, begin, ingot_clock(), length, INGOT_TRACE_HOST};
  queue->trace(queue->trace_user, &trace);
}

/* Whether the core is to measure the queue's operations. */
static inline bool ingot_hal_traces(const ingot_hal_queue_t *queue) {
  return queue->trace && !queue->device->vtable->traces;
}

/* Says what is wrong with an operand; cold, so that the check itself stays small. */
static __attribute__((noinline)) ingot_status_t
ingot_hal_operand_status(const ingot_hal_queue_t *queue, const ingot_buffer_t *buffer,
                         int64_t offset, int64_t length, uint32_t access) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(queue->device);
  if (!buffer) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT, "the buffer is null");
  }
  if (buffer->device != queue->device) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "the buffer is on another device (%s) than the queue (%s)",
                               buffer->device->description, queue->device->description);
  }
  return ingot_hal_check_range(buffer, offset, length, access);
}

static inline bool ingot_hal_operand_fits(const ingot_hal_queue_t *queue,
                                          const ingot_buffer_t *buffer, int64_t offset,
                                          int64_t length, uint32_t access) {
  return buffer && buffer->device == queue->device && (buffer->access & access) == access &&
         ingot_range_fits_i64(offset, length, buffer->length);
}

static inline ingot_status_t ingot_hal_check_operand(const char *what,
                                                     const ingot_hal_queue_t *queue,
                                                     const ingot_buffer_t *buffer, int64_t offset,
                                                     int64_t length, uint32_t access) {
  if (ingot_hal_operand_fits(queue, buffer, offset, length, access)) return NULL;
  return ingot_status_prefix(ingot_hal_operand_status(queue, buffer, offset, length, access), "%s",
                             what);
}

/* -- messages -------------------------------------------------------------------------------- */

void ingot_hal_describe_dispatch(const ingot_hal_queue_t *queue,
                                 const ingot_hal_dispatch_t *dispatch,
                                 char out_text[INGOT_HAL_DESCRIPTION_CAPACITY]) {
  const ingot_hal_entry_description_t *entry =
      &dispatch->executable->entries[dispatch->entry].description;
  out_text[0] = 0;
  if (!INGOT_WITH_MESSAGES) return;
  if (queue->describe && queue->describe(queue->describe_user, dispatch->site, out_text,
                                         INGOT_HAL_DESCRIPTION_CAPACITY)) {
    return;
  }
  bool has_layer = entry->layer && entry->layer[0];
  (void)snprintf(out_text, INGOT_HAL_DESCRIPTION_CAPACITY, "kernel '%s'%s%s%s", entry->name,
                 has_layer ? " of layer '" : "", has_layer ? entry->layer : "",
                 has_layer ? "'" : "");
}

ingot_status_t ingot_hal_fault_status(const ingot_hal_queue_t *queue,
                                      const ingot_hal_dispatch_t *dispatch,
                                      const ingot_kernel_fault_t *fault) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(queue->device);
  char text[INGOT_HAL_DESCRIPTION_CAPACITY];
  ingot_hal_describe_dispatch(queue, dispatch, text);
  if (fault->code == INGOT_FAULT_INDEX_OUT_OF_RANGE) {
    return ingot_status_create(allocator, INGOT_STATUS_OUT_OF_RANGE,
                               "%s (operand %u): index %" PRId64 " is out of range [0, %" PRId64
                               ")",
                               text, fault->operand, fault->index, fault->bound);
  }
  return ingot_status_create(allocator, INGOT_STATUS_INTERNAL,
                             "%s failed with fault code %u, which this runtime does not know: "
                             "update the runtime",
                             text, fault->code);
}

ingot_status_t ingot_hal_misfit_status(const ingot_hal_queue_t *queue,
                                       const ingot_hal_dispatch_t *dispatch) {
  char text[INGOT_HAL_DESCRIPTION_CAPACITY];
  ingot_hal_describe_dispatch(queue, dispatch, text);
  return ingot_status_create(ingot_hal_device_allocator(queue->device), INGOT_STATUS_DATA_LOSS,
                             "%s: its sizes do not fit its kernel: the module is damaged", text);
}

ingot_status_t ingot_hal_stop_status(const ingot_hal_queue_t *queue,
                                     const ingot_hal_dispatch_t *dispatch) {
  char text[INGOT_HAL_DESCRIPTION_CAPACITY];
  ingot_hal_describe_dispatch(queue, dispatch, text);
  return ingot_status_prefix(
      ingot_stop_status(ingot_hal_device_allocator(queue->device), queue->stop), "%s", text);
}

ingot_status_t ingot_hal_check_stop(const ingot_hal_queue_t *queue) {
  if (!ingot_stop_is_due(queue->stop, true)) return NULL;
  return ingot_stop_status(ingot_hal_device_allocator(queue->device), queue->stop);
}

/* Says what is wrong with a binding; cold, so that the check itself stays small. */
static __attribute__((noinline)) ingot_status_t ingot_hal_binding_status(
    const ingot_hal_queue_t *queue, const ingot_hal_dispatch_t *dispatch, uint32_t b) {
  const ingot_hal_entry_description_t *entry =
      &dispatch->executable->entries[dispatch->entry].description;
  const ingot_hal_binding_t *binding = &dispatch->bindings[b];
  uint32_t access = (entry->written >> b & 1) ? INGOT_HAL_ACCESS_WRITE : 0;
  char text[INGOT_HAL_DESCRIPTION_CAPACITY];
  ingot_hal_describe_dispatch(queue, dispatch, text);
  return ingot_status_prefix(
      ingot_hal_operand_status(queue, binding->buffer, binding->offset, binding->length, access),
      "%s, binding %u", text, b);
}

static __attribute__((noinline)) ingot_status_t
ingot_hal_dispatch_status(const ingot_hal_queue_t *queue, const ingot_hal_dispatch_t *dispatch) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(queue->device);
  const ingot_hal_executable_t *executable = dispatch->executable;
  if (!executable || executable->device != queue->device) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "the executable is %s the queue's device",
                               executable ? "loaded on another than" : "null, expected one on");
  }
  if (dispatch->entry >= executable->entry_count) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "kernel ordinal %u, expected less than %u", dispatch->entry,
                               executable->entry_count);
  }
  const ingot_hal_entry_description_t *entry = &executable->entries[dispatch->entry].description;
  return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                             "kernel '%s' got %u bindings and %u constants, expected %u and %u",
                             entry->name, dispatch->binding_count, dispatch->constant_count,
                             entry->binding_count, entry->constant_count);
}

static __attribute__((noinline)) ingot_status_t
ingot_hal_workload_status(const ingot_hal_queue_t *queue, const ingot_hal_dispatch_t *dispatch) {
  char text[INGOT_HAL_DESCRIPTION_CAPACITY];
  ingot_hal_describe_dispatch(queue, dispatch, text);
  return ingot_status_create(ingot_hal_device_allocator(queue->device), INGOT_STATUS_OUT_OF_RANGE,
                             "%s has workload [%" PRId64 ", %" PRId64 ", %" PRId64
                             "], expected sizes of at least 0 and fewer than 2^62 workgroups",
                             text, dispatch->workload[0], dispatch->workload[1],
                             dispatch->workload[2]);
}

/* -- dispatches ------------------------------------------------------------------------------ */

/* Sets grid = ceil(workload / tile) and says how many workgroups that is, -1 if a size is negative
 * or they are too many. */
static int64_t ingot_hal_grid(const int64_t workload[3], const int64_t tile[3], int64_t grid[3]) {
  int64_t total = 1;
  for (int axis = 0; axis < 3; axis++) {
    int64_t count = 1;
    /* Most axes are one tile, and a division costs as much as the rest of the dispatch. */
    if ((uint64_t)workload[axis] - 1 >= (uint64_t)tile[axis]) {
      if (workload[axis] < 0) return -1;
      count = ingot_divide_up_i64(workload[axis], tile[axis]);
      if (!ingot_multiply_i64(total, count, &total)) total = INT64_MAX; /* unless times 0 */
    }
    grid[axis] = count;
  }
  return total < INGOT_HAL_MAX_WORKGROUPS ? total : -1;
}

/* Runs a checked dispatch of an entry with a host_reason; it has ended when this returns. */
static ingot_status_t ingot_hal_dispatch_on_host(ingot_hal_queue_t *queue,
                                                 const ingot_hal_dispatch_t *dispatch) {
  ingot_hal_executable_t *executable = dispatch->executable->host;
  INGOT_TRY(ingot_hal_queue_wait(queue));
  if (!queue->host) INGOT_TRY(ingot_hal_queue_create(executable->device, &queue->host));
  queue->host->describe = queue->describe;
  queue->host->describe_user = queue->describe_user;
  queue->host->stop = queue->stop;
  ingot_hal_host_bindings_t mapped;
  uint64_t written = executable->entries[dispatch->entry].description.written;
  INGOT_TRY(ingot_hal_host_map(dispatch->bindings, dispatch->binding_count, written,
                               executable->device, &mapped));
  ingot_hal_dispatch_t on_host = *dispatch;
  on_host.executable = executable;
  on_host.bindings = mapped.bindings;
  ingot_status_t status = ingot_hal_queue_dispatch(queue->host, &on_host);
  if (!status) status = ingot_hal_queue_wait(queue->host);
  ingot_hal_host_unmap(&mapped);
  return status;
}

ingot_status_t ingot_hal_queue_dispatch(ingot_hal_queue_t *queue,
                                        const ingot_hal_dispatch_t *dispatch) {
  const ingot_hal_executable_t *executable = dispatch->executable;
  if (!executable || executable->device != queue->device ||
      dispatch->entry >= executable->entry_count) {
    return ingot_hal_dispatch_status(queue, dispatch);
  }
  const ingot_hal_entry_t *entry = &executable->entries[dispatch->entry];
  if (dispatch->binding_count != entry->description.binding_count ||
      dispatch->constant_count != entry->description.constant_count) {
    return ingot_hal_dispatch_status(queue, dispatch);
  }
  uint64_t written = entry->description.written;
  int64_t written_length = 0; /* 0 only if all are: sizes that nothing bounds go with no bytes */
  for (uint32_t b = 0; b < dispatch->binding_count; b++, written >>= 1) {
    const ingot_hal_binding_t *binding = &dispatch->bindings[b];
    uint32_t access = (written & 1) ? INGOT_HAL_ACCESS_WRITE : 0;
    if (written & 1) written_length |= binding->length;
    if (!ingot_hal_operand_fits(queue, binding->buffer, binding->offset, binding->length, access)) {
      return ingot_hal_binding_status(queue, dispatch, b);
    }
  }
  int64_t grid[3];
  int64_t total = ingot_hal_grid(dispatch->workload, entry->tile, grid);
  if (total < 0) return ingot_hal_workload_status(queue, dispatch);
  if (total == 0 || written_length == 0) return NULL;
  if (ingot_stop_is_due(queue->stop, true)) return ingot_hal_stop_status(queue, dispatch);
  bool on_host = entry->host_reason[0] != 0;
  bool traced = queue->trace && (on_host || !queue->device->vtable->traces);
  int64_t begin = traced ? ingot_clock() : 0;
  INGOT_TRY(on_host ? ingot_hal_dispatch_on_host(queue, dispatch)
                    : queue->device->vtable->queue_dispatch(queue, dispatch, grid));
  if (traced) {
    ingot_hal_trace(queue, dispatch->site, entry->description.name, begin, dispatch->cost_bytes);
  }
  return NULL;
}

/* -- functions of the application -------------------------------------------------------------- */

/* Runs a checked call over bytes of this process, which are mapped for it. */
static ingot_status_t ingot_hal_call_on_host(ingot_hal_queue_t *queue,
                                             const ingot_hal_call_t *call) {
  INGOT_TRY(ingot_hal_queue_wait(queue));
  ingot_hal_host_bindings_t mapped;
  INGOT_TRY(ingot_hal_host_map(call->bindings, call->binding_count, call->written, NULL, &mapped));
  ingot_status_t status = call->function(call->user, mapped.bindings);
  ingot_hal_host_unmap(&mapped);
  return status;
}

ingot_status_t ingot_hal_queue_call(ingot_hal_queue_t *queue, const ingot_hal_call_t *call) {
  for (uint32_t b = 0; b < call->binding_count; b++) {
    const ingot_hal_binding_t *binding = &call->bindings[b];
    uint32_t access = (call->written >> b & 1) ? INGOT_HAL_ACCESS_WRITE : INGOT_HAL_ACCESS_READ;
    INGOT_TRY(ingot_hal_check_operand(call->name, queue, binding->buffer, binding->offset,
                                      binding->length, access));
  }
  INGOT_TRY(ingot_hal_check_stop(queue));
  int64_t begin = queue->trace ? ingot_clock() : 0;
  INGOT_TRY(call->on_device ? call->function(call->user, NULL)
                            : ingot_hal_call_on_host(queue, call));
  if (queue->trace) ingot_hal_trace(queue, queue->site, call->name, begin, call->length);
  return NULL;
}

/* -- other operations ------------------------------------------------------------------------ */

ingot_status_t ingot_hal_queue_copy(ingot_hal_queue_t *queue, ingot_buffer_t *source,
                                    int64_t source_offset, ingot_buffer_t *target,
                                    int64_t target_offset, int64_t length) {
  INGOT_TRY(ingot_hal_check_operand("copy from", queue, source, source_offset, length,
                                    INGOT_HAL_ACCESS_READ));
  INGOT_TRY(ingot_hal_check_operand("copy to", queue, target, target_offset, length,
                                    INGOT_HAL_ACCESS_WRITE));
  if (length == 0) return NULL;
  if (ingot_hal_ranges_overlap(source, source_offset, length, target, target_offset, length)) {
    return ingot_status_create(
        ingot_hal_device_allocator(queue->device), INGOT_STATUS_INVALID_ARGUMENT,
        "a copy of %" PRId64 " bytes from offset %" PRId64 " to offset %" PRId64 " overlaps itself",
        length, source_offset, target_offset);
  }
  INGOT_TRY(ingot_hal_check_stop(queue));
  int64_t begin = ingot_hal_traces(queue) ? ingot_clock() : 0;
  INGOT_TRY(queue->device->vtable->queue_copy(queue, source, source_offset, target, target_offset,
                                              length));
  if (ingot_hal_traces(queue)) ingot_hal_trace(queue, queue->site, "copy", begin, length);
  return NULL;
}

ingot_status_t ingot_hal_queue_fill(ingot_hal_queue_t *queue, ingot_buffer_t *target,
                                    int64_t offset, int64_t length, uint64_t pattern,
                                    uint32_t pattern_length) {
  INGOT_TRY(ingot_hal_check_operand("fill", queue, target, offset, length, INGOT_HAL_ACCESS_WRITE));
  bool is_length =
      pattern_length == 1 || pattern_length == 2 || pattern_length == 4 || pattern_length == 8;
  if (!is_length || length % pattern_length != 0) {
    return ingot_status_create(ingot_hal_device_allocator(queue->device),
                               INGOT_STATUS_INVALID_ARGUMENT,
                               "a fill of %" PRId64
                               " bytes with a pattern of %u bytes: expected "
                               "1, 2, 4 or 8 that divides the length",
                               length, pattern_length);
  }
  if (length == 0) return NULL;
  INGOT_TRY(ingot_hal_check_stop(queue));
  int64_t begin = ingot_hal_traces(queue) ? ingot_clock() : 0;
  INGOT_TRY(
      queue->device->vtable->queue_fill(queue, target, offset, length, pattern, pattern_length));
  if (ingot_hal_traces(queue)) ingot_hal_trace(queue, queue->site, "fill", begin, length);
  return NULL;
}

ingot_status_t ingot_hal_queue_write(ingot_hal_queue_t *queue, ingot_buffer_t *target,
                                     int64_t offset, const void *data, int64_t length) {
  INGOT_TRY(
      ingot_hal_check_operand("write", queue, target, offset, length, INGOT_HAL_ACCESS_WRITE));
  if (length > INGOT_HAL_MAX_WRITE) {
    return ingot_status_create(ingot_hal_device_allocator(queue->device),
                               INGOT_STATUS_INVALID_ARGUMENT,
                               "a queued write of %" PRId64
                               " bytes, expected at most %d: write "
                               "to the buffer instead",
                               length, INGOT_HAL_MAX_WRITE);
  }
  if (length == 0) return NULL;
  return queue->device->vtable->queue_write(queue, target, offset, data, length);
}

ingot_status_t ingot_hal_queue_read(ingot_hal_queue_t *queue, ingot_buffer_t *source,
                                    int64_t offset, void *data, int64_t length) {
  INGOT_TRY(ingot_hal_check_operand("read", queue, source, offset, length, INGOT_HAL_ACCESS_READ));
  return queue->device->vtable->queue_read(queue, source, offset, data, length);
}

ingot_status_t ingot_hal_queue_wait(ingot_hal_queue_t *queue) {
  return queue->device->vtable->queue_wait(queue);
}
