/* Memory that runs out: the n-th allocation fails, for every n, from the instance to the
 * released result. Each gives a status, nothing leaks, and the next try works.
 */
#include "vm/harness.h"

static ingot_status_t load_and_call(const ingot_allocator_t *allocator) {
  harness_t harness;
  harness_program_t program = {.module = NULL};
  float x[6] = {1, 2, 3, 4, 5, 6};
  const int64_t dims[1] = {6};
  ingot_buffer_view_t *argument = NULL;
  ingot_buffer_view_t *results[2] = {NULL, NULL};
  ingot_status_t status = harness_create(allocator, &harness);
  if (!status) {
    status = harness_load(&harness, builder_full_module(), &harness_parameters, &program);
  }
  if (!status) {
    status = ingot_buffer_view_wrap(harness.device, x, sizeof(x), INGOT_DTYPE_F32, 1, dims, NULL,
                                    NULL, &argument);
  }
  if (!status) {
    status = ingot_session_call(program.session, 0, &argument, 1, results, 2, NULL);
    if (status) { /* the session stays usable */
      ingot_status_t again = ingot_session_call(program.session, 0, &argument, 1, results, 2, NULL);
      EXPECT_OK(again);
    }
  }
  if (!status) status = ingot_session_reset(program.session);
  ingot_buffer_view_release(results[0]);
  ingot_buffer_view_release(results[1]);
  ingot_buffer_view_release(argument);
  harness_unload(&program);
  harness_release(&harness);
  return status;
}

/* With limits, a shared slab, a call that is measured, and one that needs too much. */
static ingot_status_t rule_memory(const ingot_allocator_t *allocator) {
  const ingot_session_options_t options = {.shares_slab = true, .memory_limit = 100};
  harness_t harness;
  harness_program_t program = {.module = NULL};
  ingot_session_t *session = NULL;
  ingot_measure_t measure;
  int64_t dims[2] = {3, 0};
  ingot_status_t status = harness_create(allocator, &harness);
  if (!status) status = harness_load(&harness, builder_slab_module(), NULL, &program);
  if (!status) status = ingot_session_create(program.program, &options, &session);
  for (int64_t count = 3; !status && count < 40; count += 30) {
    float x[40] = {1};
    ingot_buffer_view_t *argument = NULL;
    ingot_buffer_view_t *result = NULL;
    status = ingot_buffer_view_wrap(harness.device, x, sizeof(x), INGOT_DTYPE_F32, 1, &count, NULL,
                                    NULL, &argument);
    if (!status) status = ingot_session_call(session, 0, &argument, 1, &result, 1, NULL);
    if (count > 3 && status) {
      EXPECT_EQUAL(ingot_status_code(status), INGOT_STATUS_OUT_OF_MEMORY); /* named if it can be */
      ingot_status_free(status);
      status = ingot_session_measure(session, 0, dims, 1, dims + 1, &measure);
    }
    ingot_buffer_view_release(result);
    ingot_buffer_view_release(argument);
  }
  ingot_session_release(session);
  harness_unload(&program);
  harness_release(&harness);
  return status;
}

TEST(every_allocation_may_fail) { test_fail_each_allocation(load_and_call, 26); }

TEST(every_allocation_may_fail_where_memory_is_ruled) {
  test_fail_each_allocation(rule_memory, 26);
}

int main(void) {
  RUN_TESTS();
  return TEST_RESULT();
}
