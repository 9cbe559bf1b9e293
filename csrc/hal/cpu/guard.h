/* Guards around the bindings of a dispatch, in builds under the address sanitizer only.
 *
 * Values share one slab, so the sanitizer alone would not see a kernel that leaves its
 * binding: inside of the slab all bytes belong to one allocation. While a dispatch runs, the
 * bytes of every buffer that it writes are forbidden, except those that are bound. Buffers
 * that are only read may be shared with other sessions and stay as they are.
 */
#ifndef INGOT_HAL_CPU_GUARD_H_
#define INGOT_HAL_CPU_GUARD_H_

#include "hal/hal.h"

#if defined(INGOT_SANITIZE)
#include <sanitizer/asan_interface.h>

/* The buffer around a binding that the dispatch writes; NULL for other bindings. */
static inline const ingot_buffer_t *ingot_guard_buffer(const ingot_hal_dispatch_t *dispatch,
                                                       uint32_t binding) {
  uint64_t written = dispatch->executable->entries[dispatch->entry].description.written;
  const ingot_buffer_t *root = dispatch->bindings[binding].buffer->root;
  return (written >> binding & 1) && root->host ? root : NULL;
}

static inline void ingot_guard_raise(const ingot_hal_dispatch_t *dispatch) {
  for (uint32_t b = 0; b < dispatch->binding_count; b++) {
    const ingot_buffer_t *buffer = ingot_guard_buffer(dispatch, b);
    if (buffer) ASAN_POISON_MEMORY_REGION(buffer->host, (size_t)buffer->length);
  }
  for (uint32_t b = 0; b < dispatch->binding_count; b++) {
    const ingot_hal_binding_t *binding = &dispatch->bindings[b];
    if (binding->buffer->host && binding->length > 0) {
      ASAN_UNPOISON_MEMORY_REGION(binding->buffer->host + binding->offset, (size_t)binding->length);
    }
  }
}

static inline void ingot_guard_lower(const ingot_hal_dispatch_t *dispatch) {
  for (uint32_t b = 0; b < dispatch->binding_count; b++) {
    const ingot_buffer_t *buffer = ingot_guard_buffer(dispatch, b);
    if (buffer) ASAN_UNPOISON_MEMORY_REGION(buffer->host, (size_t)buffer->length);
  }
}
#else
static inline void ingot_guard_raise(const ingot_hal_dispatch_t *dispatch) { (void)dispatch; }
static inline void ingot_guard_lower(const ingot_hal_dispatch_t *dispatch) { (void)dispatch; }
#endif

#endif /* INGOT_HAL_CPU_GUARD_H_ */
