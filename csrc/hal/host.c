/* The way out for kernels that a device cannot run: the same kernel as compiled for the host,
 * over the mapped bytes of its bindings.
 *
 * Bindings of one dispatch may share bytes - a kernel may work in place - and mapping the same
 * bytes twice is undefined on some devices, so ranges that touch are mapped as one.
 */
#include "hal/host.h"

/* The device's host device; made once. */
static ingot_status_t ingot_hal_host_device(ingot_device_t *device, ingot_device_t **out_host) {
  ingot_instance_t *instance = device->instance;
  ingot_mutex_lock(&instance->mutex);
  *out_host = device->host;
  ingot_mutex_unlock(&instance->mutex);
  if (*out_host) return NULL;
  ingot_device_t *host = NULL;
  INGOT_TRY(ingot_hal_device_create(instance, "cpu", &host));
  ingot_mutex_lock(&instance->mutex);
  ingot_device_t *superfluous = device->host ? host : NULL; /* another thread was faster */
  if (!superfluous) device->host = host;
  *out_host = device->host;
  ingot_mutex_unlock(&instance->mutex);
  ingot_hal_device_release(superfluous);
  return NULL;
}

ingot_status_t ingot_hal_host_load(ingot_hal_executable_t *executable,
                                   const ingot_hal_executable_description_t *description) {
  if (executable->host) return NULL;
  ingot_device_t *host = NULL;
  INGOT_TRY(ingot_status_prefix(ingot_hal_host_device(executable->device, &host),
                                "the device for it"));
  return ingot_status_prefix(ingot_hal_executable_create(host, description, &executable->host),
                             "its variant for the host");
}

/* Bytes of one root that several bindings may lie in. */
typedef struct ingot_hal_host_range_t {
  ingot_buffer_t *root;
  int64_t begin;
  int64_t end;
  uint32_t access;
  uint8_t *data;
} ingot_hal_host_range_t;

typedef struct ingot_hal_host_ranges_t {
  uint32_t count;
  ingot_hal_host_range_t ranges[INGOT_HAL_MAX_BINDINGS];
} ingot_hal_host_ranges_t;

/* Adds a range, swallowing those it touches. */
static void ingot_hal_host_add(ingot_hal_host_ranges_t *ranges, ingot_hal_host_range_t added) {
  for (uint32_t r = 0; r < ranges->count;) {
    const ingot_hal_host_range_t *range = &ranges->ranges[r];
    if (range->root != added.root || range->begin >= added.end || added.begin >= range->end) {
      r++;
      continue;
    }
    if (range->begin < added.begin) added.begin = range->begin;
    if (range->end > added.end) added.end = range->end;
    added.access |= range->access;
    ranges->ranges[r] = ranges->ranges[--ranges->count];
    r = 0; /* it has grown */
  }
  ranges->ranges[ranges->count++] = added;
}

static void ingot_hal_host_unmap(const ingot_hal_host_ranges_t *ranges) {
  for (uint32_t r = 0; r < ranges->count; r++) {
    const ingot_hal_host_range_t *range = &ranges->ranges[r];
    if (range->data) range->root->vtable->unmap(range->root, range->data);
  }
}

/* On failure nothing stays mapped. */
static ingot_status_t ingot_hal_host_map(const ingot_hal_dispatch_t *dispatch,
                                         ingot_hal_host_ranges_t *ranges) {
  uint64_t written = dispatch->executable->entries[dispatch->entry].description.written;
  ranges->count = 0;
  for (uint32_t b = 0; b < dispatch->binding_count; b++) {
    const ingot_hal_binding_t *binding = &dispatch->bindings[b];
    if (binding->length == 0) continue;
    int64_t begin = binding->buffer->root_offset + binding->offset;
    uint32_t access = INGOT_HAL_ACCESS_READ | ((written >> b & 1) ? INGOT_HAL_ACCESS_WRITE : 0);
    ingot_hal_host_add(ranges, (ingot_hal_host_range_t){binding->buffer->root, begin,
                                                        begin + binding->length, access, NULL});
  }
  for (uint32_t r = 0; r < ranges->count; r++) {
    ingot_hal_host_range_t *range = &ranges->ranges[r];
    void *data;
    ingot_status_t status = range->root->vtable->map(
        range->root, range->begin, range->end - range->begin, range->access, &data);
    if (status) {
      ingot_hal_host_unmap(ranges);
      return status;
    }
    range->data = data;
  }
  return NULL;
}

/* The mapped bytes of a binding as a buffer of the host device; it has no owner. */
static ingot_buffer_t ingot_hal_host_view(const ingot_hal_host_ranges_t *ranges,
                                          const ingot_hal_binding_t *binding,
                                          ingot_device_t *host) {
  ingot_buffer_t view = {.access = INGOT_HAL_ACCESS_READ | INGOT_HAL_ACCESS_WRITE,
                         .device = host,
                         .length = binding->length};
  int64_t begin = binding->buffer->root_offset + binding->offset;
  for (uint32_t r = 0; r < ranges->count && binding->length > 0; r++) {
    const ingot_hal_host_range_t *range = &ranges->ranges[r];
    if (range->root == binding->buffer->root && begin >= range->begin && begin < range->end) {
      view.host = range->data + (begin - range->begin);
    }
  }
  return view;
}

static ingot_status_t ingot_hal_host_run(ingot_hal_queue_t *queue,
                                         const ingot_hal_dispatch_t *dispatch,
                                         const ingot_hal_host_ranges_t *ranges) {
  ingot_buffer_t views[INGOT_HAL_MAX_BINDINGS];
  ingot_hal_binding_t bindings[INGOT_HAL_MAX_BINDINGS];
  for (uint32_t b = 0; b < dispatch->binding_count; b++) {
    views[b] = ingot_hal_host_view(ranges, &dispatch->bindings[b], queue->host->device);
    views[b].root = &views[b];
    bindings[b] = (ingot_hal_binding_t){&views[b], 0, views[b].length};
  }
  ingot_hal_dispatch_t on_host = *dispatch;
  on_host.executable = dispatch->executable->host;
  on_host.bindings = bindings;
  queue->host->describe = queue->describe;
  queue->host->describe_user = queue->describe_user;
  queue->host->stop = queue->stop;
  INGOT_TRY(ingot_hal_queue_dispatch(queue->host, &on_host));
  return ingot_hal_queue_wait(queue->host);
}

ingot_status_t ingot_hal_host_dispatch(ingot_hal_queue_t *queue,
                                       const ingot_hal_dispatch_t *dispatch) {
  INGOT_TRY(ingot_hal_queue_wait(queue));
  if (!queue->host) {
    INGOT_TRY(ingot_hal_queue_create(dispatch->executable->host->device, &queue->host));
  }
  ingot_hal_host_ranges_t ranges;
  INGOT_TRY(ingot_hal_host_map(dispatch, &ranges));
  ingot_status_t status = ingot_hal_host_run(queue, dispatch, &ranges);
  ingot_hal_host_unmap(&ranges);
  return status;
}
