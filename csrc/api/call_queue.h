/* A session's queue of submitted calls: what whoever uses the session must know of it. The calls
 * themselves are submission.c's.
 */
#ifndef INGOT_API_CALL_QUEUE_H_
#define INGOT_API_CALL_QUEUE_H_

#include "base/executor.h"
#include "hal/fence.h"

typedef struct ingot_queued_call_t ingot_queued_call_t;

/* The submitted calls that have not ended, in order. */
typedef struct ingot_call_queue_t {
  ingot_task_t task;           /* makes calls on a thread of the executor */
  ingot_executor_t *executor;  /* the device's; NULL until the first submission */
  ingot_mutex_t mutex;         /* guards what follows; taken before a fence's */
  ingot_queued_call_t *first;  /* waits for a fence, or for the task, or runs */
  ingot_queued_call_t **end;   /* where the next one goes */
  ingot_fence_waiter_t waiter; /* of the first one */
  uint64_t last_number;
  _Atomic bool is_active; /* the task is posted or runs; set by the waiter without the mutex */
} ingot_call_queue_t;

static inline void ingot_call_queue_initialize(ingot_call_queue_t *queue) {
  ingot_mutex_initialize(&queue->mutex);
  queue->end = &queue->first;
}

/* Has the task look at the queue, if it does not do so anyway. Under the mutex or the fence's. */
static inline void ingot_call_queue_post(ingot_call_queue_t *queue) {
  if (!atomic_exchange(&queue->is_active, true)) {
    ingot_executor_post(queue->executor, &queue->task);
  }
}

/* Has the task go on, after a use of the session during which calls were submitted. */
static inline void ingot_call_queue_wake(ingot_call_queue_t *queue) {
  ingot_mutex_lock(&queue->mutex);
  if (queue->first) ingot_call_queue_post(queue);
  ingot_mutex_unlock(&queue->mutex);
}

#endif /* INGOT_API_CALL_QUEUE_H_ */
