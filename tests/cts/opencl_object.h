/* Objects of format "opencl-c" for tests, built in memory as the compiler writes them.
 */
#ifndef INGOT_TESTS_CTS_OPENCL_OBJECT_H_
#define INGOT_TESTS_CTS_OPENCL_OBJECT_H_

#include "ingot/opencl_object.h"
#include "object.h"

/* Parts of an object; the tables are copied. */
typedef struct test_opencl_parts_t {
  uint32_t entry_count;
  const ingot_opencl_entry_t *entries;
  uint32_t binding_count;
  const ingot_opencl_binding_t *bindings;
  uint32_t test_count;
  const ingot_opencl_test_t *tests;
  uint32_t test_binding_count;
  const ingot_opencl_test_binding_t *test_bindings;
  uint32_t test_constant_count;
  const int64_t *test_constants;
  uint32_t step_count;
  const ingot_opencl_step_t *steps;
  const char *source;
} test_opencl_parts_t;

test_object_t test_opencl_object(const test_opencl_parts_t *parts);

/* The parts of the conformance suite's kernels, the twins of kernels.c; constant. */
test_opencl_parts_t test_opencl_kernel_parts(void);

/* An object of these kernels; all of them without code, so for the host, if `is_host`. */
test_object_t test_opencl_kernels(bool is_host);

#endif /* INGOT_TESTS_CTS_OPENCL_OBJECT_H_ */
