/* Calls from Python that do not wait: see submit.h. */
#include "submit.h"

/* Defined in Python: submission.py. */
void ingot_python_failed(ingot_python_submission_t *submission);

/* A later value may be there already, which is as good. */
static void ingot_python_wake(ingot_python_ended_t *ended, bool leader) {
  uint64_t value = __atomic_add_fetch(&ended->counts[leader], 1, __ATOMIC_SEQ_CST);
  ingot_status_free(ingot_fence_signal(ended->fences[leader], value));
}

static void ingot_python_end(void *user, ingot_status_t status) {
  ingot_python_submission_t *submission = user;
  ingot_python_ended_t *ended = submission->ended;
  ingot_python_drop_wraps(submission->frame, !status);
  submission->status = status;
  if (status) ingot_python_failed(submission); /* on the thread on which Python may have raised */
  ingot_python_submission_t *next = __atomic_load_n(&ended->newest, __ATOMIC_RELAXED);
  do {
    submission->next = next;
  } while (!__atomic_compare_exchange_n(&ended->newest, &next, submission, true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED));
  if (next) return; /* whoever came into the empty list wakes a thread */
  ingot_python_wake(ended, __atomic_load_n(&ended->leader_count, __ATOMIC_SEQ_CST) > 0);
}

ingot_status_t ingot_python_submit(ingot_python_submission_t *submission,
                                   const ingot_fence_value_t *waits, uint32_t wait_count,
                                   const ingot_fence_value_t *signals, uint32_t signal_count) {
  ingot_python_frame_t *frame = submission->frame;
  ingot_submission_t call = {
      .function = frame->function,
      .argument_count = frame->argument_count,
      .arguments = frame->views,
      .result_count = frame->result_count,
      .results = frame->views + frame->argument_count,
      .options = frame->options,
      .waits = waits,
      .wait_count = wait_count,
      .signals = signals,
      .signal_count = signal_count,
      .done = ingot_python_end,
      .user = submission,
  };
  call.options.should_stop = NULL; /* signals are heard by the main thread, which does not wait */
  ingot_status_t status = ingot_python_wrap_tensors(frame);
  if (!status) status = ingot_session_submit(frame->session, &call, &submission->number);
  if (status) ingot_python_drop_wraps(frame, false);
  return status;
}

static ingot_python_submission_t *ingot_python_take(ingot_python_ended_t *ended, bool leader,
                                                    int64_t timeout) {
  uint64_t seen = 0;
  ingot_fence_t *fence = ended->fences[leader];
  ingot_status_free(ingot_fence_query(fence, &seen)); /* first: what comes later makes it grow */
  ingot_python_submission_t *newest = __atomic_exchange_n(&ended->newest, NULL, __ATOMIC_SEQ_CST);
  if (newest) return newest;
  ingot_status_free(ingot_fence_wait(fence, seen + 1, timeout));
  return __atomic_exchange_n(&ended->newest, NULL, __ATOMIC_SEQ_CST);
}

ingot_python_submission_t *ingot_python_take_ended(ingot_python_ended_t *ended, bool leads,
                                                   int64_t timeout) {
  if (!leads) return ingot_python_take(ended, false, timeout);
  (void)__atomic_add_fetch(&ended->leader_count, 1, __ATOMIC_SEQ_CST);
  ingot_python_submission_t *newest = ingot_python_take(ended, true, timeout);
  (void)__atomic_sub_fetch(&ended->leader_count, 1, __ATOMIC_SEQ_CST);
  /* Something may have come since, and have woken this thread only. */
  if (__atomic_load_n(&ended->newest, __ATOMIC_SEQ_CST)) ingot_python_wake(ended, false);
  return newest;
}
