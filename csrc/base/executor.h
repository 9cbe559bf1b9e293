/* Threads that run tasks, and one that rings alarms, started when they are needed.
 *
 * A thread runs one task at a time, in the order in which they were posted. Where a build has no
 * threads, posting runs the task. Threads keep no reference to what owns the executor.
 */
#ifndef INGOT_BASE_EXECUTOR_H_
#define INGOT_BASE_EXECUTOR_H_

#include "base/allocator.h"
#include "base/thread.h"

typedef struct ingot_executor_t ingot_executor_t;

typedef struct ingot_task_t {
  struct ingot_task_t *next;
  /* May post the task again, or free it, and even end the executor. */
  void (*run)(struct ingot_task_t *task);
} ingot_task_t;

typedef struct ingot_alarm_t {
  struct ingot_alarm_t *next;
  struct ingot_alarm_t **link; /* what points to it; NULL: it is not set */
  int64_t time; /* of ingot_clock */
  /* At the time, on a thread of its own: whether `expire` is to be called. It sets and clears no
   * alarms. */
  bool (*ring)(struct ingot_alarm_t *alarm);
  void (*expire)(struct ingot_alarm_t *alarm); /* may free it, and even end the executor */
} ingot_alarm_t;

/* At most `thread_count` threads, which call `begin` (may be NULL) first. `can_spin`: one that has
 * run a task looks for the next for a while before it sleeps. */
ingot_status_t ingot_executor_create(const ingot_allocator_t *allocator, uint32_t thread_count,
                                     bool can_spin, void (*begin)(void *user), void *user,
                                     ingot_executor_t **out_executor);

/* Waits for the threads, which have nothing to run any more; that of the caller ends by itself.
 * Accepts NULL. */
void ingot_executor_destroy(ingot_executor_t *executor);

/* Sees to it that there is a thread, also in a child of the process that had some. OutOfMemory if
 * the system gives none. */
ingot_status_t ingot_executor_reserve(ingot_executor_t *executor);

/* Runs the task on a thread, once ingot_executor_reserve has succeeded. It must not be posted
 * already. */
void ingot_executor_post(ingot_executor_t *executor, ingot_task_t *task);

/* For a task that runs and has more to do: true if others wait for the thread, and the task was
 * posted behind them. */
bool ingot_executor_yield(ingot_executor_t *executor, ingot_task_t *task);

/* OutOfMemory if the system gives no thread. Without threads alarms never ring. */
ingot_status_t ingot_executor_set_alarm(ingot_executor_t *executor, ingot_alarm_t *alarm);

/* When it returns, `ring` is not called any more. `alarm` need not be set. */
void ingot_executor_clear_alarm(ingot_executor_t *executor, ingot_alarm_t *alarm);

#endif /* INGOT_BASE_EXECUTOR_H_ */
