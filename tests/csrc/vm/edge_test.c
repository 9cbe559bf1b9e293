/* Sequences and optionals as arguments and results: how they travel, what is refused by name, and
 * that no bytes and no failing allocation end the process.
 */
#include "vm/harness.h"

static harness_t harness;
static harness_program_t program;

enum { XS, Y, ZS, ARGUMENTS }; /* sequence(f32[n]), optional(f32[4]), optional(sequence(i32)) */
enum { COUNT = ARGUMENTS, RESULTS };                     /* i64[]: elements of xs */

/* Gives its arguments back, and how many elements the first one has. */
static builder_bytes_t echo_module(void) {
  static const int64_t dims[1] = {-1};
  static const int64_t four[1] = {4};
  builder_t parts = builder_create();
  builder_t *builder = &parts;
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  for (int result = 0; result < 2; ++result) {
    builder_value(builder, result, "xs", INGOT_DTYPE_F32, 1, dims);
    builder_kind(builder, INGOT_VALUE_SEQUENCE);
    builder_value(builder, result, "y", INGOT_DTYPE_F32, 1, four);
    builder_kind(builder, INGOT_VALUE_OPTIONAL);
    builder_value(builder, result, "zs", INGOT_DTYPE_I32, 0, NULL);
    builder_kind(builder, INGOT_VALUE_SEQUENCE | INGOT_VALUE_OPTIONAL | INGOT_VALUE_ANY_RANK);
  }
  builder_value(builder, true, "count", INGOT_DTYPE_I64, 0, NULL);
  EMIT(RESULT_BUFFER, 0, 5, COUNT, 0);
  for (int64_t i = 0; i < ARGUMENTS; ++i) EMIT(LIST_ARGUMENT, i, i, i);
  for (int64_t i = 0; i < ARGUMENTS; ++i) EMIT(LIST_RESULT, i, i, i);
  EMIT(LIST_LENGTH, 6, XS);
  EMIT(WRITE_I64, 0, 5, 6, INGOT_DTYPE_I64);
  EMIT(RETURN, 0, 0, 0);
  return builder_finish(builder);
}

static ingot_status_t call(ingot_buffer_view_t *const *arguments, ingot_buffer_view_t **results) {
  return ingot_session_call(program.session, 0, arguments, ARGUMENTS, results, RESULTS, NULL);
}

/* A list of these tensors, which it takes over. */
static ingot_buffer_view_t *list_of(ingot_buffer_view_t **elements, uint32_t count) {
  ingot_buffer_view_t *list = NULL;
  EXPECT_OK(ingot_buffer_view_create_list(harness.device, elements, count, &list));
  for (uint32_t i = 0; i < count; ++i) ingot_buffer_view_release(elements[i]);
  return list;
}

static void release_all(ingot_buffer_view_t **views, int count) {
  for (int i = 0; i < count; ++i) {
    ingot_buffer_view_release(views[i]);
    views[i] = NULL;
  }
}

TEST(lists_and_tensors_come_back_as_they_went_in) {
  float data[6] = {1, 2, 3, 4, 5, 6};
  int32_t number = 7;
  const ingot_buffer_view_layout_t *layout = NULL;
  ingot_buffer_view_t *xs[2] = {harness_view(&harness, data, INGOT_DTYPE_F32, 5),
                                harness_view(&harness, data + 5, INGOT_DTYPE_F32, 1)};
  ingot_buffer_view_t *zs[1] = {harness_view(&harness, &number, INGOT_DTYPE_I32, 1)};
  ingot_buffer_view_t *arguments[ARGUMENTS] = {
      list_of(xs, 2), harness_view(&harness, data, INGOT_DTYPE_F32, 4), list_of(zs, 1)};
  ingot_buffer_view_t *results[RESULTS] = {NULL};
  REQUIRE_OK(call(arguments, results));
  EXPECT_EQUAL(ingot_buffer_view_count(results[XS]), 2);
  EXPECT(ingot_buffer_view_layout(results[XS])->buffer == NULL);
  EXPECT(ingot_buffer_view_element(results[XS], 2) == NULL);
  const float expected[2] = {5, 6};
  for (uint32_t i = 0; i < 2; ++i) {
    float last = 0;
    layout = ingot_buffer_view_layout(ingot_buffer_view_element(results[XS], i));
    EXPECT_EQUAL(layout->dims[0], i == 0 ? 5 : 1);
    EXPECT_OK(ingot_buffer_read(layout->buffer, layout->offset + layout->length - 4, &last, 4));
    EXPECT(last == expected[i]);
  }
  layout = ingot_buffer_view_layout(results[Y]);
  EXPECT(layout->buffer && layout->dims[0] == 4);
  EXPECT(ingot_buffer_view_element(results[Y], 0) == results[Y]);
  EXPECT_EQUAL(ingot_buffer_view_count(results[ZS]), 1);
  int64_t count = 0;
  EXPECT_OK(ingot_buffer_read(ingot_buffer_view_layout(results[COUNT])->buffer, 0, &count, 8));
  EXPECT_EQUAL(count, 2);
  release_all(results, RESULTS);
  release_all(arguments, ARGUMENTS);
}

TEST(nothing_and_empty_lists_are_told_apart) {
  ingot_buffer_view_t *arguments[ARGUMENTS] = {list_of(NULL, 0), NULL, list_of(NULL, 0)};
  ingot_buffer_view_t *results[RESULTS] = {NULL};
  REQUIRE_OK(call(arguments, results));
  EXPECT_EQUAL(ingot_buffer_view_count(results[XS]), 0);
  EXPECT(results[Y] == NULL);
  EXPECT(results[ZS] && ingot_buffer_view_count(results[ZS]) == 0);
  release_all(results, RESULTS);
  release_all(&arguments[ZS], 1);
  REQUIRE_OK(call(arguments, results));
  EXPECT(results[ZS] == NULL);
  release_all(results, RESULTS);
  release_all(arguments, ARGUMENTS);
}

/* Calls with `argument` at `place`, the others as they should be. Releases it. */
static ingot_status_t call_with(int place, ingot_buffer_view_t *argument) {
  ingot_buffer_view_t *arguments[ARGUMENTS] = {list_of(NULL, 0), NULL, NULL};
  ingot_buffer_view_t *results[RESULTS] = {NULL};
  release_all(&arguments[place], 1);
  arguments[place] = argument;
  ingot_status_t status = call(arguments, results);
  release_all(results, RESULTS);
  release_all(arguments, ARGUMENTS);
  return status;
}

TEST(what_does_not_fit_is_named_with_its_element) {
  float data[8] = {0};
  const int64_t square[2] = {2, 2};
  ingot_buffer_view_t *elements[2] = {harness_view(&harness, data, INGOT_DTYPE_F32, 3),
                                      harness_view(&harness, data, INGOT_DTYPE_I32, 3)};
  EXPECT_STATUS(call_with(XS, list_of(elements, 2)), INVALID_ARGUMENT,
                "element 1 of argument 0 'xs' is i32, expected f32");
  elements[0] = harness_view(&harness, data, INGOT_DTYPE_F32, 3);
  REQUIRE_OK(ingot_buffer_view_wrap(harness.device, data, 16, INGOT_DTYPE_F32, 2, square, NULL,
                                    NULL, &elements[1]));
  EXPECT_STATUS(call_with(XS, list_of(elements, 2)), INVALID_ARGUMENT,
                "element 1 of argument 0 'xs' has rank 2, expected 1");
  EXPECT_STATUS(call_with(XS, NULL), INVALID_ARGUMENT, "argument 0 'xs' is NULL, expected a list");
  EXPECT_STATUS(call_with(XS, harness_view(&harness, data, INGOT_DTYPE_F32, 3)), INVALID_ARGUMENT,
                "argument 0 'xs' is a tensor, expected a list");
  EXPECT_STATUS(call_with(Y, list_of(NULL, 0)), INVALID_ARGUMENT,
                "argument 1 'y' is a list, expected a tensor");
  EXPECT_STATUS(call_with(Y, harness_view(&harness, data, INGOT_DTYPE_F32, 3)), INVALID_ARGUMENT,
                "argument 1 'y': dim 0 is 3, expected 4");
  elements[0] = harness_view(&harness, data, INGOT_DTYPE_I32, 3);
  REQUIRE_OK(ingot_buffer_view_wrap(harness.device, data, 16, INGOT_DTYPE_I32, 2, square, NULL,
                                    NULL, &elements[1]));
  EXPECT_STATUS(call_with(ZS, list_of(elements, 2)), INVALID_ARGUMENT,
                "element 1 of argument 2 'zs' has rank 2, expected 1");
  ingot_buffer_view_t *list = list_of(NULL, 0);
  ingot_buffer_view_t *nested = NULL;
  EXPECT_STATUS(ingot_buffer_view_create_list(harness.device, &list, 1, &nested), INVALID_ARGUMENT,
                "element 0 of a list is a list, expected a tensor");
  ingot_buffer_view_release(list);
}

TEST(result_views_are_refused_for_lists_and_over_elements) {
  float data[2] = {0};
  int64_t count = 0;
  ingot_buffer_view_t *elements[1] = {harness_view(&harness, &count, INGOT_DTYPE_F32, 2)};
  ingot_buffer_view_t *arguments[ARGUMENTS] = {list_of(elements, 1), NULL, NULL};
  ingot_buffer_view_t *results[RESULTS] = {NULL};
  results[Y] = harness_view(&harness, data, INGOT_DTYPE_F32, 2);
  EXPECT_STATUS(call(arguments, results), INVALID_ARGUMENT, "result 1 'y' is no tensor");
  release_all(results, RESULTS);
  REQUIRE_OK(ingot_buffer_view_wrap(harness.device, &count, 8, INGOT_DTYPE_I64, 0, NULL, NULL, NULL,
                                    &results[COUNT]));
  EXPECT_STATUS(call(arguments, results), INVALID_ARGUMENT,
                "result 3 'count' is to be written over argument 0");
  release_all(results, RESULTS);
  release_all(arguments, ARGUMENTS);
}

/* Loads one function that gives the list of argument 0 as result 0, of that type. */
static ingot_status_t pass_on(uint32_t kind, uint32_t rank, const int64_t *dims, int times) {
  static const int64_t open[1] = {-1};
  float data[3] = {0};
  builder_t parts = builder_create();
  builder_t *builder = &parts;
  harness_program_t made;
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "xs", INGOT_DTYPE_F32, 1, open);
  builder_kind(builder, INGOT_VALUE_SEQUENCE);
  builder_value(builder, true, "ys", INGOT_DTYPE_F32, rank, dims);
  builder_kind(builder, kind);
  EMIT(LIST_ARGUMENT, 0, 9, 0);
  for (int i = 0; i < times; ++i) EMIT(LIST_RESULT, 0, 9, 0);
  EMIT(RETURN, 0, 0, 0);
  ingot_status_t status = harness_load(&harness, builder_finish(builder), NULL, &made);
  ingot_buffer_view_t *element = harness_view(&harness, data, INGOT_DTYPE_F32, 3);
  ingot_buffer_view_t *list = list_of(&element, 1);
  ingot_buffer_view_t *result = NULL;
  if (!status) status = ingot_session_call(made.session, 0, &list, 1, &result, 1, NULL);
  ingot_buffer_view_release(result);
  ingot_buffer_view_release(list);
  harness_unload(&made);
  return status;
}

TEST(results_are_what_the_signature_says) {
  const int64_t dims[2] = {4, 4};
  EXPECT_OK(pass_on(INGOT_VALUE_SEQUENCE | INGOT_VALUE_ANY_RANK, 0, NULL, 1));
  EXPECT_STATUS(pass_on(INGOT_VALUE_SEQUENCE, 1, dims, 1), INTERNAL,
                "result 0 'ys': the code makes dim 0 as 3, its signature says 4");
  EXPECT_STATUS(pass_on(INGOT_VALUE_SEQUENCE, 2, dims, 1), INTERNAL,
                "result 0 'ys': the code makes rank 1, its signature says 2");
  EXPECT_STATUS(pass_on(INGOT_VALUE_SEQUENCE | INGOT_VALUE_ANY_RANK, 0, NULL, 2), INTERNAL,
                "result 0 'ys' is made twice");
  EXPECT_STATUS(pass_on(INGOT_VALUE_SEQUENCE, 1, dims, 0), DATA_LOSS, "may not have been made");
  EXPECT_STATUS(pass_on(0, 1, dims, 1), DATA_LOSS, "result 0 is a tensor");
  EXPECT_STATUS(pass_on(INGOT_VALUE_ANY_RANK, 0, NULL, 1), DATA_LOSS, "value 1 has bad kind");
  EXPECT_STATUS(pass_on(INGOT_VALUE_SEQUENCE | INGOT_VALUE_ANY_RANK, 1, dims, 1), DATA_LOSS,
                "value 1 has bad kind");
  EXPECT_STATUS(pass_on(8, 1, dims, 1), DATA_LOSS, "value 1 has bad kind");
}

TEST(tensor_instructions_on_lists_are_refused) {
  static const int64_t dims[1] = {4};
  for (int which = 0; which < 3; ++which) {
    builder_t parts = builder_create();
    builder_t *builder = &parts;
    harness_program_t made;
    builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
    builder_value(builder, false, "xs", INGOT_DTYPE_F32, 1, dims);
    builder_kind(builder, INGOT_VALUE_SEQUENCE);
    builder_value(builder, true, "ys", INGOT_DTYPE_F32, 1, dims);
    builder_kind(builder, INGOT_VALUE_OPTIONAL);
    EMIT(CONST_I64, 3, 4);
    if (which == 0) EMIT(ARGUMENT_BUFFER, 0, 1, 0);
    if (which == 1) EMIT(ARGUMENT_DIM, 1, 0, 0);
    if (which == 2) EMIT(RESULT_BUFFER, 0, 1, 0, 1, 3);
    EMIT(RETURN, 0, 0, 0);
    EXPECT_STATUS(harness_load(&harness, builder_finish(builder), NULL, &made), DATA_LOSS,
                  which == 2 ? "result 0 is no tensor" : "argument 0 is no tensor");
    harness_unload(&made);
  }
}

/* -- any bytes, any failing allocation --------------------------------------------------------- */

static ingot_status_t load_and_call(const ingot_allocator_t *allocator, builder_bytes_t file) {
  const ingot_call_options_t limit = {.max_steps = 10000};
  float x[4] = {1, 2, 3, 4};
  harness_t small;
  harness_program_t made = {.file = file};
  ingot_buffer_view_t *element = NULL;
  ingot_buffer_view_t *arguments[ARGUMENTS] = {NULL};
  ingot_buffer_view_t *results[RESULTS] = {NULL};
  const int64_t four = 4;
  ingot_status_t status = harness_create(allocator, &small);
  if (!status) status = harness_load(&small, file, NULL, &made);
  if (!status) {
    status = ingot_buffer_view_wrap(small.device, x, sizeof(x), INGOT_DTYPE_F32, 1, &four, NULL,
                                    NULL, &element);
  }
  if (!status) status = ingot_buffer_view_create_list(small.device, &element, 1, &arguments[XS]);
  if (!status) {
    status = ingot_session_call(made.session, 0, arguments, ARGUMENTS, results, RESULTS, &limit);
  }
  release_all(results, RESULTS);
  release_all(arguments, ARGUMENTS);
  ingot_buffer_view_release(element);
  harness_unload(&made);
  harness_release(&small);
  return status;
}

static ingot_status_t call_echo(const ingot_allocator_t *allocator) {
  return load_and_call(allocator, echo_module());
}

TEST(every_allocation_may_fail) { test_fail_each_allocation(call_echo, 20); }

TEST(sealed_mutations_give_a_status_or_results) {
  uint64_t random = 88172645463325252u;
  const ingot_allocator_t allocator = {NULL, test_resize_small};
  int ran = 0;
  for (int round = 0; round < 4000; ++round) {
    builder_bytes_t file = echo_module();
    harness_mutate(file, 3, 0xF, &random);
    ingot_status_t status = load_and_call(&allocator, file);
    ran += !status;
    ingot_status_free(status);
  }
  EXPECT(ran > 100);
}

int main(void) {
  if (harness_create(NULL, &harness)) return 1;
  if (harness_load(&harness, echo_module(), NULL, &program)) return 1;
  RUN_TESTS();
  harness_unload(&program);
  harness_release(&harness);
  return TEST_RESULT();
}
