/* Fences: counters that only grow, or fail. Everything is told under the mutex, but functions of
 * the application, which run when it is free again.
 */
#include "hal/fence.h"

#include <inttypes.h>

#include "hal/hal.h"

/* A thread that waits looks for so long before it sleeps: to wake one takes longer. */
#define INGOT_FENCE_SPIN_NANOSECONDS 20000
#define INGOT_FENCE_PAUSES 64 /* between two looks at the clock */

struct ingot_fence_t {
  ingot_instance_t *instance;
  ingot_reference_count_t owners;
  ingot_reference_count_t references; /* all owners together, and each of those who look */
  ingot_mutex_t mutex;
  ingot_condition_t changed;
  uint32_t sleeper_count;
  _Atomic uint64_t value; /* written under the mutex, like has_failed */
  _Atomic bool has_failed;
  ingot_status_t failure;
  ingot_fence_waiter_t *waiters;
};

/* A function of the application that waits. */
typedef struct ingot_fence_note_t {
  ingot_fence_waiter_t waiter;
  ingot_done_function_t function;
  void *user;
} ingot_fence_note_t;

static const ingot_allocator_t *ingot_fence_allocator(const ingot_fence_t *fence) {
  return &fence->instance->allocator;
}

/* -- lifetime -------------------------------------------------------------------------------- */

ingot_status_t ingot_fence_create(ingot_instance_t *instance, uint64_t value,
                                  ingot_fence_t **out_fence) {
  void *memory;
  INGOT_TRY(ingot_allocate(&instance->allocator, sizeof(ingot_fence_t), &memory));
  ingot_fence_t *fence = memory;
  ingot_hal_instance_retain(instance);
  fence->instance = instance;
  ingot_reference_count_initialize(&fence->owners);
  ingot_reference_count_initialize(&fence->references);
  ingot_mutex_initialize(&fence->mutex);
  ingot_condition_initialize(&fence->changed);
  atomic_init(&fence->value, value);
  atomic_init(&fence->has_failed, false);
  *out_fence = fence;
  return NULL;
}

void ingot_fence_retain(ingot_fence_t *fence) { ingot_reference_count_retain(&fence->owners); }

void ingot_fence_keep(ingot_fence_t *fence) { ingot_reference_count_retain(&fence->references); }

void ingot_fence_let_go(ingot_fence_t *fence) {
  if (!ingot_reference_count_release(&fence->references)) return;
  ingot_instance_t *instance = fence->instance;
  ingot_status_free(fence->failure);
  ingot_condition_deinitialize(&fence->changed);
  ingot_mutex_deinitialize(&fence->mutex);
  ingot_release_memory(&instance->allocator, fence);
  ingot_hal_instance_release(instance);
}

/* -- telling --------------------------------------------------------------------------------- */

static void ingot_fence_unlink(ingot_fence_waiter_t *waiter) {
  *waiter->link = waiter->next;
  if (waiter->next) waiter->next->link = waiter->link;
  waiter->link = NULL;
  waiter->next = NULL;
}

/* Under the mutex: whether `value` is not to be waited for. */
static bool ingot_fence_is_over(const ingot_fence_t *fence, uint64_t value) {
  return atomic_load(&fence->value) >= value || atomic_load(&fence->has_failed);
}

/* Under the mutex: the first waiter whose value is decided, taken out; NULL if there is none. */
static ingot_fence_waiter_t *ingot_fence_pop(ingot_fence_t *fence) {
  ingot_fence_waiter_t *waiter = fence->waiters;
  while (waiter && !ingot_fence_is_over(fence, waiter->value)) waiter = waiter->next;
  if (waiter) ingot_fence_unlink(waiter);
  return waiter;
}

/* Under the mutex: tells those whose value is decided. Gives the notes, in order. Without threads
 * the one who is told runs calls at once, which may change the list. */
static ingot_fence_note_t *ingot_fence_tell(ingot_fence_t *fence) {
  ingot_fence_waiter_t *notes = NULL, **end = &notes;
  if (fence->sleeper_count > 0) ingot_condition_broadcast(&fence->changed);
  for (ingot_fence_waiter_t *waiter; (waiter = ingot_fence_pop(fence)) != NULL;) {
    if (waiter->reached) waiter->reached(waiter);
    else end = &(*end = waiter)->next;
  }
  return (ingot_fence_note_t *)notes;
}

/* Calls the functions of the application. Each may be what its owner waits for to free all there
 * is: so nothing of its own is left when it is called. */
static void ingot_fence_call(ingot_fence_t *fence, ingot_fence_note_t *notes) {
  for (ingot_fence_note_t *note = notes, *next; note; note = next) {
    next = (ingot_fence_note_t *)note->waiter.next;
    const ingot_fence_note_t copy = *note;
    bool is_reached = atomic_load(&fence->value) >= note->waiter.value;
    ingot_status_t status = is_reached ? NULL : ingot_status_retain(fence->failure);
    ingot_release_memory(ingot_fence_allocator(fence), note);
    ingot_fence_let_go(fence);
    copy.function(copy.user, status);
  }
}

/* Under the mutex. The first failure counts. */
static void ingot_fence_set_failure(ingot_fence_t *fence, ingot_status_t status) {
  if (fence->failure) {
    ingot_status_free(status);
    return;
  }
  fence->failure = status;
  atomic_store(&fence->has_failed, true);
}

/* Under the mutex, when the last owner has gone. */
static void ingot_fence_abandon(ingot_fence_t *fence) {
  if (!fence->waiters || fence->failure) return;
  ingot_fence_set_failure(fence,
                          ingot_status_create(ingot_fence_allocator(fence), INGOT_STATUS_CANCELLED,
                                              "a fence was released at %" PRIu64 ", which %" PRIu64
                                              " was waited for: nobody can signal it now",
                                              atomic_load(&fence->value), fence->waiters->value));
}

/* Under the mutex, which it gives back. Drops a reference too if that of an owner `is_dropped`. */
static void ingot_fence_leave(ingot_fence_t *fence, bool is_dropped) {
  bool is_last = is_dropped && ingot_reference_count_release(&fence->owners);
  if (is_last) ingot_fence_abandon(fence);
#if defined(INGOT_NO_THREADS)
  if (!is_last) ingot_fence_keep(fence); /* the calls that run now may let go of it */
  is_last = true;
#endif
  ingot_fence_note_t *notes = ingot_fence_tell(fence);
  ingot_mutex_unlock(&fence->mutex);
  if (notes) ingot_fence_call(fence, notes);
  if (is_last) ingot_fence_let_go(fence);
}

void ingot_fence_release(ingot_fence_t *fence) {
  if (!fence) return;
  ingot_mutex_lock(&fence->mutex);
  ingot_fence_leave(fence, true);
}

void ingot_fence_settle(ingot_fence_t *fence, uint64_t value, ingot_status_t status) {
  ingot_mutex_lock(&fence->mutex);
  if (status) ingot_fence_set_failure(fence, status);
  else if (!fence->failure && value > atomic_load(&fence->value)) {
    atomic_store(&fence->value, value);
  }
  ingot_fence_leave(fence, true);
}

/* -- signals --------------------------------------------------------------------------------- */

/* Under the mutex. */
static ingot_status_t ingot_fence_signal_status(const ingot_fence_t *fence, uint64_t value) {
  uint64_t current = atomic_load(&fence->value);
  if (value > current) return NULL;
  return ingot_status_create(ingot_fence_allocator(fence), INGOT_STATUS_INVALID_ARGUMENT,
                             "a fence at %" PRIu64 " is to be signalled with %" PRIu64
                             ": expected a larger value",
                             current, value);
}

ingot_status_t ingot_fence_check_signal(ingot_fence_t *fence, uint64_t value) {
  ingot_mutex_lock(&fence->mutex);
  ingot_status_t status = fence->failure ? NULL : ingot_fence_signal_status(fence, value);
  ingot_mutex_unlock(&fence->mutex);
  return status;
}

ingot_status_t ingot_fence_signal(ingot_fence_t *fence, uint64_t value) {
  ingot_mutex_lock(&fence->mutex);
  ingot_status_t status = fence->failure ? ingot_status_retain(fence->failure)
                                         : ingot_fence_signal_status(fence, value);
  if (!status) atomic_store(&fence->value, value);
  ingot_fence_leave(fence, false);
  return status;
}

void ingot_fence_fail(ingot_fence_t *fence, ingot_status_t status) {
  ingot_mutex_lock(&fence->mutex);
  if (status) ingot_fence_set_failure(fence, status);
  ingot_fence_leave(fence, false);
}

/* -- waits ----------------------------------------------------------------------------------- */

bool ingot_fence_await(ingot_fence_t *fence, uint64_t value, ingot_fence_waiter_t *waiter,
                       ingot_status_t *out_status) {
  ingot_mutex_lock(&fence->mutex);
  bool is_over = ingot_fence_is_over(fence, value);
  if (!is_over) {
    ingot_fence_waiter_t **link = &fence->waiters; /* behind the others */
    while (*link) link = &(*link)->next;
    waiter->value = value;
    waiter->link = link;
    *link = waiter;
  }
  *out_status = atomic_load(&fence->value) < value ? ingot_status_retain(fence->failure) : NULL;
  /* Of a fence that has no owner, and had no waiter when the last one went. */
  if (!is_over && atomic_load(&fence->owners.value) == 0) ingot_fence_abandon(fence);
  ingot_fence_leave(fence, false);
  return is_over;
}

void ingot_fence_remove(ingot_fence_t *fence, ingot_fence_waiter_t *waiter) {
  ingot_mutex_lock(&fence->mutex);
  if (waiter->link) ingot_fence_unlink(waiter);
  ingot_mutex_unlock(&fence->mutex);
}

ingot_status_t ingot_fence_notify(ingot_fence_t *fence, uint64_t value,
                                  ingot_done_function_t function, void *user) {
  void *memory;
  ingot_status_t status;
  INGOT_TRY(ingot_allocate(ingot_fence_allocator(fence), sizeof(ingot_fence_note_t), &memory));
  ingot_fence_note_t *note = memory;
  note->function = function;
  note->user = user;
  ingot_fence_keep(fence);
  if (!ingot_fence_await(fence, value, &note->waiter, &status)) return NULL;
  ingot_release_memory(ingot_fence_allocator(fence), note);
  ingot_fence_let_go(fence);
  function(user, status);
  return NULL;
}

/* Looks for a while without the mutex. */
static void ingot_fence_spin(const ingot_fence_t *fence, uint64_t value) {
  int64_t end = ingot_clock() + INGOT_FENCE_SPIN_NANOSECONDS;
  do {
    for (int i = 0; i < INGOT_FENCE_PAUSES; i++) {
      if (ingot_fence_is_over(fence, value)) return;
      ingot_thread_pause();
    }
  } while (ingot_clock() < end);
}

/* Under the mutex: sleeps until the value is decided, or the time is over. */
static void ingot_fence_sleep(ingot_fence_t *fence, uint64_t value, int64_t timeout) {
#if defined(INGOT_NO_THREADS)
  (void)fence; /* nobody else could signal it */
  (void)value;
  (void)timeout;
#else
  int64_t now = ingot_clock();
  bool has_end = timeout > 0 && timeout < INT64_MAX - now;
  int64_t end = has_end ? now + timeout : 0;
  fence->sleeper_count++;
  while (!ingot_fence_is_over(fence, value) && (!has_end || now < end)) {
    if (has_end) ingot_condition_wait_for(&fence->changed, &fence->mutex, end - now);
    else ingot_condition_wait(&fence->changed, &fence->mutex);
    now = ingot_clock();
  }
  fence->sleeper_count--;
#endif
}

ingot_status_t ingot_fence_wait(ingot_fence_t *fence, uint64_t value, int64_t timeout) {
  ingot_status_t status = NULL;
  if (timeout != 0) ingot_fence_spin(fence, value);
  ingot_mutex_lock(&fence->mutex);
  if (timeout != 0) ingot_fence_sleep(fence, value, timeout);
  if (atomic_load(&fence->value) < value) {
    status = fence->failure
                 ? ingot_status_retain(fence->failure)
                 : ingot_status_create(ingot_fence_allocator(fence), INGOT_STATUS_DEADLINE_EXCEEDED,
                                       "a fence is at %" PRIu64
                                       " when the time to wait for %" PRIu64 " is over",
                                       atomic_load(&fence->value), value);
  }
  ingot_mutex_unlock(&fence->mutex);
  return status;
}

ingot_status_t ingot_fence_query(ingot_fence_t *fence, uint64_t *out_value) {
  ingot_mutex_lock(&fence->mutex);
  ingot_status_t status = ingot_status_retain(fence->failure);
  if (!status) *out_value = atomic_load(&fence->value);
  ingot_mutex_unlock(&fence->mutex);
  return status;
}
