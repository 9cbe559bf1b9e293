/* A debugger's hold on a call: it sees every instruction and the registers, and may end the call.
 */
#include <string.h>

#include "vm/harness.h"

static harness_t harness;

/* y = x * x, stored by the code itself. */
static builder_bytes_t square_module(void) {
  builder_t builder[1] = {builder_create()};
  const int64_t dims[1] = {1};
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_I64, 1, dims);
  builder_value(builder, true, "y", INGOT_DTYPE_I64, 1, dims);
  EMIT(ARGUMENT_BUFFER, 0, 30, 0);
  EMIT(READ_I64, 0, 0, 30, INGOT_DTYPE_I64);
  EMIT(MUL_SIZE, 1, 0, 0);
  EMIT(CONST_I64, 31, 1);
  EMIT(RESULT_BUFFER, 1, 30, 0, 1, 31);
  EMIT(WRITE_I64, 1, 30, 1, INGOT_DTYPE_I64);
  EMIT(RETURN, 0, 0, 0);
  return builder_finish(builder);
}

static const uint32_t starts[] = {0, 4, 9, 13, 19, 25, 30};

typedef struct seen_t {
  const ingot_module_t *module;
  uint32_t count;
  uint32_t last; /* the stop at which it ends the call */
  int64_t argument;
  int64_t square;
} seen_t;

static bool look(void *user, const ingot_debug_stop_t *stop) {
  seen_t *seen = user;
  EXPECT(stop->module == seen->module);
  EXPECT_EQUAL(stop->function, 0);
  EXPECT_EQUAL(stop->word, starts[seen->count]);
  EXPECT(strcmp(stop->layer, "") == 0 && strcmp(stop->operations, "") == 0);
  EXPECT(stop->i64_count == 32 && stop->buffer_count >= 2);
  EXPECT((stop->buffers[0] == NULL) == (seen->count == 0));
  EXPECT((stop->buffers[1] == NULL) == (seen->count < 5));
  if (stop->buffers[0]) {
    EXPECT_EQUAL(ingot_buffer_length(stop->buffers[0]), sizeof(int64_t));
    EXPECT_OK(ingot_buffer_read(stop->buffers[0], 0, &seen->argument, sizeof(int64_t)));
  }
  seen->square = stop->i64[1];
  return seen->count++ != seen->last;
}

static ingot_status_t call(harness_program_t *program, int64_t input, int64_t *out_value) {
  ingot_buffer_view_t *x = harness_view(&harness, &input, INGOT_DTYPE_I64, 1);
  ingot_buffer_view_t *y = harness_view(&harness, out_value, INGOT_DTYPE_I64, 1);
  ingot_status_t status = ingot_session_call(program->session, 0, &x, 1, &y, 1, NULL);
  ingot_buffer_view_release(x);
  ingot_buffer_view_release(y);
  return status;
}

TEST(a_debugger_sees_every_instruction) {
  harness_program_t program;
  int64_t got = 0;
  REQUIRE_OK(harness_load(&harness, square_module(), NULL, &program));
  seen_t seen = {.module = program.module, .last = UINT32_MAX};
  EXPECT_OK(call(&program, 3, &got)); /* leaves something in the registers */
  REQUIRE_OK(ingot_session_set_debug(program.session, look, &seen));
  EXPECT_OK(call(&program, 7, &got));
  EXPECT_EQUAL(seen.count, sizeof(starts) / sizeof(starts[0]));
  EXPECT_EQUAL(seen.argument, 7);
  EXPECT_EQUAL(seen.square, 49);
  EXPECT_EQUAL(got, 49);
  REQUIRE_OK(ingot_session_set_debug(program.session, NULL, NULL));
  EXPECT_OK(call(&program, 5, &got));
  EXPECT_EQUAL(got, 25);
  EXPECT_EQUAL(seen.count, sizeof(starts) / sizeof(starts[0]));
  harness_unload(&program);
}

TEST(a_debugger_may_end_the_call) {
  harness_program_t program;
  int64_t got = 0;
  REQUIRE_OK(harness_load(&harness, square_module(), NULL, &program));
  seen_t seen = {.module = program.module, .last = 3};
  REQUIRE_OK(ingot_session_set_debug(program.session, look, &seen));
  EXPECT_STATUS(call(&program, 7, &got), CANCELLED, "the debugger ended the call");
  EXPECT_EQUAL(seen.count, 4);
  EXPECT_EQUAL(got, 0);
  seen = (seen_t){.module = program.module, .last = UINT32_MAX};
  EXPECT_OK(call(&program, 8, &got)); /* the session goes on */
  EXPECT_EQUAL(got, 64);
  harness_unload(&program);
}

/* Messages of a marked call are those of any other. */
TEST(failures_read_as_without_a_debugger) {
  harness_program_t program;
  int64_t got = 0;
  REQUIRE_OK(harness_load(&harness, square_module(), NULL, &program));
  seen_t seen = {.module = program.module, .last = UINT32_MAX};
  const char *message = "a size does not fit 64 bits: mul.size of 4294967296 and 4294967296";
  EXPECT_STATUS(call(&program, INT64_C(1) << 32, &got), INVALID_ARGUMENT, message);
  REQUIRE_OK(ingot_session_set_debug(program.session, look, &seen));
  EXPECT_STATUS(call(&program, INT64_C(1) << 32, &got), INVALID_ARGUMENT, message);
  harness_unload(&program);
}

int main(void) {
  if (harness_create(NULL, &harness)) return 1;
  RUN_TESTS();
  harness_release(&harness);
  return TEST_RESULT();
}
