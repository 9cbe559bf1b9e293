/* The thread pool: one job at a time. Each thread has a part of it, the same one in every job of
 * as many workgroups, so that what it wrote in one job lies in its own cache in the next. A part is
 * claimed in ranges from an atomic counter, by others too when theirs is done.
 *
 * All coordination goes through one atomic word, `state`: the job's generation, whether it
 * is open, how many workers are in it. A worker may touch the job only between a join (a
 * compare-exchange on an open generation) and its leave; the caller closes the generation
 * and waits for the ones inside. So a worker that sleeps through a job costs the caller
 * nothing. The mutex is for sleeping and waking only.
 *
 * After fork a child has the pool's memory without its threads. Nothing in the fast path
 * asks for that: it shows when nobody joins, wakes or lets go of the pool, and only then
 * the process id is compared and the pool started anew.
 */
#include "hal/cpu/thread_pool.h"

#include <stdalign.h>
#include <string.h>

#include "base/float_environment.h"
#include "base/thread.h"
#include "platform/platform.h"

typedef struct ingot_pool_position_t {
  int64_t x, y, z;
} ingot_pool_position_t;

static void ingot_pool_advance(ingot_pool_position_t *position, const int64_t grid[3]) {
  if (++position->x < grid[0]) return;
  position->x = 0;
  if (++position->y < grid[1]) return;
  position->y = 0;
  position->z++;
}

static bool ingot_pool_is_due(const ingot_hal_cpu_work_t *work) {
  return ingot_stop_is_due(work->stop, !work->is_shared);
}

uint32_t INGOT_KERNEL_CALL ingot_hal_cpu_poll(const ingot_kernel_dispatch_t *dispatch) {
  return ingot_pool_is_due((const ingot_hal_cpu_work_t *)(const void *)dispatch);
}

void ingot_hal_cpu_run_inline(const ingot_hal_cpu_work_t *work, void *scratch,
                              ingot_kernel_fault_t *out_fault) {
  ingot_pool_position_t at = {0, 0, 0};
  out_fault->code = 0;
  for (int64_t i = 1; !ingot_pool_is_due(work); i++) {
    out_fault->code = work->function(&work->dispatch, at.x, at.y, at.z, scratch, out_fault);
    if (out_fault->code != 0 || i == work->total) break;
    ingot_pool_advance(&at, work->grid);
  }
}

#if defined(INGOT_NO_THREADS)

ingot_status_t ingot_hal_cpu_pool_create(const ingot_allocator_t *allocator, const ingot_log_t *log,
                                         const ingot_hal_cpu_options_t *options, bool can_spin,
                                         const ingot_thread_pool_t *lent,
                                         ingot_hal_cpu_pool_t **out_pool) {
  (void)log;
  (void)can_spin;
  (void)lent;
  (void)out_pool;
  return ingot_status_create(allocator, INGOT_STATUS_UNSUPPORTED,
                             "%u threads are asked for, but this runtime was built without: leave "
                             "'threads' out, or ask for 1",
                             options->thread_count);
}

void ingot_hal_cpu_pool_destroy(ingot_hal_cpu_pool_t *pool) { (void)pool; }

ingot_status_t ingot_hal_cpu_pool_reserve_scratch(ingot_hal_cpu_pool_t *pool, uint64_t length) {
  (void)pool;
  (void)length;
  return NULL;
}

bool ingot_hal_cpu_pool_run(ingot_hal_cpu_pool_t *pool, const ingot_hal_cpu_work_t *work,
                            void *scratch, ingot_kernel_fault_t *out_fault) {
  (void)pool;
  (void)work;
  (void)scratch;
  (void)out_fault;
  return false;
}

#else

#define INGOT_POOL_ONE_INSIDE UINT64_C(1)        /* bits 0..11: workers in the job */
#define INGOT_POOL_INSIDE UINT64_C(0xFFF)
#define INGOT_POOL_ONE_JOINED (UINT64_C(1) << 12) /* bits 12..23: that ever joined it */
#define INGOT_POOL_JOINED (UINT64_C(0xFFF) << 12)
#define INGOT_POOL_OPEN (UINT64_C(1) << 24)    /* workers may join */
#define INGOT_POOL_WAITING (UINT64_C(1) << 25) /* the caller sleeps until nobody is inside */
#define INGOT_POOL_QUIT (UINT64_C(1) << 26)
#define INGOT_POOL_GENERATION_SHIFT 32

#define INGOT_POOL_SPIN_NANOSECONDS 500000
#define INGOT_POOL_PATIENCE_NANOSECONDS 4000000 /* between two questions to the caller */
#define INGOT_POOL_PAUSES 64 /* between two looks at the clock: one to two microseconds */
#define INGOT_POOL_QUIET_ROUNDS 16 /* of that many pauses before a spinning thread yields */
#define INGOT_POOL_RANGES_PER_THREAD 8 /* so that threads finish together */
#define INGOT_POOL_STACK_LENGTH (512 * 1024)
#define INGOT_POOL_CACHE_LINE 64

/* Workgroups from `next` to `end` are not claimed yet. */
typedef struct ingot_pool_part_t {
  alignas(INGOT_POOL_CACHE_LINE) _Atomic int64_t next;
  int64_t end; /* written by the holder */
} ingot_pool_part_t;

typedef struct ingot_pool_worker_t {
  ingot_hal_cpu_pool_t *pool;
  void *scratch;
  ingot_thread_t thread; /* of the pool's own */
  _Atomic bool taken;    /* one of the application's has it */
} ingot_pool_worker_t;

struct ingot_hal_cpu_pool_t {
  ingot_allocator_t allocator;
  ingot_log_t log;
  ingot_pool_worker_t *workers;
  uint32_t worker_count; /* wanted */
  uint32_t started_count; /* running; written by the holder */
  uint64_t scratch_length; /* of each worker; written by the holder */
  ingot_hal_cpu_options_t options;
  ingot_thread_pool_t lent; /* of the application; all NULL: the threads are the pool's own */
  _Atomic uint32_t helpers; /* scheduled there and not over */
  bool can_spin;
  bool is_reported; /* that there are fewer threads than wanted */
  _Atomic bool held; /* some session's dispatch has the pool */
  _Atomic uintptr_t holder; /* whose dispatch */
  _Atomic int64_t process; /* id of the process that the threads live in */
  ingot_mutex_t mutex; /* for the conditions, sleepers' decision, and the fault record */
  ingot_condition_t wake; /* a job was opened */
  ingot_condition_t empty; /* nobody is inside any more */
  _Atomic uint32_t sleepers;

  /* The job; written by the holder while closed and empty. */
  ingot_hal_cpu_work_t work;
  int64_t range; /* workgroups of one claim at most */
  ingot_kernel_fault_t fault; /* of the lowest failing workgroup so far; under the mutex */

  alignas(INGOT_POOL_CACHE_LINE) _Atomic uint64_t state;
  alignas(INGOT_POOL_CACHE_LINE) _Atomic int64_t end; /* work from here on is not needed: the total,
                                                         or a failed workgroup */
  ingot_pool_part_t parts[]; /* the caller's, then one of each worker */
};

/* Whether this is a child of the process that the threads live in. */
static bool ingot_pool_is_forked(const ingot_hal_cpu_pool_t *pool) {
  return atomic_load(&pool->process) != ingot_process_id();
}

/* -- running workgroups -------------------------------------------------------------------- */

/* Every workgroup below a failing one is claimed and runs to its end: the lowest failure does not
 * depend on who was faster. */
static void ingot_pool_record_fault(ingot_hal_cpu_pool_t *pool, int64_t workgroup,
                                    const ingot_kernel_fault_t *fault) {
  /* Before the take-over a worker of the parent may still have it. */
  if (ingot_pool_is_forked(pool)) ingot_mutex_initialize(&pool->mutex);
  ingot_mutex_lock(&pool->mutex);
  if (workgroup < atomic_load_explicit(&pool->end, memory_order_relaxed)) {
    atomic_store_explicit(&pool->end, workgroup, memory_order_relaxed);
    pool->fault = *fault;
  }
  ingot_mutex_unlock(&pool->mutex);
}

static void ingot_pool_run_range(ingot_hal_cpu_pool_t *pool, const ingot_hal_cpu_work_t *work,
                                 int64_t first, int64_t count, void *scratch) {
  int64_t row = first / work->grid[0];
  ingot_pool_position_t at = {first % work->grid[0], row % work->grid[1], row / work->grid[1]};
  ingot_kernel_fault_t fault = {0};
  for (int64_t i = first; i < first + count; i++) {
    if (i >= atomic_load_explicit(&pool->end, memory_order_relaxed)) return;
    if (ingot_pool_is_due(work)) return;
    fault.code = work->function(&work->dispatch, at.x, at.y, at.z, scratch, &fault);
    if (fault.code != 0) {
      ingot_pool_record_fault(pool, i, &fault);
      return;
    }
    ingot_pool_advance(&at, work->grid);
  }
}

/* Claims become smaller towards the end, so that threads of unequal speed end together: a slow
 * processor takes fewer, and its last one is short. */
static void ingot_pool_claim_part(ingot_hal_cpu_pool_t *pool, const ingot_hal_cpu_work_t *work,
                                  ingot_pool_part_t *part, void *scratch) {
  int64_t first = atomic_load_explicit(&part->next, memory_order_relaxed);
  for (;;) {
    int64_t end = atomic_load_explicit(&pool->end, memory_order_relaxed);
    int64_t rest = (end < part->end ? end : part->end) - first;
    if (rest <= 0) return;
    int64_t range = rest / 2 < pool->range ? rest / 2 : pool->range;
    if (range < 1) range = 1;
    if (!atomic_compare_exchange_weak_explicit(&part->next, &first, first + range,
                                               memory_order_relaxed, memory_order_relaxed)) {
      continue;
    }
    ingot_pool_run_range(pool, work, first, range, scratch);
    first = atomic_load_explicit(&part->next, memory_order_relaxed);
  }
}

/* By the caller, thread 0, or a worker: its own part, then what is left of those behind it. */
static void ingot_pool_claim_ranges(ingot_hal_cpu_pool_t *pool, const ingot_hal_cpu_work_t *work,
                                    uint32_t thread, void *scratch) {
  for (uint32_t i = 0; i <= pool->worker_count; i++) {
    uint32_t part = (thread + i) % (pool->worker_count + 1);
    ingot_pool_claim_part(pool, work, &pool->parts[part], scratch);
  }
}

/* The first parts are longer where they cannot be equal. */
static void ingot_pool_divide(ingot_hal_cpu_pool_t *pool, int64_t total) {
  int64_t threads = (int64_t)pool->worker_count + 1;
  int64_t first = 0;
  for (int64_t i = 0; i < threads; i++) {
    atomic_store_explicit(&pool->parts[i].next, first, memory_order_relaxed);
    first += total / threads + (i < total % threads);
    pool->parts[i].end = first;
  }
  int64_t range = total / threads / INGOT_POOL_RANGES_PER_THREAD;
  pool->range = range > 0 ? range : 1;
  atomic_store_explicit(&pool->end, total, memory_order_relaxed);
}

/* -- workers ------------------------------------------------------------------------------- */

/* Whether a worker that last saw generation `seen` has something to do. */
static bool ingot_pool_has_news(uint64_t state, uint64_t seen) {
  return (state & INGOT_POOL_QUIT) ||
         ((state & INGOT_POOL_OPEN) && state >> INGOT_POOL_GENERATION_SHIFT != seen);
}

/* A spinning thread's step between two rounds of pauses: false once it has spun enough. On a
 * busy machine the thread that it waits for may need this very processor, so it yields. */
static bool ingot_pool_may_spin_on(int64_t *deadline, int round) {
  if (round == 0) *deadline = ingot_clock() + INGOT_POOL_SPIN_NANOSECONDS;
  if (round >= INGOT_POOL_QUIET_ROUNDS) ingot_thread_yield();
  return ingot_clock() < *deadline;
}

/* Spins for a while, then sleeps, until there is news. */
static uint64_t ingot_pool_await(ingot_hal_cpu_pool_t *pool, uint64_t seen) {
  for (;;) {
    int64_t deadline = 0;
    for (int round = 0; round == 0 || pool->can_spin; round++) {
      for (int i = 0; i < INGOT_POOL_PAUSES; i++) {
        uint64_t state = atomic_load_explicit(&pool->state, memory_order_acquire);
        if (ingot_pool_has_news(state, seen)) return state;
        ingot_thread_pause();
      }
      if (!ingot_pool_may_spin_on(&deadline, round)) break;
    }
    ingot_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    /* Sequentially consistent with the caller: open, then look for sleepers. */
    if (!ingot_pool_has_news(atomic_load(&pool->state), seen)) {
      ingot_condition_wait(&pool->wake, &pool->mutex);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
    ingot_mutex_unlock(&pool->mutex);
  }
}

static bool ingot_pool_join(ingot_hal_cpu_pool_t *pool, uint64_t state, uint64_t seen) {
  while ((state & INGOT_POOL_OPEN) && state >> INGOT_POOL_GENERATION_SHIFT != seen) {
    if (atomic_compare_exchange_weak_explicit(&pool->state, &state,
                                              state + INGOT_POOL_ONE_INSIDE + INGOT_POOL_ONE_JOINED,
                                              memory_order_acquire, memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

static void ingot_pool_leave(ingot_hal_cpu_pool_t *pool) {
  uint64_t before =
      atomic_fetch_sub_explicit(&pool->state, INGOT_POOL_ONE_INSIDE, memory_order_release);
  if ((before & INGOT_POOL_INSIDE) == 1 && (before & INGOT_POOL_WAITING)) {
    ingot_mutex_lock(&pool->mutex);
    ingot_condition_signal(&pool->empty);
    ingot_mutex_unlock(&pool->mutex);
  }
}

static void ingot_pool_worker_main(void *argument) {
  ingot_pool_worker_t *worker = argument;
  ingot_hal_cpu_pool_t *pool = worker->pool;
  uint64_t seen = 0; /* no job has generation 0 */
  ingot_hal_cpu_place_thread(&pool->options, &pool->log);
  (void)ingot_float_environment_enter();
  for (;;) {
    uint64_t state = ingot_pool_await(pool, seen);
    if (state & INGOT_POOL_QUIT) return;
    if (!ingot_pool_join(pool, state, seen)) continue;
    /* Inside, the generation cannot change. */
    seen = atomic_load_explicit(&pool->state, memory_order_relaxed) >> INGOT_POOL_GENERATION_SHIFT;
    uint32_t thread = (uint32_t)(worker - pool->workers) + 1;
    ingot_pool_claim_ranges(pool, &pool->work, thread, worker->scratch);
    ingot_pool_leave(pool);
  }
}

/* What a thread of the application does for one job, if it comes in time. */
static void ingot_pool_help(void *argument) {
  ingot_hal_cpu_pool_t *pool = argument;
  uint32_t w = 0;
  while (atomic_exchange(&pool->workers[w].taken, true)) w = (w + 1) % pool->worker_count;
  uint64_t state = atomic_load_explicit(&pool->state, memory_order_acquire);
  if (ingot_pool_join(pool, state, 0)) {
    ingot_float_environment_t saved = ingot_float_environment_enter();
    ingot_pool_claim_ranges(pool, &pool->work, w + 1, pool->workers[w].scratch);
    ingot_float_environment_leave(saved);
    ingot_pool_leave(pool);
  }
  atomic_store(&pool->workers[w].taken, false);
  atomic_fetch_sub(&pool->helpers, 1); /* last: the pool may go */
}

/* Asks for as many threads of the application as there are ranges for. No more are on their way
 * than the pool has workers. */
static void ingot_pool_call_helpers(ingot_hal_cpu_pool_t *pool, int64_t ranges) {
  uint32_t wanted = pool->worker_count;
  if (ranges - 1 < (int64_t)wanted) wanted = (uint32_t)(ranges - 1);
  for (uint32_t count = atomic_load(&pool->helpers); count < wanted; ++count) {
    atomic_fetch_add(&pool->helpers, 1);
    if (pool->lent.schedule(pool->lent.user, ingot_pool_help, pool)) continue;
    atomic_fetch_sub(&pool->helpers, 1);
    return;
  }
}

/* Starts the threads that are missing, as many as the system gives. */
static void ingot_pool_start(ingot_hal_cpu_pool_t *pool) {
  while (pool->started_count < pool->worker_count) {
    ingot_pool_worker_t *worker = &pool->workers[pool->started_count];
    worker->thread.function = ingot_pool_worker_main;
    worker->thread.argument = worker;
    if (!ingot_thread_start(&worker->thread, INGOT_POOL_STACK_LENGTH)) break;
    pool->started_count++;
  }
  if (pool->started_count < pool->worker_count && !pool->is_reported) {
    pool->is_reported = true;
    ingot_log(&pool->log, INGOT_LOG_WARNING,
              "the system gives %u of %u threads; the work is shared between those",
              pool->started_count + 1, pool->worker_count + 1);
  }
}

/* -- holding the pool ---------------------------------------------------------------------- */

static void ingot_pool_initialize(ingot_hal_cpu_pool_t *pool) {
  ingot_mutex_initialize(&pool->mutex);
  ingot_condition_initialize(&pool->wake);
  ingot_condition_initialize(&pool->empty);
  atomic_init(&pool->sleepers, 0);
  atomic_init(&pool->state, 0);
  pool->started_count = 0;
}

/* In a forked child: takes the pool over from threads that are not there. False if another
 * thread of the child was first. What they held in the C library is lost with them. */
static bool ingot_pool_take_over(ingot_hal_cpu_pool_t *pool) {
  int64_t process = atomic_load(&pool->process);
  int64_t own = ingot_process_id();
  if (process == own || !atomic_compare_exchange_strong(&pool->process, &process, own)) {
    return false;
  }
  atomic_store(&pool->held, true);
  ingot_pool_initialize(pool);
  return true;
}

/* A thread that forked inside its own dispatch has that to end before anybody takes over. */
static bool ingot_pool_hold(ingot_hal_cpu_pool_t *pool) {
  uintptr_t own = ingot_thread_self();
  if (atomic_exchange_explicit(&pool->held, true, memory_order_acquire) &&
      (atomic_load_explicit(&pool->holder, memory_order_relaxed) == own ||
       !ingot_pool_is_forked(pool) || !ingot_pool_take_over(pool))) {
    return false;
  }
  atomic_store_explicit(&pool->holder, own, memory_order_relaxed);
  return true;
}

static void ingot_pool_let_go(ingot_hal_cpu_pool_t *pool) {
  atomic_store_explicit(&pool->held, false, memory_order_release);
}

/* By the holder. */
static ingot_status_t ingot_pool_grow_scratch(ingot_hal_cpu_pool_t *pool, uint64_t length) {
  if (length <= pool->scratch_length) return NULL;
  for (uint32_t w = 0; w < pool->worker_count; w++) {
    void *scratch;
    INGOT_TRY(
        ingot_allocate_aligned(&pool->allocator, (size_t)length, INGOT_POOL_CACHE_LINE, &scratch));
    ingot_release_aligned(&pool->allocator, pool->workers[w].scratch);
    pool->workers[w].scratch = scratch;
  }
  pool->scratch_length = length;
  return NULL;
}

ingot_status_t ingot_hal_cpu_pool_reserve_scratch(ingot_hal_cpu_pool_t *pool, uint64_t length) {
  if (!ingot_pool_hold(pool)) return NULL;
  ingot_status_t status = ingot_pool_grow_scratch(pool, length);
  ingot_pool_let_go(pool);
  return status;
}

/* -- one job ------------------------------------------------------------------------------- */

/* Wakes as many sleepers as there are ranges for. */
static void ingot_pool_wake(ingot_hal_cpu_pool_t *pool, int64_t ranges) {
  uint32_t sleepers = atomic_load(&pool->sleepers);
  if (sleepers == 0) return;
  ingot_mutex_lock(&pool->mutex); /* nobody is between deciding to sleep and sleeping */
  ingot_mutex_unlock(&pool->mutex);
  if (ranges - 1 >= (int64_t)sleepers) {
    ingot_condition_broadcast(&pool->wake);
    return;
  }
  for (int64_t i = 1; i < ranges; i++) ingot_condition_signal(&pool->wake);
}

/* In a forked child: the ranges that a lost worker was at stay undone, so the call must fail. */
static void ingot_pool_give_up(ingot_hal_cpu_pool_t *pool) {
  ingot_stop_t *stop = pool->work.stop;
  (void)ingot_pool_take_over(pool);
  if (stop) (void)atomic_fetch_or(&stop->flags, INGOT_STOP_CANCELLED);
}

/* Ends joining and waits until nobody is inside. Returns whether anyone had joined. */
static bool ingot_pool_close(ingot_hal_cpu_pool_t *pool) {
  uint64_t state = atomic_fetch_and_explicit(&pool->state, ~INGOT_POOL_OPEN, memory_order_acquire);
  bool was_joined = (state & INGOT_POOL_JOINED) != 0;
  int64_t deadline = 0;
  for (int round = 0; state & INGOT_POOL_INSIDE; round++) {
    for (int i = 0; i < INGOT_POOL_PAUSES && (state & INGOT_POOL_INSIDE); i++) {
      ingot_thread_pause();
      state = atomic_load_explicit(&pool->state, memory_order_acquire);
    }
    if ((state & INGOT_POOL_INSIDE) &&
        (pool->options.is_calm || !ingot_pool_may_spin_on(&deadline, round))) {
      break;
    }
  }
  while (state & INGOT_POOL_INSIDE) {
    if (ingot_pool_is_forked(pool)) {
      ingot_pool_give_up(pool);
      break;
    }
    ingot_mutex_lock(&pool->mutex);
    state = atomic_fetch_or(&pool->state, INGOT_POOL_WAITING); /* the next job clears it */
    if (state & INGOT_POOL_INSIDE) {
      ingot_condition_wait_for(&pool->empty, &pool->mutex, INGOT_POOL_PATIENCE_NANOSECONDS);
    }
    ingot_mutex_unlock(&pool->mutex);
    (void)ingot_stop_is_due(pool->work.stop, true); /* those inside see what this thread finds */
    state = atomic_load_explicit(&pool->state, memory_order_acquire);
  }
  return was_joined;
}

bool ingot_hal_cpu_pool_run(ingot_hal_cpu_pool_t *pool, const ingot_hal_cpu_work_t *work,
                            void *scratch, ingot_kernel_fault_t *out_fault) {
  bool is_lent = pool->lent.schedule != NULL;
  if (is_lent && ingot_pool_is_forked(pool)) return false; /* the threads are the parent's */
  if (!ingot_pool_hold(pool)) return false;
  ingot_status_t status = ingot_pool_grow_scratch(pool, work->scratch_length);
  bool may_be_forked = pool->started_count == 0 || atomic_load(&pool->sleepers) > 0;
  if (may_be_forked && ingot_pool_is_forked(pool)) (void)ingot_pool_take_over(pool);
  if (pool->started_count == 0 && !is_lent) ingot_pool_start(pool);
  if (status || (pool->started_count == 0 && !is_lent)) {
    ingot_status_free(status); /* the caller alone needs neither memory nor threads */
    ingot_pool_let_go(pool);
    return false;
  }
  pool->work = *work;
  pool->work.is_shared = true;
  ingot_pool_divide(pool, work->total);
  uint64_t generation =
      (atomic_load_explicit(&pool->state, memory_order_relaxed) >> INGOT_POOL_GENERATION_SHIFT) + 1;
  if ((uint32_t)generation == 0) generation = 1; /* wrapped: 0 is what nobody has seen */
  atomic_store(&pool->state, generation << INGOT_POOL_GENERATION_SHIFT | INGOT_POOL_OPEN);
  if (is_lent) ingot_pool_call_helpers(pool, work->total);
  else ingot_pool_wake(pool, work->total);
  ingot_pool_claim_ranges(pool, work, 0, scratch);
  if (!ingot_pool_close(pool) && ingot_pool_is_forked(pool)) (void)ingot_pool_take_over(pool);
  *out_fault = pool->fault;
  out_fault->code =
      atomic_load_explicit(&pool->end, memory_order_relaxed) < work->total ? pool->fault.code : 0;
  ingot_pool_let_go(pool);
  return true;
}

/* -- life ---------------------------------------------------------------------------------- */

ingot_status_t ingot_hal_cpu_pool_create(const ingot_allocator_t *allocator, const ingot_log_t *log,
                                         const ingot_hal_cpu_options_t *options, bool can_spin,
                                         const ingot_thread_pool_t *lent,
                                         ingot_hal_cpu_pool_t **out_pool) {
  void *memory, *workers;
  uint32_t worker_count = options->thread_count - 1;
  size_t length = sizeof(ingot_hal_cpu_pool_t) + options->thread_count * sizeof(ingot_pool_part_t);
  INGOT_TRY(ingot_allocate_aligned(allocator, length, INGOT_POOL_CACHE_LINE, &memory));
  ingot_status_t status =
      ingot_allocate_array(allocator, worker_count, sizeof(ingot_pool_worker_t), &workers);
  if (status) {
    ingot_release_aligned(allocator, memory);
    return status;
  }
  ingot_hal_cpu_pool_t *pool = memset(memory, 0, length);
  pool->allocator = *allocator;
  pool->log = *log;
  pool->workers = workers;
  pool->worker_count = worker_count;
  pool->options = *options;
  if (lent) pool->lent = *lent;
  pool->can_spin = can_spin && !options->is_calm;
  for (uint32_t w = 0; w < worker_count; w++) pool->workers[w].pool = pool;
  atomic_init(&pool->held, false);
  atomic_init(&pool->process, ingot_process_id());
  ingot_pool_initialize(pool);
  *out_pool = pool;
  return NULL;
}

void ingot_hal_cpu_pool_destroy(ingot_hal_cpu_pool_t *pool) {
  if (!pool) return;
  ingot_allocator_t allocator = pool->allocator;
  if (!ingot_pool_is_forked(pool)) {
    ingot_mutex_lock(&pool->mutex);
    atomic_fetch_or(&pool->state, INGOT_POOL_QUIT);
    ingot_condition_broadcast(&pool->wake);
    ingot_mutex_unlock(&pool->mutex);
    for (uint32_t w = 0; w < pool->started_count; w++) {
      ingot_thread_join(&pool->workers[w].thread);
    }
    while (atomic_load(&pool->helpers) > 0) {
      ingot_mutex_lock(&pool->mutex);
      ingot_condition_wait_for(&pool->empty, &pool->mutex, INGOT_POOL_PATIENCE_NANOSECONDS);
      ingot_mutex_unlock(&pool->mutex);
    }
    ingot_condition_deinitialize(&pool->wake);
    ingot_condition_deinitialize(&pool->empty);
    ingot_mutex_deinitialize(&pool->mutex);
    if (pool->lent.release) pool->lent.release(pool->lent.user);
  }
  for (uint32_t w = 0; w < pool->worker_count; w++) {
    ingot_release_aligned(&allocator, pool->workers[w].scratch);
  }
  ingot_release_memory(&allocator, pool->workers);
  ingot_release_aligned(&allocator, pool);
}

#endif /* INGOT_NO_THREADS */
