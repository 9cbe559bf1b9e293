/* Calls that do not wait: a queue per session, whose first call waits for its fences and then for
 * a thread of the device.
 *
 * One task per session goes through the queue. It is posted when there is something to do: a call
 * comes first, a fence is reached, another use of the session has ended. A call that has ended is
 * taken out of the queue, under its mutex, by whoever ends it: the task, a cancel, an alarm. Only
 * then, and when nothing of the session is needed any more, others are told, who may free
 * everything as soon as they know.
 */
#include "api/session.h"

struct ingot_queued_call_t {
  ingot_alarm_t alarm; /* the first member */
  ingot_queued_call_t *next;
  ingot_queued_call_t **link; /* what points to it; NULL: it is not in the queue */
  ingot_session_t *session;
  ingot_allocator_t allocator; /* of this block, which may outlive the session */
  uint64_t number;
  bool is_running;
  bool is_late; /* its alarm has rung */
  bool is_last; /* when it did, nothing was left in the queue */
  uint32_t reached_count; /* of its waits, in order */
  uint32_t wait_count;
  uint32_t signal_count;
  ingot_fence_value_t *waits; /* weak: see hal/fence.h */
  ingot_fence_value_t *signals;
  ingot_call_t call; /* arguments and results are its own arrays */
  ingot_call_options_t options;
  ingot_buffer_view_t **arguments;
  ingot_buffer_view_t **results;       /* given ones are retained */
  ingot_buffer_view_t **given_results; /* the application's array */
  ingot_done_function_t done;
  void *user;
};

static ingot_session_t *session_of_queue(ingot_call_queue_t *queue) {
  return (ingot_session_t *)((char *)queue - offsetof(ingot_session_t, queue));
}

/* -- a call of its own ------------------------------------------------------------------------- */

/* One block: the call, its fences, its views. */
static ingot_status_t allocate_queued(const ingot_allocator_t *allocator,
                                      const ingot_submission_t *submission,
                                      ingot_queued_call_t **out_queued) {
  uint64_t fence_count = (uint64_t)submission->wait_count + submission->signal_count;
  uint64_t view_count = (uint64_t)submission->argument_count + submission->result_count;
  uint64_t length = sizeof(ingot_queued_call_t) + fence_count * sizeof(ingot_fence_value_t) +
                    view_count * sizeof(ingot_buffer_view_t *);
  void *memory;
  if (length > SIZE_MAX / 2) return ingot_status_out_of_memory();
  INGOT_TRY(ingot_allocate(allocator, (size_t)length, &memory));
  ingot_queued_call_t *queued = memory;
  queued->allocator = *allocator;
  queued->waits = (ingot_fence_value_t *)(queued + 1);
  queued->signals = queued->waits + submission->wait_count;
  queued->arguments = (ingot_buffer_view_t **)(queued->signals + submission->signal_count);
  queued->results = queued->arguments + submission->argument_count;
  *out_queued = queued;
  return NULL;
}

static ingot_status_t make_queued(ingot_session_t *session, const ingot_submission_t *submission,
                                  ingot_queued_call_t **out_queued) {
  ingot_queued_call_t *queued = NULL;
  INGOT_TRY(allocate_queued(ingot_session_allocator(session), submission, &queued));
  queued->session = session;
  queued->options = submission->options;
  queued->given_results = submission->results;
  queued->done = submission->done;
  queued->user = submission->user;
  queued->wait_count = submission->wait_count;
  queued->signal_count = submission->signal_count;
  for (uint32_t i = 0; i < submission->wait_count; ++i) {
    queued->waits[i] = submission->waits[i];
    ingot_fence_keep(queued->waits[i].fence);
  }
  for (uint32_t i = 0; i < submission->signal_count; ++i) {
    queued->signals[i] = submission->signals[i];
    ingot_fence_retain(queued->signals[i].fence);
  }
  for (uint32_t i = 0; i < submission->argument_count; ++i) {
    queued->arguments[i] = submission->arguments[i];
    if (queued->arguments[i]) ingot_buffer_view_retain(queued->arguments[i]);
  }
  for (uint32_t i = 0; i < submission->result_count; ++i) {
    queued->results[i] = submission->results[i];
    if (queued->results[i]) ingot_buffer_view_retain(queued->results[i]);
  }
  queued->call = (ingot_call_t){.function = submission->function,
                                .argument_count = submission->argument_count,
                                .result_count = submission->result_count,
                                .arguments = queued->arguments,
                                .results = queued->results,
                                .options = &queued->options};
  *out_queued = queued;
  return NULL;
}

/* Lets go of what the call was made with, but for its signals. */
static void drop_operands(ingot_queued_call_t *queued) {
  for (uint32_t i = 0; i < queued->call.argument_count; ++i) {
    ingot_buffer_view_release(queued->arguments[i]);
  }
  for (uint32_t i = 0; i < queued->call.result_count; ++i) {
    ingot_buffer_view_release(queued->results[i]);
  }
  for (uint32_t i = 0; i < queued->wait_count; ++i) ingot_fence_let_go(queued->waits[i].fence);
}

/* Tells that the call, which is in no queue any more, has ended; takes `status` over. What is told
 * last may have everything freed: by then the block is gone too. */
static void tell_queued(ingot_queued_call_t *queued, ingot_status_t status) {
  const ingot_allocator_t allocator = queued->allocator;
  const ingot_done_function_t done = queued->done;
  void *user = queued->user;
  drop_operands(queued);
  uint32_t count = queued->signal_count;
  if (count == 0) {
    ingot_release_memory(&allocator, queued);
    if (done) done(user, status);
    else ingot_status_free(status);
    return;
  }
  if (done) done(user, ingot_status_retain(status));
  for (uint32_t i = 0; i + 1 < count; ++i) {
    ingot_fence_settle(queued->signals[i].fence, queued->signals[i].value,
                       ingot_status_retain(status));
  }
  const ingot_fence_value_t last = queued->signals[count - 1];
  ingot_release_memory(&allocator, queued);
  ingot_fence_settle(last.fence, last.value, status);
}

/* A call that was never in the queue: nobody is told. */
static void forget_queued(ingot_queued_call_t *queued) {
  const ingot_allocator_t allocator = queued->allocator;
  drop_operands(queued);
  for (uint32_t i = 0; i < queued->signal_count; ++i) {
    ingot_fence_release(queued->signals[i].fence);
  }
  ingot_release_memory(&allocator, queued);
}

/* -- the queue, under its mutex ---------------------------------------------------------------- */

static bool is_idle(const ingot_call_queue_t *queue) {
  return !queue->first && !atomic_load(&queue->is_active);
}

/* The first call's fence has been reached, or has failed; under the fence's mutex. */
static void waiter_is_reached(ingot_fence_waiter_t *waiter) {
  ingot_call_queue_post(
      (ingot_call_queue_t *)((char *)waiter - offsetof(ingot_call_queue_t, waiter)));
}

/* Who takes the first call out has the task go on with the next one. */
static void take_out(ingot_session_t *session, ingot_queued_call_t *queued) {
  ingot_call_queue_t *queue = &session->queue;
  if (queue->first == queued && queued->reached_count < queued->wait_count) {
    ingot_fence_remove(queued->waits[queued->reached_count].fence, &queue->waiter);
  }
  *queued->link = queued->next;
  if (queued->next) queued->next->link = queued->link;
  else queue->end = queued->link;
  queued->link = NULL;
  if (!queue->first) (void)atomic_fetch_and(&session->context.stop.flags, ~INGOT_STOP_QUEUED);
}

/* The last step under the mutex: without threads the task runs now. Who is busy with the session
 * does it at the end of that. */
static void go_on(ingot_session_t *session) {
  uint32_t busy = INGOT_STOP_BUSY | INGOT_STOP_RENEWED;
  if (!session->queue.first || (atomic_load(&session->context.stop.flags) & busy)) return;
  ingot_call_queue_post(&session->queue);
}

/* Whether the first call's waits are over; if one has failed, or a signal cannot be made any more,
 * with a status. Else the task is not active any more, and the fence will post it. */
static bool waits_are_over(ingot_call_queue_t *queue, ingot_status_t *out_status) {
  ingot_queued_call_t *queued = queue->first;
  ingot_status_t status = NULL;
  for (; queued->reached_count < queued->wait_count && !status; ++queued->reached_count) {
    const ingot_fence_value_t *wait = &queued->waits[queued->reached_count];
    ingot_fence_remove(wait->fence, &queue->waiter); /* something else may have posted the task */
    queue->waiter.reached = waiter_is_reached;
    atomic_store(&queue->is_active, false);
    if (!ingot_fence_await(wait->fence, wait->value, &queue->waiter, &status)) return false;
    atomic_store(&queue->is_active, true);
  }
  for (uint32_t i = 0; i < queued->signal_count && !status; ++i) {
    uint64_t value;
    status = ingot_fence_query(queued->signals[i].fence, &value);
  }
  *out_status = status;
  return true;
}

/* -- the end of calls -------------------------------------------------------------------------- */

/* Lets the session go, whose queue has become idle. */
static void leave_queue(ingot_session_t *session) {
  ingot_session_settle(session);
  ingot_session_drop(session);
}

/* What may be done with a call that was taken out; `is_last`: its queue is idle now. */
static void end_queued(ingot_queued_call_t *queued, bool is_last, ingot_status_t status) {
  ingot_session_t *session = queued->session;
  ingot_executor_clear_alarm(session->queue.executor, &queued->alarm);
  if (is_last) leave_queue(session);
  tell_queued(queued, status);
}

static bool alarm_rings(ingot_alarm_t *alarm) {
  ingot_queued_call_t *queued = (ingot_queued_call_t *)alarm;
  ingot_session_t *session = queued->session;
  ingot_mutex_lock(&session->queue.mutex);
  bool is_waiting = queued->link && !queued->is_running;
  queued->is_late = true;
  if (is_waiting) take_out(session, queued);
  queued->is_last = is_waiting && is_idle(&session->queue);
  go_on(session);
  ingot_mutex_unlock(&session->queue.mutex);
  return is_waiting;
}

static ingot_status_t late_status(const ingot_queued_call_t *queued) {
  return ingot_status_create(&queued->allocator, INGOT_STATUS_DEADLINE_EXCEEDED,
                             "the call did not begin within its timeout");
}

static void alarm_expires(ingot_alarm_t *alarm) {
  ingot_queued_call_t *queued = (ingot_queued_call_t *)alarm;
  ingot_status_t status = late_status(queued);
  if (queued->is_last) leave_queue(queued->session);
  tell_queued(queued, status);
}

/* -- the task ---------------------------------------------------------------------------------- */

/* Runs the first call, which has been taken note of as running. */
static ingot_status_t run_queued(ingot_session_t *session, ingot_queued_call_t *queued) {
  ingot_executor_clear_alarm(session->queue.executor, &queued->alarm);
  ingot_status_t status = ingot_session_run(session, &queued->call);
  if (status) return status;
  for (uint32_t i = 0; i < queued->call.result_count; ++i) {
    if (queued->given_results[i] == queued->results[i]) continue;
    queued->given_results[i] = queued->results[i]; /* a new one: the application's */
    queued->results[i] = NULL;
  }
  return NULL;
}

/* Under the mutex: whether the session is taken for the call. */
static bool begin_call(ingot_session_t *session) {
  uint32_t queued = INGOT_STOP_QUEUED;
  return atomic_compare_exchange_strong(&session->context.stop.flags, &queued,
                                        INGOT_STOP_QUEUED | INGOT_STOP_BUSY | INGOT_STOP_CALL);
}

/* Ends the first call. Whether there are more. */
static bool make_first_call(ingot_session_t *session, ingot_status_t status) {
  ingot_call_queue_t *queue = &session->queue;
  ingot_queued_call_t *queued = queue->first;
  if (!status) {
    queued->is_running = true;
    ingot_mutex_unlock(&queue->mutex);
    status = run_queued(session, queued);
    ingot_mutex_lock(&queue->mutex);
    (void)atomic_fetch_and(&session->context.stop.flags, INGOT_STOP_QUEUED);
  }
  take_out(session, queued);
  bool has_more = queue->first != NULL;
  if (!has_more) atomic_store(&queue->is_active, false);
  ingot_mutex_unlock(&queue->mutex);
  end_queued(queued, !has_more, status);
  return has_more;
}

static void make_calls(ingot_task_t *task) {
  ingot_session_t *session = session_of_queue((ingot_call_queue_t *)task);
  ingot_call_queue_t *queue = &session->queue;
  ingot_executor_t *executor = queue->executor;
  for (;;) {
    ingot_status_t status = NULL;
    ingot_mutex_lock(&queue->mutex);
    if (!queue->first) break;
    if (!waits_are_over(queue, &status)) {
      ingot_mutex_unlock(&queue->mutex);
      return;
    }
    if (!status && !begin_call(session)) break; /* who is busy posts the task again */
    if (!make_first_call(session, status)) return;
    if (ingot_executor_yield(executor, task)) return;
  }
  atomic_store(&queue->is_active, false);
  bool is_last = is_idle(queue);
  ingot_mutex_unlock(&queue->mutex);
  if (is_last) leave_queue(session);
}

/* -- what applications call -------------------------------------------------------------------- */

static ingot_status_t check_fences(const ingot_session_t *session,
                                   const ingot_submission_t *submission) {
  bool has_null = false;
  for (uint32_t i = 0; i < submission->wait_count; ++i) {
    has_null |= !submission->waits[i].fence;
  }
  for (uint32_t i = 0; i < submission->signal_count; ++i) {
    has_null |= !submission->signals[i].fence;
  }
  if (has_null) {
    return ingot_status_create(ingot_session_allocator(session), INGOT_STATUS_INVALID_ARGUMENT,
                               "a fence of the submission is NULL");
  }
  for (uint32_t i = 0; i < submission->signal_count; ++i) {
    INGOT_TRY(ingot_fence_check_signal(submission->signals[i].fence, submission->signals[i].value));
  }
  return NULL;
}

static void append_queued(ingot_session_t *session, ingot_queued_call_t *queued,
                          ingot_executor_t *executor) {
  ingot_call_queue_t *queue = &session->queue;
  if (!queue->executor) {
    queue->executor = executor;
    queue->task.run = make_calls;
  }
  if (is_idle(queue)) ingot_reference_count_retain(&session->users);
  queued->number = ++queue->last_number;
  queued->link = queue->end;
  *queue->end = queued;
  queue->end = &queued->next;
  if (queue->first == queued) {
    (void)atomic_fetch_or(&session->context.stop.flags, INGOT_STOP_QUEUED);
  }
}

/* An alarm, if the call has a timeout. */
static ingot_status_t set_alarm(ingot_queued_call_t *queued, ingot_executor_t *executor) {
  int64_t timeout = queued->options.timeout, now = timeout > 0 ? ingot_clock() : 0;
  if (timeout <= 0 || timeout >= INT64_MAX - now) return NULL;
  queued->call.begin = now;
  queued->alarm.time = now + timeout;
  queued->alarm.ring = alarm_rings;
  queued->alarm.expire = alarm_expires;
  return ingot_executor_set_alarm(executor, &queued->alarm);
}

ingot_status_t ingot_session_submit(ingot_session_t *session, const ingot_submission_t *submission,
                                    uint64_t *out_number) {
  const ingot_call_t call = {.function = submission->function,
                             .argument_count = submission->argument_count,
                             .result_count = submission->result_count,
                             .arguments = submission->arguments,
                             .results = submission->results};
  ingot_queued_call_t *queued = NULL;
  ingot_executor_t *executor = NULL;
  INGOT_TRY(ingot_session_check(session, &call));
  INGOT_TRY(check_fences(session, submission));
  INGOT_TRY(ingot_hal_device_executor(session->program->device, &executor));
  INGOT_TRY(make_queued(session, submission, &queued));
  ingot_status_t status = set_alarm(queued, executor);
  if (!status) {
    ingot_mutex_lock(&session->queue.mutex);
    if (queued->is_late) {
      status = late_status(queued);
    } else {
      append_queued(session, queued, executor);
      if (out_number) *out_number = queued->number;
      if (session->queue.first == queued) go_on(session);
    }
    ingot_mutex_unlock(&session->queue.mutex);
  }
  if (status) forget_queued(queued);
  return status;
}

/* Takes out the calls that wait, or the one of `number`: a list of them. */
static ingot_queued_call_t *take_waiting(ingot_session_t *session, uint64_t number) {
  ingot_queued_call_t *taken = NULL, **end = &taken;
  for (ingot_queued_call_t *queued = session->queue.first, *next; queued; queued = next) {
    next = queued->next;
    if (queued->is_running || (number != INGOT_ALL_CALLS && queued->number != number)) continue;
    take_out(session, queued);
    queued->next = NULL;
    *end = queued;
    end = &queued->next;
  }
  return taken;
}

bool ingot_session_cancel(ingot_session_t *session, uint64_t number) {
  ingot_call_queue_t *queue = &session->queue;
  if (number == INGOT_RUNNING_CALL) return ingot_stop_cancel(&session->context.stop);
  ingot_mutex_lock(&queue->mutex);
  const ingot_queued_call_t *first = queue->first;
  bool is_running =
      number == INGOT_ALL_CALLS || (first && first->is_running && first->number == number);
  bool is_found = is_running && ingot_stop_cancel(&session->context.stop);
  ingot_queued_call_t *taken = take_waiting(session, number);
  bool is_last = taken && is_idle(queue);
  go_on(session);
  ingot_mutex_unlock(&queue->mutex);
  is_found |= taken != NULL;
  for (ingot_queued_call_t *next; taken; taken = next) {
    next = taken->next;
    end_queued(taken, is_last && !next,
               ingot_status_create(ingot_session_allocator(session), INGOT_STATUS_CANCELLED,
                                   "the call was cancelled before it began"));
  }
  return is_found;
}
