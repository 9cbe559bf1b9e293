/* Variables that grow, where things go wrong: several in one call and in loops, memory that is
 * missing at any moment, saved bytes and modules that somebody has changed.
 */
#include "vm/harness.h"

static harness_t harness;

enum { ROWS, WIDE }; /* the variables below */
#ifndef ROUNDS
#define ROUNDS 2000
#endif

/* main(x: i64[]) -> (y: i64[]): step by step up to x rows, i64[n], and wide, f32[n, 3], grow and
 * what stands in the last row of rows becomes 1 more; y is what stood in the first one. */
static builder_bytes_t growing_module(void) {
  builder_t builder[1] = {builder_create()};
  const int64_t open[2] = {-1, 3};
  builder_variable(builder, "rows", INGOT_DTYPE_I64, 1, open, 0, 0);
  builder_variable(builder, "wide", INGOT_DTYPE_F32, 2, open, 0, 0);
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_I64, 0, NULL);
  builder_value(builder, true, "y", INGOT_DTYPE_I64, 0, NULL);
  EMIT(ARGUMENT_BUFFER, 0, 0, 0);
  EMIT(READ_I64, 1, 0, 0, INGOT_DTYPE_I64);
  EMIT(CONST_I64, 2, 8);
  EMIT(CONST_I64, 3, 12);
  EMIT(CONST_I64, 4, 1);
  EMIT(CONST_I64, 5, 0); /* the row */
  EMIT(VARIABLE_READ, 5, 10, WIDE);
  uint32_t loop = builder_word(builder);
  EMIT(ADD_I64, 6, 5, 4);
  EMIT(MUL_SIZE, 7, 6, 2);
  EMIT(MUL_SIZE, 8, 6, 3);
  EMIT(VARIABLE_GROW, 1, 9, ROWS, 7);
  EMIT(VARIABLE_GROW, 2, 9, WIDE, 8);
  EMIT(MUL_I64, 9, 5, 2);
  EMIT(READ_I64, 11, 1, 9, INGOT_DTYPE_I64);
  EMIT(ADD_I64, 11, 11, 4);
  EMIT(VARIABLE_WRITE, 3, 10, ROWS);
  EMIT(WRITE_I64, 3, 9, 11, INGOT_DTYPE_I64);
  EMIT(READ_I64, 12, 5, 10, INGOT_DTYPE_I32); /* of wide, as it is now */
  EMIT(MOVE_I64, 5, 6);
  EMIT(LT_I64, 12, 5, 1);
  uint32_t branch = builder_word(builder);
  EMIT(BRANCH_IF, 12, loop, 0);
  builder_set_target(builder, branch + 4);
  EMIT(RESULT_BUFFER, 4, 8, 0, 0);
  EMIT(READ_I64, 11, 3, 10, INGOT_DTYPE_I64);
  EMIT(WRITE_I64, 4, 8, 11, INGOT_DTYPE_I64);
  EMIT(RETURN, 0, 0, 0);
  return builder_finish(builder);
}

static ingot_status_t call(const harness_t *on, ingot_session_t *session, int64_t input,
                           int64_t *out_first) {
  int64_t *values[2] = {&input, out_first};
  ingot_buffer_view_t *views[2] = {NULL, NULL};
  ingot_status_t status = NULL;
  const ingot_call_options_t options = {.max_steps = 20000};
  for (int i = 0; i < 2 && !status; ++i) {
    status = ingot_buffer_view_wrap(on->device, values[i], 8, INGOT_DTYPE_I64, 0, NULL, NULL, NULL,
                                    &views[i]);
  }
  if (!status) status = ingot_session_call(session, 0, &views[0], 1, &views[1], 1, &options);
  for (int i = 0; i < 2; ++i) ingot_buffer_view_release(views[i]);
  return status;
}

TEST(what_is_outgrown_is_not_counted_for_long) {
  harness_program_t program;
  ingot_session_t *fork = NULL;
  int64_t y = 0;
  REQUIRE_OK(harness_load(&harness, growing_module(), NULL, &program));
  for (int64_t x = 1; x <= 100; x += 9) {
    EXPECT_OK(call(&harness, program.session, x, &y));
    EXPECT_EQUAL(y, (x + 8) / 9);
  }
  ingot_memory_statistics_t used = ingot_session_statistics(program.session);
  EXPECT_EQUAL(used.state.current, 128 * (8 + 12));
  REQUIRE_OK(ingot_session_fork(program.session, &fork));
  EXPECT_OK(call(&harness, fork, 300, &y));
  EXPECT_EQUAL(ingot_session_statistics(fork).state.current, 512 * (8 + 12));
  EXPECT_OK(call(&harness, program.session, 1, &y));
  EXPECT_EQUAL(ingot_session_statistics(program.session).state.current, used.state.current);
  ingot_session_release(fork);
  EXPECT_EQUAL(ingot_program_statistics(program.program).state.current, used.state.current);
  ingot_session_release(program.session);
  program.session = NULL;
  EXPECT_EQUAL(ingot_program_statistics(program.program).state.current, 0);
  harness_unload(&program);
}

/* -- bytes that somebody has changed ------------------------------------------------------------- */

/* Of a saved state, and of what is read and written: rows are whole. */
TEST(saved_lengths_are_checked) {
  const size_t place = 16 + 12; /* the dims of rows */
  const int64_t lengths[] = {INT64_MAX, INT64_MIN, -1, INT64_C(1) << 62, INT64_C(1) << 56, 24, 0};
  harness_program_t program;
  static harness_bytes_t bytes;
  int64_t rows[3] = {0, 0, 0};
  int64_t y = 0;
  REQUIRE_OK(harness_load(&harness, growing_module(), NULL, &program));
  for (int i = 0; i < 2; ++i) EXPECT_OK(call(&harness, program.session, 2, &y));
  EXPECT_OK(ingot_session_save_state(program.session, harness_write, &bytes));
  for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); ++i) {
    harness_bytes_t changed = bytes;
    memcpy(changed.data + place, &lengths[i], sizeof(lengths[i]));
    ingot_status_t status = harness_load_state(program.session, &changed);
    EXPECT(status != NULL);
    ingot_status_free(status);
    EXPECT_OK(ingot_session_read_variable(program.session, program.module, ROWS, rows, 16));
    EXPECT(rows[0] == 2 && rows[1] == 2);
  }
  const ingot_module_t *module = program.module;
  EXPECT_STATUS(ingot_session_write_variable(program.session, module, ROWS, rows, SIZE_MAX - 7),
                INVALID_ARGUMENT, "buffer length is -8");
  EXPECT_STATUS(ingot_session_read_variable(program.session, module, ROWS, rows, SIZE_MAX - 7),
                OUT_OF_RANGE, "");
  EXPECT_STATUS(ingot_session_write_variable(program.session, module, ROWS, rows, 13),
                INVALID_ARGUMENT, "variable 'rows' has 8 bytes in each row, not 13");
  EXPECT_OK(call(&harness, program.session, 3, &y));
  EXPECT_EQUAL(y, 3);
  harness_unload(&program);
}

static void use(harness_program_t *program, harness_bytes_t *bytes) {
  const ingot_session_options_t options = {.memory_limit = 1 << 20};
  ingot_session_t *fork = NULL;
  int64_t y = 0;
  static uint8_t some[64];
  bytes->length = 0;
  ingot_session_release(program->session);
  program->session = NULL;
  REQUIRE_OK(ingot_session_create(program->program, &options, &program->session));
  ingot_status_free(call(&harness, program->session, 3, &y));
  ingot_status_free(ingot_session_fork(program->session, &fork));
  ingot_status_free(ingot_session_save_state(program->session, harness_write, bytes));
  ingot_status_free(call(&harness, program->session, 7, &y));
  ingot_status_free(ingot_session_reset(program->session));
  ingot_status_free(harness_load_state(program->session, bytes));
  ingot_status_free(
      ingot_session_read_variable(program->session, program->module, ROWS, some, sizeof(some)));
  ingot_status_free(
      ingot_session_write_variable(program->session, program->module, WIDE, some, 36));
  if (fork) ingot_status_free(call(&harness, fork, 5, &y));
  ingot_session_release(fork);
}

TEST(sealed_mutations_give_a_status_or_state) {
  uint64_t random = 88172645463325252u;
  int ran = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    harness_program_t program = {.file = growing_module()};
    static harness_bytes_t bytes;
    harness_mutate(program.file, 2, 0x1F, &random);
    ingot_status_t status = harness_load(&harness, program.file, NULL, &program);
    if (!status) use(&program, &bytes);
    ran += !status;
    ingot_status_free(status);
    harness_unload(&program);
  }
  EXPECT(ran > ROUNDS / 10);
}

/* -- memory that is missing ---------------------------------------------------------------------- */

/* A failure leaves the rows as they were, unless it says that they are torn. */
static ingot_status_t use_state(const ingot_allocator_t *allocator) {
  harness_t small;
  harness_program_t made = {.file = {NULL, 0}};
  ingot_session_t *fork = NULL;
  static harness_bytes_t bytes;
  int64_t y = 0;
  int64_t rows[2] = {0, 0};
  bytes.length = 0;
  ingot_status_t status = harness_create(allocator, &small);
  if (!status) status = harness_load(&small, growing_module(), NULL, &made);
  if (!status) status = call(&small, made.session, 2, &y);
  if (!status) status = ingot_session_save_state(made.session, harness_write, &bytes);
  if (!status) status = ingot_session_fork(made.session, &fork);
  if (!status) status = call(&small, fork, 5, &y);
  if (!status) EXPECT_EQUAL(y, 2);
  if (!status) status = harness_load_state(fork, &bytes);
  if (!status) status = call(&small, fork, 3, &y);
  if (!status) EXPECT_EQUAL(y, 2);
  if (!status) status = ingot_session_write_variable(fork, made.module, ROWS, rows, 16);
  if (!status) status = call(&small, fork, 3, &y);
  if (!status) EXPECT_EQUAL(y, 1);
  if (fork) {
    EXPECT_OK(ingot_session_read_variable(made.session, made.module, ROWS, rows, 16));
    EXPECT(rows[0] == 1 && rows[1] == 1);
  }
  ingot_session_release(fork);
  harness_unload(&made);
  harness_release(&small);
  return status;
}

TEST(every_allocation_may_fail) { test_fail_each_allocation(use_state, 30); }

int main(void) {
  if (harness_create(NULL, &harness)) return 1;
  RUN_TESTS();
  harness_release(&harness);
  return TEST_RESULT();
}
