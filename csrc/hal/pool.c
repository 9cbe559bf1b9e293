/* A device's pool of buffers, without a lock, so that a fork at any moment leaves it usable; and
 * the slabs of applications. */
#include "hal/pool.h"

void ingot_hal_pool_join(ingot_device_t *device) { (void)atomic_fetch_add(&device->pool_users, 1); }

void ingot_hal_pool_leave(ingot_device_t *device) {
  if (atomic_fetch_sub(&device->pool_users, 1) == 1) ingot_hal_pool_trim(device);
}

/* The place of number `i`, empty or not. */
static ingot_buffer_t *pool_put(ingot_device_t *device, uint32_t i, ingot_buffer_t *buffer) {
  return atomic_exchange(&device->pool[i], buffer);
}

void ingot_hal_pool_trim(ingot_device_t *device) {
  for (uint32_t i = 0; i < INGOT_HAL_POOL_BUFFERS; ++i) {
    ingot_hal_buffer_release(pool_put(device, i, NULL));
  }
}

ingot_buffer_t *ingot_hal_pool_take(ingot_device_t *device, int64_t length) {
  ingot_buffer_t *small = NULL;
  for (uint32_t i = 0; i < INGOT_HAL_POOL_BUFFERS; ++i) {
    ingot_buffer_t *buffer = pool_put(device, i, NULL);
    if (!buffer) continue;
    if (small) ingot_hal_pool_give(device, small);
    if (buffer->length >= length) return buffer;
    small = buffer;
  }
  ingot_hal_buffer_release(small);
  return NULL;
}

void ingot_hal_pool_give(ingot_device_t *device, ingot_buffer_t *buffer) {
  for (uint32_t i = 0; i < INGOT_HAL_POOL_BUFFERS; ++i) {
    ingot_buffer_t *none = NULL;
    if (atomic_compare_exchange_strong(&device->pool[i], &none, buffer)) return;
  }
  ingot_hal_buffer_release(buffer);
}

/* -- slabs of applications --------------------------------------------------------------------- */

bool ingot_hal_slab_claim(ingot_buffer_t *slab) {
  ingot_instance_t *instance = slab->device->instance;
  bool is_free = true;
  ingot_mutex_lock(&instance->mutex);
  for (const ingot_buffer_t *each = instance->slabs; each; each = each->next_slab) {
    is_free &=
        each != slab && !ingot_hal_ranges_overlap(each, 0, each->length, slab, 0, slab->length);
  }
  if (is_free) {
    slab->next_slab = instance->slabs;
    instance->slabs = slab;
  }
  ingot_mutex_unlock(&instance->mutex);
  return is_free;
}

void ingot_hal_slab_leave(ingot_buffer_t *slab) {
  ingot_instance_t *instance = slab->device->instance;
  ingot_mutex_lock(&instance->mutex);
  ingot_buffer_t **place = &instance->slabs;
  while (*place != slab) place = &(*place)->next_slab;
  *place = slab->next_slab;
  ingot_mutex_unlock(&instance->mutex);
}
