/* Threads that run tasks: one list, one condition. Whoever posts wakes a thread only if none is
 * looking already.
 *
 * A task may let go of the last reference to what owns the executor. Then it is destroyed by a
 * thread of its own, which is told so and touches it no more.
 */
#include "base/executor.h"

#define INGOT_EXECUTOR_SPIN_NANOSECONDS 50000
#define INGOT_EXECUTOR_PAUSES 64 /* between two looks at the clock */
/* Native functions of the application run here, which expect the stack of a thread of its own. */
#define INGOT_EXECUTOR_STACK_LENGTH (8u << 20)

typedef struct ingot_executor_thread_t {
  ingot_executor_t *executor;
#if !defined(INGOT_NO_THREADS)
  ingot_thread_t thread;
  uintptr_t self;
  bool *is_destroyed; /* of the thread's own: whether a task of it has ended the executor */
#endif
} ingot_executor_thread_t;

struct ingot_executor_t {
  ingot_allocator_t allocator;
  bool can_spin;
  ingot_mutex_t mutex; /* guards all below, but for what only looking needs */
  ingot_task_t *first;
  ingot_task_t *last;
  _Atomic uint32_t task_count;
  _Atomic uint32_t looking_count; /* threads that look for tasks without the mutex */
  bool is_running;   /* without threads: tasks */
  bool is_destroyed; /* meanwhile, by one of them */
#if !defined(INGOT_NO_THREADS)
  void (*begin)(void *user);
  void *user;
  ingot_condition_t posted;
  uint32_t sleeping_count;
  uint32_t capacity;
  uint32_t thread_count;
  bool is_quitting;
  int64_t process; /* in which the threads are */
  ingot_mutex_t alarm_mutex; /* guards what follows; taken before the other one */
  ingot_condition_t alarm_set;
  ingot_alarm_t *alarms;
  int64_t next_alarm; /* when its thread looks again */
  bool has_bell;
  ingot_executor_thread_t bell; /* the thread of alarms */
  ingot_executor_thread_t threads[];
#endif
};

/* -- the list, under the mutex ---------------------------------------------------------------- */

static void ingot_executor_push(ingot_executor_t *executor, ingot_task_t *task) {
  task->next = NULL;
  if (executor->first) executor->last->next = task;
  else executor->first = task;
  executor->last = task;
  (void)atomic_fetch_add(&executor->task_count, 1);
}

static ingot_task_t *ingot_executor_pop(ingot_executor_t *executor) {
  ingot_task_t *task = executor->first;
  if (!task) return NULL;
  executor->first = task->next;
  (void)atomic_fetch_sub(&executor->task_count, 1);
  return task;
}

bool ingot_executor_yield(ingot_executor_t *executor, ingot_task_t *task) {
  ingot_mutex_lock(&executor->mutex);
  bool is_wanted = executor->first != NULL;
  if (is_wanted) ingot_executor_push(executor, task);
  ingot_mutex_unlock(&executor->mutex);
  return is_wanted;
}

#if defined(INGOT_NO_THREADS)

ingot_status_t ingot_executor_create(const ingot_allocator_t *allocator, uint32_t thread_count,
                                     bool can_spin, void (*begin)(void *user), void *user,
                                     ingot_executor_t **out_executor) {
  void *memory;
  INGOT_TRY(ingot_allocate(allocator, sizeof(ingot_executor_t), &memory));
  ingot_executor_t *executor = memory;
  executor->allocator = *allocator;
  executor->can_spin = can_spin && thread_count > 1;
  (void)begin;
  (void)user;
  *out_executor = executor;
  return NULL;
}

void ingot_executor_destroy(ingot_executor_t *executor) {
  if (!executor) return;
  ingot_allocator_t allocator = executor->allocator;
  executor->is_destroyed = true;
  if (!executor->is_running) ingot_release_memory(&allocator, executor);
}

ingot_status_t ingot_executor_reserve(ingot_executor_t *executor) {
  (void)executor;
  return NULL;
}

ingot_status_t ingot_executor_set_alarm(ingot_executor_t *executor, ingot_alarm_t *alarm) {
  (void)executor;
  (void)alarm;
  return NULL;
}

void ingot_executor_clear_alarm(ingot_executor_t *executor, ingot_alarm_t *alarm) {
  (void)executor;
  (void)alarm;
}

void ingot_executor_post(ingot_executor_t *executor, ingot_task_t *task) {
  ingot_executor_push(executor, task);
  if (executor->is_running) return; /* the call that runs a task takes it */
  executor->is_running = true;
  while (!executor->is_destroyed && (task = ingot_executor_pop(executor)) != NULL) task->run(task);
  executor->is_running = false;
  if (executor->is_destroyed) ingot_executor_destroy(executor);
}

#else

/* -- threads ---------------------------------------------------------------------------------- */

/* Looks for a task for a while. */
static void ingot_executor_look(ingot_executor_t *executor) {
  int64_t end = ingot_clock() + INGOT_EXECUTOR_SPIN_NANOSECONDS;
  (void)atomic_fetch_add(&executor->looking_count, 1);
  do {
    for (int i = 0; i < INGOT_EXECUTOR_PAUSES && !atomic_load(&executor->task_count); i++) {
      ingot_thread_pause();
    }
  } while (!atomic_load(&executor->task_count) && ingot_clock() < end);
  (void)atomic_fetch_sub(&executor->looking_count, 1);
}

/* The next task; NULL at the end. */
static ingot_task_t *ingot_executor_await(ingot_executor_t *executor) {
  if (executor->can_spin && !atomic_load(&executor->task_count)) ingot_executor_look(executor);
  ingot_mutex_lock(&executor->mutex);
  while (!executor->first && !executor->is_quitting) {
    executor->sleeping_count++;
    ingot_condition_wait(&executor->posted, &executor->mutex);
    executor->sleeping_count--;
  }
  ingot_task_t *task = ingot_executor_pop(executor);
  ingot_mutex_unlock(&executor->mutex);
  return task;
}

/* What a thread begins with: how it hears that the executor is gone. */
static ingot_executor_t *ingot_executor_begin(ingot_executor_thread_t *thread, bool *is_destroyed) {
  ingot_executor_t *executor = thread->executor;
  ingot_mutex_lock(&executor->mutex);
  thread->self = ingot_thread_self();
  thread->is_destroyed = is_destroyed;
  ingot_mutex_unlock(&executor->mutex);
  if (executor->begin) executor->begin(executor->user);
  return executor;
}

static void ingot_executor_main(void *argument) {
  bool is_destroyed = false;
  ingot_executor_t *executor = ingot_executor_begin(argument, &is_destroyed);
  while (!is_destroyed) {
    ingot_task_t *task = ingot_executor_await(executor);
    if (!task) return;
    task->run(task);
  }
}

static ingot_status_t ingot_executor_status(const ingot_executor_t *executor) {
  return ingot_status_create(&executor->allocator, INGOT_STATUS_OUT_OF_MEMORY,
                             "the system gives no thread for submitted calls");
}

static bool ingot_executor_start(ingot_executor_t *executor, ingot_executor_thread_t *thread,
                                 void (*function)(void *thread)) {
  *thread = (ingot_executor_thread_t){.executor = executor};
  thread->thread.function = function;
  thread->thread.argument = thread;
  return ingot_thread_start(&thread->thread, INGOT_EXECUTOR_STACK_LENGTH);
}

/* Under the mutex. */
static bool ingot_executor_grow(ingot_executor_t *executor) {
  ingot_executor_thread_t *thread = &executor->threads[executor->thread_count];
  if (!ingot_executor_start(executor, thread, ingot_executor_main)) return false;
  executor->thread_count++;
  return true;
}

static void ingot_executor_initialize(ingot_executor_t *executor) {
  ingot_mutex_initialize(&executor->mutex);
  ingot_condition_initialize(&executor->posted);
  executor->first = NULL;
  atomic_store(&executor->task_count, 0);
  atomic_store(&executor->looking_count, 0);
  executor->sleeping_count = 0;
  executor->thread_count = 0;
  ingot_mutex_initialize(&executor->alarm_mutex);
  ingot_condition_initialize(&executor->alarm_set);
  executor->alarms = NULL;
  executor->has_bell = false;
  executor->process = ingot_process_id();
}

/* -- alarms ----------------------------------------------------------------------------------- */

static void ingot_executor_unlink(ingot_alarm_t *alarm) {
  *alarm->link = alarm->next;
  if (alarm->next) alarm->next->link = alarm->link;
  alarm->link = NULL;
}

/* Under the alarms' mutex: rings those whose time has come. Gives those that are to expire. */
static ingot_alarm_t *ingot_executor_ring(ingot_executor_t *executor, int64_t now) {
  ingot_alarm_t *expired = NULL;
  executor->next_alarm = INT64_MAX;
  for (ingot_alarm_t *alarm = executor->alarms, *next; alarm; alarm = next) {
    next = alarm->next;
    if (alarm->time > now) {
      if (alarm->time < executor->next_alarm) executor->next_alarm = alarm->time;
      continue;
    }
    ingot_executor_unlink(alarm);
    if (!alarm->ring(alarm)) continue;
    alarm->next = expired;
    expired = alarm;
  }
  return expired;
}

static void ingot_executor_bell(void *argument) {
  bool is_destroyed = false;
  ingot_executor_t *executor = ingot_executor_begin(argument, &is_destroyed);
  ingot_mutex_lock(&executor->alarm_mutex);
  while (!executor->is_quitting) {
    int64_t now = ingot_clock();
    ingot_alarm_t *expired = ingot_executor_ring(executor, now);
    if (expired) {
      ingot_mutex_unlock(&executor->alarm_mutex);
      for (ingot_alarm_t *next; expired; expired = next) {
        next = expired->next;
        expired->expire(expired);
      }
      if (is_destroyed) return;
      ingot_mutex_lock(&executor->alarm_mutex);
    } else if (executor->next_alarm == INT64_MAX) {
      ingot_condition_wait(&executor->alarm_set, &executor->alarm_mutex);
    } else {
      ingot_condition_wait_for(&executor->alarm_set, &executor->alarm_mutex,
                               executor->next_alarm - now);
    }
  }
  ingot_mutex_unlock(&executor->alarm_mutex);
}

ingot_status_t ingot_executor_set_alarm(ingot_executor_t *executor, ingot_alarm_t *alarm) {
  ingot_mutex_lock(&executor->alarm_mutex);
  if (!executor->has_bell) {
    executor->next_alarm = INT64_MAX;
    executor->has_bell = ingot_executor_start(executor, &executor->bell, ingot_executor_bell);
  }
  bool has_bell = executor->has_bell;
  if (has_bell) {
    alarm->next = executor->alarms;
    alarm->link = &executor->alarms;
    if (alarm->next) alarm->next->link = &alarm->next;
    executor->alarms = alarm;
    if (alarm->time < executor->next_alarm) ingot_condition_signal(&executor->alarm_set);
  }
  ingot_mutex_unlock(&executor->alarm_mutex);
  return has_bell ? NULL : ingot_executor_status(executor);
}

void ingot_executor_clear_alarm(ingot_executor_t *executor, ingot_alarm_t *alarm) {
  ingot_mutex_lock(&executor->alarm_mutex);
  if (alarm->link) ingot_executor_unlink(alarm);
  ingot_mutex_unlock(&executor->alarm_mutex);
}

/* -- what others call ------------------------------------------------------------------------- */

ingot_status_t ingot_executor_create(const ingot_allocator_t *allocator, uint32_t thread_count,
                                     bool can_spin, void (*begin)(void *user), void *user,
                                     ingot_executor_t **out_executor) {
  void *memory;
  INGOT_TRY(ingot_allocate(
      allocator, sizeof(ingot_executor_t) + thread_count * sizeof(ingot_executor_thread_t),
      &memory));
  ingot_executor_t *executor = memory;
  executor->allocator = *allocator;
  executor->can_spin = can_spin;
  executor->begin = begin;
  executor->user = user;
  executor->capacity = thread_count;
  ingot_executor_initialize(executor);
  *out_executor = executor;
  return NULL;
}

/* Under the mutex: whether it is the caller's thread, which is told. */
static bool ingot_executor_leave(const ingot_executor_thread_t *thread) {
  if (!thread->is_destroyed || thread->self != ingot_thread_self()) return false;
  *thread->is_destroyed = true;
  return true;
}

static void ingot_executor_end(ingot_executor_t *executor, ingot_executor_thread_t *thread) {
  ingot_mutex_lock(&executor->mutex);
  bool is_own = ingot_executor_leave(thread);
  ingot_mutex_unlock(&executor->mutex);
  if (is_own) ingot_thread_detach(&thread->thread);
  else ingot_thread_join(&thread->thread);
}

static void ingot_executor_quit(ingot_executor_t *executor) {
  ingot_mutex_lock(&executor->alarm_mutex);
  ingot_mutex_lock(&executor->mutex);
  executor->is_quitting = true;
  ingot_condition_broadcast(&executor->posted);
  ingot_condition_broadcast(&executor->alarm_set);
  ingot_mutex_unlock(&executor->mutex);
  ingot_mutex_unlock(&executor->alarm_mutex);
  for (uint32_t t = 0; t < executor->thread_count; t++) {
    ingot_executor_end(executor, &executor->threads[t]);
  }
  if (executor->has_bell) ingot_executor_end(executor, &executor->bell);
  ingot_condition_deinitialize(&executor->alarm_set);
  ingot_mutex_deinitialize(&executor->alarm_mutex);
  ingot_condition_deinitialize(&executor->posted);
  ingot_mutex_deinitialize(&executor->mutex);
}

void ingot_executor_destroy(ingot_executor_t *executor) {
  if (!executor) return;
  ingot_allocator_t allocator = executor->allocator;
  if (executor->process == ingot_process_id()) ingot_executor_quit(executor);
  ingot_release_memory(&allocator, executor);
}

ingot_status_t ingot_executor_reserve(ingot_executor_t *executor) {
  if (executor->process != ingot_process_id()) ingot_executor_initialize(executor);
  ingot_mutex_lock(&executor->mutex);
  bool has_thread = executor->thread_count > 0 || ingot_executor_grow(executor);
  ingot_mutex_unlock(&executor->mutex);
  return has_thread ? NULL : ingot_executor_status(executor);
}

void ingot_executor_post(ingot_executor_t *executor, ingot_task_t *task) {
  ingot_mutex_lock(&executor->mutex);
  ingot_executor_push(executor, task);
  /* Each thread that looks takes one, and then each that sleeps, woken already or not. */
  uint32_t looking = atomic_load(&executor->looking_count);
  uint32_t count = atomic_load(&executor->task_count);
  bool may_start = executor->thread_count < executor->capacity;
  if (count > looking + executor->sleeping_count && may_start) {
    (void)ingot_executor_grow(executor);
  } else if (count > looking && executor->sleeping_count > 0) {
    ingot_condition_signal(&executor->posted);
  }
  ingot_mutex_unlock(&executor->mutex);
}

#endif
