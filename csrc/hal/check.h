/* Argument checks that several parts of the HAL core share. Not for drivers: what reaches
 * them is checked.
 */
#ifndef INGOT_HAL_CHECK_H_
#define INGOT_HAL_CHECK_H_

#include "hal/hal.h"

/* OutOfRange if [offset, offset + length) leaves the buffer, PermissionDenied if the buffer
 * lacks a bit of `access`. */
ingot_status_t ingot_hal_check_range(const ingot_buffer_t *buffer, int64_t offset, int64_t length,
                                     uint32_t access);

#endif /* INGOT_HAL_CHECK_H_ */
