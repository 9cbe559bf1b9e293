/* Links: functions of one module that another one calls, with state, failures, circles.
 * Every n-th allocation fails, too.
 */
#include "vm/harness.h"

#define MANY 4 /* modules of one program */

static harness_t harness;

/* Some modules and what is made of them. */
typedef struct linked_t {
  builder_bytes_t files[MANY];
  ingot_module_t *modules[MANY];
  uint32_t count;
  ingot_program_t *program;
  ingot_session_t *session;
} linked_t;

static const int64_t any[1] = {-1};
static const builder_tensor_t floats = {INGOT_DTYPE_F32, 1, {-1}};

/* i64 register 1 = n, 3 = the bytes of x; references 0 = x. */
static void emit_argument(builder_t *builder) {
  EMIT(ARGUMENT_BUFFER, 0, 0, 0);
  EMIT(ARGUMENT_DIM, 1, 0, 0);
  EMIT(CONST_I64, 2, 4);
  EMIT(MUL_SIZE, 3, 1, 2);
}

/* step(x: f32[n]) -> (y: f32[n]): y = x, but for y[0], which is how often it was called. Fails behind
 * its change of the state where x[0] is -1.
 * first(x: f32[n]) -> (y: f32[k]): x[0]. */
static builder_bytes_t library(void) {
  builder_t parts = builder_create();
  builder_t *builder = &parts;
  uint32_t message = builder_string(builder, "not {}");
  builder_variable(builder, "count", INGOT_DTYPE_I64, 0, NULL, 0, 0);
  builder_function(builder, "step", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, any);
  builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, any);
  emit_argument(builder);
  EMIT(VARIABLE_WRITE, 1, 4, 0);
  EMIT(READ_I64, 5, 1, 4, INGOT_DTYPE_I64);
  EMIT(CONST_I64, 6, 1);
  EMIT(ADD_I64, 5, 5, 6);
  EMIT(WRITE_I64, 1, 4, 5, INGOT_DTYPE_I64);
  EMIT(READ_F64, 0, 0, 0, INGOT_DTYPE_F32);
  EMIT(F64_TO_I64, 7, 0);
  EMIT(CONST_I64, 8, -1);
  EMIT(NE_I64, 9, 7, 8);
  EMIT(ASSERT, 9, INGOT_STATUS_OUT_OF_RANGE, message, 1, 7);
  EMIT(RESULT_BUFFER, 2, 10, 0, 1, 1);
  EMIT(COPY, 0, 0, 2, 10, 3);
  EMIT(I64_TO_F64, 1, 5);
  EMIT(WRITE_F64, 2, 10, 1, INGOT_DTYPE_F32);
  EMIT(RETURN, 0, 0, 0);
  builder_function(builder, "first", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, any);
  builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, any);
  emit_argument(builder);
  EMIT(CONST_I64, 4, 1);
  EMIT(RESULT_BUFFER, 1, 5, 0, 1, 4);
  EMIT(COPY, 0, 0, 1, 5, 2);
  EMIT(RETURN, 0, 0, 0);
  return builder_finish(builder);
}

/* main(x: f32[n]) -> (y: f32[n], z: f32[k]) = PREFIX.step(x), PREFIX.first(x), and then a failure if
 * x[0] is -2. */
static builder_bytes_t caller(const char *prefix, const char *step_signature, ingot_dtype_t dtype) {
  char names[2][32];
  builder_t parts = builder_create();
  builder_t *builder = &parts;
  uint32_t message = builder_string(builder, "not {}");
  (void)snprintf(names[0], sizeof(names[0]), "%s.step", prefix);
  (void)snprintf(names[1], sizeof(names[1]), "%s.first", prefix);
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, any);
  builder_value(builder, true, "y", dtype, 1, any);
  builder_value(builder, true, "z", INGOT_DTYPE_F32, 1, any);
  emit_argument(builder);
  EMIT(RESULT_BUFFER, 1, 4, 0, 1, 1);
  builder_location(builder, "Step", "net/step");
  EMIT(NATIVE_CALL, 0, 0, 0, 2, 1, 1, 2, 0, 0, 3, 1, 4, 3);
  EMIT(CONST_I64, 5, -1);
  EMIT(NATIVE_CALL, 1, 0, 0, 2, 1, 5, 1, 0, 0, 3);
  EMIT(CONST_I64, 6, 0);
  EMIT(LIST_DIM, 7, 0, 6, 0);
  EMIT(LIST_GET, 2, 8, 0, 6);
  EMIT(RESULT_BUFFER, 3, 9, 1, 1, 7);
  EMIT(MUL_SIZE, 10, 7, 2);
  EMIT(COPY, 2, 8, 3, 9, 10);
  EMIT(READ_F64, 0, 0, 0, INGOT_DTYPE_F32);
  EMIT(F64_TO_I64, 11, 0);
  EMIT(CONST_I64, 12, -2);
  EMIT(NE_I64, 13, 11, 12);
  EMIT(ASSERT, 13, INGOT_STATUS_OUT_OF_RANGE, message, 1, 11);
  EMIT(RETURN, 0, 0, 0);
  builder_tensor_t result = floats;
  result.dtype = dtype;
  const builder_tensor_t tensors[2] = {floats, result};
  const builder_tensor_t of_first[2] = {floats, {INGOT_DTYPE_F32, 1, {-2}}};
  builder_native(builder, names[0], step_signature, tensors, 1, 1, 0);
  builder_native(builder, names[1], "(f32[n]) -> (f32[k])", of_first, 1, 1, 1);
  return builder_finish(builder);
}

/* again(x: f32[n]) -> (y: f32[n]) = NAME(x). */
static builder_bytes_t relay(const char *name) {
  builder_t parts = builder_create();
  builder_t *builder = &parts;
  const builder_tensor_t tensors[2] = {floats, floats};
  builder_function(builder, "again", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, any);
  builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, any);
  emit_argument(builder);
  EMIT(RESULT_BUFFER, 1, 4, 0, 1, 1);
  EMIT(NATIVE_CALL, 0, 0, 0, 2, 1, 1, 2, 0, 0, 3, 1, 4, 3);
  EMIT(RETURN, 0, 0, 0);
  builder_native(builder, name, "(f32[n]) -> (f32[n])", tensors, 1, 1, 0);
  return builder_finish(builder);
}

/* spin(x: f32[n]) -> (y: f32[n]) never ends. */
static builder_bytes_t endless(void) {
  builder_t parts = builder_create();
  builder_t *builder = &parts;
  builder_function(builder, "spin", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, any);
  builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, any);
  uint32_t head = EMIT(CONST_I64, 0, 0);
  EMIT(BRANCH, head);
  return builder_finish(builder);
}

/* Takes over `files`. On failure unload is still to be called. */
static ingot_status_t load(const harness_t *with, const builder_bytes_t *files,
                           const char *const *names, uint32_t count, linked_t *out) {
  const ingot_program_options_t options = {.names = names};
  *out = (linked_t){.count = count};
  ingot_status_t status = NULL;
  for (uint32_t i = 0; i < count; ++i) out->files[i] = files[i];
  for (uint32_t i = 0; !status && i < count; ++i) {
    status = ingot_module_load_memory(with->instance, files[i].data, files[i].length, 0, NULL, NULL,
                                      &out->modules[i]);
  }
  if (!status) {
    status = ingot_program_create(with->device, out->modules, count, NULL, &options, &out->program);
  }
  if (!status) status = ingot_session_create(out->program, NULL, &out->session);
  return status;
}

static void unload(linked_t *linked) {
  ingot_session_release(linked->session);
  ingot_program_release(linked->program);
  for (uint32_t i = 0; i < linked->count; ++i) {
    ingot_module_release(linked->modules[i]);
    free(linked->files[i].data);
  }
}

static ingot_status_t load_library(const harness_t *with, linked_t *out) {
  static const char *const names[2] = {NULL, "lib"};
  const builder_bytes_t files[2] = {caller("lib", "(f32[n]) -> (f32[n])", INGOT_DTYPE_F32),
                                    library()};
  return load(with, files, names, 2, out);
}

/* Calls a function of two elements {x, 7}; the first element of each result comes back. */
static ingot_status_t call_within(const linked_t *linked, const harness_t *with, const char *name,
                                  float x, uint32_t count, float *out_first,
                                  const ingot_call_options_t *options) {
  float data[2] = {x, 7};
  const int64_t dims[1] = {2};
  uint32_t function = 0;
  ingot_buffer_view_t *results[2] = {NULL, NULL};
  ingot_buffer_view_t *argument = NULL;
  INGOT_TRY(ingot_program_find_function(linked->program, name, &function));
  INGOT_TRY(ingot_buffer_view_wrap(with->device, data, sizeof(data), INGOT_DTYPE_F32, 1, dims, NULL,
                                   NULL, &argument));
  ingot_status_t status =
      ingot_session_call(linked->session, function, &argument, 1, results, count, options);
  ingot_buffer_view_release(argument);
  for (uint32_t i = 0; i < count; ++i) {
    if (!status) {
      const ingot_buffer_view_layout_t *layout = ingot_buffer_view_layout(results[i]);
      status = ingot_buffer_read(layout->buffer, layout->offset, &out_first[i], 4);
    }
    ingot_buffer_view_release(results[i]);
  }
  return status;
}

static ingot_status_t call(const linked_t *linked, const harness_t *with, const char *name, float x,
                           uint32_t count, float *out_first) {
  return call_within(linked, with, name, x, count, out_first, NULL);
}

TEST(modules_call_each_other_with_one_state) {
  linked_t linked;
  float got[2];
  REQUIRE_OK(load_library(&harness, &linked));
  for (int turn = 1; turn <= 3; ++turn) {
    EXPECT_OK(call(&linked, &harness, "main", 5, 2, got));
    EXPECT(got[0] == (float)turn && got[1] == 5);
  }
  /* What the other module's function makes is the session's, too. */
  EXPECT_EQUAL(ingot_session_statistics(linked.session).results.peak,
               ingot_program_statistics(linked.program).results.peak);
  EXPECT_OK(call(&linked, &harness, "lib.step", 5, 1, got));
  EXPECT(got[0] == 4);
  EXPECT_OK(call(&linked, &harness, "step", 5, 1, got));
  EXPECT(got[0] == 5);
  EXPECT_OK(ingot_session_trim(linked.session));
  EXPECT_OK(ingot_session_reset(linked.session));
  EXPECT_OK(call(&linked, &harness, "main", 5, 2, got));
  EXPECT(got[0] == 1);
  unload(&linked);
}

/* State that is being changed when a call fails is lost for the whole call. */
TEST(failures_name_both_and_leave_the_state_to_a_reset) {
  static const char *const messages[] = {"Step 'net/step': native function 'lib.step': not -1",
                                         "not -2"};
  linked_t linked;
  float got[2];
  REQUIRE_OK(load_library(&harness, &linked));
  for (int k = 0; k < 2; ++k) {
    EXPECT_STATUS(call(&linked, &harness, "main", (float)(-1 - k), 2, got), OUT_OF_RANGE,
                  messages[k]);
    EXPECT_STATUS(call(&linked, &harness, "main", 5, 2, got), FAILED_PRECONDITION, "count");
    EXPECT_OK(ingot_session_reset(linked.session));
    EXPECT_OK(call(&linked, &harness, "main", 5, 2, got));
    EXPECT(got[0] == 1);
    EXPECT_OK(ingot_session_reset(linked.session));
  }
  unload(&linked);
}

static bool always(void *user) {
  (void)user;
  return true;
}

/* What ends the outer call in the inner one is told as what it is. */
TEST(limits_end_calls_of_other_modules) {
  static const char *const names[2] = {"a", "lib"};
  const builder_bytes_t files[2] = {relay("lib.spin"), endless()};
  const ingot_call_options_t late = {.timeout = 5000000};
  const ingot_call_options_t asked = {.should_stop = always};
  const ingot_call_options_t steps = {.max_steps = 1000};
  linked_t linked;
  float got[1];
  REQUIRE_OK(load(&harness, files, names, 2, &linked));
  EXPECT_STATUS(call_within(&linked, &harness, "again", 5, 1, got, &late), DEADLINE_EXCEEDED,
                "longer than its timeout");
  EXPECT_STATUS(call_within(&linked, &harness, "again", 5, 1, got, &asked), CANCELLED, "cancelled");
  EXPECT_STATUS(call_within(&linked, &harness, "again", 5, 1, got, &steps), DEADLINE_EXCEEDED,
                "1000 steps");
  unload(&linked);
}

TEST(links_may_pass_through_modules) {
  static const char *const names[4] = {"a", "b", "c", "lib"};
  const builder_bytes_t files[4] = {relay("b.again"), relay("c.again"), relay("lib.step"),
                                    library()};
  linked_t linked;
  float got[2];
  REQUIRE_OK(load(&harness, files, names, 4, &linked));
  EXPECT_OK(call(&linked, &harness, "a.again", 5, 1, got));
  EXPECT_OK(call(&linked, &harness, "b.again", 5, 1, got));
  EXPECT(got[0] == 2);
  EXPECT_STATUS(call(&linked, &harness, "again", 5, 1, got), NOT_FOUND,
                "there is more than one function 'again'; the program has 'a.again', 'b.again', "
                "'c.again'");
  EXPECT_STATUS(call(&linked, &harness, "c.step", 5, 1, got), NOT_FOUND,
                "there is no function 'c.step'; the program has 'a.again', 'b.again', 'c.again', "
                "'lib.step', 'lib.first'");
  unload(&linked);
}

static void expect_refused(const builder_bytes_t *files, const char *const *names, uint32_t count,
                           ingot_status_code_t code, const char *message) {
  linked_t linked;
  ingot_status_t status = load(&harness, files, names, count, &linked);
  EXPECT_EQUAL(ingot_status_code(status), code);
  if (!strstr(ingot_status_message(status), message)) {
    FAIL("\"%s\" lacks \"%s\"", ingot_status_message(status), message);
  }
  ingot_status_free(status);
  unload(&linked);
}

TEST(wrong_links_are_refused_when_a_program_is_made) {
  static const char *const names[2] = {"net", "lib"};
  static const char *const circle[2] = {"a", "b"};
  static const char *const same[2] = {"lib", "lib"};
  const char *signature = "(f32[n]) -> (f64[n])";
  const builder_bytes_t other[2] = {caller("lib", signature, INGOT_DTYPE_F64), library()};
  expect_refused(other, names, 2, INGOT_STATUS_INVALID_ARGUMENT,
                 "'lib.step' (f32[n]) -> (f64[n]), given as (f32[n]) -> (f32[n])");
  const builder_bytes_t missing[2] = {caller("lob", signature, INGOT_DTYPE_F64), library()};
  expect_refused(missing, names, 2, INGOT_STATUS_NOT_FOUND,
                 "2 native functions are missing: 'lob.step'");
  const builder_bytes_t round[2] = {relay("b.again"), relay("a.again")};
  expect_refused(round, circle, 2, INGOT_STATUS_INVALID_ARGUMENT,
                 "module 'a' and others call each other in a circle");
  const builder_bytes_t own[1] = {relay("a.again")};
  expect_refused(own, circle, 1, INGOT_STATUS_INVALID_ARGUMENT, "in a circle");
  const builder_bytes_t twice[2] = {library(), library()};
  expect_refused(twice, same, 2, INGOT_STATUS_INVALID_ARGUMENT, "have the name 'lib'");
  const builder_bytes_t nameless[2] = {library(), library()};
  expect_refused(nameless, NULL, 2, INGOT_STATUS_INVALID_ARGUMENT,
                 "two of the modules have a function 'step': give the modules names");
}

/* has(x: f32[n]) -> (y: f32[1]): 1 if anybody gives NAME, else 0; call(x) calls it. */
static builder_bytes_t asking(const char *name, ingot_dtype_t dtype, uint32_t needed) {
  const builder_tensor_t truth = {dtype, 0, {0}};
  static const int64_t one[1] = {1};
  char question[32];
  builder_t parts = builder_create();
  builder_t *builder = &parts;
  (void)snprintf(question, sizeof(question), "?%s", name);
  builder_function(builder, "has", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, any);
  builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, one);
  EMIT(CONST_I64, 0, 0);
  EMIT(CONST_I64, 1, 1);
  EMIT(RESULT_BUFFER, 0, 0, 0, 1, 1);
  EMIT(NATIVE_CALL, 0, 0, 0, 0, 1, 0, 0, 1);
  EMIT(READ_I64, 2, 0, 0, INGOT_DTYPE_I1);
  EMIT(I64_TO_F64, 0, 2);
  EMIT(WRITE_F64, 0, 0, 0, INGOT_DTYPE_F32);
  EMIT(RETURN, 0, 0, 0);
  builder_function(builder, "call", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, any);
  EMIT(NATIVE_CALL, 1, 0, 0, 0, 0);
  EMIT(RETURN, 0, 0, 0);
  builder_native(builder, question, dtype == INGOT_DTYPE_I1 ? "() -> (i1[])" : "() -> (i8[])",
                 &truth, 0, 1, 0);
  builder_native(builder, name, "() -> ()", NULL, 0, 0, 0);
  builder_optional(builder);
  builder_version(builder, "lib", needed);
  return builder_finish(builder);
}

static builder_bytes_t of_version(uint32_t version) {
  builder_t parts = builder_create();
  builder_t *builder = &parts;
  builder_function(builder, "run", INGOT_FUNCTION_EXPORTED);
  EMIT(RETURN, 0, 0, 0);
  if (version) builder_version(builder, "", version);
  return builder_finish(builder);
}

TEST(code_asks_whether_a_function_is_there) {
  static const char *const names[2] = {"net", "lib"};
  for (uint32_t count = 1; count <= 2; ++count) {
    const builder_bytes_t files[2] = {asking("lib.run", INGOT_DTYPE_I1, 0), of_version(0)};
    linked_t linked;
    float got[1] = {7};
    REQUIRE_OK(load(&harness, files, names, count, &linked));
    if (count == 1) free(files[1].data);
    EXPECT_OK(call(&linked, &harness, "net.has", 5, 1, got));
    EXPECT(got[0] == (float)(count - 1));
    ingot_status_t status = call(&linked, &harness, "net.call", 5, 0, got);
    if (count == 2) EXPECT_OK(status);
    else EXPECT_STATUS(status, NOT_FOUND, "native function 'lib.run': nobody gives it");
    unload(&linked);
  }
  const builder_bytes_t other[1] = {asking("lib.run", INGOT_DTYPE_I8, 0)};
  expect_refused(other, names, 1, INGOT_STATUS_INVALID_ARGUMENT, "'?lib.run' () -> (i8[])");
}

TEST(other_versions_are_refused) {
  static const char *const names[2] = {"net", "lib"};
  const builder_bytes_t old[2] = {asking("lib.run", INGOT_DTYPE_I1, 3), of_version(2)};
  expect_refused(old, names, 2, INGOT_STATUS_INCOMPATIBLE,
                 "module 'net' needs version 3 of the module 'lib', or a later one, but it is "
                 "version 2: load a newer 'lib'");
  const builder_bytes_t none[2] = {asking("lib.run", INGOT_DTYPE_I1, 1), of_version(0)};
  expect_refused(none, names, 2, INGOT_STATUS_INCOMPATIBLE, "but it is version 0");
}

/* Ends the call at the fifth instruction of the other module. */
static bool count_stop(void *user, const ingot_debug_stop_t *stop) {
  ingot_module_t *const *modules = user;
  static int inside = 0;
  inside += stop->module == modules[1];
  return inside < 5;
}

TEST(a_debugger_stops_in_the_other_module) {
  linked_t linked;
  float got[2];
  REQUIRE_OK(load_library(&harness, &linked));
  EXPECT_OK(ingot_session_set_debug(linked.session, count_stop, linked.modules));
  EXPECT_STATUS(call(&linked, &harness, "main", 5, 2, got), CANCELLED, "the debugger ended");
  unload(&linked);
}

static ingot_status_t load_and_call(const ingot_allocator_t *allocator) {
  harness_t with;
  linked_t linked = {.count = 0};
  float got[2];
  ingot_status_t status = harness_create(allocator, &with);
  if (!status) status = load_library(&with, &linked);
  if (!status) status = call(&linked, &with, "main", 5, 2, got);
  unload(&linked);
  harness_release(&with);
  return status;
}

TEST(every_allocation_may_fail) { test_fail_each_allocation(load_and_call, 20); }

int main(void) {
  if (harness_create(NULL, &harness)) return 1;
  RUN_TESTS();
  harness_release(&harness);
  return TEST_RESULT();
}
