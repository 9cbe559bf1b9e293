/* What compilers call on 32-bit Arm in place of instructions, for one file of an executable: names
 * and registers are those of its run-time ABI, which passes floats as integers. Conversions get
 * only what fits their result.
 */
#include <stddef.h>
#include <stdint.h>

#define INGOT_ARM_CALL __attribute__((pcs("aapcs"), used))

/* n / d, d not 0, and the rest. */
static __attribute__((used)) uint64_t ingot_divide_u64(uint64_t n, uint64_t d, uint64_t *rest) {
  if ((n | d) >> 32 == 0) {
    *rest = (uint32_t)n % (uint32_t)d;
    return (uint32_t)n / (uint32_t)d;
  }
  uint64_t quotient = 0;
  if (n >= d) {
    int shift = __builtin_clzll(d) - __builtin_clzll(n);
    d <<= shift;
    for (; shift >= 0; --shift, d >>= 1) {
      quotient <<= 1;
      if (n >= d) n -= d, quotient |= 1;
    }
  }
  *rest = n;
  return quotient;
}

static __attribute__((used)) int64_t ingot_divide_i64(int64_t n, int64_t d, int64_t *rest) {
  uint64_t left, size = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
  uint64_t quotient = ingot_divide_u64(size, d < 0 ? 0 - (uint64_t)d : (uint64_t)d, &left);
  *rest = (int64_t)(n < 0 ? 0 - left : left);
  return (int64_t)((n < 0) != (d < 0) ? 0 - quotient : quotient);
}

/* The quotient in r0 and r1, the rest in r2 and r3. */
#define INGOT_ARM_DIVISION(name, function)                                        \
  __attribute__((naked, used)) void name(void);                                   \
  void name(void) {                                                               \
    __asm__("push {r4, lr}\n\tsub sp, sp, #16\n\tadd r4, sp, #8\n\tstr r4, [sp]\n\t" \
            "bl " #function "\n\tldr r2, [sp, #8]\n\tldr r3, [sp, #12]\n\t"       \
            "add sp, sp, #16\n\tpop {r4, pc}");                                   \
  }
INGOT_ARM_DIVISION(__aeabi_uldivmod, ingot_divide_u64)
INGOT_ARM_DIVISION(__aeabi_ldivmod, ingot_divide_i64)

INGOT_ARM_CALL double __aeabi_ul2d(uint64_t a) {
  return (double)(uint32_t)(a >> 32) * 0x1p32 + (double)(uint32_t)a;
}
INGOT_ARM_CALL double __aeabi_l2d(int64_t a) {
  return (double)(int32_t)(a >> 32) * 0x1p32 + (double)(uint32_t)a;
}
/* Of what an f64 does not hold, one low bit stands for all, so that the result is rounded once. */
INGOT_ARM_CALL float __aeabi_ul2f(uint64_t a) {
  uint64_t low = a & 0x7ff;
  return (float)__aeabi_ul2d(a >> 53 && low ? (a ^ low) | 0x800 : a);
}
INGOT_ARM_CALL float __aeabi_l2f(int64_t a) {
  return a < 0 ? -__aeabi_ul2f(0 - (uint64_t)a) : __aeabi_ul2f((uint64_t)a);
}
INGOT_ARM_CALL uint64_t __aeabi_d2ulz(double a) {
  uint32_t high = (uint32_t)(a * 0x1p-32);
  return (uint64_t)high << 32 | (uint32_t)(a - (double)high * 0x1p32);
}
INGOT_ARM_CALL int64_t __aeabi_d2lz(double a) {
  return (int64_t)(a < 0 ? 0 - __aeabi_d2ulz(-a) : __aeabi_d2ulz(a));
}
INGOT_ARM_CALL uint64_t __aeabi_f2ulz(float a) { return __aeabi_d2ulz((double)a); }
INGOT_ARM_CALL int64_t __aeabi_f2lz(float a) { return __aeabi_d2lz((double)a); }

#define INGOT_ARM_MEMORY(suffix)                                                             \
  INGOT_ARM_CALL void __aeabi_memcpy##suffix(void *to, const void *from, size_t length) {    \
    (void)memcpy(to, from, length);                                                          \
  }                                                                                          \
  INGOT_ARM_CALL void __aeabi_memmove##suffix(void *to, const void *from, size_t length) {   \
    (void)memmove(to, from, length);                                                         \
  }                                                                                          \
  INGOT_ARM_CALL void __aeabi_memset##suffix(void *to, size_t length, int value) {           \
    (void)memset(to, value, length);                                                         \
  }                                                                                          \
  INGOT_ARM_CALL void __aeabi_memclr##suffix(void *to, size_t length) {                      \
    (void)memset(to, 0, length);                                                             \
  }
INGOT_ARM_MEMORY()
INGOT_ARM_MEMORY(4)
INGOT_ARM_MEMORY(8)
