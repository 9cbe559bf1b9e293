/* Weights of programs: parameters that are swapped between calls and while calls run, and what
 * init made, written into files and mapped by other programs.
 */
#define _GNU_SOURCE /* mkstemp under -std=c11 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "vm/harness.h"

static char path[] = "/tmp/ingot_weights_test_XXXXXX";

/* -- parameters and calls ---------------------------------------------------------------------- */

/* A bias of four equal elements; of another dtype or dim where the test says so. */
typedef struct bias_t {
  float elements[4];
  int64_t dim;
  ingot_dtype_t dtype;
  const char *scope; /* that it is asked for in, afterwards */
} bias_t;

static bias_t bias_of(float value) {
  return (bias_t){{value, value, value, value}, 4, INGOT_DTYPE_F32, NULL};
}

static ingot_status_t find_bias(void *user, const char *scope, const char *key,
                                ingot_parameter_span_t *out_span) {
  bias_t *bias = user;
  EXPECT_TEXT(key, "bias");
  bias->scope = scope;
  *out_span = (ingot_parameter_span_t){
      bias->elements, sizeof(bias->elements), bias->dtype, 1, &bias->dim, false};
  return NULL;
}

static ingot_status_t find_nothing(void *user, const char *scope, const char *key,
                                   ingot_parameter_span_t *out_span) {
  (void)user, (void)scope, (void)key, (void)out_span;
  const ingot_allocator_t allocator = ingot_allocator_system();
  return ingot_status_create(&allocator, INGOT_STATUS_NOT_FOUND, "nothing");
}

static ingot_status_t swap(ingot_program_t *program, float value) {
  bias_t bias = bias_of(value);
  const ingot_parameters_t parameters = {&bias, find_bias};
  return ingot_program_swap_parameters(program, NULL, &parameters, NULL);
}

/* The result z of the full module, which is the bias and 1: -1 if its elements differ. */
static ingot_status_t call(const harness_t *harness, ingot_session_t *session, float *z) {
  float x[2] = {0, 0};
  float made[4] = {0};
  ingot_buffer_view_t *argument = harness_view(harness, x, INGOT_DTYPE_F32, 2);
  ingot_buffer_view_t *results[2] = {NULL, harness_view(harness, made, INGOT_DTYPE_F32, 4)};
  ingot_status_t status = ingot_session_call(session, 0, &argument, 1, results, 2, NULL);
  ingot_buffer_view_release(argument);
  ingot_buffer_view_release(results[0]);
  ingot_buffer_view_release(results[1]);
  *z = made[0];
  for (int i = 1; i < 4; ++i) {
    if (made[i] != made[0]) *z = -1;
  }
  return status;
}

/* -- swaps ------------------------------------------------------------------------------------- */

TEST(a_swap_changes_all_sessions_and_frees_the_old) {
  test_allocator_t counter = {.fail_at = 0};
  ingot_allocator_t allocator = test_allocator(&counter);
  harness_t harness;
  harness_program_t program;
  ingot_session_t *idle = NULL;
  float z = 0;
  REQUIRE_OK(harness_create(&allocator, &harness));
  REQUIRE_OK(harness_load(&harness, builder_full_module(), &harness_parameters, &program));
  REQUIRE_OK(ingot_session_create(program.program, NULL, &idle));
  REQUIRE_OK(swap(program.program, 5));
  EXPECT_OK(call(&harness, program.session, &z));
  EXPECT_EQUAL(z, 6);
  int64_t live = counter.live;
  for (int i = 0; i < 3; ++i) EXPECT_OK(swap(program.program, (float)i));
  EXPECT_EQUAL(counter.live, live); /* no session was called meanwhile */
  EXPECT_OK(call(&harness, idle, &z));
  EXPECT_EQUAL(z, 3);
  ingot_session_release(idle);
  harness_unload(&program);
  harness_release(&harness);
  EXPECT_EQUAL(counter.live, 0);
}

TEST(a_swap_that_fails_leaves_the_old) {
  harness_t harness;
  harness_program_t program;
  bias_t bias = bias_of(1);
  const ingot_parameters_t parameters = {&bias, find_bias};
  const ingot_parameters_t nothing = {NULL, find_nothing};
  const ingot_call_options_t limits = {.max_steps = 2};
  float z = 0;
  REQUIRE_OK(harness_create(NULL, &harness));
  REQUIRE_OK(harness_load(&harness, builder_full_module(), &harness_parameters, &program));
  REQUIRE_OK(swap(program.program, 7));
  bias.dim = 3;
  EXPECT_STATUS(ingot_program_swap_parameters(program.program, "", &parameters, NULL),
                INVALID_ARGUMENT, "parameter 'bias': dim 0 is 3, expected 4");
  EXPECT_TEXT(bias.scope, "");
  bias = bias_of(1);
  bias.dtype = INGOT_DTYPE_I32;
  EXPECT_STATUS(ingot_program_swap_parameters(program.program, NULL, &parameters, NULL),
                INVALID_ARGUMENT, "parameter 'bias' is i32, expected f32");
  EXPECT_STATUS(ingot_program_swap_parameters(program.program, NULL, &nothing, NULL), NOT_FOUND,
                "1 of 1 parameters are missing: 'bias'");
  EXPECT_STATUS(ingot_program_swap_parameters(program.program, "other", &parameters, NULL),
                NOT_FOUND, "no parameters of scope 'other'; its scopes are: ''");
  bias = bias_of(1);
  EXPECT_STATUS(ingot_program_swap_parameters(program.program, NULL, &parameters, &limits),
                DEADLINE_EXCEEDED, "steps");
  EXPECT_OK(call(&harness, program.session, &z));
  EXPECT_EQUAL(z, 8);
  harness_unload(&program);
  harness_release(&harness);
}

typedef struct caller_t {
  const harness_t *harness;
  ingot_session_t *session;
  _Atomic bool *ends;
} caller_t;

static void *call_on(void *user) {
  const caller_t *caller = user;
  float z = 0;
  while (!*caller->ends) {
    EXPECT_OK(call(caller->harness, caller->session, &z));
    if (z != 2 && z != 3) FAIL("a call saw %f", (double)z);
  }
  return NULL;
}

/* Threads of the same session as the swap meets never see it as busy. */
TEST(calls_that_run_see_one_of_both) {
  harness_t harness;
  harness_program_t program;
  ingot_session_t *other = NULL;
  pthread_t threads[2];
  _Atomic bool ends = false;
  REQUIRE_OK(harness_create(NULL, &harness));
  REQUIRE_OK(harness_load(&harness, builder_full_module(), &harness_parameters, &program));
  REQUIRE_OK(swap(program.program, 1));
  REQUIRE_OK(ingot_session_create(program.program, NULL, &other));
  caller_t callers[2] = {{&harness, program.session, &ends}, {&harness, other, &ends}};
  for (int i = 0; i < 2; ++i) (void)pthread_create(&threads[i], NULL, call_on, &callers[i]);
  for (int i = 0; i < 2000; ++i) {
    ingot_session_t *short_lived = NULL;
    EXPECT_OK(swap(program.program, i % 2 ? 1 : 2));
    EXPECT_OK(ingot_session_create(program.program, NULL, &short_lived));
    ingot_session_release(short_lived);
  }
  ends = true;
  for (int i = 0; i < 2; ++i) (void)pthread_join(threads[i], NULL);
  ingot_session_release(other);
  harness_unload(&program);
  harness_release(&harness);
}

/* -- packed weights ---------------------------------------------------------------------------- */

/* Nowhere without a stream. */
static bool write_bytes(void *user, const void *data, size_t length) {
  return user && fwrite(data, 1, length, user) == length;
}

static ingot_status_t save(const harness_program_t *program) {
  FILE *stream = fopen(path, "wb");
  if (!stream) abort();
  ingot_status_t status =
      ingot_program_save_weights(program->program, program->module, NULL, write_bytes, stream);
  if (fclose(stream) != 0) abort();
  return status;
}

/* The program again, of what lies in the file, without parameters. */
static ingot_status_t load_packed(const harness_t *harness, const harness_program_t *program,
                                  bool verify, ingot_session_t **session) {
  const char *const files[] = {path};
  const ingot_program_options_t options = {
      .packed = files, .packed_count = 1, .verify_packed = verify};
  ingot_program_t *made = NULL;
  ingot_module_t *module = program->module;
  ingot_status_t status = ingot_program_create(harness->device, &module, 1, NULL, &options, &made);
  if (!status) status = ingot_session_create(made, NULL, session);
  ingot_program_release(made);
  return status;
}

TEST(packed_weights_are_those_of_init) {
  harness_t harness;
  harness_program_t program;
  ingot_session_t *session = NULL;
  float z = 0;
  REQUIRE_OK(harness_create(NULL, &harness));
  REQUIRE_OK(harness_load(&harness, builder_full_module(), &harness_parameters, &program));
  REQUIRE_OK(swap(program.program, 4));
  REQUIRE_OK(save(&program));
  REQUIRE_OK(load_packed(&harness, &program, true, &session));
  EXPECT_OK(call(&harness, session, &z));
  EXPECT_EQUAL(z, 5);
  ingot_session_release(session);
  harness_unload(&program);
  harness_release(&harness);
}

/* Code may set a global on a condition only: what is not set is left out. */
TEST(a_global_that_init_has_not_set_is_not_packed) {
  builder_t builder[1] = {builder_create()};
  harness_t harness;
  harness_program_t program;
  ingot_session_t *session = NULL;
  builder->global_count = 1;
  builder_function(builder, "init", INGOT_FUNCTION_INIT);
  EMIT(CONST_I64, 0, 0);
  uint32_t branch = EMIT(BRANCH_IF, 0, 0, 0);
  builder_set_target(builder, branch + 2);
  EMIT(CONSTANTS, 0);
  EMIT(GLOBAL_STORE, 0, 0);
  builder_set_target(builder, branch + 4);
  EMIT(RETURN, 0, 0, 0);
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  EMIT(RETURN, 0, 0, 0);
  REQUIRE_OK(harness_create(NULL, &harness));
  REQUIRE_OK(harness_load(&harness, builder_finish(builder), NULL, &program));
  EXPECT_OK(save(&program));
  EXPECT_OK(load_packed(&harness, &program, true, &session));
  ingot_session_release(session);
  harness_unload(&program);
  harness_release(&harness);
}

static void change_byte(long offset, size_t cut) {
  FILE *stream = fopen(path, "r+b");
  if (!stream) abort();
  (void)fseek(stream, offset, SEEK_SET);
  int byte = fgetc(stream);
  (void)fseek(stream, offset, SEEK_SET);
  (void)fputc(byte ^ 1, stream);
  (void)fseek(stream, 0, SEEK_END);
  long length = ftell(stream);
  if (fclose(stream) != 0 || truncate(path, length - (long)cut) != 0) abort();
}

TEST(damaged_and_foreign_files_are_refused) {
  harness_t harness;
  harness_program_t program;
  harness_program_t other;
  ingot_session_t *session = NULL;
  REQUIRE_OK(harness_create(NULL, &harness));
  REQUIRE_OK(harness_load(&harness, builder_full_module(), &harness_parameters, &program));
  REQUIRE_OK(harness_load(&harness, builder_add_one_module(), NULL, &other));
  for (long offset = 0; offset < 200; ++offset) {
    REQUIRE_OK(save(&program));
    change_byte(offset, 0);
    ingot_status_t status = load_packed(&harness, &program, false, &session);
    ingot_status_code_t code = ingot_status_code(status);
    bool is_magic = offset < 8;
    EXPECT_EQUAL(code, is_magic ? INGOT_STATUS_INVALID_ARGUMENT : INGOT_STATUS_DATA_LOSS);
    ingot_status_free(status);
  }
  REQUIRE_OK(save(&program));
  EXPECT_STATUS(load_packed(&harness, &other, false, &session), INVALID_ARGUMENT,
                "belong to another module");
  change_byte(4096, 0); /* of the data */
  EXPECT_STATUS(load_packed(&harness, &program, true, &session), DATA_LOSS, "are damaged");
  change_byte(4096, 1);
  EXPECT_STATUS(load_packed(&harness, &program, false, &session), DATA_LOSS, "cut");
  if (truncate(path, 3) != 0) abort();
  EXPECT_STATUS(load_packed(&harness, &program, false, &session), INVALID_ARGUMENT, "another file");
  if (truncate(path, 0) != 0) abort();
  EXPECT_STATUS(load_packed(&harness, &program, false, &session), INVALID_ARGUMENT, "another file");
  EXPECT_STATUS(
      ingot_program_save_weights(program.program, other.module, NULL, write_bytes, stdout),
      INVALID_ARGUMENT, "not made from this module");
  EXPECT_STATUS(
      ingot_program_save_weights(program.program, program.module, NULL, write_bytes, NULL),
      CANCELLED, "could not be written");
  EXPECT_STATUS(
      ingot_program_save_weights(program.program, program.module, "x", write_bytes, stdout),
      NOT_FOUND, "no parameters of scope 'x'; its scopes are: ''");
  harness_unload(&other);
  harness_unload(&program);
  harness_release(&harness);
}

/* -- memory that runs out ---------------------------------------------------------------------- */

static ingot_status_t swap_save_and_load(const ingot_allocator_t *allocator) {
  harness_t harness;
  harness_program_t program = {.module = NULL};
  ingot_session_t *session = NULL;
  float z = 0;
  ingot_status_t status = harness_create(allocator, &harness);
  if (!status) {
    status = harness_load(&harness, builder_full_module(), &harness_parameters, &program);
  }
  if (!status) {
    status = swap(program.program, 1);
    if (status) { /* nothing is lost */
      EXPECT_OK(swap(program.program, 2));
      EXPECT_OK(call(&harness, program.session, &z));
      EXPECT_EQUAL(z, 3);
    }
  }
  if (!status) status = save(&program);
  if (!status) status = load_packed(&harness, &program, false, &session);
  ingot_session_release(session);
  harness_unload(&program);
  harness_release(&harness);
  return status;
}

TEST(every_allocation_may_fail) { test_fail_each_allocation(swap_save_and_load, 61); }

int main(void) {
  int descriptor = mkstemp(path);
  if (descriptor < 0 || close(descriptor) != 0) return 1;
  RUN_TESTS();
  (void)unlink(path);
  return TEST_RESULT();
}
