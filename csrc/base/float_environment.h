/* The floating-point environment that kernels rely on: round to nearest, denormals kept,
 * no traps. A session enters it for the length of a call on the caller's thread and
 * restores the caller's own afterwards; a device's worker threads live in it.
 */
#ifndef INGOT_BASE_FLOAT_ENVIRONMENT_H_
#define INGOT_BASE_FLOAT_ENVIRONMENT_H_

#include <stdint.h>

/* What the caller had: MXCSR on x86, FPCR on aarch64, else unused. */
typedef struct ingot_float_environment_t {
  uint64_t control;
} ingot_float_environment_t;

/* Sets the kernels' environment on this thread and returns the one that was there. */
static inline ingot_float_environment_t ingot_float_environment_enter(void) {
  ingot_float_environment_t saved = {0};
#if defined(__x86_64__)
  saved.control = __builtin_ia32_stmxcsr();
  if ((saved.control & 0xFFC0u) != 0x1F80u) __builtin_ia32_ldmxcsr(0x1F80u);
#elif defined(__aarch64__)
  __asm__ __volatile__("mrs %0, fpcr" : "=r"(saved.control));
  if (saved.control != 0) __asm__ __volatile__("msr fpcr, %0" : : "r"((uint64_t)0));
#endif
  return saved;
}

/* Restores what ingot_float_environment_enter returned, on the same thread. */
static inline void ingot_float_environment_leave(ingot_float_environment_t saved) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr((unsigned int)saved.control);
#elif defined(__aarch64__)
  __asm__ __volatile__("msr fpcr, %0" : : "r"(saved.control));
#else
  (void)saved;
#endif
}

#endif /* INGOT_BASE_FLOAT_ENVIRONMENT_H_ */
