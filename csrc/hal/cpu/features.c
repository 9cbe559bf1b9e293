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
  uint32_t leaf7_b = 0, leaf7_c = 0, leaf7_d = 0, leaf7_1a = 0, extended_c = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  const uint32_t leaf1_c = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    leaf7_b = b;
    leaf7_c = c;
    leaf7_d = d;
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
  if (leaf7_d & 1u << 23) features |= INGOT_CPU_X86_AVX512_FP16;
  /* AMX-BF16, AMX-TILE, AMX-INT8; AVX512-BF16, which rounds, and AVX512-VBMI, which looks bytes up:
   * all such processors have these, but a host may hide them; shape and data of tiles saved */
  const uint32_t amx = 1u << 22 | 1u << 24 | 1u << 25;
  if (ingot_has_bits(leaf7_d, amx) && (leaf7_1a & 1u << 5) && (leaf7_c & 1u << 1) &&
      ingot_has_bits(ingot_x86_xcr0(), 0x60000) && ingot_processor_has_tiles()) {
    features |= INGOT_CPU_X86_AMX;
  }
  return features;
}

uint64_t ingot_hal_cpu_slow_features(uint64_t features) {
  uint32_t a, b, c, d;
  if (!__get_cpuid(0, &a, &b, &c, &d)) return 0;
  /* "GenuineIntel" from Sapphire Rapids on, which have AVX512-FP16, and AMX for bf16: vdpbf16ps
   * makes half as many products a second as an FMA of f32 (docs/design/0029). */
  const bool is_intel = b == 0x756e6547 && d == 0x49656e69 && c == 0x6c65746e;
  return is_intel && features & INGOT_CPU_X86_AVX512_FP16 ? features & INGOT_CPU_X86_AVX512_BF16
                                                          : 0;
}

bool ingot_hal_cpu_permits(uint64_t features) {
  return !(features & INGOT_CPU_X86_AMX) || ingot_processor_request_tiles();
}

const char *ingot_hal_cpu_variant(uint64_t features) {
  return features & INGOT_CPU_X86_AVX512 ? "x86-64-v4"
         : features & INGOT_CPU_X86_AVX2 ? "x86-64-v3"
         : features & INGOT_CPU_X86_V2   ? "x86-64-v2"
                                         : "x86-64";
}

void ingot_hal_cpu_features_text(uint64_t features, char *out_text, size_t capacity) {
  (void)snprintf(out_text, capacity, "%s%s%s%s%s%s", ingot_hal_cpu_variant(features),
                 features & INGOT_CPU_X86_AVX_VNNI ? " avx-vnni" : "",
                 features & INGOT_CPU_X86_AVX512_VNNI ? " avx512-vnni" : "",
                 features & INGOT_CPU_X86_AVX512_BF16 ? " avx512-bf16" : "",
                 features & INGOT_CPU_X86_AVX512_FP16 ? " avx512-fp16" : "",
                 features & INGOT_CPU_X86_AMX ? " amx" : "");
}

#else

/* What a feature is among the system's capabilities, and for people. */
typedef struct ingot_cpu_feature_t {
  uint64_t feature;
  uint64_t words[2]; /* all of these bits */
  const char *name;
} ingot_cpu_feature_t;

#if defined(__aarch64__)
#define INGOT_CPU_NAME "aarch64"
static const ingot_cpu_feature_t ingot_cpu_known_features[] = {
    {INGOT_CPU_ARM_DOTPROD, {1u << 20, 0}, " dotprod"},        /* ASIMDDP */
    {INGOT_CPU_ARM_FP16, {1u << 9 | 1u << 10, 0}, " fp16"},    /* FPHP, ASIMDHP */
    {INGOT_CPU_ARM_I8MM, {0, 1u << 13}, " i8mm"},
    {INGOT_CPU_ARM_BF16, {0, 1u << 14}, " bf16"},
};
#elif defined(__arm__)
#define INGOT_CPU_NAME "arm"
static const ingot_cpu_feature_t ingot_cpu_known_features[] = {
    {INGOT_CPU_ARM_NEON, {1u << 12 | 1u << 16 | 1u << 17, 0}, " neon"}, /* NEON, VFPV4, IDIVA */
};
#elif defined(__riscv)
#define INGOT_CPU_NAME "riscv64"
static const ingot_cpu_feature_t ingot_cpu_known_features[] = {
    {INGOT_CPU_RISCV_V, {1u << ('V' - 'A'), 0}, " v"},
};
#elif defined(__wasm__)
#define INGOT_CPU_NAME "wasm32"
static const ingot_cpu_feature_t ingot_cpu_known_features[] = {
    {INGOT_CPU_WASM_SIMD128, {1, 0}, " simd128"},
    {INGOT_CPU_WASM_RELAXED_SIMD, {2, 0}, " relaxed-simd"},
};
#else
#define INGOT_CPU_NAME "generic"
static const ingot_cpu_feature_t ingot_cpu_known_features[] = {{0, {0, 0}, ""}};
#endif

#define INGOT_CPU_FEATURE_COUNT \
  (sizeof(ingot_cpu_known_features) / sizeof(ingot_cpu_known_features[0]))

uint64_t ingot_hal_cpu_features(void) {
  uint64_t features = 0;
  ingot_processor_capabilities_t has = ingot_processor_capabilities();
  for (size_t i = 0; i < INGOT_CPU_FEATURE_COUNT; i++) {
    const ingot_cpu_feature_t *known = &ingot_cpu_known_features[i];
    if (!(known->words[0] & ~has.words[0]) && !(known->words[1] & ~has.words[1])) {
      features |= known->feature;
    }
  }
  return features;
}

uint64_t ingot_hal_cpu_slow_features(uint64_t features) {
  (void)features;
  return 0;
}

bool ingot_hal_cpu_permits(uint64_t features) {
  (void)features;
  return true;
}

const char *ingot_hal_cpu_variant(uint64_t features) {
#if defined(__arm__)
  (void)features;
  return "armv7-neon";
#elif defined(__wasm__)
  (void)features;
  return "wasm32-simd128";
#elif defined(__riscv)
  return features & INGOT_CPU_RISCV_V ? "riscv64-v" : INGOT_CPU_NAME;
#else
  (void)features;
  return INGOT_CPU_NAME;
#endif
}

void ingot_hal_cpu_features_text(uint64_t features, char *out_text, size_t capacity) {
  size_t length = (size_t)snprintf(out_text, capacity, INGOT_CPU_NAME);
  for (size_t i = 0; i < INGOT_CPU_FEATURE_COUNT && length < capacity; i++) {
    const ingot_cpu_feature_t *known = &ingot_cpu_known_features[i];
    if (!(features & known->feature)) continue;
    length += (size_t)snprintf(out_text + length, capacity - length, "%s", known->name);
  }
}

#endif
