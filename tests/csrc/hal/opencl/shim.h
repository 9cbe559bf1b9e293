/* How a test tells the shim (shim.c) what to do. The functions are found by name in the shim
 * that is open.
 */
#ifndef INGOT_TESTS_HAL_OPENCL_SHIM_H_
#define INGOT_TESTS_HAL_OPENCL_SHIM_H_

#include <stdbool.h>
#include <stdint.h>

typedef struct shim_state_t {
  int64_t calls;     /* so far, of any function */
  int64_t fail_at;   /* the call that fails, from 1; 0: none */
  int32_t choice;    /* which of the function's errors */
  int64_t live;      /* references of OpenCL's objects that were taken and not given back */
  const char *failed; /* the function that has failed; NULL: none */
  int32_t error;     /* with what */
  bool is_external;  /* devices have cl_khr_external_memory_dma_buf, for any file descriptor */
  int64_t acquired;  /* external objects that the device has now */
} shim_state_t;

/* Errors that a function can fail with; choices beyond repeat. */
#define SHIM_CHOICE_COUNT 3

#define SHIM_STATE_NAME "shim_state"
typedef shim_state_t *(*shim_state_function_t)(void);

#endif /* INGOT_TESTS_HAL_OPENCL_SHIM_H_ */
