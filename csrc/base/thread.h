/* Threads: reference counts, mutex, condition, and the pause of a spinning thread.
 *
 * Atomics are C11's own (<stdatomic.h>). Mutexes do not nest. Nothing here allocates.
 */
#ifndef INGOT_BASE_THREAD_H_
#define INGOT_BASE_THREAD_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef pthread_mutex_t ingot_mutex_t;
typedef pthread_cond_t ingot_condition_t;

static inline void ingot_mutex_initialize(ingot_mutex_t *mutex) {
  (void)pthread_mutex_init(mutex, NULL); /* cannot fail with default attributes */
}

static inline void ingot_mutex_deinitialize(ingot_mutex_t *mutex) {
  (void)pthread_mutex_destroy(mutex);
}

static inline void ingot_mutex_lock(ingot_mutex_t *mutex) { (void)pthread_mutex_lock(mutex); }

static inline void ingot_mutex_unlock(ingot_mutex_t *mutex) { (void)pthread_mutex_unlock(mutex); }

static inline void ingot_condition_initialize(ingot_condition_t *condition) {
  (void)pthread_cond_init(condition, NULL);
}

static inline void ingot_condition_deinitialize(ingot_condition_t *condition) {
  (void)pthread_cond_destroy(condition);
}

/* Callers test their predicate in a loop: a wait may end without a signal. */
static inline void ingot_condition_wait(ingot_condition_t *condition, ingot_mutex_t *mutex) {
  (void)pthread_cond_wait(condition, mutex);
}

/* For some milliseconds at most. */
static inline void ingot_condition_wait_a_little(ingot_condition_t *condition,
                                                 ingot_mutex_t *mutex) {
  struct timespec end;
  (void)timespec_get(&end, TIME_UTC); /* C11: the real-time clock, which waits go by */
  end.tv_nsec += 4000000;
  if (end.tv_nsec >= 1000000000) {
    end.tv_nsec -= 1000000000;
    ++end.tv_sec;
  }
  (void)pthread_cond_timedwait(condition, mutex, &end);
}

static inline void ingot_condition_signal(ingot_condition_t *condition) {
  (void)pthread_cond_signal(condition);
}

static inline void ingot_condition_broadcast(ingot_condition_t *condition) {
  (void)pthread_cond_broadcast(condition);
}

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
