/* Branches, loops, asserts and the limits of a call.
 */
#include <pthread.h>

#include "vm/harness.h"

static harness_t harness;

static builder_t start(void) {
  builder_t builder = builder_create();
  const int64_t dims[1] = {1};
  builder_function(&builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(&builder, false, "x", INGOT_DTYPE_I64, 1, dims);
  builder_value(&builder, true, "y", INGOT_DTYPE_I64, 1, dims);
  return builder;
}

/* i64 register 0 = the argument's element. */
static void emit_input(builder_t *builder) {
  EMIT(ARGUMENT_BUFFER, 0, 30, 0);
  EMIT(READ_I64, 0, 0, 30, INGOT_DTYPE_I64);
}

static void emit_output(builder_t *builder, int64_t number) {
  EMIT(CONST_I64, 31, 1);
  EMIT(RESULT_BUFFER, 1, 30, 0, 1, 31);
  EMIT(WRITE_I64, 1, 30, number, INGOT_DTYPE_I64);
  EMIT(RETURN, 0, 0, 0);
}

static ingot_status_t call(harness_program_t *program, int64_t input, int64_t *out_value,
                           const ingot_call_options_t *options) {
  ingot_buffer_view_t *x = harness_view(&harness, &input, INGOT_DTYPE_I64, 1);
  ingot_buffer_view_t *y = harness_view(&harness, out_value, INGOT_DTYPE_I64, 1);
  ingot_status_t status = ingot_session_call(program->session, 0, &x, 1, &y, 1, options);
  ingot_buffer_view_release(x);
  ingot_buffer_view_release(y);
  return status;
}

TEST(loops_run_until_their_condition) {
  harness_program_t program;
  int64_t got = 0;
  REQUIRE_OK(harness_load(&harness, builder_sum_module(), NULL, &program));
  EXPECT_OK(call(&program, 1000, &got, NULL));
  EXPECT_EQUAL(got, 500500);
  EXPECT_OK(call(&program, 0, &got, NULL));
  EXPECT_EQUAL(got, 0);
  harness_unload(&program);
}

/* y = 10, 11 or 12, by the number x; 12 also for numbers that are none. */
TEST(a_table_leads_to_the_target_of_a_number) {
  static const int64_t cases[][2] = {{0, 10}, {1, 11},  {2, 12},         {3, 12},
                                     {9, 12}, {-1, 12}, {INT64_MIN, 12}, {INT64_C(1) << 32, 12}};
  builder_t builder[1] = {start()};
  uint32_t ends[3];
  emit_input(builder);
  uint32_t branch = EMIT(BRANCH_TABLE, 0, 3, 0, 0, 0);
  for (uint32_t k = 0; k < 3; ++k) {
    builder_set_target(builder, branch + 3 + 2 * k);
    EMIT(CONST_I64, 1, 10 + k);
    ends[k] = EMIT(BRANCH, 0);
  }
  for (uint32_t k = 0; k < 3; ++k) builder_set_target(builder, ends[k] + 1);
  emit_output(builder, 1);
  harness_program_t program;
  REQUIRE_OK(harness_load(&harness, builder_finish(builder), NULL, &program));
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    int64_t got = 0;
    EXPECT_OK(call(&program, cases[i][0], &got, NULL));
    EXPECT_EQUAL(got, cases[i][1]);
  }
  harness_unload(&program);
}

/* A table whose first target leads back, for ever. */
TEST(a_table_that_leads_back_ends_with_its_limits) {
  builder_t builder[1] = {start()};
  emit_input(builder);
  EMIT(CONST_I64, 1, 0);
  uint32_t head = EMIT(NE_I64, 2, 0, 0);
  uint32_t branch = EMIT(BRANCH_TABLE, 2, 2, head, 0);
  builder_set_target(builder, branch + 5);
  emit_output(builder, 1);
  harness_program_t program;
  int64_t got = 0;
  const ingot_call_options_t steps = {.max_steps = 1000};
  REQUIRE_OK(harness_load(&harness, builder_finish(builder), NULL, &program));
  EXPECT_STATUS(call(&program, 1, &got, &steps), DEADLINE_EXCEEDED, "1000 steps");
  harness_unload(&program);
}

/* Cancels as long as nothing tells it to stop; counts the calls that it met. */
typedef struct canceller_t {
  ingot_session_t *session;
  _Atomic bool is_over;
  int hits;
} canceller_t;

static void *cancel_often(void *argument) {
  canceller_t *canceller = argument;
  while (!atomic_load(&canceller->is_over)) {
    canceller->hits += ingot_session_cancel(canceller->session, INGOT_RUNNING_CALL);
  }
  return NULL;
}

TEST(a_call_is_cancelled_from_another_thread) {
  harness_program_t program;
  int64_t got = 0;
  REQUIRE_OK(harness_load(&harness, builder_sum_module(), NULL, &program));
  EXPECT(!ingot_session_cancel(program.session, INGOT_RUNNING_CALL)); /* nor is the next call */
  EXPECT_OK(call(&program, 10, &got, NULL));
  for (int round = 0; round < 50; ++round) {
    canceller_t canceller = {.session = program.session};
    const ingot_call_options_t options = {.max_steps = round % 2 ? INT64_MAX : 0};
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, cancel_often, &canceller) == 0);
    EXPECT_STATUS(call(&program, INT64_MAX, &got, &options), CANCELLED, "was cancelled");
    EXPECT_OK(ingot_session_trim(program.session)); /* is no call */
    atomic_store(&canceller.is_over, true);
    EXPECT_EQUAL(pthread_join(thread, NULL), 0);
    EXPECT(canceller.hits > 0);
    EXPECT_OK(call(&program, 10, &got, NULL));
  }
  harness_unload(&program);
}

/* True the third time; a call from within must not do harm. */
static bool stop_the_third_time(void *user) {
  harness_program_t *program = user;
  static int count = 0;
  int64_t got = 0;
  EXPECT_STATUS(call(program, 1, &got, NULL), FAILED_PRECONDITION, "is in a call");
  return ++count == 3;
}

TEST(a_caller_is_asked_whether_to_stop) {
  harness_program_t program;
  int64_t got = 0;
  REQUIRE_OK(harness_load(&harness, builder_sum_module(), NULL, &program));
  const ingot_call_options_t options = {.should_stop = stop_the_third_time, .user = &program};
  EXPECT_OK(call(&program, 100, &got, &options)); /* too short to be asked */
  EXPECT_STATUS(call(&program, INT64_MAX, &got, &options), CANCELLED, "was cancelled");
  EXPECT_OK(call(&program, 10, &got, NULL));
  harness_unload(&program);
}

TEST(limits_end_a_call_and_leave_the_session_usable) {
  harness_program_t program;
  int64_t got = 0;
  const ingot_call_options_t steps = {.max_steps = 1000};
  const ingot_call_options_t time = {.timeout = 1000000};
  REQUIRE_OK(harness_load(&harness, builder_sum_module(), NULL, &program));
  EXPECT_STATUS(call(&program, INT64_MAX, &got, &steps), DEADLINE_EXCEEDED, "1000 steps");
  EXPECT_STATUS(call(&program, INT64_MAX, &got, &time), DEADLINE_EXCEEDED, "timeout");
  EXPECT_OK(call(&program, 10, &got, &steps));
  EXPECT_EQUAL(got, 55);
  harness_unload(&program);
}

TEST(a_failed_assert_fills_its_message_in) {
  builder_t builder[1] = {start()};
  uint32_t message = builder_string(builder, "got {}, expected {} or so {x}");
  emit_input(builder);
  EMIT(CONST_I64, 1, -5);
  EMIT(EQ_I64, 2, 0, 1);
  builder_location(builder, "Assert", "layer");
  EMIT(ASSERT, 2, INGOT_STATUS_INVALID_ARGUMENT, message, 2, 0, 1);
  emit_output(builder, 0);
  harness_program_t program;
  int64_t got = 0;
  REQUIRE_OK(harness_load(&harness, builder_finish(builder), NULL, &program));
  EXPECT_STATUS(call(&program, INT64_MIN, &got, NULL), INVALID_ARGUMENT,
                "got -9223372036854775808, expected -5 or so {x}");
  EXPECT_OK(call(&program, -5, &got, NULL));
  EXPECT_EQUAL(got, -5);
  harness_unload(&program);
}

int main(void) {
  if (harness_create(NULL, &harness)) return 1;
  RUN_TESTS();
  harness_release(&harness);
  return TEST_RESULT();
}
