/* OpenCL executables: damaged objects, kernels that do not build, kernels that the device cannot
 * run, and the self-test.
 */
#include "executables.h"

#define FILLS_COUNT 4

/* -- objects --------------------------------------------------------------------------------- */

TEST(truncated_objects_are_data_loss) {
  test_object_t object = test_opencl_kernels(false);
  ingot_hal_executable_t *executable = NULL;
  for (size_t length = 0; length < object.length; length += length < 700 ? 1 : 97) {
    uint8_t *copy = malloc(length + 1); /* so that the sanitizer sees a read behind the end */
    if (!copy) break;
    memcpy(copy, object.data, length);
    EXPECT_STATUS(load_on(device, copy, length, false, &executable), DATA_LOSS,
                  "the OpenCL object is damaged");
    free(copy);
  }
  EXPECT(executable == NULL);
  test_object_free(&object);
}

/* Each u32 of the tables in turn takes values that could lead anywhere; the object either still
 * loads or is refused, under the sanitizer too. */
TEST(damaged_tables_never_lead_outside) {
  static const uint32_t values[] = {0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
  test_opencl_parts_t parts = test_opencl_kernel_parts();
  parts.source = "";
  ingot_opencl_entry_t entries[KERNEL_DESCRIPTION_COUNT];
  memcpy(entries, parts.entries, sizeof(entries));
  for (int e = 0; e < KERNEL_DESCRIPTION_COUNT; e++) entries[e].flags = INGOT_OPENCL_HOST;
  parts.entries = entries;
  test_object_t object = test_opencl_object(&parts);
  int refused = 0, total = 0;
  for (size_t offset = 0; offset + 4 <= object.length; offset += 4) {
    for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
      uint32_t saved;
      ingot_hal_executable_t *executable = NULL;
      memcpy(&saved, object.data + offset, 4);
      memcpy(object.data + offset, &values[v], 4);
      ingot_status_t status = load_on(device, object.data, object.length, false, &executable);
      total++;
      refused += ingot_status_code(status) == INGOT_STATUS_DATA_LOSS ||
                 ingot_status_code(status) == INGOT_STATUS_INCOMPATIBLE;
      ingot_status_free(status);
      ingot_hal_executable_destroy(executable);
      memcpy(object.data + offset, &saved, 4);
    }
  }
  EXPECT(refused > total / 4);
  test_object_free(&object);
}

TEST(object_of_another_version_is_incompatible) {
  test_object_t object = test_opencl_kernels(false);
  ingot_hal_executable_t *executable = NULL;
  ((ingot_opencl_header_t *)(void *)object.data)->version = 1;
  EXPECT_STATUS(load_on(device, object.data, object.length, false, &executable), INCOMPATIBLE,
                "version 1, this runtime reads 3");
  test_object_free(&object);
}

/* Each change alone makes the object one of another module, or its checks nonsense. */
TEST(kernel_that_is_not_the_modules_is_data_loss) {
  const test_opencl_parts_t parts = test_opencl_kernel_parts();
  ingot_opencl_entry_t entries[KERNEL_DESCRIPTION_COUNT];
  ingot_opencl_step_t steps[8];
  test_opencl_parts_t changed = parts;
  ingot_hal_executable_t *executable = NULL;
  changed.entries = entries;
  changed.steps = steps;
  for (int c = 0; c < 5; c++) {
    memcpy(entries, parts.entries, sizeof(entries));
    memcpy(steps, parts.steps, parts.step_count * sizeof(steps[0]));
    if (c == 0) entries[KERNEL_ADD].written = 0; /* it could write to what must not be written */
    if (c == 1) entries[KERNEL_ADD].constant_count = 1;
    if (c == 2) entries[KERNEL_ADD].step_count = parts.step_count + 1;
    if (c == 3) entries[KERNEL_COUNT].step_count = 1; /* there is none left */
    if (c == 4) steps[parts.step_count - 1].a = 8;
    EXPECT_STATUS(load_parts(&changed, false, &executable), DATA_LOSS,
                  c < 4 ? "does not fit what the module says of it"
                        : "'add', are checked with makes no sense");
  }
}

TEST(source_that_does_not_build_brings_the_compilers_log) {
  test_opencl_parts_t parts = test_opencl_kernel_parts();
  ingot_hal_executable_t *executable = NULL;
  parts.source = "__kernel void add(__global float *x) { x[0] = no_such_name; }";
  EXPECT_STATUS(load_parts(&parts, true, &executable), UNSUPPORTED, "no_such_name");
  EXPECT_STATUS(load_parts(&parts, true, &executable), UNSUPPORTED, "run on device 'cpu'");
  parts.source = "__kernel void subtract(__global float *x) { x[0] = 1; }";
  EXPECT_STATUS(load_parts(&parts, true, &executable), INTERNAL, "kernel 'add'");
}

/* -- kernels for the host -------------------------------------------------------------------- */

static ingot_status_t add_halves(ingot_hal_executable_t *executable, float *out_sum) {
  ingot_hal_queue_t *queue = NULL;
  ingot_buffer_t *buffer = NULL;
  const float values[2] = {0.25f, 0.5f};
  INGOT_TRY(ingot_hal_queue_create(device, &queue));
  ingot_status_t status = ingot_hal_buffer_create(device, 12, &buffer);
  if (!status) status = ingot_hal_buffer_write(buffer, 0, 8, values);
  const ingot_hal_binding_t bindings[3] = {{buffer, 0, 4}, {buffer, 4, 4}, {buffer, 8, 4}};
  const ingot_hal_dispatch_t dispatch = {.executable = executable,
                                         .entry = KERNEL_ADD,
                                         .binding_count = 3,
                                         .bindings = bindings,
                                         .workload = {1, 1, 1}};
  if (!status) status = ingot_hal_queue_dispatch(queue, &dispatch);
  if (!status) status = ingot_hal_queue_read(queue, buffer, 8, out_sum, 4);
  ingot_hal_buffer_release(buffer);
  ingot_hal_queue_destroy(queue);
  return status;
}

TEST(kernels_beyond_the_device_run_on_the_host_and_say_why) {
  const struct {
    ingot_opencl_entry_t change;
    const char *reason;
  } cases[] = {
      {{.flags = INGOT_OPENCL_HOST}, "there is no OpenCL kernel for it"},
      {{.features = UINT64_C(1) << 40}, "a feature that this runtime does not know"},
      {{.local_size = {1u << 30, 1, 1}}, "groups of 1073741824 x 1 x 1 work items are too large"},
      {{.local_size = {1u << 31, 1u << 31, 1u << 31}}, "are too large"},
      {{.local_length = UINT64_C(1) << 50}, "bytes of local memory, the device has"},
  };
  for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
    test_opencl_parts_t parts = test_opencl_kernel_parts();
    ingot_opencl_entry_t entries[KERNEL_DESCRIPTION_COUNT];
    ingot_hal_executable_t *executable = NULL;
    const ingot_opencl_entry_t *change = &cases[c].change;
    float sum = 0;
    memcpy(entries, parts.entries, sizeof(entries));
    entries[KERNEL_ADD].flags = change->flags;
    entries[KERNEL_ADD].features = change->features;
    entries[KERNEL_ADD].local_length = change->local_length;
    if (change->local_size[0]) {
      memcpy(entries[KERNEL_ADD].local_size, change->local_size, sizeof(change->local_size));
    }
    parts.entries = entries;
    last_warning[0] = 0;
    REQUIRE_OK(load_parts(&parts, true, &executable));
    EXPECT(strstr(executable->entries[KERNEL_ADD].host_reason, cases[c].reason) != NULL);
    EXPECT_TEXT(executable->entries[KERNEL_COUNT].host_reason, "");
    EXPECT(strstr(last_warning, "kernel 'add' of layer 'layer/Add' runs on the host: ") != NULL);
    EXPECT_OK(add_halves(executable, &sum));
    EXPECT(sum == 0.75f);
    ingot_hal_executable_destroy(executable);
    executable = NULL;
    EXPECT_STATUS(load_parts(&parts, false, &executable), UNSUPPORTED,
                  "kernel 'add' of layer 'layer/Add' cannot run on this device (");
  }
}

TEST(binding_within_an_element_is_refused) {
  test_opencl_parts_t parts = test_opencl_kernel_parts();
  ingot_hal_executable_t *executable = NULL;
  ingot_hal_queue_t *queue = NULL;
  ingot_buffer_t *buffer = NULL;
  REQUIRE_OK(load_parts(&parts, false, &executable));
  REQUIRE_OK(ingot_hal_queue_create(device, &queue));
  REQUIRE_OK(ingot_hal_buffer_create(device, 64, &buffer));
  const ingot_hal_binding_t bindings[3] = {{buffer, 0, 4}, {buffer, 6, 4}, {buffer, 12, 4}};
  ingot_hal_dispatch_t dispatch = {.executable = executable,
                                   .entry = KERNEL_ADD,
                                   .binding_count = 3,
                                   .bindings = bindings,
                                   .workload = {1, 1, 1}};
  EXPECT_STATUS(ingot_hal_queue_dispatch(queue, &dispatch), INVALID_ARGUMENT,
                "binding 1: it begins at byte 6");
  ingot_hal_executable_destroy(executable);
  executable = NULL;
  /* Bytes that are read in words. */
  ingot_opencl_binding_t words[64];
  REQUIRE(parts.binding_count <= 64);
  memcpy(words, parts.bindings, parts.binding_count * sizeof(words[0]));
  words[1] = (ingot_opencl_binding_t){.element_length = 2, .alignment = 4};
  parts.bindings = words;
  REQUIRE_OK(load_parts(&parts, false, &executable));
  dispatch.executable = executable;
  EXPECT_STATUS(ingot_hal_queue_dispatch(queue, &dispatch), INVALID_ARGUMENT,
                "expected a multiple of the 4 bytes that are read at once");
  ingot_hal_buffer_release(buffer);
  ingot_hal_queue_destroy(queue);
  ingot_hal_executable_destroy(executable);
}

TEST(kernels_are_built_with_wide_indices_when_they_are_asked_for) {
  test_opencl_parts_t parts = test_opencl_kernel_parts();
  ingot_hal_executable_t *executable = NULL;
  ingot_cl_kernel_t narrow = NULL, wide = NULL, again = NULL;
  REQUIRE_OK(load_parts(&parts, false, &executable));
  ingot_opencl_executable_t *opencl = (ingot_opencl_executable_t *)executable;
  EXPECT_OK(ingot_opencl_executable_kernel(opencl, KERNEL_ADD, INGOT_OPENCL_NARROW, &narrow));
  EXPECT_OK(ingot_opencl_executable_kernel(opencl, KERNEL_ADD, INGOT_OPENCL_WIDE, &wide));
  EXPECT_OK(ingot_opencl_executable_kernel(opencl, KERNEL_ADD, INGOT_OPENCL_WIDE, &again));
  EXPECT(narrow != NULL && wide != NULL && wide != narrow && wide == again);
  ingot_hal_executable_destroy(executable);
}

/* What the echo kernel says of its call; element 5 is how wide its indices are. */
static void echo(ingot_hal_queue_t *queue, ingot_hal_executable_t *executable,
                 const ingot_hal_binding_t *bindings, const int64_t *constants, int64_t *back) {
  const ingot_hal_dispatch_t dispatch = {.executable = executable,
                                         .entry = KERNEL_ECHO,
                                         .binding_count = 2,
                                         .constant_count = 2,
                                         .bindings = bindings,
                                         .constants = constants,
                                         .workload = {3, 2, 1}};
  EXPECT_OK(ingot_hal_queue_dispatch(queue, &dispatch));
  EXPECT_OK(ingot_hal_queue_read(queue, bindings[0].buffer, 0, back, 7 * sizeof(*back)));
}

/* 2^28 bytes may be an operand of 2^30 elements of two bits; nobody touches them, so they take no
 * memory. */
TEST(operand_of_more_than_two_to_the_30_elements_takes_wide_indices) {
  const int64_t length = (INT64_C(1) << 28) + 1;
  test_opencl_parts_t parts = test_opencl_kernel_parts();
  ingot_hal_executable_t *executable = NULL;
  ingot_hal_queue_t *queue = NULL;
  ingot_buffer_t *target = NULL, *large = NULL;
  ingot_status_t status = ingot_hal_buffer_create(device, length, &large);
  if (status) {
    printf("left out: %s\n", ingot_status_message(status));
    ingot_status_free(status);
    return;
  }
  REQUIRE_OK(load_parts(&parts, false, &executable));
  REQUIRE_OK(ingot_hal_queue_create(device, &queue));
  REQUIRE_OK(ingot_hal_buffer_create(device, 56, &target));
  for (int64_t missing = 0; missing < 2; missing++) {
    const ingot_hal_binding_t bindings[2] = {{target, 0, 56}, {large, length - 8 - missing, 8}};
    const int64_t constants[2] = {5, -6};
    int64_t back[7] = {0};
    echo(queue, executable, bindings, constants, back);
    EXPECT_EQUAL(back[0], 3);
    EXPECT_EQUAL(back[4], -6);
    EXPECT_EQUAL(back[5], missing ? 4 : 8);
  }
  ingot_hal_buffer_release(target);
  ingot_hal_buffer_release(large);
  ingot_hal_queue_destroy(queue);
  ingot_hal_executable_destroy(executable);
}

TEST(large_constant_takes_wide_indices) {
  const int64_t limit = INT64_C(1) << 30;
  const int64_t cases[][2] = {{5, limit}, {limit + 1, 5}, {5, -limit - 1}};
  test_opencl_parts_t parts = test_opencl_kernel_parts();
  ingot_hal_executable_t *executable = NULL;
  ingot_hal_queue_t *queue = NULL;
  ingot_buffer_t *target = NULL;
  REQUIRE_OK(load_parts(&parts, false, &executable));
  REQUIRE_OK(ingot_hal_queue_create(device, &queue));
  REQUIRE_OK(ingot_hal_buffer_create(device, 64, &target));
  for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
    const ingot_hal_binding_t bindings[2] = {{target, 0, 56}, {target, 56, 8}};
    int64_t back[7] = {0};
    echo(queue, executable, bindings, cases[c], back);
    EXPECT_EQUAL(back[4], cases[c][1]);
    EXPECT_EQUAL(back[5], c == 0 ? 4 : 8);
  }
  ingot_hal_buffer_release(target);
  ingot_hal_queue_destroy(queue);
  ingot_hal_executable_destroy(executable);
}

/* -- self-test ------------------------------------------------------------------------------- */

static void count_trace(void *user, const ingot_hal_trace_t *trace) {
  EXPECT_TEXT(trace->kernel, "count");
  ++*(int *)user;
}

/* GPUs take at most 65535 groups of a launch along y and z. The count kernel adds 1 to every
 * element, which it finds by its place in the whole grid. */
TEST(long_grid_is_several_launches) {
  static const int64_t sizes[][2] = {{1, 65535}, {1, 65536}, {3 * 65535, 1}, {3 * 65536, 1}};
  test_opencl_parts_t parts = test_opencl_kernel_parts();
  ingot_hal_executable_t *executable = NULL;
  ingot_hal_queue_t *queue = NULL;
  REQUIRE_OK(load_parts(&parts, false, &executable));
  REQUIRE_OK(ingot_hal_queue_create(device, &queue));
  for (int s = 0; s < 4; s++) {
    int launches = 0;
    int64_t length = sizes[s][0] * sizes[s][1] * 4;
    ingot_hal_binding_t binding = {NULL, 0, length};
    REQUIRE_OK(ingot_hal_buffer_create(device, length, &binding.buffer));
    const ingot_hal_dispatch_t dispatch = {.executable = executable,
                                           .entry = KERNEL_COUNT,
                                           .binding_count = 1,
                                           .bindings = &binding,
                                           .workload = {1, sizes[s][0], sizes[s][1]}};
    EXPECT_OK(ingot_hal_queue_fill(queue, binding.buffer, 0, length, 6, 4));
    queue->trace = count_trace;
    queue->trace_user = &launches;
    EXPECT_OK(ingot_hal_queue_dispatch(queue, &dispatch));
    EXPECT_OK(ingot_hal_queue_wait(queue));
    queue->trace = NULL;
    EXPECT_EQUAL(launches, 1 + s % 2);
    int32_t last = 0;
    EXPECT_OK(ingot_hal_queue_read(queue, binding.buffer, length - 4, &last, 4));
    EXPECT_EQUAL(last, 7);
    ingot_hal_buffer_release(binding.buffer);
  }
  ingot_hal_queue_destroy(queue);
  ingot_hal_executable_destroy(executable);
}

TEST(right_kernel_passes_its_test) {
  static const uint32_t fills[FILLS_COUNT] = {INGOT_OPENCL_FILL_ZERO, INGOT_OPENCL_FILL_UNIFORM,
                                              INGOT_OPENCL_FILL_INDEX, INGOT_OPENCL_FILL_POSITIVE};
  for (int f = 0; f < FILLS_COUNT; f++) {
    ingot_opencl_test_binding_t bindings[3];
    ingot_opencl_test_t test;
    ingot_hal_executable_t *executable = NULL;
    float sum = 0;
    test_opencl_parts_t parts = parts_with_test(NULL, bindings, &test);
    bindings[0].fill = bindings[1].fill = fills[f];
    REQUIRE_OK(load_parts(&parts, true, &executable));
    EXPECT_TEXT(executable->entries[KERNEL_ADD].host_reason, "");
    EXPECT_OK(add_halves(executable, &sum));
    EXPECT(sum == 0.75f);
    ingot_hal_executable_destroy(executable);
  }
}

TEST(wrong_kernel_is_quarantined_and_the_host_computes) {
  static const char *const changes[] = {"b0[o0 + i] - b1[o1 + i]", /* wrong everywhere */
                                        "i == 77 ? 0 : b0[o0 + i] + b1[o1 + i]"};
  for (int c = 0; c < 2; c++) {
    char *source = changed_source("b0[o0 + i] + b1[o1 + i]", changes[c]);
    REQUIRE(source != NULL);
    ingot_opencl_test_binding_t bindings[3];
    ingot_opencl_test_t test;
    ingot_hal_executable_t *executable = NULL;
    float sum = 0;
    test_opencl_parts_t parts = parts_with_test(source, bindings, &test);
    REQUIRE_OK(load_parts(&parts, true, &executable));
    EXPECT(strstr(executable->entries[KERNEL_ADD].host_reason, "self-test") != NULL);
    EXPECT(strstr(last_warning, "computes it wrong") != NULL);
    EXPECT_OK(add_halves(executable, &sum));
    EXPECT(sum == 0.75f);
    ingot_hal_executable_destroy(executable);
    free(source);
  }
}

TEST(difference_within_the_tolerance_or_of_a_workspace_is_right) {
  char *source = changed_source("b0[o0 + i] + b1[o1 + i]", "b0[o0 + i] + b1[o1 + i] + 0.01f");
  REQUIRE(source != NULL);
  static const double tolerances[3] = {0.001, 0.02, -1};
  for (int t = 0; t < 3; t++) {
    ingot_opencl_test_binding_t bindings[3];
    ingot_opencl_test_t test;
    ingot_hal_executable_t *executable = NULL;
    test_opencl_parts_t parts = parts_with_test(source, bindings, &test);
    bindings[2].tolerance = tolerances[t];
    REQUIRE_OK(load_parts(&parts, true, &executable));
    EXPECT_EQUAL(executable->entries[KERNEL_ADD].host_reason[0] == 0, t > 0);
    ingot_hal_executable_destroy(executable);
  }
  free(source);
}

/* The kernel counts only where all four bytes of an element are numbers that an i2 has. */
TEST(test_data_are_numbers_of_the_dtype) {
  char *source =
      changed_source("b0[o0 + (z * w1 + j) * w0 + i] += 1;",
                     "{ index_t at = o0 + (z * w1 + j) * w0 + i; char4 v = as_char4(b0[at]);"
                     "  if (all(v >= (char4)(-2) && v <= (char4)(1))) b0[at] += 1; }");
  REQUIRE(source != NULL);
  static const uint32_t fills[] = {INGOT_OPENCL_FILL_UNIFORM, INGOT_OPENCL_FILL_POSITIVE};
  for (int f = 0; f < 2; f++) {
    ingot_opencl_test_binding_t bindings[3];
    ingot_opencl_test_t test;
    ingot_hal_executable_t *executable = NULL;
    test_opencl_parts_t parts = parts_with_test(source, bindings, &test);
    test.entry = KERNEL_COUNT;
    bindings[0].dtype = INGOT_DTYPE_I2;
    bindings[0].fill = fills[f];
    REQUIRE_OK(load_parts(&parts, true, &executable));
    EXPECT_TEXT(executable->entries[KERNEL_COUNT].host_reason, "");
    ingot_hal_executable_destroy(executable);
  }
  free(source);
}

TEST(self_test_can_be_switched_off_and_needs_the_hosts_variant) {
  char *source = changed_source("b0[o0 + i] + b1[o1 + i]", "b0[o0 + i]");
  REQUIRE(source != NULL);
  ingot_opencl_test_binding_t bindings[3];
  ingot_opencl_test_t test;
  ingot_hal_executable_t *executable = NULL;
  ingot_device_t *untested = NULL;
  test_opencl_parts_t parts = parts_with_test(source, bindings, &test);
  REQUIRE_OK(load_parts(&parts, false, &executable));
  EXPECT_TEXT(executable->entries[KERNEL_ADD].host_reason, "");
  ingot_hal_executable_destroy(executable);
  test_object_t object = test_opencl_object(&parts);
  REQUIRE_OK(
      ingot_hal_device_create(instance, "opencl://0?cache=off&self_test=off", NULL, &untested));
  REQUIRE_OK(load_on(untested, object.data, object.length, true, &executable));
  EXPECT_TEXT(executable->entries[KERNEL_ADD].host_reason, "");
  ingot_hal_executable_destroy(executable);
  ingot_hal_device_release(untested);
  test_object_free(&object);
  free(source);
}

int main(void) {
  if (!open_all()) return TEST_SKIPPED();
  RUN_TESTS();
  close_all();
  return TEST_RESULT();
}
