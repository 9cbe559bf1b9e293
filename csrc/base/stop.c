/* Deadlines, questions and cancels: see stop.h. */
#include "base/stop.h"

#include "platform/platform.h"

/* Asking may have to wait for a lock of the caller's; it takes an eighth of the time at most. */
#define QUESTION_NANOSECONDS 2000000
#define QUESTION_SHARE 8

void ingot_stop_limit(ingot_stop_t *stop, const ingot_call_options_t *options, int64_t now) {
  bool has_end = options->timeout > 0 && options->timeout < INT64_MAX - now;
  stop->deadline = has_end ? now + options->timeout : 0;
  stop->should_stop = options->should_stop;
  stop->user = options->user;
  stop->next_question = 0;
}

bool ingot_stop_cancel(ingot_stop_t *stop) {
  uint32_t flags = atomic_load(&stop->flags);
  do {
    if (!(flags & INGOT_STOP_CALL)) return false;
  } while (!atomic_compare_exchange_weak(&stop->flags, &flags, flags | INGOT_STOP_CANCELLED));
  return true;
}

static bool is_asked_to_stop(ingot_stop_t *stop, int64_t now) {
  int64_t taken = 0;
  if (stop->next_question != 0) {
    if (stop->should_stop(stop->user)) return true;
    taken = ingot_clock_tick() - now;
  }
  stop->next_question = now + QUESTION_NANOSECONDS + QUESTION_SHARE * taken;
  return false;
}

bool ingot_stop_look(ingot_stop_t *stop, bool is_caller) {
  if (ingot_stop_is_found(stop)) return true;
  int64_t now = ingot_clock_tick();
  uint32_t reason = 0;
  if (stop->deadline != 0 && now > stop->deadline) {
    reason = INGOT_STOP_EXPIRED;
  } else if (is_caller && stop->should_stop && now >= stop->next_question) {
    if (is_asked_to_stop(stop, now)) reason = INGOT_STOP_CANCELLED;
  }
  if (reason) (void)atomic_fetch_or(&stop->flags, reason);
  return reason != 0;
}

ingot_status_t ingot_stop_status(const ingot_allocator_t *allocator, const ingot_stop_t *stop) {
  if (atomic_load(&stop->flags) & INGOT_STOP_CANCELLED) {
    return ingot_status_create(allocator, INGOT_STATUS_CANCELLED, "the call was cancelled");
  }
  return ingot_status_create(allocator, INGOT_STATUS_DEADLINE_EXCEEDED,
                             "the call has run longer than its timeout");
}
