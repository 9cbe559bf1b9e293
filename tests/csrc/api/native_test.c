/* Native functions: what they get and give, in which order, how they fail, and what is refused when
 * a program is made. Every n-th allocation fails, too.
 */
#include "vm/harness.h"

#define SCALE "(f32[n]) -> (f32[n])"
#define KEEP "(f32[n]) -> (f32[k], i64[k])"

/* What the functions below note. */
typedef struct notes_t {
  int scale_calls;
  int keep_calls;
  ingot_session_t *session; /* to call from within */
  ingot_status_code_t inside; /* of that call */
  ingot_status_code_t failure; /* with which scale ends; 0: none */
  bool cancels;
  bool gives_view; /* instead of filling */
  int64_t wrong; /* added to the dims that keep decides */
  char attributes[64];
} notes_t;

static harness_t harness;

/* y = 2 x. */
static ingot_status_t scale(void *user, const ingot_native_call_t *call) {
  notes_t *notes = user;
  const ingot_native_tensor_t *x = &call->arguments[0];
  ingot_native_tensor_t *y = &call->results[0];
  ++notes->scale_calls;
  (void)snprintf(notes->attributes, sizeof(notes->attributes), "%s", call->attributes);
  if (notes->session) {
    ingot_status_t status = ingot_session_call(notes->session, 0, NULL, 0, NULL, 0, NULL);
    notes->inside = ingot_status_code(status);
    EXPECT(strstr(ingot_status_message(status), "native function 'acme.scale'") != NULL);
    ingot_status_free(status);
  }
  if (notes->cancels) {
    EXPECT(!ingot_native_should_stop(call));
    EXPECT(ingot_session_cancel(notes->session, INGOT_RUNNING_CALL));
    EXPECT(ingot_native_should_stop(call));
  }
  if (notes->failure) return ingot_status_make(notes->failure, "no");
  const float *from = x->data;
  float *to = y->data;
  float *own = NULL;
  if (notes->gives_view) {
    ingot_buffer_t *buffer = NULL;
    INGOT_TRY(ingot_buffer_create(call->device, y->length, &buffer));
    ingot_status_t status =
        ingot_buffer_view_create(buffer, 0, y->dtype, y->rank, y->dims, &y->view);
    ingot_buffer_release(buffer);
    if (status) return status;
    void *data = NULL;
    INGOT_TRY(ingot_buffer_map(buffer, 0, y->length, INGOT_MAP_WRITE, &data));
    to = own = data;
  }
  for (int64_t i = 0; i < x->dims[0]; ++i) to[i] = 2 * from[i];
  if (own) ingot_buffer_unmap(ingot_buffer_view_layout(y->view)->buffer, own);
  return NULL;
}

static int64_t count_positive(const ingot_native_tensor_t *x) {
  int64_t count = 0;
  for (int64_t i = 0; i < x->dims[0]; ++i) count += ((const float *)x->data)[i] > 0;
  return count;
}

/* The first half; the first element must be a positive number, to have read one. */
static ingot_status_t shape_of_keep(void *user, const ingot_native_call_t *call) {
  const notes_t *notes = user;
  EXPECT_EQUAL(call->results[0].dims[0], -1);
  EXPECT(call->results[0].data == NULL && call->arguments[0].dims[0] >= 0);
  EXPECT(call->arguments[0].data && ((const float *)call->arguments[0].data)[0] > 0);
  call->results[0].dims[0] = call->arguments[0].dims[0] / 2;
  call->results[1].dims[0] = call->arguments[0].dims[0] / 2 + notes->wrong;
  return NULL;
}

static ingot_status_t keep_half(void *user, const ingot_native_call_t *call) {
  ++((notes_t *)user)->keep_calls;
  for (int64_t i = 0; i < call->results[0].dims[0]; ++i) {
    ((float *)call->results[0].data)[i] = ((const float *)call->arguments[0].data)[i];
    ((int64_t *)call->results[1].data)[i] = i;
  }
  return NULL;
}

/* Those above 0, as views. */
static ingot_status_t keep_positive(void *user, const ingot_native_call_t *call) {
  const notes_t *notes = user;
  const ingot_native_tensor_t *x = &call->arguments[0];
  int64_t dims[1] = {count_positive(x)};
  for (uint32_t r = 0; r < 2; ++r) {
    ingot_native_tensor_t *result = &call->results[r];
    if (r == 1) dims[0] += notes->wrong;
    if (r == 1 && notes->wrong > 1) return NULL; /* not given */
    size_t length = (size_t)dims[0] * ingot_dtype_length(result->dtype);
    ingot_buffer_t *buffer = NULL;
    INGOT_TRY(ingot_buffer_create(call->device, length, &buffer));
    ingot_status_t status =
        ingot_buffer_view_create(buffer, 0, result->dtype, 1, dims, &result->view);
    size_t at = 0;
    for (int64_t i = 0; !status && i < x->dims[0]; ++i) {
      const float *value = (const float *)x->data + i;
      if (*value <= 0) continue;
      status = r == 0 ? ingot_buffer_write(buffer, 4 * at, value, 4)
                      : ingot_buffer_write(buffer, 8 * at, &i, 8);
      ++at;
    }
    ingot_buffer_release(buffer);
    if (status) return status;
  }
  return NULL;
}

/* main(x: f32[n]) -> (y: f32[k], z: i64[k]) = keep(scale(x)); the slab has 2 x. */
static builder_bytes_t native_module(void) {
  static const int64_t any[1] = {-1};
  builder_t parts = builder_create();
  builder_t *builder = &parts;
  int64_t attributes = builder_string(builder, "{\"factor\":2}");
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, any);
  builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, any);
  builder_value(builder, true, "z", INGOT_DTYPE_I64, 1, any);
  EMIT(ARGUMENT_BUFFER, 0, 0, 0);
  EMIT(ARGUMENT_DIM, 1, 0, 0);
  EMIT(CONST_I64, 2, 4);
  EMIT(MUL_SIZE, 3, 1, 2);
  EMIT(SLAB, 1, 4, 3);
  builder_location(builder, "Scale", "net/scale");
  EMIT(NATIVE_CALL, 0, 0, attributes, 2, 1, 1, 2, 0, 0, 3, 1, 4, 3);
  builder_location(builder, "Keep", "net/keep");
  EMIT(CONST_I64, 5, -1);
  EMIT(NATIVE_CALL, 1, 0, 0, 3, 1, 5, 5, 1, 1, 4, 3);
  EMIT(CONST_I64, 6, 0);
  EMIT(LIST_DIM, 7, 0, 6, 0);
  EMIT(LIST_GET, 2, 8, 0, 6);
  EMIT(LIST_GET, 3, 9, 1, 6);
  EMIT(RESULT_BUFFER, 4, 10, 0, 1, 7);
  EMIT(RESULT_BUFFER, 5, 11, 1, 1, 7);
  EMIT(MUL_SIZE, 12, 7, 2);
  EMIT(COPY, 2, 8, 4, 10, 12);
  EMIT(ADD_I64, 12, 12, 12);
  EMIT(COPY, 3, 9, 5, 11, 12);
  EMIT(RETURN, 0, 0, 0);
  const builder_tensor_t of_scale[2] = {{INGOT_DTYPE_F32, 1, {-1}}, {INGOT_DTYPE_F32, 1, {-1}}};
  const builder_tensor_t of_keep[3] = {
      {INGOT_DTYPE_F32, 1, {-1}}, {INGOT_DTYPE_F32, 1, {-2}}, {INGOT_DTYPE_I64, 1, {-2}}};
  builder_native(builder, "acme.scale", SCALE, of_scale, 1, 1, 0);
  builder_native(builder, "acme.keep", KEEP, of_keep, 1, 2, 3);
  return builder_finish(builder);
}

static ingot_status_t load(const harness_t *with, const ingot_native_t *natives, uint32_t count,
                           harness_program_t *out) {
  const ingot_program_options_t options = {.natives = natives, .native_count = count};
  return harness_load_with(with, native_module(), NULL, &options, out);
}

/* A program whose keep decides by views, or by a shape function. */
static ingot_status_t load_both(const harness_t *with, notes_t *notes, bool has_shape,
                                harness_program_t *out) {
  const ingot_native_t natives[2] = {
      {.name = "acme.scale", .signature = "(f32[a]) -> f32[a]", .call = scale, .user = notes},
      {.name = "acme.keep",
       .call = has_shape ? keep_half : keep_positive,
       .shape = has_shape ? shape_of_keep : NULL,
       .user = notes},
  };
  return load(with, natives, 2, out);
}

static ingot_status_t call(const harness_program_t *program, ingot_buffer_view_t **results,
                           const harness_t *with) {
  static float data[6] = {1, -2, 3, -4, 5, 6};
  const int64_t dims[1] = {6};
  ingot_buffer_view_t *x = NULL;
  INGOT_TRY(ingot_buffer_view_wrap(with->device, data, sizeof(data), INGOT_DTYPE_F32, 1, dims, NULL,
                                   NULL, &x));
  ingot_status_t status = ingot_session_call(program->session, 0, &x, 1, results, 2, NULL);
  ingot_buffer_view_release(x);
  return status;
}

static void expect_results(ingot_buffer_view_t **results, const float *y, const int64_t *z,
                           int64_t count) {
  float got[8] = {0};
  int64_t places[8] = {0};
  const ingot_buffer_view_layout_t *layout = ingot_buffer_view_layout(results[0]);
  EXPECT_EQUAL(layout->dims[0], count);
  EXPECT_OK(ingot_buffer_read(layout->buffer, layout->offset, got, layout->length));
  layout = ingot_buffer_view_layout(results[1]);
  EXPECT_EQUAL(layout->dims[0], count);
  EXPECT_OK(ingot_buffer_read(layout->buffer, layout->offset, places, layout->length));
  for (int64_t i = 0; i < count; ++i) EXPECT(got[i] == y[i] && places[i] == z[i]);
  for (int r = 0; r < 2; ++r) {
    ingot_buffer_view_release(results[r]);
    results[r] = NULL;
  }
}

TEST(results_are_filled_or_given) {
  static const float positive[4] = {2, 6, 10, 12};
  static const int64_t of_positive[4] = {0, 2, 4, 5};
  static const float half[3] = {2, -4, 6};
  static const int64_t of_half[3] = {0, 1, 2};
  for (int has_shape = 0; has_shape < 2; ++has_shape) {
    notes_t notes = {.gives_view = has_shape == 1};
    harness_program_t program;
    ingot_buffer_view_t *results[2] = {NULL, NULL};
    REQUIRE_OK(load_both(&harness, &notes, has_shape, &program));
    for (int turn = 1; turn <= 3; ++turn) {
      REQUIRE_OK(call(&program, results, &harness));
      if (has_shape) expect_results(results, half, of_half, 3);
      else expect_results(results, positive, of_positive, 4);
      EXPECT_EQUAL(notes.scale_calls, turn);
    }
    EXPECT_TEXT(notes.attributes, "{\"factor\":2}");
    harness_unload(&program);
  }
}

static void expect_failure(const harness_program_t *program, ingot_status_code_t code,
                           const char *message) {
  ingot_buffer_view_t *results[2] = {NULL, NULL};
  ingot_status_t status = call(program, results, &harness);
  EXPECT_EQUAL(ingot_status_code(status), code);
  if (!strstr(ingot_status_message(status), message)) {
    FAIL("\"%s\" lacks \"%s\"", ingot_status_message(status), message);
  }
  EXPECT(!results[0] && !results[1]);
  ingot_status_free(status);
}

TEST(what_a_function_does_wrong_fails_its_call_alone) {
  notes_t notes = {.scale_calls = 0};
  harness_program_t program;
  ingot_buffer_view_t *results[2] = {NULL, NULL};
  REQUIRE_OK(load_both(&harness, &notes, false, &program));
  notes.failure = INGOT_STATUS_NOT_FOUND;
  expect_failure(&program, INGOT_STATUS_NOT_FOUND,
                 "Scale 'net/scale': native function 'acme.scale': no");
  notes.failure = 99;
  expect_failure(&program, INGOT_STATUS_INTERNAL, "99 is no status code");
  notes.failure = 0;
  notes.wrong = 1;
  expect_failure(&program, INGOT_STATUS_INVALID_ARGUMENT,
                 "Keep 'net/keep': native function 'acme.keep': dim 0 of result 1 is 5, expected 4 "
                 "by " KEEP);
  notes.wrong = 2;
  expect_failure(&program, INGOT_STATUS_INVALID_ARGUMENT, "result 1 is not given");
  notes.wrong = 0;
  notes.session = program.session;
  EXPECT_OK(call(&program, results, &harness));
  EXPECT_EQUAL(notes.inside, INGOT_STATUS_FAILED_PRECONDITION);
  ingot_buffer_view_release(results[0]);
  ingot_buffer_view_release(results[1]);
  notes.cancels = true;
  expect_failure(&program, INGOT_STATUS_CANCELLED, "native function 'acme.scale'");
  EXPECT_EQUAL(notes.keep_calls, 0);
  harness_unload(&program);
  notes = (notes_t){.wrong = -9};
  REQUIRE_OK(load_both(&harness, &notes, true, &program));
  expect_failure(&program, INGOT_STATUS_INVALID_ARGUMENT,
                 "dim 0 of result 1 is -6, expected at least 0");
  EXPECT_EQUAL(notes.keep_calls, 0);
  harness_unload(&program);
}

static void expect_refused(const ingot_native_t *natives, uint32_t count, ingot_status_code_t code,
                           const char *message) {
  harness_program_t program;
  ingot_status_t status = load(&harness, natives, count, &program);
  EXPECT_EQUAL(ingot_status_code(status), code);
  EXPECT_TEXT(ingot_status_message(status), message);
  ingot_status_free(status);
  harness_unload(&program);
}

TEST(names_and_signatures_are_checked_when_a_program_is_made) {
  ingot_native_t natives[3] = {{.name = "acme.scale", .call = scale},
                               {.name = "acme.keep", .call = keep_half},
                               {.name = "acme.other", .call = scale}};
  expect_refused(NULL, 0, INGOT_STATUS_NOT_FOUND,
                 "2 native functions are missing: 'acme.scale' " SCALE ", 'acme.keep' " KEEP
                 "; give what the modules call as the program's natives, or a module of that name "
                 "that has it");
  expect_refused(natives, 1, INGOT_STATUS_NOT_FOUND,
                 "1 native function is missing: 'acme.keep' " KEEP
                 "; give what the modules call as the program's natives, or a module of that name "
                 "that has it");
  static const char *const wrong[] = {"(f32[a]) -> f32[b]",   "(f64[a]) -> f64[a]",
                                      "(f32[n,n]) -> f32[n]", "(f32[n])",
                                      "(f32[4]) -> f32[4]",   "(f32[n]) -> (f32[n], f32[n])"};
  for (size_t k = 0; k < sizeof(wrong) / sizeof(*wrong); ++k) {
    char message[256];
    natives[0].signature = wrong[k];
    (void)snprintf(message, sizeof(message),
                   "1 native function is of another signature than the modules call: "
                   "'acme.scale' " SCALE ", given as %s",
                   wrong[k]);
    expect_refused(natives, 3, INGOT_STATUS_INVALID_ARGUMENT, message);
  }
  natives[0].signature = " ( f32[ w ] )->f32[w] ";
  natives[1].signature = "(f32[x]) -> (f32[n], i64[n])";
  harness_program_t program;
  EXPECT_OK(load(&harness, natives, 3, &program));
  harness_unload(&program);
  natives[2].name = "acme.keep";
  expect_refused(natives, 3, INGOT_STATUS_INVALID_ARGUMENT,
                 "native function 'acme.keep' is given twice");
  natives[2].call = NULL;
  expect_refused(natives, 3, INGOT_STATUS_INVALID_ARGUMENT,
                 "native function 2 has no function to call");
}

/* The text of what is missing ends with dots where it was cut only. */
TEST(long_lists_of_what_is_missing_are_cut) {
  static const builder_tensor_t tensors[2] = {{INGOT_DTYPE_F32, 1, {-1}},
                                              {INGOT_DTYPE_F32, 1, {-1}}};
  for (uint32_t count = 2; count <= 4; ++count) {
    builder_t parts = builder_create();
    builder_t *builder = &parts;
    ingot_module_t *module = NULL;
    ingot_program_t *program = NULL;
    builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
    EMIT(RETURN, 0, 0, 0);
    for (uint32_t k = 0; k < count; ++k) {
      char name[300];
      (void)snprintf(name, sizeof(name), "acme.%u%0250d", k, 0);
      builder_native(builder, name, SCALE, tensors, 1, 1, 0);
    }
    builder_bytes_t file = builder_finish(builder);
    REQUIRE_OK(
        ingot_module_load_memory(harness.instance, file.data, file.length, 0, NULL, NULL, &module));
    ingot_status_t status = ingot_program_create(harness.device, &module, 1, NULL, NULL, &program);
    EXPECT_EQUAL(ingot_status_code(status), INGOT_STATUS_NOT_FOUND);
    EXPECT_EQUAL(strstr(ingot_status_message(status), ", ...;") != NULL, count == 4);
    ingot_status_free(status);
    ingot_module_release(module);
    free(file.data);
  }
}

static ingot_status_t load_and_call(const ingot_allocator_t *allocator, bool has_shape) {
  harness_t with;
  harness_program_t program = {.module = NULL};
  notes_t notes = {.gives_view = true};
  ingot_buffer_view_t *results[2] = {NULL, NULL};
  ingot_status_t status = harness_create(allocator, &with);
  if (!status) status = load_both(&with, &notes, has_shape, &program);
  if (!status) status = call(&program, results, &with);
  for (int r = 0; r < 2; ++r) ingot_buffer_view_release(results[r]);
  harness_unload(&program);
  harness_release(&with);
  return status;
}

static ingot_status_t call_by_views(const ingot_allocator_t *allocator) {
  return load_and_call(allocator, false);
}

static ingot_status_t call_by_shapes(const ingot_allocator_t *allocator) {
  return load_and_call(allocator, true);
}

TEST(every_allocation_may_fail) {
  test_fail_each_allocation(call_by_views, 20);
  test_fail_each_allocation(call_by_shapes, 20);
}

/* Reads and writes all bytes that it is given. */
static ingot_status_t touch(void *user, const ingot_native_call_t *call) {
  uint8_t sum = 0;
  (void)user;
  for (uint32_t i = 0; i < call->argument_count; ++i) {
    const ingot_native_tensor_t *tensor = &call->arguments[i];
    for (size_t k = 0; k < tensor->length; ++k) sum += ((const uint8_t *)tensor->data)[k];
  }
  for (uint32_t i = 0; i < call->result_count; ++i) {
    const ingot_native_tensor_t *tensor = &call->results[i];
    if (tensor->data) memset(tensor->data, sum, tensor->length);
  }
  return NULL;
}

/* Dims of 3 for whatever is to be decided. */
static ingot_status_t three(void *user, const ingot_native_call_t *call) {
  (void)user;
  for (uint32_t i = 0; i < call->result_count; ++i) {
    for (uint32_t d = 0; d < call->results[i].rank; ++d) call->results[i].dims[d] = 3;
  }
  return NULL;
}

TEST(sealed_mutations_give_a_status_or_results) {
  const ingot_native_t natives[2] = {{.name = "acme.scale", .call = touch, .shape = three},
                                     {.name = "acme.keep", .call = touch, .shape = three}};
  const ingot_program_options_t options = {.natives = natives, .native_count = 2};
  uint64_t random = 88172645463325252u;
  int ran = 0;
  for (int round = 0; round < 4000; ++round) {
    harness_program_t program = {.file = native_module()};
    ingot_buffer_view_t *results[2] = {NULL, NULL};
    harness_mutate(program.file, 3, 0xF, &random);
    ingot_status_t status = harness_load_with(&harness, program.file, NULL, &options, &program);
    if (!status) status = call(&program, results, &harness);
    ran += !status;
    ingot_status_free(status);
    for (int r = 0; r < 2; ++r) ingot_buffer_view_release(results[r]);
    harness_unload(&program);
  }
  EXPECT(ran > 100);
}

int main(void) {
  if (harness_create(NULL, &harness)) return 1;
  RUN_TESTS();
  harness_release(&harness);
  return TEST_RESULT();
}
