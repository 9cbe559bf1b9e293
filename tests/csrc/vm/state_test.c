/* Variables: private to a session, kept from call to call, set back by reset, saved and
 * loaded from outside, and refused after a call that failed while it changed them.
 */
#include "vm/harness.h"

static harness_t harness;

enum { TOTAL, SEEN }; /* the variables below */

/* main(x: i64[]) -> (y: i64[]): total += x, seen[i] += 1 by a kernel on f32[4]; y = total. It
 * fails if x is 13, after total was written, and if x is 7, before. */
static builder_bytes_t sum_module(void) {
  builder_t builder[1] = {builder_create()};
  const int64_t four[1] = {4};
  const int64_t start = 100;
  const float seen[4] = {1, 2, 3, 4};
  uint32_t kernel = builder_kernel(builder, "add_one", 2, 0, 2);
  uint64_t at_start = builder_constants(builder, &start, sizeof(start));
  uint64_t at_seen = builder_constants(builder, seen, sizeof(seen));
  builder_variable(builder, "total", INGOT_DTYPE_I64, 0, NULL, at_start, sizeof(start));
  builder_variable(builder, "seen", INGOT_DTYPE_F32, 1, four, at_seen, sizeof(seen));
  builder_variable(builder, "scratch", INGOT_DTYPE_U8, 1, four, 0, 0);
  uint32_t message = builder_string(builder, "x is {}");
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_I64, 0, NULL);
  builder_value(builder, true, "y", INGOT_DTYPE_I64, 0, NULL);
  EMIT(ARGUMENT_BUFFER, 0, 0, 0);
  EMIT(READ_I64, 1, 0, 0, INGOT_DTYPE_I64);
  EMIT(CONST_I64, 10, 7);
  EMIT(NE_I64, 11, 1, 10);
  EMIT(ASSERT, 11, INGOT_STATUS_INVALID_ARGUMENT, message, 1, 1);
  EMIT(VARIABLE_READ, 1, 2, TOTAL);
  EMIT(READ_I64, 3, 1, 2, INGOT_DTYPE_I64);
  EMIT(ADD_I64, 3, 3, 1);
  EMIT(VARIABLE_WRITE, 2, 2, TOTAL);
  EMIT(WRITE_I64, 2, 2, 3, INGOT_DTYPE_I64);
  EMIT(CONST_I64, 10, 13);
  EMIT(NE_I64, 11, 1, 10);
  EMIT(ASSERT, 11, INGOT_STATUS_INVALID_ARGUMENT, message, 1, 1);
  EMIT(VARIABLE_WRITE, 3, 4, SEEN);
  EMIT(CONST_I64, 5, 16);
  EMIT(CONST_I64, 6, 4);
  EMIT(CONST_I64, 7, 1);
  EMIT(DISPATCH, kernel, 6, 7, 7, 0, 5, 0, 2, 3, 4, 5, 3, 4, 5);
  EMIT(RESULT_BUFFER, 4, 8, 0, 0);
  EMIT(WRITE_I64, 4, 8, 3, INGOT_DTYPE_I64);
  EMIT(RETURN, 0, 0, 0);
  return builder_finish(builder);
}

static ingot_buffer_view_t *scalar(int64_t *value) {
  ingot_buffer_view_t *view = NULL;
  EXPECT_OK(ingot_buffer_view_wrap(harness.device, value, sizeof(*value), INGOT_DTYPE_I64, 0, NULL,
                                   NULL, NULL, &view));
  return view;
}

static ingot_status_t call(ingot_session_t *session, int64_t input, int64_t *out_total) {
  ingot_buffer_view_t *x = scalar(&input);
  ingot_buffer_view_t *y = scalar(out_total);
  ingot_status_t status = ingot_session_call(session, 0, &x, 1, &y, 1, NULL);
  ingot_buffer_view_release(x);
  ingot_buffer_view_release(y);
  return status;
}

static int64_t total_of(const harness_program_t *program, ingot_session_t *session) {
  int64_t total = -1;
  EXPECT_OK(ingot_session_read_variable(session, program->module, TOTAL, &total, sizeof(total)));
  return total;
}

TEST(state_is_kept_from_call_to_call_and_reset) {
  harness_program_t program;
  int64_t y = 0;
  float seen[4];
  uint8_t scratch[4] = {9, 9, 9, 9};
  REQUIRE_OK(harness_load(&harness, sum_module(), NULL, &program));
  EXPECT_EQUAL(total_of(&program, program.session), 100);
  for (int64_t i = 1; i <= 3; ++i) EXPECT_OK(call(program.session, i, &y));
  EXPECT_EQUAL(y, 106);
  EXPECT_OK(ingot_session_trim(program.session));
  EXPECT_EQUAL(total_of(&program, program.session), 106);
  EXPECT_OK(ingot_session_read_variable(program.session, program.module, SEEN, seen, 16));
  EXPECT(seen[0] == 4 && seen[3] == 7);
  EXPECT_OK(ingot_session_read_variable(program.session, program.module, 2, scratch, 4));
  EXPECT(scratch[0] == 0 && scratch[3] == 0);
  EXPECT_OK(ingot_session_reset(program.session));
  EXPECT_EQUAL(total_of(&program, program.session), 100);
  EXPECT_OK(ingot_session_read_variable(program.session, program.module, SEEN, seen, 16));
  EXPECT(seen[0] == 1 && seen[3] == 4);
  harness_unload(&program);
}

TEST(sessions_of_one_program_have_separate_state) {
  harness_program_t program;
  ingot_session_t *other = NULL;
  int64_t y = 0;
  REQUIRE_OK(harness_load(&harness, sum_module(), NULL, &program));
  EXPECT_OK(call(program.session, 5, &y));
  REQUIRE_OK(ingot_session_create(program.program, NULL, &other));
  EXPECT_OK(call(other, 1, &y));
  EXPECT_EQUAL(y, 101);
  EXPECT_EQUAL(total_of(&program, program.session), 105);
  ingot_session_release(other);
  EXPECT_OK(call(program.session, 1, &y));
  EXPECT_EQUAL(y, 106);
  harness_unload(&program);
}

TEST(variables_are_saved_and_loaded) {
  harness_program_t program;
  ingot_value_info_t info;
  int64_t y = 0;
  const int64_t loaded = 40;
  float seen[4] = {0};
  REQUIRE_OK(harness_load(&harness, sum_module(), NULL, &program));
  EXPECT_EQUAL(ingot_module_info(program.module).variable_count, 3);
  REQUIRE_OK(ingot_module_variable(program.module, SEEN, &info));
  EXPECT_TEXT(info.name, "seen");
  EXPECT_EQUAL(info.dtype, INGOT_DTYPE_F32);
  EXPECT_EQUAL(info.rank, 1);
  EXPECT_OK(ingot_session_write_variable(program.session, program.module, TOTAL, &loaded, 8));
  EXPECT_OK(call(program.session, 2, &y));
  EXPECT_EQUAL(y, 42);
  EXPECT_STATUS(ingot_session_write_variable(program.session, program.module, SEEN, seen, 12),
                INVALID_ARGUMENT, "variable 'seen' has 16 bytes, not 12");
  EXPECT_STATUS(ingot_session_read_variable(program.session, program.module, 3, seen, 16),
                OUT_OF_RANGE, "variable 3 of 3");
  harness_program_t stranger;
  REQUIRE_OK(harness_load(&harness, sum_module(), NULL, &stranger));
  EXPECT_STATUS(ingot_session_read_variable(program.session, stranger.module, SEEN, seen, 16),
                INVALID_ARGUMENT, "'seen' is of a module that the session's program was not made");
  harness_unload(&stranger);
  harness_unload(&program);
}

TEST(a_call_that_fails_before_it_changes_state_leaves_it) {
  harness_program_t program;
  int64_t y = 0;
  REQUIRE_OK(harness_load(&harness, sum_module(), NULL, &program));
  EXPECT_OK(call(program.session, 1, &y));
  EXPECT_STATUS(call(program.session, 7, &y), INVALID_ARGUMENT, "x is 7");
  EXPECT_EQUAL(total_of(&program, program.session), 101);
  EXPECT_OK(call(program.session, 1, &y));
  EXPECT_EQUAL(y, 102);
  harness_unload(&program);
}

TEST(a_call_that_fails_while_it_changes_state_stops_the_session) {
  static const char expected[] =
      "the last call failed while it was changing variable 'total': "
      "reset the session or load its state";
  harness_program_t program;
  int64_t y = 0;
  int64_t total = 50;
  REQUIRE_OK(harness_load(&harness, sum_module(), NULL, &program));
  for (int round = 0; round < 2; ++round) {
    EXPECT_STATUS(call(program.session, 13, &y), INVALID_ARGUMENT, "x is 13");
    EXPECT_STATUS(call(program.session, 1, &y), FAILED_PRECONDITION, expected);
    EXPECT_STATUS(call(program.session, 1, &y), FAILED_PRECONDITION, expected);
    EXPECT_STATUS(ingot_session_read_variable(program.session, program.module, TOTAL, &total, 8),
                  FAILED_PRECONDITION, expected);
    if (round == 0) EXPECT_OK(ingot_session_reset(program.session));
    else EXPECT_OK(ingot_session_write_variable(program.session, program.module, TOTAL, &total, 8));
    EXPECT_OK(call(program.session, 1, &y));
    EXPECT_EQUAL(y, round == 0 ? 101 : 51);
  }
  harness_unload(&program);
}

/* Two variables are being changed when the kernel faults: both are to be written. */
TEST(every_variable_that_was_being_changed_must_be_loaded) {
  harness_program_t program;
  int64_t y = 0;
  int64_t total = 1;
  float seen[4] = {666, 0, 0, 0}; /* the kernel faults at it */
  REQUIRE_OK(harness_load(&harness, sum_module(), NULL, &program));
  EXPECT_OK(ingot_session_write_variable(program.session, program.module, SEEN, seen, 16));
  EXPECT_STATUS(call(program.session, 1, &y), OUT_OF_RANGE, "index 30523");
  EXPECT_OK(ingot_session_write_variable(program.session, program.module, TOTAL, &total, 8));
  EXPECT_STATUS(call(program.session, 1, &y), FAILED_PRECONDITION, "variable 'seen'");
  seen[0] = 0;
  EXPECT_OK(ingot_session_write_variable(program.session, program.module, SEEN, seen, 16));
  EXPECT_OK(call(program.session, 1, &y));
  EXPECT_EQUAL(y, 2);
  harness_unload(&program);
}

TEST(one_element_starts_them_all) {
  builder_t builder[1] = {builder_create()};
  harness_program_t program;
  const int64_t dims[2] = {3, 5};
  const uint16_t element = 0xFC00; /* minus infinity */
  uint16_t got[15];
  uint64_t offset = builder_constants(builder, &element, sizeof(element));
  builder_variable(builder, "v", INGOT_DTYPE_F16, 2, dims, offset, sizeof(element));
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  EMIT(RETURN, 0, 0, 0);
  REQUIRE_OK(harness_load(&harness, builder_finish(builder), NULL, &program));
  EXPECT_OK(ingot_session_read_variable(program.session, program.module, 0, got, sizeof(got)));
  for (int i = 0; i < 15; ++i) EXPECT_EQUAL(got[i], 0xFC00);
  harness_unload(&program);
}

TEST(what_variable_read_gives_cannot_be_written) {
  builder_t builder[1] = {builder_create()};
  harness_program_t program;
  builder_variable(builder, "v", INGOT_DTYPE_I64, 0, NULL, 0, 0);
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  EMIT(VARIABLE_READ, 0, 0, 0);
  EMIT(WRITE_I64, 0, 0, 0, INGOT_DTYPE_I64);
  EMIT(RETURN, 0, 0, 0);
  REQUIRE_OK(harness_load(&harness, builder_finish(builder), NULL, &program));
  EXPECT_STATUS(ingot_session_call(program.session, 0, NULL, 0, NULL, 0, NULL), PERMISSION_DENIED,
                "readable only");
  EXPECT_OK(ingot_session_reset(program.session));
  harness_unload(&program);
}

/* count variables of 2^40 bytes: one alone or all together are too many. */
TEST(state_of_absurd_size_is_refused_without_a_try) {
  for (int count = 1; count <= 1000; count += 999) {
    builder_t builder[1] = {builder_create()};
    harness_program_t program;
    const int64_t dims[1] = {INT64_C(1) << (count == 1 ? 60 : 30)};
    for (int i = 0; i < count; ++i) {
      char name[16];
      (void)snprintf(name, sizeof(name), "v%d", i);
      builder_variable(builder, name, INGOT_DTYPE_U8, 1, dims, 0, 0);
    }
    builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
    EMIT(RETURN, 0, 0, 0);
    EXPECT_STATUS(harness_load(&harness, builder_finish(builder), NULL, &program), OUT_OF_MEMORY,
                  "state: ");
    harness_unload(&program);
  }
}

TEST(modules_of_one_program_have_their_own_variables) {
  harness_program_t sum;
  harness_program_t full;
  ingot_program_t *both = NULL;
  ingot_session_t *session = NULL;
  float history[4];
  int64_t y = 0;
  int64_t count = -1;
  REQUIRE_OK(harness_load(&harness, sum_module(), NULL, &sum));
  REQUIRE_OK(harness_load(&harness, builder_full_module(), &harness_parameters, &full));
  EXPECT_STATUS(ingot_program_create(harness.device, (ingot_module_t *[]){full.module, sum.module},
                                     2, &harness_parameters, NULL, &both),
                INVALID_ARGUMENT, "a function 'main'");
  builder_t builder[1] = {builder_create()};
  builder_variable(builder, "count", INGOT_DTYPE_I64, 0, NULL, 0, 0);
  builder_function(builder, "other", INGOT_FUNCTION_EXPORTED);
  EMIT(VARIABLE_WRITE, 0, 0, 0);
  EMIT(CONST_I64, 1, 77);
  EMIT(WRITE_I64, 0, 0, 1, INGOT_DTYPE_I64);
  EMIT(RETURN, 0, 0, 0);
  harness_program_t other;
  REQUIRE_OK(harness_load(&harness, builder_finish(builder), NULL, &other));
  REQUIRE_OK(ingot_program_create(harness.device, (ingot_module_t *[]){sum.module, other.module}, 2,
                                  NULL, NULL, &both));
  REQUIRE_OK(ingot_session_create(both, NULL, &session));
  EXPECT_OK(ingot_session_call(session, 1, NULL, 0, NULL, 0, NULL));
  EXPECT_OK(call(session, 1, &y));
  EXPECT_EQUAL(y, 101);
  EXPECT_OK(ingot_session_read_variable(session, other.module, 0, &count, sizeof(count)));
  EXPECT_EQUAL(count, 77);
  EXPECT_OK(ingot_session_read_variable(full.session, full.module, 0, history, sizeof(history)));
  EXPECT(history[0] == 1 && history[3] == 4);
  ingot_session_release(session);
  ingot_program_release(both);
  harness_unload(&other);
  harness_unload(&full);
  harness_unload(&sum);
}

/* main(x: i64[]) -> (y: i64[]): rows, i64[n], has x at least; y = its last + 1, which is the first
 * and the last then. */
static builder_bytes_t growing_module(void) {
  builder_t builder[1] = {builder_create()};
  const int64_t open[1] = {-1};
  builder_variable(builder, "rows", INGOT_DTYPE_I64, 1, open, 0, 0);
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_I64, 0, NULL);
  builder_value(builder, true, "y", INGOT_DTYPE_I64, 0, NULL);
  EMIT(ARGUMENT_BUFFER, 0, 0, 0);
  EMIT(READ_I64, 1, 0, 0, INGOT_DTYPE_I64);
  EMIT(CONST_I64, 2, 8);
  EMIT(MUL_I64, 3, 1, 2);
  EMIT(VARIABLE_READ, 1, 4, 0); /* of before */
  EMIT(VARIABLE_GROW, 3, 4, 0, 3);
  EMIT(SUB_I64, 3, 3, 2);
  EMIT(READ_I64, 5, 1, 3, INGOT_DTYPE_I64);
  EMIT(CONST_I64, 6, 1);
  EMIT(ADD_I64, 5, 5, 6);
  EMIT(VARIABLE_WRITE, 2, 4, 0);
  EMIT(WRITE_I64, 2, 4, 5, INGOT_DTYPE_I64);
  EMIT(WRITE_I64, 2, 3, 5, INGOT_DTYPE_I64);
  EMIT(RESULT_BUFFER, 4, 8, 0, 0);
  EMIT(WRITE_I64, 4, 8, 5, INGOT_DTYPE_I64);
  EMIT(RETURN, 0, 0, 0);
  return builder_finish(builder);
}

TEST(what_grows_keeps_its_rows) {
  harness_program_t program;
  ingot_session_t *fork = NULL;
  int64_t y = 0;
  int64_t rows[8];
  REQUIRE_OK(harness_load(&harness, growing_module(), NULL, &program));
  for (int64_t x = 1; x <= 5; ++x) {
    EXPECT_OK(call(program.session, x, &y));
    EXPECT_EQUAL(y, 1);
  }
  REQUIRE_OK(ingot_session_fork(program.session, &fork));
  EXPECT_OK(call(program.session, 5, &y));
  EXPECT_EQUAL(y, 2);
  EXPECT_OK(call(fork, 8, &y)); /* twice four: there is room */
  EXPECT_OK(call(fork, 8, &y));
  EXPECT_EQUAL(y, 2);
  EXPECT_OK(ingot_session_read_variable(fork, program.module, 0, rows, sizeof(rows)));
  EXPECT(rows[0] == 2 && rows[3] == 1 && rows[4] == 1 && rows[7] == 2);
  EXPECT_OK(ingot_session_write_variable(fork, program.module, 0, rows, 64));
  EXPECT_STATUS(ingot_session_read_variable(fork, program.module, 0, rows, 72), OUT_OF_RANGE, "");
  EXPECT_OK(ingot_session_write_variable(fork, program.module, 0, rows, 40));
  EXPECT_EQUAL(ingot_session_statistics(fork).state.current, 40);
  EXPECT_OK(call(fork, 5, &y));
  EXPECT_EQUAL(y, 2);
  EXPECT_OK(ingot_session_read_variable(program.session, program.module, 0, rows, sizeof(rows)));
  EXPECT(rows[0] == 2 && rows[3] == 1 && rows[4] == 2 && rows[5] == 0);
  EXPECT_OK(ingot_session_reset(fork));
  EXPECT_EQUAL(ingot_session_statistics(fork).state.current, 40); /* the room stays */
  EXPECT_OK(call(fork, 3, &y));
  EXPECT_EQUAL(y, 1);
  ingot_session_release(fork);
  harness_unload(&program);
}

TEST(what_cannot_grow_stays_as_it_is) {
  const ingot_session_options_t options = {.memory_limit = 200};
  harness_program_t program;
  ingot_session_t *session = NULL;
  int64_t y = 0;
  REQUIRE_OK(harness_load(&harness, growing_module(), NULL, &program));
  REQUIRE_OK(ingot_session_create(program.program, &options, &session));
  EXPECT_OK(call(session, 10, &y));
  EXPECT_OK(call(session, 12, &y)); /* 160 bytes beside 80 are too many, 96 are not */
  EXPECT_EQUAL(ingot_session_statistics(session).state.current, 96);
  EXPECT_STATUS(call(session, 14, &y), OUT_OF_MEMORY, "the session's memory_limit is 200");
  EXPECT_OK(call(session, 12, &y));
  EXPECT_EQUAL(y, 2);
  EXPECT_STATUS(call(session, INT64_C(1) << 57, &y), OUT_OF_MEMORY, "");
  EXPECT_OK(call(session, 12, &y));
  EXPECT_EQUAL(y, 3);
  ingot_session_release(session);
  harness_unload(&program);
}

int main(void) {
  if (harness_create(NULL, &harness)) return 1;
  RUN_TESTS();
  harness_release(&harness);
  return TEST_RESULT();
}
