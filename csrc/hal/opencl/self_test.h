/* Whether a driver's compiler got a kernel right: each kernel that brings a test runs once on
 * small data, and the host's variant of it must compute the same.
 */
#ifndef INGOT_HAL_OPENCL_SELF_TEST_H_
#define INGOT_HAL_OPENCL_SELF_TEST_H_

#include "hal/opencl/opencl.h"

/* Runs the tests of entries whose verdict is INGOT_OPENCL_VERDICT_NONE and that the device is
 * to run, and sets their verdicts. Loads executable->host; without a variant for the host
 * nothing is tested. A wrong kernel is no failure; one that the device dies of is. */
ingot_status_t ingot_opencl_self_test(ingot_opencl_executable_t *executable,
                                      const ingot_hal_executable_description_t *description,
                                      uint8_t *verdicts);

#endif /* INGOT_HAL_OPENCL_SELF_TEST_H_ */
