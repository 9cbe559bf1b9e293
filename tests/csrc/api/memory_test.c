/* Memory that the application rules: sizes in advance, its own slab, limits, what sessions share,
 * and what is counted.
 */
#include <pthread.h>

#include "hal/account.h"
#include "vm/harness.h"

static harness_t harness;
static harness_program_t wide; /* builder_slab_module */

static ingot_status_t call_wide(ingot_session_t *session, int64_t count) {
  float x[64] = {1};
  float y[64] = {0};
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, count);
  ingot_buffer_view_t *result = harness_view(&harness, y, INGOT_DTYPE_F32, count);
  ingot_status_t status = ingot_session_call(session, 0, &argument, 1, &result, 1, NULL);
  if (!status) EXPECT(y[0] == 3 && y[count - 1] == (count == 1 ? 3 : 2));
  ingot_buffer_view_release(result);
  ingot_buffer_view_release(argument);
  return status;
}

/* -- measuring --------------------------------------------------------------------------------- */

TEST(a_call_is_measured_without_its_work) {
  const int64_t dims[1] = {7};
  int64_t results[1] = {0};
  ingot_measure_t measure = {0, false};
  EXPECT_OK(ingot_session_measure(wide.session, 0, dims, 1, results, &measure));
  EXPECT_EQUAL(measure.slab_length, 7 * 4 + 64);
  EXPECT(measure.is_exact);
  EXPECT_EQUAL(results[0], 7);
  EXPECT_EQUAL(ingot_session_statistics(wide.session).slabs.current, 0);
  EXPECT_OK(ingot_session_measure(wide.session, 0, dims, 1, NULL, &measure));
}

TEST(everything_that_code_does_is_left_out_when_it_is_measured) {
  harness_program_t full;
  const int64_t dims[1] = {9};
  const int64_t many[1] = {1001};
  int64_t results[2] = {0, 0};
  int64_t count = 1;
  ingot_measure_t measure = {0, false};
  REQUIRE_OK(harness_load(&harness, builder_full_module(), &harness_parameters, &full));
  EXPECT_OK(ingot_session_measure(full.session, 0, dims, 1, results, &measure));
  EXPECT_EQUAL(measure.slab_length, 9 * 4);
  EXPECT(measure.is_exact); /* it ends at the lists, behind the only slab */
  EXPECT_EQUAL(results[0], 9);
  EXPECT_EQUAL(results[1], 4);
  EXPECT_OK(ingot_session_read_variable(full.session, full.module, 1, &count, sizeof(count)));
  EXPECT_EQUAL(count, 0);
  EXPECT_STATUS(ingot_session_measure(full.session, 0, many, 1, results, &measure),
                INVALID_ARGUMENT, "dim 0 is 1001, expected at most 1000");
  harness_unload(&full);
}

TEST(sizes_from_data_are_measured_as_the_least) {
  builder_t builder[1] = {builder_create()};
  harness_program_t program;
  const int64_t symbolic[1] = {-1};
  int64_t results[1] = {0};
  ingot_measure_t measure = {0, true};
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_I64, 0, NULL);
  builder_value(builder, true, "y", INGOT_DTYPE_I64, 1, symbolic);
  EMIT(CONST_I64, 0, 100);
  EMIT(SLAB, 0, 1, 0);
  EMIT(ARGUMENT_BUFFER, 1, 2, 0);
  EMIT(READ_I64, 3, 1, 2, INGOT_DTYPE_I64);
  EMIT(SLAB, 0, 1, 3);
  EMIT(RESULT_BUFFER, 2, 4, 0, 1, 3);
  EMIT(RETURN, 0, 0, 0);
  REQUIRE_OK(harness_load(&harness, builder_finish(builder), NULL, &program));
  EXPECT_OK(ingot_session_measure(program.session, 0, NULL, 0, results, &measure));
  EXPECT_EQUAL(measure.slab_length, 100);
  EXPECT(!measure.is_exact);
  EXPECT_EQUAL(results[0], -1);
  harness_unload(&program);
}

/* The code that follows a read of data leads back by a table to before the only slab. */
TEST(a_slab_that_a_table_leads_back_to_may_grow) {
  builder_t builder[1] = {builder_create()};
  harness_program_t program;
  ingot_measure_t measure = {0, true};
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_I64, 0, NULL);
  EMIT(CONST_I64, 0, 100);
  EMIT(ARGUMENT_BUFFER, 1, 2, 0);
  uint32_t head = EMIT(SLAB, 0, 1, 0);
  EMIT(READ_I64, 0, 1, 2, INGOT_DTYPE_I64);
  uint32_t branch = EMIT(BRANCH_TABLE, 0, 2, 0, head);
  builder_set_target(builder, branch + 3);
  EMIT(RETURN, 0, 0, 0);
  REQUIRE_OK(harness_load(&harness, builder_finish(builder), NULL, &program));
  EXPECT_OK(ingot_session_measure(program.session, 0, NULL, 0, NULL, &measure));
  EXPECT_EQUAL(measure.slab_length, 100);
  EXPECT(!measure.is_exact);
  harness_unload(&program);
}

TEST(dims_that_do_not_fit_are_named) {
  harness_program_t add_one;
  const int64_t dims[2] = {5, -1};
  ingot_measure_t measure;
  REQUIRE_OK(harness_load(&harness, builder_add_one_module(), NULL, &add_one));
  EXPECT_STATUS(ingot_session_measure(add_one.session, 0, dims, 1, NULL, &measure),
                INVALID_ARGUMENT, "argument 0 'x': dim 0 is 5, expected 4");
  EXPECT_STATUS(ingot_session_measure(wide.session, 0, dims + 1, 1, NULL, &measure),
                INVALID_ARGUMENT, "argument 0 'x': dim 0 is -1, expected at least 0");
  EXPECT_STATUS(ingot_session_measure(wide.session, 0, dims, 2, NULL, &measure), INVALID_ARGUMENT,
                "function 'main' takes tensors with 1 dims together, 2 are given");
  EXPECT_STATUS(ingot_session_measure(wide.session, 3, dims, 1, NULL, &measure), OUT_OF_RANGE,
                "function 3, the program has 1");
  harness_unload(&add_one);
}

/* -- the application's slab -------------------------------------------------------------------- */

TEST(calls_work_in_the_slab_that_they_were_given) {
  static _Alignas(8) uint8_t bytes[7 * 4 + 64];
  const ingot_session_options_t options = {.slab = NULL};
  ingot_session_options_t given = options;
  ingot_session_t *session = NULL;
  REQUIRE_OK(ingot_buffer_wrap(harness.device, bytes, sizeof(bytes), NULL, NULL, &given.slab));
  REQUIRE_OK(ingot_session_create(wide.program, &given, &session));
  EXPECT_OK(call_wide(session, 7));
  float between;
  memcpy(&between, bytes, sizeof(between));
  EXPECT(between == 2);
  EXPECT_STATUS(call_wide(session, 8), OUT_OF_MEMORY,
                "working memory of 96 bytes, which is fullest at Add 'net/wide': the call needs a "
                "slab of 96 bytes, the session was given one of 92: measure calls first");
  EXPECT_OK(ingot_session_trim(session));
  EXPECT_OK(call_wide(session, 7));
  EXPECT_EQUAL(ingot_session_statistics(session).slabs.current, 0);
  ingot_buffer_release(given.slab);
  EXPECT_OK(call_wide(session, 7)); /* the session has its reference */
  float y[7];
  ingot_buffer_view_t *inside = harness_view(&harness, bytes + 64, INGOT_DTYPE_F32, 7);
  ingot_buffer_view_t *outside = harness_view(&harness, y, INGOT_DTYPE_F32, 7);
  EXPECT_STATUS(ingot_session_call(session, 0, &inside, 1, &outside, 1, NULL), INVALID_ARGUMENT,
                "argument 0 lies in the session's slab; give it memory of its own");
  EXPECT_STATUS(ingot_session_call(session, 0, &outside, 1, &inside, 1, NULL), INVALID_ARGUMENT,
                "result 0 lies in the session's slab; give it memory of its own");
  ingot_buffer_view_release(inside);
  ingot_buffer_view_release(outside);
  ingot_session_release(session);
}

TEST(a_slab_must_be_the_sessions_alone_and_on_its_device) {
  static _Alignas(8) uint8_t bytes[64];
  ingot_session_t *second = NULL;
  ingot_device_t *other = NULL;
  ingot_session_t *session = NULL;
  ingot_session_options_t options = {.shares_slab = true};
  REQUIRE_OK(ingot_buffer_wrap(harness.device, bytes, sizeof(bytes), NULL, NULL, &options.slab));
  EXPECT_STATUS(ingot_session_create(wide.program, &options, &session), INVALID_ARGUMENT,
                "the session's slab is given and shares_slab is set");
  options.shares_slab = false;
  REQUIRE_OK(ingot_session_create(wide.program, &options, &session));
  EXPECT_STATUS(ingot_session_create(wide.program, &options, &second), INVALID_ARGUMENT,
                "the session's slab is that of another session, or overlaps it");
  ingot_session_options_t part = {.shares_slab = false};
  REQUIRE_OK(ingot_buffer_wrap(harness.device, bytes + 56, 8, NULL, NULL, &part.slab));
  EXPECT_STATUS(ingot_session_create(wide.program, &part, &second), INVALID_ARGUMENT,
                "the session's slab is that of another session, or overlaps it");
  ingot_session_release(session);
  REQUIRE_OK(ingot_session_create(wide.program, &part, &session));
  ingot_session_release(session);
  ingot_buffer_release(part.slab);
  REQUIRE_OK(ingot_session_create(wide.program, &options, &session));
  ingot_session_release(session);
  ingot_buffer_release(options.slab);
  REQUIRE_OK(ingot_buffer_wrap(harness.device, bytes + 4, 32, NULL, NULL, &options.slab));
  EXPECT_STATUS(ingot_session_create(wide.program, &options, &session), INVALID_ARGUMENT,
                "the session's slab is not on a multiple of 8 bytes");
  ingot_buffer_release(options.slab);
  REQUIRE_OK(ingot_device_create(harness.instance, "cpu", NULL, &other));
  REQUIRE_OK(ingot_buffer_wrap(other, bytes, sizeof(bytes), NULL, NULL, &options.slab));
  EXPECT_STATUS(ingot_session_create(wide.program, &options, &session), INVALID_ARGUMENT,
                "the session's slab is on another device than the program");
  ingot_buffer_release(options.slab);
  ingot_device_release(other);
}

/* -- limits ------------------------------------------------------------------------------------ */

TEST(a_limit_names_the_dispatch_that_needs_most) {
  const ingot_session_options_t options = {.memory_limit = 100};
  ingot_session_t *session = NULL;
  REQUIRE_OK(ingot_session_create(wide.program, &options, &session));
  EXPECT_OK(call_wide(session, 9));
  EXPECT_STATUS(call_wide(session, 10), OUT_OF_MEMORY,
                "working memory of 104 bytes, which is fullest at Add 'net/wide': 104 bytes are "
                "asked for, but the session's memory_limit is 100, of which it holds 0");
  EXPECT_OK(call_wide(session, 9));
  ingot_session_release(session);
}

TEST(results_count_below_the_limit_until_they_are_released) {
  const ingot_session_options_t options = {.memory_limit = 140};
  ingot_session_t *session = NULL;
  float x[4] = {1, 2, 3, 4};
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, 4);
  ingot_buffer_view_t *results[3] = {NULL, NULL, NULL};
  REQUIRE_OK(ingot_session_create(wide.program, &options, &session));
  for (int i = 0; i < 3; ++i) {
    EXPECT_OK(ingot_session_call(session, 0, &argument, 1, &results[i], 1, NULL));
  }
  EXPECT_EQUAL(ingot_session_statistics(session).results.current, 48);
  ingot_buffer_view_t *more = NULL;
  EXPECT_STATUS(ingot_session_call(session, 0, &argument, 1, &more, 1, NULL), OUT_OF_MEMORY,
                "result 0 'y': 16 bytes are asked for, but the session's memory_limit is 140, of "
                "which it holds 128");
  ingot_buffer_view_release(results[0]);
  EXPECT_OK(ingot_session_call(session, 0, &argument, 1, &more, 1, NULL));
  ingot_buffer_view_release(more);
  ingot_session_release(session);
  EXPECT_EQUAL(ingot_program_statistics(wide.program).results.current, 32);
  ingot_buffer_view_release(results[1]);
  ingot_buffer_view_release(results[2]);
  EXPECT_EQUAL(ingot_program_statistics(wide.program).results.current, 0);
  ingot_buffer_view_release(argument);
}

/* Code may compute any length; their sum does not fit 64 bits. */
TEST(lengths_that_do_not_fit_are_above_every_limit) {
  const ingot_allocator_t allocator = ingot_allocator_system();
  const size_t limits[2] = {0, 100};
  for (int k = 0; k < 2; ++k) {
    ingot_hal_account_t *account = NULL;
    ingot_buffer_t small = {.length = 60};
    ingot_buffer_t large = {.length = INT64_MAX};
    REQUIRE_OK(ingot_hal_account_create(&allocator, "session", limits[k], NULL, &account));
    EXPECT_OK(ingot_hal_account_add(account, INGOT_MEMORY_STATE, &small));
    EXPECT_STATUS(ingot_hal_account_add(account, INGOT_MEMORY_SLABS, &large), OUT_OF_MEMORY,
                  "of which it holds 60");
    EXPECT_EQUAL(ingot_hal_account_read(account).total.peak, 60);
    ingot_hal_account_remove(&small);
    ingot_hal_account_release(account);
  }
}

TEST(a_program_has_a_limit_for_all_of_its_sessions) {
  harness_program_t full;
  ingot_program_options_t options = {.memory_limit = 47};
  ingot_program_t *program = NULL;
  ingot_session_t *sessions[2] = {NULL, NULL};
  REQUIRE_OK(harness_load(&harness, builder_full_module(), &harness_parameters, &full));
  EXPECT_STATUS(ingot_program_create(harness.device, &full.module, 1, &harness_parameters, &options,
                                     &program),
                OUT_OF_MEMORY,
                "16 bytes are asked for, but the program's memory_limit is 47, of which it holds "
                "32");
  options.memory_limit = 32 + 24 + 10; /* constants, weights; the state of one session */
  REQUIRE_OK(ingot_program_create(harness.device, &full.module, 1, &harness_parameters, &options,
                                  &program));
  EXPECT_OK(ingot_session_create(program, NULL, &sessions[0]));
  EXPECT_STATUS(ingot_session_create(program, NULL, &sessions[1]), OUT_OF_MEMORY,
                "variable 'history': 16 bytes are asked for, but the program's memory_limit is 66, "
                "of which it holds 56");
  ingot_session_release(sessions[0]);
  ingot_program_release(program);
  harness_unload(&full);
}

/* -- statistics -------------------------------------------------------------------------------- */

TEST(bytes_are_counted_by_kind) {
  harness_program_t full;
  float x[6] = {1, 2, 3, 4, 5, 6};
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, 6);
  ingot_buffer_view_t *results[2] = {NULL, NULL};
  REQUIRE_OK(harness_load(&harness, builder_full_module(), &harness_parameters, &full));
  EXPECT_OK(ingot_session_call(full.session, 0, &argument, 1, results, 2, NULL));
  ingot_memory_statistics_t got = ingot_session_statistics(full.session);
  EXPECT_EQUAL(got.state.current, 24);
  EXPECT_EQUAL(got.slabs.current, 64);
  EXPECT_EQUAL(got.lists.current, 3 * 256);
  EXPECT_EQUAL(got.results.current, 24 + 16);
  EXPECT_EQUAL(got.total.current, 24 + 64 + 768 + 40);
  ingot_buffer_view_release(results[0]);
  ingot_buffer_view_release(results[1]);
  EXPECT_OK(ingot_session_trim(full.session));
  got = ingot_session_statistics(full.session);
  EXPECT_EQUAL(got.total.current, 24);
  EXPECT_EQUAL(got.total.peak, 24 + 64 + 768 + 40);
  got = ingot_program_statistics(full.program);
  EXPECT_EQUAL(got.constants.current, 16);
  EXPECT_EQUAL(got.parameters.current, 0);
  EXPECT_EQUAL(got.parameters.peak, 16);
  EXPECT_EQUAL(got.weights.current, 16);
  EXPECT_EQUAL(got.total.current, 32 + 24);
  ingot_buffer_view_release(argument);
  harness_unload(&full);
}

TEST(a_slab_that_grows_between_calls_is_there_once) {
  ingot_session_t *session = NULL;
  REQUIRE_OK(ingot_session_create(wide.program, NULL, &session));
  EXPECT_OK(call_wide(session, 1));
  EXPECT_OK(call_wide(session, 64));
  EXPECT_EQUAL(ingot_session_statistics(session).total.peak, 64 * 4 + 64);
  ingot_session_release(session);
}

/* -- sharing ----------------------------------------------------------------------------------- */

TEST(sessions_that_take_turns_share_one_slab) {
  test_allocator_t counter = {.fail_at = 0};
  const ingot_allocator_t allocator = test_allocator(&counter);
  const ingot_session_options_t options = {.shares_slab = true, .memory_limit = 400};
  harness_t own;
  harness_program_t program;
  ingot_session_t *sessions[3] = {NULL, NULL, NULL};
  float x[64] = {0};
  float y[64];
  REQUIRE_OK(harness_create(&allocator, &own));
  REQUIRE_OK(harness_load(&own, builder_slab_module(), NULL, &program));
  for (int s = 0; s < 3; ++s) {
    REQUIRE_OK(ingot_session_create(program.program, &options, &sessions[s]));
  }
  ingot_buffer_view_t *argument = harness_view(&own, x, INGOT_DTYPE_F32, 64);
  ingot_buffer_view_t *result = harness_view(&own, y, INGOT_DTYPE_F32, 64);
  int64_t before = 0;
  for (int i = 0; i < 9; ++i) {
    EXPECT_OK(ingot_session_call(sessions[i % 3], 0, &argument, 1, &result, 1, NULL));
    if (i == 0) before = counter.allocations;
  }
  EXPECT_EQUAL(counter.allocations, before);
  EXPECT_EQUAL(ingot_session_statistics(sessions[0]).slabs.current, 0);
  EXPECT_EQUAL(ingot_session_statistics(sessions[2]).total.peak, 320);
  EXPECT_EQUAL(ingot_program_statistics(program.program).total.peak, 320);
  ingot_buffer_view_release(result);
  ingot_buffer_view_release(argument);
  for (int s = 0; s < 3; ++s) ingot_session_release(sessions[s]);
  harness_unload(&program);
  harness_release(&own);
  EXPECT_EQUAL(counter.live, 0);
}

/* 500 calls of a session that shares, with other sizes each time; NULL if all were right. */
static void *call_often(void *unused) {
  const ingot_session_options_t options = {.shares_slab = true};
  ingot_session_t *session = NULL;
  (void)unused;
  ingot_status_t status = ingot_session_create(wide.program, &options, &session);
  for (int64_t i = 0; !status && i < 500; ++i) status = call_wide(session, 1 + i % 64);
  ingot_session_release(session);
  return status;
}

TEST(sessions_that_run_at_once_share_what_is_idle) {
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) REQUIRE(pthread_create(&threads[i], NULL, call_often, NULL) == 0);
  for (int i = 0; i < 3; ++i) {
    void *status = NULL;
    EXPECT_EQUAL(pthread_join(threads[i], &status), 0);
    EXPECT_OK((ingot_status_t)status);
  }
  EXPECT_EQUAL(ingot_program_statistics(wide.program).slabs.current, 0);
}

int main(void) {
  if (harness_create(NULL, &harness)) return 1;
  if (harness_load(&harness, builder_slab_module(), NULL, &wide)) return 1;
  RUN_TESTS();
  harness_unload(&wide);
  harness_release(&harness);
  return TEST_RESULT();
}
