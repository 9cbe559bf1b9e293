/* The conformance suite's kernels as OpenCL C, and objects made of them. What each kernel does
 * is said in kernels.c; only lengths of bindings, which OpenCL kernels are not told, are missing.
 */
#include "opencl_object.h"

#include <stdlib.h>
#include <string.h>

#define TAIL "__global int *fault, int ticket"
#define SIZES "long w0, long w1, long w2, "

static const char source[] =
    "typedef INGOT_INDEX index_t;\n"
    "__kernel __attribute__((reqd_work_group_size(16, 1, 1))) void add(\n"
    "    __global float *b0, index_t o0, __global float *b1, index_t o1,\n"
    "    __global float *b2, index_t o2, " SIZES TAIL
    ") {\n"
    "  for (index_t k = get_local_id(0); k < 64; k += 16) {\n"
    "    index_t i = get_group_id(0) * 64 + k;\n"
    "    if (i < w0) b2[o2 + i] = b0[o0 + i] + b1[o1 + i];\n"
    "  }\n"
    "}\n"
    "__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void count(\n"
    "    __global int *b0, index_t o0, " SIZES TAIL
    ") {\n"
    "  index_t x = get_group_id(0) * 2, y = (get_group_id(1) + get_global_offset(1)) * 3;\n"
    "  index_t z = get_group_id(2) + get_global_offset(2);\n"
    "  for (index_t j = y; j < y + 3 && j < w1; j++)\n"
    "    for (index_t i = x; i < x + 2 && i < w0; i++) b0[o0 + (z * w1 + j) * w0 + i] += 1;\n"
    "}\n"
    "__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void gather(\n"
    "    __global int *b0, index_t o0, __global int *b1, index_t o1, __global int *b2,\n"
    "    index_t o2, long c0, " SIZES TAIL
    ") {\n"
    "  index_t x = get_group_id(0);\n"
    "  long index = b1[o1 + x];\n"
    "  if (index < 0 || index >= c0) {\n"
    "    if (atomic_cmpxchg((volatile __global int *)fault, 0, ticket) == 0) {\n"
    "      fault[1] = 1;\n"
    "      fault[2] = 1;\n"
    "      ((__global long *)fault)[2] = index;\n"
    "      ((__global long *)fault)[3] = c0;\n"
    "    }\n"
    "    return;\n"
    "  }\n"
    "  b2[o2 + x] = b0[o0 + index];\n"
    "}\n"
    "__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void scratch(\n"
    "    __global long *b0, index_t o0, " SIZES "__global uchar *scratch, " TAIL
    ") {\n"
    "  index_t x = get_group_id(0);\n"
    "  volatile __global int *values = (volatile __global int *)(scratch + (long)x * 16384);\n"
    "  long sum = ((ulong)values & 63) != 0;\n"
    "  for (int i = 0; i < 4096; i++) values[i] = i;\n"
    "  for (int i = 0; i < 4096; i++) sum += values[i];\n"
    "  b0[o0 + x] = sum;\n"
    "}\n"
    "__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void halve(\n"
    "    __global float *b0, index_t o0, __global float *b1, index_t o1, " SIZES TAIL
    ") {\n"
    "  b1[o1 + get_group_id(0)] = b0[o0 + get_group_id(0)] * 0.5f;\n"
    "}\n"
    "__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void echo(\n"
    "    __global long *b0, index_t o0, __global uchar *b1, index_t o1, long c0, long c1,\n"
    "    " SIZES TAIL
    ") {\n"
    "  b0[o0] = w0, b0[o0 + 1] = w1, b0[o0 + 2] = w2, b0[o0 + 3] = c0, b0[o0 + 4] = c1;\n"
    "  b0[o0 + 5] = sizeof(index_t), b0[o0 + 6] = 0;\n"
    "}\n";

/* Of add, whose values are three lengths and the workload: 4 * workload[0] <= each length. */
static const ingot_opencl_step_t steps[] = {
    {.function = INGOT_OPENCL_STEP_NUMBER, .b = 4},
    {.function = INGOT_OPENCL_STEP_MUL, .a = 3, .b = 6},
    {.function = INGOT_OPENCL_STEP_LE, .a = 7, .b = 0},
    {.function = INGOT_OPENCL_STEP_LE, .a = 7, .b = 1},
    {.function = INGOT_OPENCL_STEP_LE, .a = 7, .b = 2},
};

static const ingot_opencl_entry_t entries[] = {
    {.binding_count = 3,
     .first_binding = 0,
     .written = 4,
     .tile = {64, 1, 1},
     .local_size = {16, 1, 1},
     .step_count = sizeof(steps) / sizeof(steps[0])},
    {.binding_count = 1,
     .first_binding = 3,
     .written = 1,
     .tile = {2, 3, 1},
     .local_size = {1, 1, 1}},
    {.binding_count = 3,
     .first_binding = 4,
     .written = 4,
     .constant_count = 1,
     .tile = {1, 1, 1},
     .local_size = {1, 1, 1}},
    {.binding_count = 1,
     .first_binding = 7,
     .written = 1,
     .tile = {1, 1, 1},
     .local_size = {1, 1, 1},
     .scratch_length = 16384},
    {.binding_count = 2,
     .first_binding = 8,
     .written = 2,
     .tile = {1, 1, 1},
     .local_size = {1, 1, 1}},
    {.binding_count = 2,
     .first_binding = 10,
     .written = 1,
     .constant_count = 2,
     .tile = {8, 8, 8},
     .local_size = {1, 1, 1}},
};

#define ENTRY_COUNT (sizeof(entries) / sizeof(entries[0]))

static const ingot_opencl_binding_t bindings[] = {{4, 4}, {4, 4}, {4, 4}, {4, 4}, {4, 4}, {4, 4},
                                                  {4, 4}, {8, 8}, {4, 4}, {4, 4}, {8, 8}, {1, 1}};

test_opencl_parts_t test_opencl_kernel_parts(void) {
  return (test_opencl_parts_t){.entry_count = ENTRY_COUNT,
                               .entries = entries,
                               .binding_count = sizeof(bindings) / sizeof(bindings[0]),
                               .bindings = bindings,
                               .step_count = sizeof(steps) / sizeof(steps[0]),
                               .steps = steps,
                               .source = source};
}

/* Appends a table on a multiple of 8 bytes; its offset. */
static uint64_t append(test_object_t *object, const void *data, size_t length) {
  size_t offset = (object->length + 7) & ~(size_t)7;
  if (object->data && length > 0) memcpy(object->data + offset, data, length);
  object->length = offset + length;
  return offset;
}

/* Lays the object out; only counts where it has no bytes. */
static void lay_out(test_object_t *object, const test_opencl_parts_t *parts) {
  ingot_opencl_header_t header = {.magic = INGOT_OPENCL_OBJECT_MAGIC,
                                  .version = INGOT_OPENCL_OBJECT_VERSION,
                                  .entry_count = parts->entry_count,
                                  .binding_count = parts->binding_count,
                                  .test_count = parts->test_count,
                                  .test_binding_count = parts->test_binding_count,
                                  .test_constant_count = parts->test_constant_count,
                                  .step_count = parts->step_count,
                                  .source_length = strlen(parts->source)};
  object->length = sizeof(header);
  header.entry_offset =
      append(object, parts->entries, parts->entry_count * sizeof(*parts->entries));
  header.binding_offset =
      append(object, parts->bindings, parts->binding_count * sizeof(*parts->bindings));
  header.test_offset = append(object, parts->tests, parts->test_count * sizeof(*parts->tests));
  header.test_binding_offset = append(object, parts->test_bindings,
                                      parts->test_binding_count * sizeof(*parts->test_bindings));
  header.test_constant_offset = append(object, parts->test_constants,
                                       parts->test_constant_count * sizeof(*parts->test_constants));
  header.step_offset = append(object, parts->steps, parts->step_count * sizeof(*parts->steps));
  header.source_offset = append(object, parts->source, strlen(parts->source));
  if (object->data) memcpy(object->data, &header, sizeof(header));
}

test_object_t test_opencl_object(const test_opencl_parts_t *parts) {
  test_object_t object = {NULL, 0};
  lay_out(&object, parts);
  object.data = calloc(1, object.length);
  if (object.data) lay_out(&object, parts);
  return object;
}

test_object_t test_opencl_kernels(bool is_host) {
  ingot_opencl_entry_t copies[ENTRY_COUNT];
  memcpy(copies, entries, sizeof(entries));
  for (size_t e = 0; e < ENTRY_COUNT; e++) copies[e].flags = is_host ? INGOT_OPENCL_HOST : 0;
  test_opencl_parts_t parts = test_opencl_kernel_parts();
  parts.entries = copies;
  if (is_host) parts.source = "";
  return test_opencl_object(&parts);
}
