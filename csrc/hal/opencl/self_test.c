/* The self-test: the same data through the device's kernel and the host's. */
#include "hal/opencl/self_test.h"

#include <string.h>

#include "base/dtype.h"
#include "base/float.h"
#include "hal/opencl/cache.h"

/* -- dtypes ---------------------------------------------------------------------------------- */

/* Complex numbers are pairs of floats. */
static ingot_dtype_t ingot_opencl_scalar_dtype(uint32_t code) {
  if (code == INGOT_DTYPE_C64) return INGOT_DTYPE_F32;
  if (code == INGOT_DTYPE_C128) return INGOT_DTYPE_F64;
  return (ingot_dtype_t)code;
}

static double ingot_opencl_decode(const uint8_t *bytes, ingot_dtype_t dtype) {
  uint64_t word = 0;
  memcpy(&word, bytes, ingot_dtype_length(dtype)); /* little-endian */
  return ingot_float_decode(word, dtype);
}

/* -- data ------------------------------------------------------------------------------------ */

/* The next number of a fixed sequence. */
static uint32_t ingot_opencl_random(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 33);
}

static void ingot_opencl_fill_float(uint8_t *bytes, ingot_dtype_t dtype, uint32_t fill,
                                    uint32_t number) {
  size_t length = ingot_dtype_length(dtype);
  if (length == 1) { /* near 1 in every 8-bit format; a 4-bit one has 8 values */
    bytes[0] = dtype == INGOT_DTYPE_F4E2M1FN ? number & 7 : 0x30 | (number & 15);
    return;
  }
  double value = (double)(number & 127) / 128;
  if (fill == INGOT_OPENCL_FILL_POSITIVE) value += 0.5;
  else if (number & 128) value = -value;
  uint64_t word = ingot_float_encode(value, dtype);
  memcpy(bytes, &word, length);
}

static void ingot_opencl_fill_integer(uint8_t *bytes, ingot_dtype_t dtype,
                                      const ingot_opencl_test_binding_t *binding, uint32_t number) {
  const ingot_dtype_facts_t *facts = ingot_dtype_facts(dtype);
  uint32_t value_bits = facts->kind == 'i' ? facts->bits - 1u : facts->bits;
  uint32_t largest = value_bits < 3 ? (1u << value_bits) - 1 : 7; /* that the dtype has */
  int64_t value = number & largest;
  if (binding->fill == INGOT_OPENCL_FILL_INDEX && binding->bound > 0) {
    value = number % binding->bound;
  } else if (binding->fill == INGOT_OPENCL_FILL_POSITIVE) {
    value = 1 + number % largest;
  }
  memcpy(bytes, &value, facts->length); /* little-endian */
}

static void ingot_opencl_fill(uint8_t *bytes, const ingot_opencl_test_binding_t *binding,
                              uint64_t *state) {
  ingot_dtype_t dtype = ingot_opencl_scalar_dtype(binding->dtype);
  int64_t length = (int64_t)ingot_dtype_length(dtype);
  memset(bytes, 0, (size_t)binding->length);
  if (binding->fill == INGOT_OPENCL_FILL_ZERO) return;
  for (int64_t i = 0; i + length <= binding->length; i += length) {
    uint32_t number = ingot_opencl_random(state);
    if (ingot_dtype_facts(dtype)->kind == 'f')
      ingot_opencl_fill_float(bytes + i, dtype, binding->fill, number);
    else ingot_opencl_fill_integer(bytes + i, dtype, binding, number);
  }
}

static bool ingot_opencl_is_near(const uint8_t *a, const uint8_t *b, ingot_dtype_t dtype,
                                 double tolerance) {
  const ingot_dtype_facts_t *facts = ingot_dtype_facts(dtype);
  if (memcmp(a, b, facts->length) == 0) return true;
  if (facts->kind != 'f' || tolerance == 0) return false;
  if (facts->length == 1) return a[0] + 1 == b[0] || b[0] + 1 == a[0]; /* neighbours */
  double left = ingot_opencl_decode(a, dtype), right = ingot_opencl_decode(b, dtype);
  if (left != left || right != right) return left != left && right != right;
  double scale = 1, difference = left > right ? left - right : right - left;
  if (left > scale || -left > scale) scale = left > 0 ? left : -left;
  if (right > scale || -right > scale) scale = right > 0 ? right : -right;
  return difference <= tolerance * scale && scale - scale == 0; /* infinities are not near */
}

static bool ingot_opencl_is_equal(const uint8_t *a, const uint8_t *b,
                                  const ingot_opencl_test_binding_t *binding) {
  ingot_dtype_t dtype = ingot_opencl_scalar_dtype(binding->dtype);
  int64_t length = (int64_t)ingot_dtype_length(dtype);
  for (int64_t i = 0; i + length <= binding->length; i += length) {
    if (!ingot_opencl_is_near(a + i, b + i, dtype, binding->tolerance)) return false;
  }
  return true;
}

/* -- runs ------------------------------------------------------------------------------------ */

/* One test, and where both sides' results go: the bindings' bytes, one behind the other. */
typedef struct ingot_opencl_run_t {
  const ingot_hal_entry_description_t *entry;
  const ingot_opencl_test_t *test;
  const ingot_opencl_test_binding_t *bindings;
  const int64_t *constants;
  size_t total;     /* bytes of all bindings */
  uint8_t *inputs;  /* total bytes each */
  uint8_t *outputs; /* the device's */
  uint8_t *expected;
} ingot_opencl_run_t;

static ingot_status_t ingot_opencl_run_queued(const ingot_opencl_run_t *run,
                                              ingot_hal_executable_t *executable,
                                              ingot_hal_queue_t *queue,
                                              const ingot_hal_binding_t *bindings,
                                              uint8_t *results) {
  const ingot_hal_dispatch_t dispatch = {
      .executable = executable,
      .entry = run->test->entry,
      .binding_count = run->entry->binding_count,
      .constant_count = run->entry->constant_count,
      .bindings = bindings,
      .constants = run->constants,
      .workload = {run->test->workload[0], run->test->workload[1], run->test->workload[2]}};
  INGOT_TRY(ingot_hal_queue_dispatch(queue, &dispatch));
  for (uint32_t b = 0; b < run->entry->binding_count; b++) {
    INGOT_TRY(ingot_hal_queue_read(queue, bindings[b].buffer, 0, results, bindings[b].length));
    results += bindings[b].length;
  }
  return NULL;
}

/* Runs the executable's entry on its device, from the inputs into `results`; a fault of the
 * kernel is a result too. */
static ingot_status_t ingot_opencl_run_on(const ingot_opencl_run_t *run,
                                          ingot_hal_executable_t *executable,
                                          ingot_hal_queue_t *queue, uint8_t *results,
                                          bool *out_faults) {
  ingot_hal_binding_t bindings[INGOT_HAL_MAX_BINDINGS] = {{NULL, 0, 0}};
  const uint8_t *bytes = run->inputs;
  ingot_status_t status = NULL;
  for (uint32_t b = 0; !status && b < run->entry->binding_count; b++) {
    bindings[b].length = run->bindings[b].length;
    status = ingot_hal_buffer_create(executable->device, bindings[b].length, &bindings[b].buffer);
    if (!status) {
      status = ingot_hal_buffer_write(bindings[b].buffer, 0, bindings[b].length, bytes);
    }
    bytes += bindings[b].length;
  }
  if (!status) status = ingot_opencl_run_queued(run, executable, queue, bindings, results);
  for (uint32_t b = 0; b < run->entry->binding_count; b++) {
    ingot_hal_buffer_release(bindings[b].buffer);
  }
  *out_faults = ingot_status_code(status) == INGOT_STATUS_OUT_OF_RANGE;
  if (!*out_faults) return status;
  ingot_status_free(status);
  return NULL;
}

static bool ingot_opencl_results_agree(const ingot_opencl_run_t *run) {
  size_t offset = 0;
  for (uint32_t b = 0; b < run->entry->binding_count; b++) {
    bool is_written = run->entry->written >> b & 1;
    bool is_compared = is_written && run->bindings[b].tolerance >= 0;
    if (is_compared &&
        !ingot_opencl_is_equal(run->outputs + offset, run->expected + offset, &run->bindings[b])) {
      return false;
    }
    offset += (size_t)run->bindings[b].length;
  }
  return true;
}

/* Runs both sides and compares; the run's memory is there. */
static ingot_status_t ingot_opencl_compare(const ingot_opencl_run_t *run,
                                           ingot_opencl_executable_t *executable,
                                           ingot_hal_queue_t *queue, ingot_hal_queue_t *host_queue,
                                           uint8_t *out_verdict) {
  uint64_t state = run->test->entry;
  size_t offset = 0;
  for (uint32_t b = 0; b < run->entry->binding_count; b++) {
    ingot_opencl_fill(run->inputs + offset, &run->bindings[b], &state);
    offset += (size_t)run->bindings[b].length;
  }
  bool host_faults = false, device_faults = false;
  INGOT_TRY(
      ingot_opencl_run_on(run, executable->base.host, host_queue, run->expected, &host_faults));
  INGOT_TRY(ingot_opencl_run_on(run, &executable->base, queue, run->outputs, &device_faults));
  bool agree = host_faults == device_faults && (host_faults || ingot_opencl_results_agree(run));
  *out_verdict = agree ? INGOT_OPENCL_VERDICT_RIGHT : INGOT_OPENCL_VERDICT_WRONG;
  return NULL;
}

static ingot_status_t ingot_opencl_run_test(ingot_opencl_executable_t *executable,
                                            const ingot_opencl_test_t *test,
                                            ingot_hal_queue_t *queue, ingot_hal_queue_t *host_queue,
                                            uint8_t *out_verdict) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(executable->base.device);
  const ingot_opencl_header_t *header = (const void *)executable->object;
  ingot_opencl_run_t run = {
      .entry = &executable->base.entries[test->entry].description,
      .test = test,
      .bindings = (const ingot_opencl_test_binding_t *)(const void *)(executable->object +
                                                                      header->test_binding_offset) +
                  test->first_binding,
      .constants =
          (const int64_t *)(const void *)(executable->object + header->test_constant_offset) +
          test->first_constant};
  for (uint32_t b = 0; b < run.entry->binding_count; b++) {
    run.total += (size_t)run.bindings[b].length; /* each is small: checked at load */
  }
  void *memory;
  INGOT_TRY(ingot_allocate_array(allocator, 3, run.total + 1, &memory));
  run.inputs = memory;
  run.outputs = run.inputs + run.total;
  run.expected = run.outputs + run.total;
  ingot_status_t status = ingot_opencl_compare(&run, executable, queue, host_queue, out_verdict);
  ingot_release_memory(allocator, memory);
  return ingot_status_prefix(status, "self-test of kernel '%s'", run.entry->name);
}

/* -- all tests ------------------------------------------------------------------------------- */

static bool ingot_opencl_is_due(const ingot_opencl_executable_t *executable,
                                const ingot_opencl_test_t *test, const uint8_t *verdicts) {
  return !executable->base.entries[test->entry].host_reason[0] &&
         verdicts[test->entry] == INGOT_OPENCL_VERDICT_NONE;
}

static ingot_status_t ingot_opencl_run_tests(ingot_opencl_executable_t *executable,
                                             const ingot_opencl_test_t *tests, uint64_t count,
                                             uint8_t *verdicts) {
  ingot_hal_queue_t *queue = NULL, *host_queue = NULL;
  ingot_status_t status = ingot_hal_queue_create(executable->base.device, &queue);
  if (!status) status = ingot_hal_queue_create(executable->base.host->device, &host_queue);
  for (uint64_t t = 0; !status && t < count; t++) {
    if (!ingot_opencl_is_due(executable, &tests[t], verdicts)) continue;
    status =
        ingot_opencl_run_test(executable, &tests[t], queue, host_queue, &verdicts[tests[t].entry]);
  }
  ingot_hal_queue_destroy(host_queue);
  ingot_hal_queue_destroy(queue);
  return status;
}

/* Says what the verdicts are worth: not every kernel has a test. */
static void ingot_opencl_log_verdicts(const ingot_opencl_executable_t *executable, const char *name,
                                      const uint8_t *verdicts) {
  uint32_t count = 0, right_count = 0, untested_count = 0;
  for (uint32_t e = 0; e < executable->base.entry_count; e++) {
    if (executable->base.entries[e].host_reason[0]) continue;
    count++;
    right_count += verdicts[e] == INGOT_OPENCL_VERDICT_RIGHT;
    untested_count += verdicts[e] == INGOT_OPENCL_VERDICT_NONE;
  }
  ingot_log(&executable->base.device->instance->log, INGOT_LOG_INFO,
            "kernels '%s': %u of %u agree with the host's in the self-test, %u have no test", name,
            right_count, count, untested_count);
}

ingot_status_t ingot_opencl_self_test(ingot_opencl_executable_t *executable,
                                      const ingot_hal_executable_description_t *description,
                                      uint8_t *verdicts) {
  const ingot_opencl_header_t *header = (const void *)executable->object;
  const ingot_opencl_test_t *tests = (const void *)(executable->object + header->test_offset);
  uint64_t due_count = 0;
  for (uint64_t t = 0; t < header->test_count; t++) {
    due_count += ingot_opencl_is_due(executable, &tests[t], verdicts);
  }
  if (due_count == 0) return NULL;
  ingot_status_t status = ingot_hal_executable_load_host(&executable->base, description);
  if (ingot_status_code(status) == INGOT_STATUS_UNSUPPORTED) {
    ingot_log(&executable->base.device->instance->log, INGOT_LOG_INFO,
              "kernels '%s' are not tested on this device: %s", description->name,
              ingot_status_message(status));
    ingot_status_free(status);
    return NULL;
  }
  if (status) return status;
  INGOT_TRY(ingot_opencl_run_tests(executable, tests, header->test_count, verdicts));
  ingot_opencl_log_verdicts(executable, description->name, verdicts);
  return NULL;
}
