/* The contract of a kernel, computed at each dispatch: see ingot_opencl_step_t. */
#include "base/arithmetic.h"
#include "hal/opencl/opencl.h"

bool ingot_opencl_steps_are_sound(const ingot_opencl_step_t *steps, uint32_t step_count,
                                  uint64_t count) {
  for (uint32_t s = 0; s < step_count; s++) {
    const ingot_opencl_step_t *step = &steps[s];
    bool is_number = step->function == INGOT_OPENCL_STEP_NUMBER;
    bool is_sound =
        is_number ? step->a == 0 : step->a < count && step->b >= 0 && (uint64_t)step->b < count;
    if (!is_sound || step->function > INGOT_OPENCL_STEP_FITS) return false;
    count += step->function < INGOT_OPENCL_STEP_LE;
  }
  return count <= INGOT_OPENCL_MAX_VALUES;
}

/* What a step computes into *out; false if that has no value, or it is a test that fails. */
static bool ingot_opencl_step(uint32_t function, int64_t a, int64_t b, int64_t *out) {
  switch (function) {
    case INGOT_OPENCL_STEP_ADD: return ingot_add_i64(a, b, out);
    case INGOT_OPENCL_STEP_MUL: return ingot_multiply_i64(a, b, out);
    case INGOT_OPENCL_STEP_FLOORDIV: return ingot_floor_divide_i64(a, b, out);
    case INGOT_OPENCL_STEP_MOD: return ingot_floor_modulo_i64(a, b, out);
    case INGOT_OPENCL_STEP_MIN: *out = a < b ? a : b; return true;
    case INGOT_OPENCL_STEP_MAX: *out = a > b ? a : b; return true;
    case INGOT_OPENCL_STEP_BROADCAST: return ingot_broadcast_i64(a, b, out);
    case INGOT_OPENCL_STEP_LE: return a <= b;
    case INGOT_OPENCL_STEP_EQUAL: return a == b;
    default: return a == 1 || a == b;
  }
}

bool ingot_opencl_is_misfit(const ingot_opencl_kernel_t *kernel,
                            const ingot_hal_dispatch_t *dispatch) {
  int64_t values[INGOT_OPENCL_MAX_VALUES];
  uint32_t count = 0;
  for (uint32_t b = 0; b < dispatch->binding_count; b++) {
    values[count++] = dispatch->bindings[b].length;
  }
  for (uint32_t c = 0; c < dispatch->constant_count; c++) values[count++] = dispatch->constants[c];
  for (int axis = 0; axis < 3; axis++) values[count++] = dispatch->workload[axis];
  for (uint32_t s = 0; s < kernel->entry->step_count; s++) {
    const ingot_opencl_step_t *step = &kernel->steps[s];
    int64_t result = step->b;
    if (step->function != INGOT_OPENCL_STEP_NUMBER &&
        !ingot_opencl_step(step->function, values[step->a], values[step->b], &result)) {
      return true;
    }
    if (step->function < INGOT_OPENCL_STEP_LE) values[count++] = result;
  }
  return false;
}
