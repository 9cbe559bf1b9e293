/* A device's pool of buffers. No lock, so that a fork at any moment leaves it usable. */
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
