/* The whole runtime without threads, where a fence that is signalled makes the calls that wait for
 * it before it returns.
 */
#define INGOT_NO_THREADS

#include "ingot.c"
#include "vm/harness.h"

#define CALLS 3 /* each of a session of its own */

/* A call of "main" of the add_one module that waits for a value of a fence and signals another. */
typedef struct waiting_t {
  float x[4], y[4];
  ingot_session_t *session;
  ingot_buffer_view_t *argument;
  ingot_buffer_view_t *result;
  ingot_fence_value_t wait;
  ingot_fence_value_t signal;
} waiting_t;

static ingot_status_t submit(const harness_t *harness, const harness_program_t *program,
                             ingot_fence_t *fence, uint64_t value, uint64_t signal,
                             waiting_t *out) {
  *out = (waiting_t){.x = {1, 2, 3, 4}, .wait = {fence, value}, .signal = {fence, signal}};
  out->argument = harness_view(harness, out->x, INGOT_DTYPE_F32, 4);
  out->result = harness_view(harness, out->y, INGOT_DTYPE_F32, 4);
  INGOT_TRY(ingot_session_create(program->program, NULL, &out->session));
  const ingot_submission_t submission = {.argument_count = 1,
                                         .arguments = &out->argument,
                                         .result_count = 1,
                                         .results = &out->result,
                                         .waits = &out->wait,
                                         .wait_count = 1,
                                         .signals = &out->signal,
                                         .signal_count = signal ? 1 : 0};
  return ingot_session_submit(out->session, &submission, NULL);
}

/* The first call's signal ends the second's wait, while those of the first value are told. */
TEST(a_call_may_signal_the_fence_that_it_waited_for) {
  harness_t harness;
  harness_program_t program;
  waiting_t waiting[CALLS];
  ingot_fence_t *fence = NULL;
  uint64_t value = 0;
  REQUIRE_OK(harness_create(NULL, &harness));
  REQUIRE_OK(harness_load(&harness, builder_add_one_module(), NULL, &program));
  REQUIRE_OK(ingot_fence_create(harness.instance, 0, &fence));
  EXPECT_OK(submit(&harness, &program, fence, 1, 2, &waiting[0]));
  EXPECT_OK(submit(&harness, &program, fence, 2, 0, &waiting[1]));
  EXPECT_OK(submit(&harness, &program, fence, 1, 0, &waiting[2]));
  EXPECT(waiting[0].y[0] == 0);
  EXPECT_OK(ingot_fence_signal(fence, 1));
  EXPECT_OK(ingot_fence_query(fence, &value));
  EXPECT_EQUAL(value, 2);
  for (int i = 0; i < CALLS; ++i) {
    EXPECT(waiting[i].y[3] == 5);
    ingot_buffer_view_release(waiting[i].argument);
    ingot_buffer_view_release(waiting[i].result);
    ingot_session_release(waiting[i].session);
  }
  ingot_fence_release(fence);
  harness_unload(&program);
  harness_release(&harness);
}

int main(void) {
  RUN_TESTS();
  return TEST_RESULT();
}
