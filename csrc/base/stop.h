/* What ends a call before its end: its deadline, a question to its caller, another thread.
 *
 * One word says all that running work must know. The thread of the call sets it at the start
 * and clears it at the end; meanwhile any thread may add a reason to stop. Long work looks at
 * it between its pieces: one load, unless the call has limits.
 */
#ifndef INGOT_BASE_STOP_H_
#define INGOT_BASE_STOP_H_

#include <stdatomic.h>

#include "base/allocator.h"
#include "base/status.h"

#define INGOT_STOP_BUSY 1u /* somebody uses what the word belongs to */
#define INGOT_STOP_QUEUED 2u /* there are submitted calls, which keep others out */
#define INGOT_STOP_CALL 4u /* busy with a call, which may be cancelled */
#define INGOT_STOP_LIMITED 8u /* that has a deadline or asks its caller */
#define INGOT_STOP_CANCELLED 16u
#define INGOT_STOP_EXPIRED 32u
#define INGOT_STOP_RENEWED 64u /* while nobody uses it: a swap of weights does for a moment */

typedef struct ingot_stop_t {
  _Atomic uint32_t flags;
  /* Of a limited call; written by its thread before it starts work. */
  int64_t deadline; /* of ingot_clock; 0: none */
  bool (*should_stop)(void *user);
  void *user;
  int64_t next_question; /* when to ask again; 0: not looked at the clock yet */
} ingot_stop_t;

/* Takes the limits of a call that starts at `now`; that is 0 where there is no timeout. */
void ingot_stop_limit(ingot_stop_t *stop, const ingot_call_options_t *options, int64_t now);

/* Adds CANCELLED if a call is running, and says so. From any thread. */
bool ingot_stop_cancel(ingot_stop_t *stop);

/* Looks at the clock, and on the thread of the call asks the caller, if it is time. */
bool ingot_stop_look(ingot_stop_t *stop, bool is_caller);

/* CANCELLED or DEADLINE_EXCEEDED, for work that is due. */
ingot_status_t ingot_stop_status(const ingot_allocator_t *allocator, const ingot_stop_t *stop);

/* Whether a reason to stop has been found already. `stop` may be NULL. */
static inline bool ingot_stop_is_found(const ingot_stop_t *stop) {
  return stop && atomic_load_explicit(&stop->flags, memory_order_relaxed) >= INGOT_STOP_CANCELLED;
}

/* Whether work has to end here. `is_caller`: this is the thread of the call. */
static inline bool ingot_stop_is_due(ingot_stop_t *stop, bool is_caller) {
  return stop && atomic_load_explicit(&stop->flags, memory_order_relaxed) >= INGOT_STOP_LIMITED &&
         ingot_stop_look(stop, is_caller);
}

#endif /* INGOT_BASE_STOP_H_ */
