/* Sizes as the VM computes them, for the functions that check the numbers of a dispatch. What
 * overflows or has no value sets `bad`.
 */
#include "ingot/kernel_abi.h"

#define INGOT_SIZE static inline __attribute__((unused)) int64_t

INGOT_SIZE size_add(int64_t a, int64_t b, uint32_t *bad) {
  int64_t result;
  *bad |= __builtin_add_overflow(a, b, &result);
  return result;
}

INGOT_SIZE size_mul(int64_t a, int64_t b, uint32_t *bad) {
#if UINTPTR_MAX == UINT64_MAX
  int64_t result;
  *bad |= __builtin_mul_overflow(a, b, &result);
  return result;
#else /* the builtin calls a library, and so does what compilers know for it */
  uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
  *bad |= x != 0 && y > (uint64_t)INT64_MAX / x;
  return (int64_t)((uint64_t)a * (uint64_t)b);
#endif
}

INGOT_SIZE size_floordiv(int64_t a, int64_t b, uint32_t *bad) {
  uint32_t none = b == 0 || (b == -1 && a == INT64_MIN);
  *bad |= none;
  if (none) return 0;
  int64_t result = a / b;
  return result - (a % b != 0 && (a < 0) != (b < 0));
}

INGOT_SIZE size_mod(int64_t a, int64_t b, uint32_t *bad) {
  *bad |= b == 0;
  if (b == 0 || b == -1) return 0;
  int64_t result = a % b; /* a - b * floor(a / b), whose product may not fit */
  return result + (result != 0 && (result < 0) != (b < 0) ? b : 0);
}

INGOT_SIZE size_broadcast(int64_t a, int64_t b, uint32_t *bad) {
  *bad |= a != b && a != 1 && b != 1;
  return a == 1 ? b : a;
}

INGOT_SIZE size_min(int64_t a, int64_t b, uint32_t *bad) {
  (void)bad;
  return a < b ? a : b;
}

INGOT_SIZE size_max(int64_t a, int64_t b, uint32_t *bad) {
  (void)bad;
  return a > b ? a : b;
}
