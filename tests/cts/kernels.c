/* The kernels of the conformance suite, as C: what a driver of CPU kernels runs. It builds
 * like a generated kernel, as an object without imports, and it is linked into the tests
 * too, for the statically linked case. The ordinals are in kernels.h.
 */
#include "ingot/kernel_abi.h"

#define EXPORT __attribute__((visibility("default")))

/* target[i] = a[i] + b[i], f32; tile 64. */
static uint32_t INGOT_KERNEL_CALL kernel_add(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                             int64_t y, int64_t z, void *scratch,
                                             ingot_kernel_fault_t *fault) {
  (void)y, (void)z, (void)scratch, (void)fault;
  const float *a = dispatch->bindings[0];
  const float *b = dispatch->bindings[1];
  float *target = dispatch->bindings[2];
  int64_t end = (x + 1) * 64 < dispatch->workload[0] ? (x + 1) * 64 : dispatch->workload[0];
  for (int64_t i = x * 64; i < end; i++) target[i] = a[i] + b[i];
  return INGOT_FAULT_NONE;
}

/* target[z, y, x] = 1 + how often its workgroup ran, i32; tile 2 x 3 x 1. */
static uint32_t INGOT_KERNEL_CALL kernel_count(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                               int64_t y, int64_t z, void *scratch,
                                               ingot_kernel_fault_t *fault) {
  (void)scratch, (void)fault;
  int32_t *target = dispatch->bindings[0];
  const int64_t *size = dispatch->workload;
  for (int64_t j = y * 3; j < y * 3 + 3 && j < size[1]; j++) {
    for (int64_t i = x * 2; i < x * 2 + 2 && i < size[0]; i++) {
      target[(z * size[1] + j) * size[0] + i] += 1;
    }
  }
  return INGOT_FAULT_NONE;
}

/* target[i] = source[index[i]], i32, faults outside of constant 0 elements; tile 1. */
static uint32_t INGOT_KERNEL_CALL kernel_gather(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                                int64_t y, int64_t z, void *scratch,
                                                ingot_kernel_fault_t *fault) {
  (void)y, (void)z, (void)scratch;
  const int32_t *source = dispatch->bindings[0];
  const int32_t *indices = dispatch->bindings[1];
  int32_t *target = dispatch->bindings[2];
  int64_t index = indices[x], bound = dispatch->constants[0];
  if (index < 0 || index >= bound) {
    fault->code = INGOT_FAULT_INDEX_OUT_OF_RANGE;
    fault->operand = 1;
    fault->index = index;
    fault->bound = bound;
    return INGOT_FAULT_INDEX_OUT_OF_RANGE;
  }
  target[x] = source[index];
  return INGOT_FAULT_NONE;
}

/* Fills its scratch, then target[x] = sum of it, i64: 0 + 1 + ... + 4095 = 8386560, plus 1 if
 * the scratch is not on 64 bytes; tile 1. */
static uint32_t INGOT_KERNEL_CALL kernel_scratch(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                                 int64_t y, int64_t z, void *scratch,
                                                 ingot_kernel_fault_t *fault) {
  (void)y, (void)z, (void)fault;
  volatile int32_t *values = scratch;
  int64_t sum = ((uintptr_t)scratch & 63) != 0;
  for (int32_t i = 0; i < 4096; i++) values[i] = i;
  for (int32_t i = 0; i < 4096; i++) sum += values[i];
  ((int64_t *)dispatch->bindings[0])[x] = sum;
  return INGOT_FAULT_NONE;
}

/* target[x] = source[x] * 0.5, f32: half of the smallest normal number tells whether
 * denormals are flushed; tile 1. */
static uint32_t INGOT_KERNEL_CALL kernel_halve(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                               int64_t y, int64_t z, void *scratch,
                                               ingot_kernel_fault_t *fault) {
  (void)y, (void)z, (void)scratch, (void)fault;
  ((float *)dispatch->bindings[1])[x] = ((const float *)dispatch->bindings[0])[x] * 0.5f;
  return INGOT_FAULT_NONE;
}

/* target = what it was told: workload, constants 0 and 1, lengths 0 and 1, i64[7]; tile 8. */
static uint32_t INGOT_KERNEL_CALL kernel_echo(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                              int64_t y, int64_t z, void *scratch,
                                              ingot_kernel_fault_t *fault) {
  (void)x, (void)y, (void)z, (void)scratch, (void)fault;
  int64_t *target = dispatch->bindings[0];
  for (int i = 0; i < 3; i++) target[i] = dispatch->workload[i];
  for (int i = 0; i < 2; i++) target[3 + i] = dispatch->constants[i];
  for (int i = 0; i < 2; i++) target[5 + i] = dispatch->lengths[i];
  return INGOT_FAULT_NONE;
}

static uint32_t INGOT_KERNEL_CALL any_fits(const ingot_kernel_dispatch_t *dispatch) {
  (void)dispatch;
  return 0;
}

/* Every binding of kernel_add has an element per unit of work. */
static uint32_t INGOT_KERNEL_CALL add_misfit(const ingot_kernel_dispatch_t *dispatch) {
  uint32_t bad = 0;
  for (int b = 0; b < 3; b++) bad |= dispatch->lengths[b] / 4 < dispatch->workload[0];
  return bad;
}

static const ingot_kernel_entry_t entries[] = {
    {kernel_add, {64, 1, 1}, 0, add_misfit, 4, 3, 0},
    {kernel_count, {2, 3, 1}, 0, any_fits, 1, 1, 0},
    {kernel_gather, {1, 1, 1}, 0, any_fits, 4, 3, 1},
    {kernel_scratch, {1, 1, 1}, 4096 * 4, any_fits, 1, 1, 0},
    {kernel_halve, {1, 1, 1}, 0, any_fits, 2, 2, 0},
    {kernel_echo, {8, 8, 8}, 0, any_fits, 1, 2, 2},
};

static const ingot_kernel_library_t library = {INGOT_KERNEL_ABI_VERSION,
                                               sizeof(entries) / sizeof(entries[0]), entries};

EXPORT const ingot_kernel_library_t *INGOT_KERNEL_CALL ingot_executable_query(uint32_t version);

EXPORT const ingot_kernel_library_t *INGOT_KERNEL_CALL ingot_executable_query(uint32_t version) {
  return version == INGOT_KERNEL_ABI_VERSION ? &library : 0;
}
