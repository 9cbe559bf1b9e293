/* Instructions that reach the device: results, slab, constants, init with parameters, arena
 * and globals, dispatch, copy, fill; and bytecode that asks for what is not there.
 */
#include "vm/harness.h"

static harness_t harness;

TEST(the_full_module_runs) {
  harness_program_t program;
  float x[100];
  ingot_buffer_view_t *results[2] = {NULL, NULL};
  REQUIRE_OK(harness_load(&harness, builder_full_module(), &harness_parameters, &program));
  for (int count = 0; count <= 100; count += 50) {
    for (int i = 0; i < count; ++i) x[i] = (float)i;
    ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, count);
    REQUIRE_OK(ingot_session_call(program.session, 0, &argument, 1, results, 2, NULL));
    float y[100];
    float z[4];
    const ingot_buffer_view_layout_t *layout = ingot_buffer_view_layout(results[0]);
    EXPECT_EQUAL(layout->dims[0], count);
    EXPECT_OK(ingot_buffer_read(layout->buffer, layout->offset, y, layout->length));
    for (int i = 0; i < count; ++i) EXPECT(y[i] == (float)i + 2.0f);
    layout = ingot_buffer_view_layout(results[1]);
    EXPECT_OK(ingot_buffer_read(layout->buffer, layout->offset, z, sizeof(z)));
    for (int i = 0; i < 4; ++i) EXPECT(z[i] == 10.0f * (float)(i + 1) + 1.0f);
    for (int i = 0; i < 2; ++i) {
      ingot_buffer_view_release(results[i]);
      results[i] = NULL;
    }
    ingot_buffer_view_release(argument);
    EXPECT_OK(ingot_session_trim(program.session));
  }
  harness_unload(&program);
}

/* Starts "main" with one result i64[4]; its buffer is reference 1, its offset register 20. */
static builder_t start(void) {
  builder_t builder[1] = {builder_create()};
  const int64_t dims[1] = {4};
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, true, "y", INGOT_DTYPE_I64, 1, dims);
  EMIT(CONST_I64, 0, 4);
  EMIT(RESULT_BUFFER, 1, 20, 0, 1, 0);
  return *builder;
}

static ingot_status_t run(builder_t *builder, int64_t got[4]) {
  harness_program_t program;
  EMIT(RETURN, 0, 0, 0);
  ingot_status_t status = harness_load(&harness, builder_finish(builder), NULL, &program);
  ingot_buffer_view_t *y = harness_view(&harness, got, INGOT_DTYPE_I64, 4);
  if (!status) status = ingot_session_call(program.session, 0, NULL, 0, &y, 1, NULL);
  ingot_buffer_view_release(y);
  harness_unload(&program);
  return status;
}

TEST(copies_move_bytes) {
  builder_t builder[1] = {start()};
  int64_t got[4] = {0};
  EMIT(CONST_I64, 1, 8);
  EMIT(CONST_I64, 2, 0x0102030405060708);
  EMIT(CONST_I64, 3, 24);
  EMIT(CONST_I64, 4, 3);
  EMIT(WRITE_I64, 1, 20, 2, INGOT_DTYPE_I64);
  EMIT(COPY, 1, 20, 1, 1, 1);
  EMIT(COPY, 1, 4, 1, 3, 4);
  EXPECT_OK(run(builder, got));
  EXPECT_EQUAL(got[1], 0x0102030405060708);
  EXPECT_EQUAL(got[2], 0);
  EXPECT_EQUAL(got[3], 0x030405);
}

TEST(a_slab_that_grows_keeps_the_old_one_for_the_call) {
  builder_t builder[1] = {start()};
  int64_t got[4] = {0};
  EMIT(CONST_I64, 1, 8);
  EMIT(SLAB, 2, 2, 1);
  EMIT(WRITE_I64, 2, 2, 1, INGOT_DTYPE_I64);
  EMIT(CONST_I64, 3, 1 << 20);
  EMIT(SLAB, 3, 4, 3);
  EMIT(WRITE_I64, 3, 4, 3, INGOT_DTYPE_I64);
  EMIT(COPY, 2, 2, 1, 20, 1);
  EMIT(COPY, 3, 4, 1, 1, 1);
  EXPECT_OK(run(builder, got));
  EXPECT_EQUAL(got[0], 8);
  EXPECT_EQUAL(got[1], 1 << 20);
}

TEST(a_slab_beyond_the_limit_of_its_session_is_refused) {
  builder_t builder[1] = {start()};
  harness_program_t program;
  const ingot_session_options_t options = {.memory_limit = 1000};
  ingot_session_t *session = NULL;
  ingot_buffer_view_t *y = NULL;
  EMIT(CONST_I64, 1, 1001);
  EMIT(SLAB, 2, 2, 1);
  EMIT(RETURN, 0, 0, 0);
  REQUIRE_OK(harness_load(&harness, builder_finish(builder), NULL, &program));
  REQUIRE_OK(ingot_session_create(program.program, &options, &session));
  EXPECT_STATUS(ingot_session_call(session, 0, NULL, 0, &y, 1, NULL), OUT_OF_MEMORY,
                "1001 bytes are asked for, but the session's memory_limit is 1000");
  ingot_session_release(session);
  harness_unload(&program);
}

/* slab(8), slab(16), ... slab(80000), each written at its end. */
TEST(a_slab_that_grows_in_a_loop_is_seldom_replaced) {
  test_allocator_t counter = {.fail_at = 0};
  const ingot_allocator_t allocator = test_allocator(&counter);
  builder_t builder[1] = {builder_create()};
  harness_t counted;
  harness_program_t program;
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  EMIT(CONST_I64, 0, 0);
  EMIT(CONST_I64, 1, 8);
  EMIT(CONST_I64, 2, 80000);
  uint32_t loop = EMIT(MOVE_I64, 3, 0);
  EMIT(ADD_I64, 0, 0, 1);
  EMIT(SLAB, 0, 4, 0);
  EMIT(WRITE_I64, 0, 3, 0, INGOT_DTYPE_I64);
  EMIT(LT_I64, 5, 0, 2);
  uint32_t branch = EMIT(BRANCH_IF, 5, loop, 0);
  builder_set_target(builder, branch + 4);
  EMIT(RETURN, 0, 0, 0);
  REQUIRE_OK(harness_create(&allocator, &counted));
  REQUIRE_OK(harness_load(&counted, builder_finish(builder), NULL, &program));
  int64_t before = counter.allocations;
  EXPECT_OK(ingot_session_call(program.session, 0, NULL, 0, NULL, 0, NULL));
  EXPECT(counter.allocations - before < 60);
  before = counter.allocations;
  EXPECT_OK(ingot_session_call(program.session, 0, NULL, 0, NULL, 0, NULL));
  EXPECT_EQUAL(counter.allocations, before);
  harness_unload(&program);
  harness_release(&counted);
  EXPECT_EQUAL(counter.live, 0);
}

TEST(ranges_outside_of_a_buffer_are_refused) {
  static const int64_t offsets[4] = {-1, 25, INT64_MAX, INT64_MIN};
  for (int i = 0; i < 4; ++i) {
    builder_t builder[1] = {start()};
    int64_t got[4] = {0};
    EMIT(CONST_I64, 1, offsets[i]);
    EMIT(WRITE_I64, 1, 1, 0, INGOT_DTYPE_I64);
    EXPECT_STATUS(run(builder, got), OUT_OF_RANGE, "buffer");
  }
}

TEST(constants_cannot_be_written) {
  builder_t builder[1] = {start()};
  int64_t got[4] = {0};
  uint32_t kernel = builder_kernel(builder, "add_one", 2, 0, 2);
  EMIT(CONSTANTS, 2);
  EMIT(CONST_I64, 1, 0);
  EMIT(DISPATCH, kernel, 0, 0, 0, 0, 0, 0, 2, 1, 1, 1, 2, 1, 1);
  EXPECT_STATUS(run(builder, got), PERMISSION_DENIED, "binding 1");
}

TEST(a_result_made_twice_or_with_another_shape_is_refused) {
  builder_t builder[1] = {start()};
  int64_t got[4] = {0};
  EMIT(RESULT_BUFFER, 2, 21, 0, 1, 0);
  EXPECT_STATUS(run(builder, got), INTERNAL, "result 0 'y' is made twice");
  *builder = builder_create();
  const int64_t dims[1] = {4};
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, true, "y", INGOT_DTYPE_I64, 1, dims);
  EMIT(CONST_I64, 0, 5);
  EMIT(RESULT_BUFFER, 1, 20, 0, 1, 0);
  EXPECT_STATUS(run(builder, got), INTERNAL, "makes dim 0 as 5, its signature says 4");
}

TEST(a_global_that_init_did_not_set_is_refused) {
  builder_t builder[1] = {start()};
  int64_t got[4] = {0};
  builder->global_count = 2;
  EMIT(GLOBAL_LOAD, 2, 1);
  EXPECT_STATUS(run(builder, got), FAILED_PRECONDITION, "global 1");
}

TEST(an_absurd_size_is_refused_without_a_try) {
  static const int64_t lengths[3] = {INT64_C(1) << 60, INT64_C(1) << 50, INT64_MAX};
  for (int i = 0; i < 3; ++i) {
    builder_t builder[1] = {start()};
    int64_t got[4] = {0};
    EMIT(CONST_I64, 1, lengths[i]);
    EMIT(SLAB, 2, 2, 1);
    EXPECT_STATUS(run(builder, got), OUT_OF_MEMORY, "but the device has no more than");
    *builder = builder_create();
    harness_program_t program;
    builder_function(builder, "init", INGOT_FUNCTION_INIT);
    EMIT(CONST_I64, 1, lengths[i]);
    EMIT(ARENA, 2, 2, 1);
    EMIT(RETURN, 0, 0, 0);
    EXPECT_STATUS(harness_load(&harness, builder_finish(builder), NULL, &program), OUT_OF_MEMORY,
                  "init: ");
    harness_unload(&program);
  }
}

TEST(an_init_without_end_is_stopped) {
  builder_t builder[1] = {builder_create()};
  harness_program_t program;
  builder_function(builder, "init", INGOT_FUNCTION_INIT);
  uint32_t loop = EMIT(CONST_I64, 1, 1);
  EMIT(BRANCH, loop);
  EXPECT_STATUS(harness_load(&harness, builder_finish(builder), NULL, &program), DEADLINE_EXCEEDED,
                "init: the call has run more than its limit");
  harness_unload(&program);
}

static bool stop_at_once(void *user) {
  ++*(int *)user;
  return true;
}

TEST(making_a_program_has_limits) {
  builder_t builder[1] = {builder_create()};
  harness_program_t made;
  ingot_program_t *program = NULL;
  int questions = 0;
  builder_function(builder, "init", INGOT_FUNCTION_INIT);
  uint32_t loop = EMIT(CONST_I64, 1, 1);
  EMIT(BRANCH, loop);
  ingot_status_free(harness_load(&harness, builder_finish(builder), NULL, &made));
  ingot_program_options_t options = {.limits = {.timeout = 5000000, .max_steps = INT64_MAX}};
  EXPECT_STATUS(ingot_program_create(harness.device, &made.module, 1, NULL, &options, &program),
                DEADLINE_EXCEEDED, "init: the call has run longer");
  options.limits = (ingot_call_options_t){
      .max_steps = INT64_MAX, .should_stop = stop_at_once, .user = &questions};
  EXPECT_STATUS(ingot_program_create(harness.device, &made.module, 1, NULL, &options, &program),
                CANCELLED, "init: the call was cancelled");
  EXPECT_EQUAL(questions, 1);
  harness_unload(&made);
}

/* A result that nothing is written to, of a size that malloc hands out again. */
TEST(memory_starts_as_zeros_if_that_is_asked_for) {
  enum { COUNT = 1 << 16 };
  builder_t builder[1] = {builder_create()};
  const int64_t dims[1] = {COUNT};
  harness_program_t made;
  ingot_program_t *program = NULL;
  ingot_session_t *session = NULL;
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, true, "y", INGOT_DTYPE_U8, 1, dims);
  EMIT(CONST_I64, 1, COUNT);
  EMIT(RESULT_BUFFER, 0, 0, 0, 1, 1);
  EMIT(RETURN, 0, 0, 0);
  REQUIRE_OK(harness_load(&harness, builder_finish(builder), NULL, &made));
  const ingot_program_options_t options = {.zero_memory = true};
  REQUIRE_OK(ingot_program_create(harness.device, &made.module, 1, NULL, &options, &program));
  REQUIRE_OK(ingot_session_create(program, NULL, &session));
  static uint8_t bytes[COUNT];
  for (int round = 0; round < 8; ++round) {
    ingot_buffer_view_t *y = NULL;
    REQUIRE_OK(ingot_session_call(session, 0, NULL, 0, &y, 1, NULL));
    ingot_buffer_t *buffer = ingot_buffer_view_layout(y)->buffer;
    EXPECT_OK(ingot_buffer_read(buffer, 0, bytes, COUNT));
    for (int i = 0; i < COUNT; ++i) EXPECT_EQUAL(bytes[i], 0);
    memset(bytes, 0xA5, COUNT);
    EXPECT_OK(ingot_buffer_write(buffer, 0, bytes, COUNT));
    ingot_buffer_view_release(y);
  }
  ingot_session_release(session);
  ingot_program_release(program);
  harness_unload(&made);
}

TEST(a_parameter_cannot_become_a_global) {
  builder_t builder[1] = {builder_create()};
  const int64_t dims[1] = {4};
  harness_program_t program;
  builder->global_count = 1;
  builder_parameter(builder, "bias", INGOT_DTYPE_F32, 1, dims);
  builder_function(builder, "init", INGOT_FUNCTION_INIT);
  EMIT(PARAMETER, 0, 0, 0);
  EMIT(GLOBAL_STORE, 0, 0);
  EMIT(RETURN, 0, 0, 0);
  EXPECT_STATUS(harness_load(&harness, builder_finish(builder), &harness_parameters, &program),
                INVALID_ARGUMENT, "init: global 0");
  harness_unload(&program);
}

TEST(sealed_mutations_that_load_run_without_a_crash) {
  uint64_t random = 4101842887655102017u;
  builder_bytes_t original = builder_full_module();
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const ingot_call_options_t limit = {.max_steps = 10000};
  int ran = 0;
  const ingot_allocator_t allocator = {NULL, test_resize_small};
  harness_t small;
  REQUIRE_OK(harness_create(&allocator, &small));
  for (int round = 0; round < 5000; ++round) {
    builder_bytes_t file = {malloc(original.length), original.length};
    harness_program_t program;
    REQUIRE(file.data);
    memcpy(file.data, original.data, original.length);
    harness_mutate(file, 3, 0x1F, &random);
    ingot_status_t status = harness_load(&small, file, &harness_parameters, &program);
    if (!status && ingot_program_function_count(program.program) > 0) {
      ingot_buffer_view_t *argument = harness_view(&small, x, INGOT_DTYPE_F32, 8);
      ingot_buffer_view_t *results[2] = {NULL, NULL};
      status = ingot_session_call(program.session, 0, &argument, 1, results, 2, &limit);
      ingot_buffer_view_release(results[0]);
      ingot_buffer_view_release(results[1]);
      ingot_buffer_view_release(argument);
      ++ran;
    }
    ingot_status_free(status);
    harness_unload(&program);
  }
  EXPECT(ran > 100);
  harness_release(&small);
  free(original.data);
}

int main(void) {
  if (harness_create(NULL, &harness)) return 1;
  RUN_TESTS();
  harness_release(&harness);
  return TEST_RESULT();
}
