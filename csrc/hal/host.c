/* Bindings as bytes of this process.
 *
 * Bindings of one operation may share bytes - a kernel may work in place - and mapping the same
 * bytes twice is undefined on some devices, so ranges that touch are mapped as one.
 */
#include "hal/host.h"

/* Adds a range, swallowing those it touches. */
static void ingot_hal_host_add(ingot_hal_host_bindings_t *mapped, ingot_hal_host_range_t added) {
  for (uint32_t r = 0; r < mapped->range_count;) {
    const ingot_hal_host_range_t *range = &mapped->ranges[r];
    if (range->root != added.root || range->begin >= added.end || added.begin >= range->end) {
      r++;
      continue;
    }
    if (range->begin < added.begin) added.begin = range->begin;
    if (range->end > added.end) added.end = range->end;
    added.access |= range->access;
    mapped->ranges[r] = mapped->ranges[--mapped->range_count];
    r = 0; /* it has grown */
  }
  mapped->ranges[mapped->range_count++] = added;
}

void ingot_hal_host_unmap(const ingot_hal_host_bindings_t *mapped) {
  for (uint32_t r = 0; r < mapped->range_count; r++) {
    const ingot_hal_host_range_t *range = &mapped->ranges[r];
    if (range->data) range->root->vtable->unmap(range->root, range->data);
  }
}

/* The mapped bytes of a binding as a buffer of the host device; it has no owner. */
static ingot_buffer_t ingot_hal_host_view(const ingot_hal_host_bindings_t *mapped,
                                          const ingot_hal_binding_t *binding,
                                          ingot_device_t *host) {
  ingot_buffer_t view = {.access = INGOT_HAL_ACCESS_READ | INGOT_HAL_ACCESS_WRITE,
                         .device = host,
                         .length = binding->length};
  int64_t begin = binding->buffer->root_offset + binding->offset;
  for (uint32_t r = 0; r < mapped->range_count && binding->length > 0; r++) {
    const ingot_hal_host_range_t *range = &mapped->ranges[r];
    if (range->root == binding->buffer->root && begin >= range->begin && begin < range->end) {
      view.host = range->data + (begin - range->begin);
    }
  }
  return view;
}

ingot_status_t ingot_hal_host_map(const ingot_hal_binding_t *bindings, uint32_t count,
                                  uint64_t written, ingot_device_t *host,
                                  ingot_hal_host_bindings_t *out_mapped) {
  out_mapped->range_count = 0;
  for (uint32_t b = 0; b < count; b++) {
    const ingot_hal_binding_t *binding = &bindings[b];
    if (binding->length == 0) continue;
    int64_t begin = binding->buffer->root_offset + binding->offset;
    uint32_t access = INGOT_HAL_ACCESS_READ | ((written >> b & 1) ? INGOT_HAL_ACCESS_WRITE : 0);
    ingot_hal_host_add(out_mapped, (ingot_hal_host_range_t){binding->buffer->root, begin,
                                                            begin + binding->length, access, NULL});
  }
  for (uint32_t r = 0; r < out_mapped->range_count; r++) {
    ingot_hal_host_range_t *range = &out_mapped->ranges[r];
    void *data;
    ingot_status_t status = range->root->vtable->map(
        range->root, range->begin, range->end - range->begin, range->access, &data);
    if (status) {
      ingot_hal_host_unmap(out_mapped);
      return status;
    }
    range->data = data;
  }
  for (uint32_t b = 0; b < count; b++) {
    ingot_buffer_t *view = &out_mapped->views[b];
    *view = ingot_hal_host_view(out_mapped, &bindings[b], host);
    view->root = view;
    out_mapped->bindings[b] = (ingot_hal_binding_t){view, 0, view->length};
  }
  return NULL;
}
