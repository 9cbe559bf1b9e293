/* A device's pool: buffers that sessions leave to each other between their calls. It is there as
 * long as one of its users is, since its buffers keep the device alive. Beside it: which session
 * has which slab of the application.
 */
#ifndef INGOT_HAL_POOL_H_
#define INGOT_HAL_POOL_H_

#include "hal/hal.h"

void ingot_hal_pool_join(ingot_device_t *device);

/* The last user's leave empties it. */
void ingot_hal_pool_leave(ingot_device_t *device);

/* A buffer of at least `length` bytes, whose reference is the caller's. NULL if there is none; then
 * one that was too small has gone. */
ingot_buffer_t *ingot_hal_pool_take(ingot_device_t *device, int64_t length);

/* Takes over the reference to a root, which no queued work uses any more. */
void ingot_hal_pool_give(ingot_device_t *device, ingot_buffer_t *buffer);

/* Frees what nobody has taken. */
void ingot_hal_pool_trim(ingot_device_t *device);

/* Makes an application's buffer the slab of one session, until leave, which only its session calls.
 * False if it is another session's already, or shares bytes with one that is. */
bool ingot_hal_slab_claim(ingot_buffer_t *slab);
void ingot_hal_slab_leave(ingot_buffer_t *slab);

#endif /* INGOT_HAL_POOL_H_ */
