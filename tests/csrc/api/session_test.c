/* Calls as an embedder makes them: checks of arguments and results, their messages, faults,
 * tracing, sessions side by side, and what programs refuse.
 */
#include <pthread.h>

#include "object.h"
#include "vm/harness.h"

static harness_t harness;
static harness_program_t program;

/* Calls "main" of the add_one module. */
static ingot_status_t call(ingot_buffer_view_t *x, ingot_buffer_view_t **y) {
  return ingot_session_call(program.session, 0, &x, x ? 1 : 0, y, 1, NULL);
}

TEST(results_are_made_or_written_in_place) {
  float x[4] = {1, 2, 3, 4};
  float y[4] = {0};
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, 4);
  ingot_buffer_view_t *result = harness_view(&harness, y, INGOT_DTYPE_F32, 4);
  ingot_buffer_view_t *given = result;
  EXPECT_OK(call(argument, &result));
  EXPECT(result == given);
  EXPECT(y[0] == 2 && y[1] == 3 && y[2] == 4 && y[3] == 5);
  ingot_buffer_view_t *made = NULL;
  REQUIRE_OK(call(argument, &made));
  const ingot_buffer_view_layout_t *layout = ingot_buffer_view_layout(made);
  EXPECT_EQUAL(layout->dtype, INGOT_DTYPE_F32);
  EXPECT_EQUAL(layout->rank, 1);
  EXPECT_EQUAL(layout->length, 16);
  EXPECT_OK(ingot_buffer_read(layout->buffer, 0, x, 16));
  EXPECT(x[3] == 5);
  ingot_buffer_view_release(made);
  ingot_buffer_view_release(given);
  ingot_buffer_view_release(argument);
}

TEST(wrong_arguments_are_named) {
  float x[8] = {0};
  const int64_t dims[2] = {2, 2};
  ingot_buffer_view_t *made = NULL;
  ingot_buffer_view_t *wrong = harness_view(&harness, x, INGOT_DTYPE_F32, 5);
  EXPECT_STATUS(call(wrong, &made), INVALID_ARGUMENT, "argument 0 'x': dim 0 is 5, expected 4");
  ingot_buffer_view_release(wrong);
  wrong = harness_view(&harness, x, INGOT_DTYPE_I32, 4);
  EXPECT_STATUS(call(wrong, &made), INVALID_ARGUMENT, "argument 0 'x' is i32, expected f32");
  ingot_buffer_view_release(wrong);
  REQUIRE_OK(ingot_buffer_view_wrap(harness.device, x, sizeof(x), INGOT_DTYPE_F32, 2, dims, NULL,
                                    NULL, &wrong));
  EXPECT_STATUS(call(wrong, &made), INVALID_ARGUMENT, "argument 0 'x' has rank 2, expected 1");
  ingot_buffer_view_release(wrong);
  EXPECT_STATUS(call(NULL, &made), INVALID_ARGUMENT,
                "function 'main' takes 1 arguments and gives 1 results, it is called with 0 and 1");
  EXPECT_STATUS(ingot_session_call(program.session, 7, NULL, 0, NULL, 0, NULL), OUT_OF_RANGE,
                "function 7");
  ingot_buffer_view_t *null = NULL;
  EXPECT_STATUS(ingot_session_call(program.session, 0, &null, 1, &made, 1, NULL), INVALID_ARGUMENT,
                "argument 0 'x' is NULL");
  EXPECT(made == NULL);
}

TEST(wrong_result_views_are_named) {
  float x[8] = {0};
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, 4);
  ingot_buffer_view_t *wrong = harness_view(&harness, x + 4, INGOT_DTYPE_F32, 3);
  EXPECT_STATUS(call(argument, &wrong), INVALID_ARGUMENT, "result 0 'y': dim 0 is 3, expected 4");
  ingot_buffer_view_release(wrong);
  wrong = harness_view(&harness, x + 3, INGOT_DTYPE_F32, 4);
  EXPECT_STATUS(call(argument, &wrong), INVALID_ARGUMENT,
                "result 0 'y' is to be written over argument 0");
  ingot_buffer_view_release(wrong);
  wrong = harness_view(&harness, x + 4, INGOT_DTYPE_F32, 4);
  EXPECT_OK(call(argument, &wrong));
  ingot_buffer_view_release(wrong);
  ingot_buffer_view_release(argument);
}

TEST(results_of_symbolic_shape_are_checked_when_it_is_known) {
  harness_program_t full;
  float x[8] = {0};
  float y[8];
  REQUIRE_OK(harness_load(&harness, builder_full_module(), &harness_parameters, &full));
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, 8);
  ingot_buffer_view_t *results[2] = {harness_view(&harness, y, INGOT_DTYPE_F32, 7), NULL};
  EXPECT_STATUS(ingot_session_call(full.session, 0, &argument, 1, results, 2, NULL),
                INVALID_ARGUMENT, "result 0 'y': dim 0 of the given view is 7, expected 8");
  EXPECT(results[1] == NULL);
  ingot_buffer_view_release(results[0]);
  ingot_buffer_view_release(argument);
  harness_unload(&full);
}

TEST(a_fault_names_the_op_and_layer_of_its_call_site) {
  float x[4] = {1, 2, 666, 4};
  ingot_buffer_view_t *made = NULL;
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, 4);
  ingot_status_t status = call(argument, &made);
  EXPECT_EQUAL(ingot_status_code(status), INGOT_STATUS_OUT_OF_RANGE);
  EXPECT_TEXT(ingot_status_message(status),
              "Add 'net/add' (operand 1): index 30523 is out of range [0, 30522)");
  ingot_status_free(status);
  x[2] = 3;
  EXPECT_OK(call(argument, &made));
  ingot_buffer_view_release(made);
  ingot_buffer_view_release(argument);
}

static ingot_status_t call_from_trace;

/* The call is told last. */
static void trace(void *user, const ingot_trace_event_t *event) {
  static int64_t first_begin;
  if (++*(int *)user == 2) {
    EXPECT_EQUAL(event->kind, INGOT_TRACE_CALL);
    EXPECT_TEXT(event->kernel, "main");
    EXPECT(event->begin <= first_begin && first_begin <= event->end);
    return;
  }
  first_begin = event->begin;
  EXPECT_EQUAL(event->kind, INGOT_TRACE_HOST);
  EXPECT_EQUAL(event->resident, 0);
  EXPECT_TEXT(event->kernel, "add_one");
  EXPECT_TEXT(event->layer, "net/add");
  EXPECT(event->begin > 0 && event->begin <= event->end);
  EXPECT_EQUAL(event->length, 16);
  ingot_buffer_view_t *made = NULL;
  call_from_trace = call(NULL, &made);
}

TEST(tracing_reports_kernels_and_a_busy_session_refuses_calls) {
  float x[4] = {1, 2, 3, 4};
  int events = 0;
  ingot_buffer_view_t *made = NULL;
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, 4);
  EXPECT_OK(ingot_session_set_trace(program.session, trace, &events));
  EXPECT_OK(call(argument, &made));
  EXPECT_EQUAL(events, 2);
  EXPECT_STATUS(call_from_trace, FAILED_PRECONDITION, "the session is in a call");
  EXPECT_OK(ingot_session_set_trace(program.session, NULL, NULL));
  ingot_buffer_view_release(made);
  ingot_buffer_view_release(argument);
}

/* Adds up what is copied. */
static void count_copies(void *user, const ingot_trace_event_t *event) {
  if (strcmp(event->kernel, "copy") == 0) *(int64_t *)user += event->length;
  if (event->kind == INGOT_TRACE_CALL) EXPECT(event->resident > 0 && event->length > 0);
}

TEST(tracing_reports_copies_with_their_bytes) {
  harness_program_t full;
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t copied = 0;
  REQUIRE_OK(harness_load(&harness, builder_full_module(), &harness_parameters, &full));
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, 8);
  ingot_buffer_view_t *results[2] = {NULL, NULL};
  EXPECT_OK(ingot_session_set_trace(full.session, count_copies, &copied));
  EXPECT_OK(ingot_session_call(full.session, 0, &argument, 1, results, 2, NULL));
  EXPECT_EQUAL(copied, 3 + 16 + 8 * 16); /* and of elements of lists, each of 16 */
  ingot_buffer_view_release(results[0]);
  ingot_buffer_view_release(results[1]);
  ingot_buffer_view_release(argument);
  harness_unload(&full);
}

/* 2000 calls of a session of its own; NULL if all were right. */
static void *call_often(void *unused) {
  float x[4] = {1, 2, 3, 4};
  float y[4];
  ingot_session_t *session = NULL;
  (void)unused;
  ingot_status_t status = ingot_session_create(program.program, NULL, &session);
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, 4);
  ingot_buffer_view_t *result = harness_view(&harness, y, INGOT_DTYPE_F32, 4);
  for (int i = 0; !status && i < 2000; ++i) {
    x[0] = -(float)i; /* 666 would make the kernel fault */
    status = ingot_session_call(session, 0, &argument, 1, &result, 1, NULL);
    if (!status && y[0] != 1 - (float)i) {
      status = ingot_status_create(&harness.instance->allocator, INGOT_STATUS_INTERNAL, "%g",
                                   (double)y[0]);
    }
  }
  ingot_buffer_view_release(result);
  ingot_buffer_view_release(argument);
  ingot_session_release(session);
  return status;
}

TEST(sessions_of_one_program_run_on_many_threads) {
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) REQUIRE(pthread_create(&threads[i], NULL, call_often, NULL) == 0);
  for (int i = 0; i < 4; ++i) {
    void *status = NULL;
    EXPECT_EQUAL(pthread_join(threads[i], &status), 0);
    EXPECT_OK((ingot_status_t)status);
  }
}

TEST(functions_are_found_by_name) {
  uint32_t function = 9;
  ingot_module_t *module = NULL;
  EXPECT_OK(ingot_program_find_function(program.program, "main", &function));
  EXPECT_EQUAL(function, 0);
  EXPECT_STATUS(ingot_program_find_function(program.program, "mian", &function), NOT_FOUND,
                "there is no function 'mian'; the program has 'main'");
  EXPECT_OK(ingot_program_function(program.program, 0, &module, &function));
  EXPECT(module == program.module);
}

TEST(modules_share_a_program_unless_their_names_clash) {
  ingot_module_t *modules[2] = {program.module, program.module};
  ingot_program_t *made = NULL;
  EXPECT_STATUS(ingot_program_create(harness.device, modules, 2, NULL, NULL, &made),
                INVALID_ARGUMENT, "two of the modules have a function 'main'");
}

static ingot_status_t find_nothing(void *user, const char *scope, const char *key,
                                   ingot_parameter_span_t *out_span) {
  (void)scope;
  (void)key;
  (void)out_span;
  return ingot_status_create(user, INGOT_STATUS_NOT_FOUND, "nothing here");
}

static ingot_status_t find_wrong(void *user, const char *scope, const char *key,
                                 ingot_parameter_span_t *out_span) {
  static const int64_t dims[1] = {5};
  ingot_status_t status = harness_find(user, scope, key, out_span);
  out_span->dims = dims;
  return status;
}

TEST(missing_and_wrong_parameters_are_named) {
  harness_program_t full;
  ingot_parameters_t parameters = {&harness.instance->allocator, find_nothing};
  EXPECT_STATUS(harness_load(&harness, builder_full_module(), &parameters, &full), NOT_FOUND,
                "1 of 1 parameters are missing: 'bias'");
  harness_unload(&full);
  parameters.find = find_wrong;
  EXPECT_STATUS(harness_load(&harness, builder_full_module(), &parameters, &full), INVALID_ARGUMENT,
                "parameter 'bias': dim 0 is 5, expected 4");
  harness_unload(&full);
  EXPECT_STATUS(harness_load(&harness, builder_full_module(), NULL, &full), NOT_FOUND, "'bias'");
  harness_unload(&full);
}

TEST(a_module_for_another_target_is_unsupported) {
  builder_t builder[1] = {builder_create()};
  harness_program_t other;
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED)->target =
      builder_string(builder, "opencl");
  EMIT(RETURN, 0, 0, 0);
  EXPECT_STATUS(harness_load(&harness, builder_finish(builder), NULL, &other), UNSUPPORTED,
                "for target 'opencl' only, and the device is 'cpu'");
  harness_unload(&other);
}

#if defined(__x86_64__)
#define OBJECT_FORMAT "elf-x86_64"
#else
#define OBJECT_FORMAT "elf-aarch64"
#endif

/* A module with native code; `features` that the device must have. */
static ingot_status_t load_native(uint64_t features, harness_program_t *out) {
  static const char text[] =
      "#include \"ingot/kernel_abi.h\"\n"
      "static uint32_t INGOT_KERNEL_CALL add_two(const ingot_kernel_dispatch_t *d, int64_t x,\n"
      "    int64_t y, int64_t z, void *scratch, ingot_kernel_fault_t *fault) {\n"
      "  (void)y; (void)z; (void)scratch; (void)fault;\n"
      "  ((float *)d->bindings[1])[x] = ((float *)d->bindings[0])[x] + 2.0f;\n"
      "  return 0;\n"
      "}\n"
      "static uint32_t INGOT_KERNEL_CALL any_fits(const ingot_kernel_dispatch_t *d) {\n"
      "  (void)d;\n"
      "  return 0;\n"
      "}\n"
      "static const ingot_kernel_entry_t entry = {add_two, {1, 1, 1}, 0, any_fits, 2, 2, 0};\n"
      "static const ingot_kernel_library_t library = {3, 1, &entry};\n"
      "__attribute__((visibility(\"default\")))\n"
      "const ingot_kernel_library_t *INGOT_KERNEL_CALL ingot_executable_query(uint32_t version) {\n"
      "  return version == 3 ? &library : 0;\n"
      "}\n";
  test_object_t object = test_object_build_text(text, "");
  builder_t builder = builder_create();
  uint32_t kernel = builder_kernel(&builder, "add_two", 2, 0, 2);
  builder_variant(&builder, OBJECT_FORMAT, features, object.data, object.length);
  builder_add_one_main(&builder, kernel);
  test_object_free(&object);
  return harness_load(&harness, builder_finish(&builder), NULL, out);
}

TEST(native_code_of_a_module_is_loaded_and_called) {
  harness_program_t native;
  float x[4] = {1, 2, 3, 4};
  float y[4] = {0};
  REQUIRE_OK(load_native(0, &native));
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, 4);
  ingot_buffer_view_t *result = harness_view(&harness, y, INGOT_DTYPE_F32, 4);
  EXPECT_OK(ingot_session_call(native.session, 0, &argument, 1, &result, 1, NULL));
  EXPECT(y[0] == 3 && y[1] == 4 && y[2] == 5 && y[3] == 6);
  ingot_buffer_view_release(result);
  ingot_buffer_view_release(argument);
  harness_unload(&native);
  EXPECT_STATUS(load_native(UINT64_C(1) << 63, &native), UNSUPPORTED, "add_two");
  harness_unload(&native);
}

/* The last line of the log. */
static void keep_line(void *user, int32_t severity, const char *message) {
  (void)snprintf(user, 128, "%d %s", severity, message);
}

TEST(an_instance_takes_kernels_and_a_log) {
  char line[128] = "";
  const ingot_static_kernels_t kernels[2] = {{"add_one", builder_add_one_query},
                                             {"add_one", builder_add_one_query}};
  ingot_instance_options_t options = {
      .log = keep_line, .log_user = line, .kernels = kernels, .kernel_count = 2};
  harness_t own = {NULL, NULL};
  harness_program_t linked;
  EXPECT_STATUS(ingot_instance_create(&options, &own.instance), INVALID_ARGUMENT,
                "static kernels 'add_one' are registered already");
  options.kernel_count = 1;
  REQUIRE_OK(ingot_instance_create(&options, &own.instance));
  REQUIRE_OK(ingot_device_create(own.instance, "cpu", NULL, &own.device));
  EXPECT_TEXT(line, "");
  EXPECT_OK(harness_load(&own, builder_add_one_module(), NULL, &linked));
  EXPECT_TEXT(line, "1 kernels 'add_one': variant 'static'");
  harness_unload(&linked);
  harness_release(&own);
}

TEST(views_are_checked) {
  float x[4] = {0};
  const int64_t four[1] = {4};
  const int64_t negative[1] = {-4};
  ingot_buffer_view_t *view = NULL;
  ingot_buffer_t *buffer = NULL;
  REQUIRE_OK(ingot_buffer_wrap(harness.device, x, sizeof(x), NULL, NULL, &buffer));
  EXPECT_STATUS(ingot_buffer_view_create(buffer, 4, INGOT_DTYPE_F32, 1, four, &view), OUT_OF_RANGE,
                "16 bytes at offset 4 leave the buffer, which has 16");
  EXPECT_STATUS(ingot_buffer_view_create(buffer, 0, INGOT_DTYPE_F32, 1, negative, &view),
                INVALID_ARGUMENT, "negative");
  EXPECT_STATUS(ingot_buffer_view_create(buffer, 2, INGOT_DTYPE_F32, 0, NULL, &view),
                INVALID_ARGUMENT, "multiple of 4 bytes");
  EXPECT_STATUS(ingot_buffer_view_create(buffer, 0, 99, 1, four, &view), INVALID_ARGUMENT,
                "99 is no dtype");
  EXPECT_STATUS(ingot_buffer_view_create(buffer, 0, INGOT_DTYPE_F32, 33, four, &view),
                INVALID_ARGUMENT, "rank 33");
  EXPECT_OK(ingot_buffer_view_create(buffer, 12, INGOT_DTYPE_F32, 0, NULL, &view));
  ingot_buffer_release(buffer);
  ingot_buffer_view_release(view);
}

int main(void) {
  if (harness_create(NULL, &harness)) return 1;
  if (harness_load(&harness, builder_add_one_module(), NULL, &program)) return 1;
  RUN_TESTS();
  harness_unload(&program);
  harness_release(&harness);
  return TEST_RESULT();
}
