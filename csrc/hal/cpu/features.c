/* Feature bits from CPUID and XCR0 on x86-64, from the system on aarch64. */
#include "hal/cpu/features.h"

#include <stdbool.h>
#include <stdio.h>

#include "ingot/module_layout.h"
#include "platform/platform.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* True if every bit of `mask` is set. */
static bool ingot_has_bits(uint64_t value, uint64_t mask) { return (value & mask) == mask; }

/* The register state that the system saves on a context switch. */
static uint64_t ingot_x86_xcr0(void) {
  uint32_t low, high;
  __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

uint64_t ingot_hal_cpu_features(void) {
  uint32_t a, b, c, d;
  uint32_t leaf7_b = 0, leaf7_c = 0, leaf7_1a = 0, extended_c = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  const uint32_t leaf1_c = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    leaf7_b = b;
    leaf7_c = c;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) leaf7_1a = a;
  }
  if (__get_cpuid(0x80000001u, &a, &b, &c, &d)) extended_c = c;

  uint64_t features = 0;
  /* SSE3, SSSE3, CX16, SSE4.1, SSE4.2, POPCNT; LAHF */
  const uint32_t v2 = 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23;
  if (!ingot_has_bits(leaf1_c, v2) || !(extended_c & 1)) return 0;
  features |= INGOT_CPU_X86_V2;
  /* FMA, MOVBE, OSXSAVE, AVX, F16C; BMI1, AVX2, BMI2; LZCNT; XMM and YMM saved */
  const uint32_t v3 = 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29;
  const uint32_t v3_leaf7 = 1u << 3 | 1u << 5 | 1u << 8;
  if (!ingot_has_bits(leaf1_c, v3) || !ingot_has_bits(leaf7_b, v3_leaf7) ||
      !(extended_c & 1u << 5) || !ingot_has_bits(ingot_x86_xcr0(), 0x6)) {
    return features;
  }
  features |= INGOT_CPU_X86_AVX2;
  if (leaf7_1a & 1u << 4) features |= INGOT_CPU_X86_AVX_VNNI;
  /* F, DQ, CD, BW, VL; opmask and ZMM saved */
  const uint32_t v4 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
  if (!ingot_has_bits(leaf7_b, v4) || !ingot_has_bits(ingot_x86_xcr0(), 0xE6)) return features;
  features |= INGOT_CPU_X86_AVX512;
  if (leaf7_c & 1u << 11) features |= INGOT_CPU_X86_AVX512_VNNI;
  if (leaf7_1a & 1u << 5) features |= INGOT_CPU_X86_AVX512_BF16;
  return features;
}

void ingot_hal_cpu_features_text(uint64_t features, char *out_text, size_t capacity) {
  const char *level = features & INGOT_CPU_X86_AVX512 ? "v4"
                      : features & INGOT_CPU_X86_AVX2 ? "v3"
                      : features & INGOT_CPU_X86_V2   ? "v2"
                                                      : "v1";
  (void)snprintf(out_text, capacity, "x86-64-%s%s%s%s", level,
                 features & INGOT_CPU_X86_AVX_VNNI ? " avx-vnni" : "",
                 features & INGOT_CPU_X86_AVX512_VNNI ? " avx512-vnni" : "",
                 features & INGOT_CPU_X86_AVX512_BF16 ? " avx512-bf16" : "");
}

#elif defined(__aarch64__)

uint64_t ingot_hal_cpu_features(void) {
  uint64_t features = 0;
  ingot_processor_capabilities_t has = ingot_processor_capabilities();
  if (has.words[0] >> 20 & 1) features |= INGOT_CPU_ARM_DOTPROD; /* ASIMDDP */
  if (has.words[1] >> 13 & 1) features |= INGOT_CPU_ARM_I8MM;    /* I8MM */
  return features;
}

void ingot_hal_cpu_features_text(uint64_t features, char *out_text, size_t capacity) {
  (void)snprintf(out_text, capacity, "aarch64%s%s",
                 features & INGOT_CPU_ARM_DOTPROD ? " dotprod" : "",
                 features & INGOT_CPU_ARM_I8MM ? " i8mm" : "");
}

#else

uint64_t ingot_hal_cpu_features(void) { return 0; }

void ingot_hal_cpu_features_text(uint64_t features, char *out_text, size_t capacity) {
  (void)features;
  (void)snprintf(out_text, capacity, "generic");
}

#endif
