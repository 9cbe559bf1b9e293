/* Reference counts, the pause of a spinning thread, and what the platform has: mutex, condition.
 *
 * Atomics are C11's own (<stdatomic.h>).
 */
#ifndef INGOT_BASE_THREAD_H_
#define INGOT_BASE_THREAD_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "platform/platform.h"

/* Tells the core that this thread waits for another one. */
static inline void ingot_thread_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  __asm__ __volatile__("yield");
#else
  atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* How many owners an object has. */
typedef struct ingot_reference_count_t {
  _Atomic uint32_t value;
} ingot_reference_count_t;

static inline void ingot_reference_count_initialize(ingot_reference_count_t *count) {
  atomic_init(&count->value, 1);
}

static inline void ingot_reference_count_retain(ingot_reference_count_t *count) {
  (void)atomic_fetch_add_explicit(&count->value, 1, memory_order_relaxed);
}

/* True for the owner that left last: it destroys the object, and sees all that the other
 * owners did before they left. */
static inline bool ingot_reference_count_release(ingot_reference_count_t *count) {
  return atomic_fetch_sub_explicit(&count->value, 1, memory_order_acq_rel) == 1;
}

#endif /* INGOT_BASE_THREAD_H_ */
