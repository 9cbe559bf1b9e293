/* The checks of an OpenCL object: after them, every table and every reference in it can be used
 * without a further look. */
#include <inttypes.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/dtype.h"
#include "hal/opencl/opencl.h"

#define INGOT_OPENCL_MAX_TEST_LENGTH (INT64_C(1) << 26) /* bytes of a test's binding */

typedef struct ingot_opencl_checker_t {
  const ingot_allocator_t *allocator;
  const uint8_t *data;
  size_t length;
  const ingot_opencl_header_t *header;
  const ingot_hal_executable_description_t *description;
} ingot_opencl_checker_t;

static ingot_status_t ingot_opencl_check_table(const ingot_opencl_checker_t *checker,
                                               const char *name, uint64_t offset, uint64_t count,
                                               size_t item_length) {
  uint64_t length;
  bool is_inside = ingot_multiply_u64(count, item_length, &length) &&
                   ingot_range_fits_u64(offset, length, checker->length);
  bool is_aligned = item_length == 1 || offset % INGOT_OPENCL_OBJECT_ALIGNMENT == 0;
  if (is_inside && is_aligned) return NULL;
  return ingot_status_create(checker->allocator, INGOT_STATUS_DATA_LOSS,
                             "the OpenCL object is damaged: its %s (%" PRIu64 " at offset %" PRIu64
                             ") do not fit its %zu bytes",
                             name, count, offset, checker->length);
}

static ingot_status_t ingot_opencl_check_header(const ingot_opencl_checker_t *checker) {
  const ingot_opencl_header_t *header = checker->header;
  if (checker->length < sizeof(*header) ||
      memcmp(header->magic, INGOT_OPENCL_OBJECT_MAGIC, sizeof(header->magic)) != 0) {
    return ingot_status_create(checker->allocator, INGOT_STATUS_DATA_LOSS,
                               "the OpenCL object is damaged: it does not begin as one");
  }
  if (header->version != INGOT_OPENCL_OBJECT_VERSION) {
    return ingot_status_create(checker->allocator, INGOT_STATUS_INCOMPATIBLE,
                               "the OpenCL object has version %u, this runtime reads %d: compile "
                               "the module anew",
                               header->version, INGOT_OPENCL_OBJECT_VERSION);
  }
  if (header->entry_count != checker->description->entry_count) {
    return ingot_status_create(checker->allocator, INGOT_STATUS_DATA_LOSS,
                               "the OpenCL object has %u kernels, its module says %u",
                               header->entry_count, checker->description->entry_count);
  }
  INGOT_TRY(ingot_opencl_check_table(checker, "kernels", header->entry_offset, header->entry_count,
                                     sizeof(ingot_opencl_entry_t)));
  INGOT_TRY(ingot_opencl_check_table(checker, "bindings", header->binding_offset,
                                     header->binding_count, sizeof(ingot_opencl_binding_t)));
  INGOT_TRY(ingot_opencl_check_table(checker, "tests", header->test_offset, header->test_count,
                                     sizeof(ingot_opencl_test_t)));
  INGOT_TRY(ingot_opencl_check_table(checker, "test bindings", header->test_binding_offset,
                                     header->test_binding_count,
                                     sizeof(ingot_opencl_test_binding_t)));
  INGOT_TRY(ingot_opencl_check_table(checker, "test constants", header->test_constant_offset,
                                     header->test_constant_count, sizeof(int64_t)));
  INGOT_TRY(ingot_opencl_check_table(checker, "steps", header->step_offset, header->step_count,
                                     sizeof(ingot_opencl_step_t)));
  return ingot_opencl_check_table(checker, "bytes of source", header->source_offset,
                                  header->source_length, 1);
}

static ingot_status_t ingot_opencl_check_bindings(const ingot_opencl_checker_t *checker,
                                                  const ingot_opencl_entry_t *entry) {
  const ingot_opencl_binding_t *bindings =
      (const void *)(checker->data + checker->header->binding_offset);
  for (uint32_t b = 0; b < entry->binding_count; b++) {
    uint32_t length = bindings[entry->first_binding + b].element_length;
    uint32_t alignment = bindings[entry->first_binding + b].alignment;
    if (length >= 1 && (length & (length - 1)) == 0 && alignment >= length && alignment <= 16 &&
        (alignment & (alignment - 1)) == 0) {
      continue;
    }
    return ingot_status_create(checker->allocator, INGOT_STATUS_DATA_LOSS,
                               "the OpenCL object is damaged: binding %u has elements of %u bytes "
                               "and an alignment of %u",
                               b, length, alignment);
  }
  return NULL;
}

/* `first_step` is behind the steps of the entries before; on return of those up to this one. */
static ingot_status_t ingot_opencl_check_entry(const ingot_opencl_checker_t *checker,
                                               uint32_t ordinal, uint64_t *first_step) {
  const ingot_opencl_entry_t *entry =
      (const ingot_opencl_entry_t *)(const void *)(checker->data + checker->header->entry_offset) +
      ordinal;
  const ingot_hal_entry_description_t *described = &checker->description->entries[ordinal];
  bool is_good = entry->binding_count == described->binding_count &&
                 entry->constant_count == described->constant_count &&
                 entry->written == described->written &&
                 ingot_range_fits_u64(entry->first_binding, entry->binding_count,
                                      checker->header->binding_count) &&
                 ingot_range_fits_u64(*first_step, entry->step_count, checker->header->step_count);
  for (int axis = 0; axis < 3; axis++) {
    is_good = is_good && entry->tile[axis] >= 1 && entry->local_size[axis] >= 1;
  }
  if (!is_good) {
    return ingot_status_create(checker->allocator, INGOT_STATUS_DATA_LOSS,
                               "the OpenCL object is damaged: its kernel %u, '%s', does not fit "
                               "what the module says of it",
                               ordinal, described->name);
  }
  const ingot_opencl_step_t *steps = (const void *)(checker->data + checker->header->step_offset);
  uint64_t count = entry->binding_count + entry->constant_count + 3;
  if (!(entry->flags & INGOT_OPENCL_HOST) &&
      !ingot_opencl_steps_are_sound(steps + *first_step, entry->step_count, count)) {
    return ingot_status_create(checker->allocator, INGOT_STATUS_DATA_LOSS,
                               "the OpenCL object is damaged: what the sizes of its kernel %u, "
                               "'%s', are checked with makes no sense",
                               ordinal, described->name);
  }
  *first_step += entry->step_count;
  return ingot_status_prefix(ingot_opencl_check_bindings(checker, entry), "kernel '%s'",
                             described->name);
}

static ingot_status_t ingot_opencl_check_test(const ingot_opencl_checker_t *checker,
                                              uint32_t ordinal) {
  const ingot_opencl_header_t *header = checker->header;
  const ingot_opencl_test_t *test =
      (const ingot_opencl_test_t *)(const void *)(checker->data + header->test_offset) + ordinal;
  const ingot_opencl_test_binding_t *bindings =
      (const void *)(checker->data + header->test_binding_offset);
  bool is_good = test->entry < header->entry_count;
  if (is_good) {
    const ingot_hal_entry_description_t *entry = &checker->description->entries[test->entry];
    is_good = ingot_range_fits_u64(test->first_binding, entry->binding_count,
                                   header->test_binding_count) &&
              ingot_range_fits_u64(test->first_constant, entry->constant_count,
                                   header->test_constant_count);
    for (uint32_t b = 0; is_good && b < entry->binding_count; b++) {
      const ingot_opencl_test_binding_t *binding = &bindings[test->first_binding + b];
      is_good = binding->length >= 0 && binding->length <= INGOT_OPENCL_MAX_TEST_LENGTH &&
                ingot_dtype_name((ingot_dtype_t)binding->dtype) != NULL;
    }
  }
  if (is_good) return NULL;
  return ingot_status_create(checker->allocator, INGOT_STATUS_DATA_LOSS,
                             "the OpenCL object is damaged: its test %u is of no kernel", ordinal);
}

ingot_status_t ingot_opencl_object_check(const ingot_allocator_t *allocator, const void *data,
                                         size_t length,
                                         const ingot_hal_executable_description_t *description) {
  const ingot_opencl_checker_t checker = {allocator, data, length, data, description};
  INGOT_TRY(ingot_opencl_check_header(&checker));
  uint64_t step_count = 0;
  for (uint32_t e = 0; e < checker.header->entry_count; e++) {
    INGOT_TRY(ingot_opencl_check_entry(&checker, e, &step_count));
  }
  for (uint64_t t = 0; t < checker.header->test_count; t++) {
    INGOT_TRY(ingot_opencl_check_test(&checker, (uint32_t)t));
  }
  return NULL;
}
