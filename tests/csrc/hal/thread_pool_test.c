/* The thread pool: same results for any number of threads, busy pools, sleeping workers,
 * forks, faults.
 */
#define _GNU_SOURCE /* fork, usleep */
#if defined(__has_feature) && !defined(__SANITIZE_ADDRESS__) /* clang */
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#include "hal/cpu/thread_pool.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/float_environment.h"
#include "base/thread.h"
#include "test.h"

enum { COUNT = 5000 };

/* What the kernels below touch besides their bindings: they are part of this program. */
static _Atomic uint32_t executed;
static _Atomic bool is_blocking, is_blocked;
static pthread_t main_thread;
static _Atomic uint32_t elsewhere; /* workgroups that ran on another thread */

/* target[x] = a long sum of its own; slow enough that several threads get their share. */
static uint32_t INGOT_KERNEL_CALL sum(const ingot_kernel_dispatch_t *dispatch, int64_t x, int64_t y,
                                      int64_t z, void *scratch, ingot_kernel_fault_t *fault) {
  (void)y, (void)z, (void)scratch, (void)fault;
  float total = 0;
  for (int i = 1; i < 100; i++) total += 1.0f / (float)(x * 100 + i);
  ((float *)dispatch->bindings[0])[x] = total;
  if (!pthread_equal(pthread_self(), main_thread)) atomic_fetch_add(&elsewhere, 1);
  return 0;
}

/* Fails from constant 0 on, with its position as the index. */
static uint32_t INGOT_KERNEL_CALL fail_late(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                            int64_t y, int64_t z, void *scratch,
                                            ingot_kernel_fault_t *fault) {
  (void)scratch;
  int64_t position = (z * 10 + y) * 25 + x;
  atomic_fetch_add(&executed, 1);
  if (position < dispatch->constants[0]) return 0;
  *fault = (ingot_kernel_fault_t){INGOT_FAULT_INDEX_OUT_OF_RANGE, 3, position, 7};
  return INGOT_FAULT_INDEX_OUT_OF_RANGE;
}

/* Stays inside until it is let go. */
static uint32_t INGOT_KERNEL_CALL block(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                        int64_t y, int64_t z, void *scratch,
                                        ingot_kernel_fault_t *fault) {
  (void)dispatch, (void)x, (void)y, (void)z, (void)scratch, (void)fault;
  atomic_store(&is_blocked, true);
  while (atomic_load(&is_blocking)) (void)usleep(100);
  return 0;
}

/* target[x] = source[0] / 2 */
#define LONG 40000 /* calls of it: 8 s of work, which nobody waits for */

static uint32_t INGOT_KERNEL_CALL halve(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                        int64_t y, int64_t z, void *scratch,
                                        ingot_kernel_fault_t *fault) {
  (void)y, (void)z, (void)scratch, (void)fault;
  volatile float value = *(const float *)dispatch->bindings[1];
  (void)usleep(200); /* so that workers wake up for their share */
  ((float *)dispatch->bindings[0])[x] = value / 2;
  return 0;
}

/* Runs for ever, unless it is told to end. */
static uint32_t INGOT_KERNEL_CALL run_on(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                         int64_t y, int64_t z, void *scratch,
                                         ingot_kernel_fault_t *fault) {
  (void)x, (void)y, (void)z, (void)scratch, (void)fault;
  atomic_fetch_add(&executed, 1);
  while (dispatch->poll(dispatch) == 0) (void)usleep(100);
  return 0;
}

static _Atomic int64_t begun_by_other; /* the first workgroup that another thread began */

/* The first workgroup waits for another one. */
static uint32_t INGOT_KERNEL_CALL meet(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                       int64_t y, int64_t z, void *scratch,
                                       ingot_kernel_fault_t *fault) {
  (void)dispatch, (void)y, (void)z, (void)scratch, (void)fault;
  int64_t none = -1;
  if (x > 0) (void)atomic_compare_exchange_strong(&begun_by_other, &none, x);
  while (atomic_load(&begun_by_other) < 0) (void)usleep(100);
  return 0;
}

static ingot_hal_cpu_work_t make_work(ingot_kernel_function_t function, void **bindings,
                                      const int64_t *constants, int64_t x, int64_t y, int64_t z) {
  ingot_hal_cpu_work_t work = {
      .function = function,
      .dispatch = {.bindings = bindings, .constants = constants, .poll = ingot_hal_cpu_poll},
      .grid = {x, y, z},
      .total = x * y * z};
  return work;
}

static ingot_hal_cpu_pool_t *make_pool(uint32_t workers) {
  ingot_allocator_t allocator = ingot_allocator_system();
  ingot_hal_cpu_pool_t *pool = NULL;
  const ingot_log_t log = {NULL, NULL};
  const ingot_hal_cpu_options_t options = {.thread_count = workers + 1};
  EXPECT_OK(ingot_hal_cpu_pool_create(&allocator, &log, &options, true, NULL, &pool));
  return pool;
}

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) /* which need memory of its own */
static void count_warning(void *user, int32_t severity, const char *message) {
  ++*(int *)user;
  EXPECT_EQUAL(severity, INGOT_LOG_WARNING);
  EXPECT_TEXT(message, "the system gives 1 of 3 threads; the work is shared between those");
}

/* Without room for their stacks no thread starts. The first test: later the C library has stacks
 * in store. */
TEST(missing_threads_are_logged_once) {
  ingot_allocator_t allocator = ingot_allocator_system();
  static float target[8];
  void *bindings[1] = {target};
  int warnings = 0;
  const ingot_log_t log = {count_warning, &warnings};
  const ingot_hal_cpu_options_t options = {.thread_count = 3};
  ingot_hal_cpu_pool_t *pool = NULL;
  ingot_kernel_fault_t fault = {0};
  ingot_hal_cpu_work_t work = make_work(sum, bindings, NULL, 8, 1, 1);
  struct rlimit own;
  REQUIRE_OK(ingot_hal_cpu_pool_create(&allocator, &log, &options, true, NULL, &pool));
  REQUIRE(getrlimit(RLIMIT_AS, &own) == 0);
  const struct rlimit none = {0, own.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
  bool first = ingot_hal_cpu_pool_run(pool, &work, NULL, &fault);
  bool second = ingot_hal_cpu_pool_run(pool, &work, NULL, &fault);
  EXPECT_EQUAL(setrlimit(RLIMIT_AS, &own), 0);
  EXPECT(!first && !second);
  EXPECT_EQUAL(warnings, 1);
  EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
  ingot_hal_cpu_pool_destroy(pool);
}
#endif

TEST(results_are_the_same_for_any_number_of_threads) {
  static float expected[COUNT], got[COUNT];
  void *bindings[1] = {expected};
  ingot_kernel_fault_t fault = {0};
  ingot_hal_cpu_work_t work = make_work(sum, bindings, NULL, COUNT, 1, 1);
  ingot_hal_cpu_run_inline(&work, NULL, &fault);
  bindings[0] = got;
  for (uint32_t workers = 1; workers < 6; workers++) {
    ingot_hal_cpu_pool_t *pool = make_pool(workers);
    for (int round = 0; round < 10; round++) {
      memset(got, 0, sizeof(got));
      EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
      EXPECT_EQUAL(fault.code, 0);
      EXPECT(memcmp(expected, got, sizeof(got)) == 0);
    }
    ingot_hal_cpu_pool_destroy(pool);
  }
}

TEST(workers_take_part) {
  static float target[COUNT];
  void *bindings[1] = {target};
  ingot_kernel_fault_t fault = {0};
  ingot_hal_cpu_work_t work = make_work(sum, bindings, NULL, COUNT, 1, 1);
  ingot_hal_cpu_pool_t *pool = make_pool(1);
  atomic_store(&elsewhere, 0);
  for (int round = 0; round < 1000 && atomic_load(&elsewhere) == 0; round++) {
    EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
  }
  EXPECT(atomic_load(&elsewhere) > 0);
  ingot_hal_cpu_pool_destroy(pool);
}

TEST(threads_begin_with_parts_of_their_own) {
  ingot_hal_cpu_pool_t *pool = make_pool(1);
  ingot_kernel_fault_t fault = {0};
  for (int64_t count = 2; count < 12; count++) {
    ingot_hal_cpu_work_t work = make_work(meet, NULL, NULL, count, 1, 1);
    atomic_store(&begun_by_other, -1);
    REQUIRE(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
    EXPECT_EQUAL(atomic_load(&begun_by_other), (count + 1) / 2);
  }
  ingot_hal_cpu_pool_destroy(pool);
}

TEST(sleeping_workers_are_woken) {
  static float target[64];
  float source = 1;
  void *bindings[2] = {target, &source};
  ingot_kernel_fault_t fault = {0};
  ingot_hal_cpu_work_t work = make_work(halve, bindings, NULL, 64, 1, 1);
  ingot_hal_cpu_pool_t *pool = make_pool(3);
  for (int round = 0; round < 3; round++) {
    EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
    (void)usleep(5000); /* longer than they spin */
  }
  for (int i = 0; i < 64; i++) EXPECT(target[i] == 0.5f);
  ingot_hal_cpu_pool_destroy(pool);
}

TEST(lowest_fault_wins_and_stops_the_rest) {
  ingot_hal_cpu_pool_t *pool = make_pool(3);
  for (int64_t lowest = 0; lowest < 1000; lowest += 37) {
    ingot_kernel_fault_t fault = {0};
    ingot_hal_cpu_work_t work = make_work(fail_late, NULL, &lowest, 25, 10, 1000);
    atomic_store(&executed, 0);
    EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
    EXPECT_EQUAL(fault.code, INGOT_FAULT_INDEX_OUT_OF_RANGE);
    EXPECT_EQUAL(fault.index, lowest);
    EXPECT_EQUAL(fault.operand, 3);
    EXPECT(atomic_load(&executed) < 250000);
    ingot_hal_cpu_run_inline(&work, NULL, &fault);
    EXPECT_EQUAL(fault.index, lowest);
  }
  ingot_hal_cpu_pool_destroy(pool);
}

TEST(nothing_is_started_after_the_deadline) {
  const int64_t never = INT64_MAX;
  ingot_hal_cpu_pool_t *pool = make_pool(2);
  ingot_kernel_fault_t fault = {0};
  ingot_hal_cpu_work_t work = make_work(fail_late, NULL, &never, 25, 10, 1000);
  ingot_stop_t stop = {.flags = INGOT_STOP_LIMITED, .deadline = 1};
  work.stop = &stop;
  atomic_store(&executed, 0);
  EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
  ingot_hal_cpu_run_inline(&work, NULL, &fault);
  EXPECT_EQUAL(fault.code, 0);
  EXPECT_EQUAL(atomic_load(&executed), 0);
  float source = 1;
  static float target[LONG];
  void *bindings[2] = {target, &source};
  work = make_work(halve, bindings, NULL, LONG, 1, 1);
  stop = (ingot_stop_t){.flags = INGOT_STOP_LIMITED, .deadline = ingot_clock() + 20000000};
  work.stop = &stop;
  EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
  EXPECT(target[0] == 0.5f);
  EXPECT(target[LONG - 1] == 0);
  ingot_hal_cpu_pool_destroy(pool);
}

static void *cancel_soon(void *argument) {
  (void)usleep(20000);
  EXPECT(ingot_stop_cancel(argument));
  return NULL;
}

TEST(a_cancel_ends_work_between_two_workgroups) {
  ingot_hal_cpu_pool_t *pool = make_pool(1);
  ingot_kernel_fault_t fault = {0};
  float source = 1;
  static float target[LONG];
  void *bindings[2] = {target, &source};
  for (int round = 0; round < 2; round++) {
    ingot_hal_cpu_work_t work = make_work(halve, bindings, NULL, LONG, 1, 1);
    ingot_stop_t stop = {.flags = INGOT_STOP_BUSY | INGOT_STOP_CALL};
    work.stop = &stop;
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, cancel_soon, &stop) == 0);
    if (round == 0) EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
    else ingot_hal_cpu_run_inline(&work, NULL, &fault);
    EXPECT(target[LONG - 1] == 0);
    EXPECT_EQUAL(pthread_join(thread, NULL), 0);
    EXPECT(ingot_stop_is_found(&stop));
  }
  ingot_hal_cpu_pool_destroy(pool);
}

static bool ask(void *user) {
  EXPECT(pthread_equal(pthread_self(), main_thread));
  return ++*(int *)user == 3;
}

TEST(a_workgroup_that_polls_is_ended_by_all_that_ends_a_call) {
  ingot_hal_cpu_pool_t *pool = make_pool(1);
  ingot_kernel_fault_t fault = {0};
  for (int round = 0; round < 6; round++) {
    int questions = 0;
    ingot_hal_cpu_work_t work = make_work(run_on, NULL, NULL, 1000, 1, 1);
    ingot_stop_t stop = {.flags = INGOT_STOP_BUSY | INGOT_STOP_CALL};
    pthread_t thread;
    if (round < 2) REQUIRE(pthread_create(&thread, NULL, cancel_soon, &stop) == 0);
    else stop.flags |= INGOT_STOP_LIMITED;
    if (round / 2 == 1) stop.deadline = ingot_clock() + 20000000;
    if (round / 2 == 2) stop.should_stop = ask, stop.user = &questions;
    work.stop = &stop;
    atomic_store(&executed, 0);
    if (round % 2 == 0) EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
    else ingot_hal_cpu_run_inline(&work, NULL, &fault);
    EXPECT_EQUAL(fault.code, INGOT_FAULT_NONE);
    EXPECT(ingot_stop_is_found(&stop));
    EXPECT(atomic_load(&executed) <= (round % 2 == 0 ? 2u : 1u)); /* one on each thread */
    if (round < 2) EXPECT_EQUAL(pthread_join(thread, NULL), 0);
  }
  ingot_hal_cpu_pool_destroy(pool);
}

static void *run_blocking(void *argument) {
  ingot_kernel_fault_t fault = {0};
  ingot_hal_cpu_work_t work = make_work(block, NULL, NULL, 2, 1, 1);
  EXPECT(ingot_hal_cpu_pool_run(argument, &work, NULL, &fault));
  return NULL;
}

TEST(busy_pool_is_left_alone) {
  ingot_hal_cpu_pool_t *pool = make_pool(1);
  static float target[8];
  void *bindings[1] = {target};
  ingot_kernel_fault_t fault = {0};
  ingot_hal_cpu_work_t work = make_work(sum, bindings, NULL, 8, 1, 1);
  pthread_t thread;
  atomic_store(&is_blocked, false);
  atomic_store(&is_blocking, true);
  REQUIRE(pthread_create(&thread, NULL, run_blocking, pool) == 0);
  while (!atomic_load(&is_blocked)) (void)usleep(100);
  EXPECT(!ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
  EXPECT(target[0] == 0);
  EXPECT_OK(ingot_hal_cpu_pool_reserve_scratch(pool, 128));
  atomic_store(&is_blocking, false);
  (void)pthread_join(thread, NULL);
  EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
  ingot_hal_cpu_pool_destroy(pool);
}

TEST(workers_keep_denormals_whatever_the_caller_does) {
  static float target[256];
  float smallest = 1.17549435e-38f;
  void *bindings[2] = {target, &smallest};
  ingot_kernel_fault_t fault = {0};
  ingot_hal_cpu_work_t work = make_work(halve, bindings, NULL, 256, 1, 1);
#if defined(__x86_64__)
  unsigned int own = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(own | 0x8040u | 0x6000u); /* flush, round toward zero */
#endif
  ingot_hal_cpu_pool_t *pool = make_pool(2);
  EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault)); /* threads start in here */
  ingot_float_environment_t saved = ingot_float_environment_enter();
  EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
  ingot_float_environment_leave(saved);
#if defined(__x86_64__)
  EXPECT((__builtin_ia32_stmxcsr() & 0xE040u) == 0xE040u);
  __builtin_ia32_ldmxcsr(own);
#endif
  for (int i = 0; i < 256; i++) EXPECT(target[i] > 0);
  ingot_hal_cpu_pool_destroy(pool);
}

/* Runs in a child: all results right, and after the first dispatch with threads again. */
static int use_after_fork(ingot_hal_cpu_pool_t *pool) {
  static float target[COUNT];
  void *bindings[1] = {target};
  ingot_kernel_fault_t fault = {0};
  ingot_hal_cpu_work_t work = make_work(sum, bindings, NULL, COUNT, 1, 1);
  atomic_store(&elsewhere, 0);
  for (int round = 0; round < 1000 && atomic_load(&elsewhere) == 0; round++) {
    memset(target, 0, sizeof(target));
    if (!ingot_hal_cpu_pool_run(pool, &work, NULL, &fault)) {
      ingot_hal_cpu_run_inline(&work, NULL, &fault);
    }
    for (int i = 0; i < COUNT; i++) {
      if (!(target[i] > 0)) return 2;
    }
  }
  if (atomic_load(&elsewhere) == 0) return 3;
  ingot_hal_cpu_pool_destroy(pool);
  return 0;
}

#if defined(__SANITIZE_THREAD__)
#define CHILDREN_HAVE_THREADS false /* ThreadSanitizer ends one that starts a thread */
#else
#define CHILDREN_HAVE_THREADS true
#endif

/* The state of the parent's workers when it forks: spinning, asleep, inside a dispatch. */
TEST(pool_restarts_after_fork) {
  if (!CHILDREN_HAVE_THREADS) return;
  for (int state = 0; state < 3; state++) {
    ingot_hal_cpu_pool_t *pool = make_pool(2);
    static float target[COUNT];
    void *bindings[1] = {target};
    ingot_kernel_fault_t fault = {0};
    ingot_hal_cpu_work_t work = make_work(sum, bindings, NULL, COUNT, 1, 1);
    EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
    pthread_t thread;
    if (state == 1) (void)usleep(5000);
    atomic_store(&is_blocked, false);
    atomic_store(&is_blocking, state == 2);
    if (state == 2) {
      REQUIRE(pthread_create(&thread, NULL, run_blocking, pool) == 0);
      while (!atomic_load(&is_blocked)) (void)usleep(100);
    }
    pid_t child = fork();
    if (child == 0) _exit(use_after_fork(pool));
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status));
    EXPECT_EQUAL(WEXITSTATUS(status), 0);
    atomic_store(&is_blocking, false);
    if (state == 2) (void)pthread_join(thread, NULL);
    EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
    ingot_hal_cpu_pool_destroy(pool);
  }
}

/* target[x] = 1, by a worker only once it is let go. */
static uint32_t INGOT_KERNEL_CALL mark(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                       int64_t y, int64_t z, void *scratch,
                                       ingot_kernel_fault_t *fault) {
  if (!pthread_equal(pthread_self(), main_thread)) block(dispatch, x, y, z, scratch, fault);
  else (void)usleep(1000);
  ((float *)dispatch->bindings[0])[x] = 1;
  return 0;
}

static pid_t forked = -1;

/* As a signal handler may: forks while a worker is inside, and uses the pool in the child. */
static bool fork_inside(void *pool) {
  if (forked >= 0 || !atomic_load(&is_blocked)) return false;
  forked = fork();
  if (forked != 0) {
    atomic_store(&is_blocking, false);
    return false;
  }
  (void)alarm(300);
  static float target[8];
  void *bindings[1] = {target};
  ingot_kernel_fault_t fault = {0};
  ingot_hal_cpu_work_t work = make_work(sum, bindings, NULL, 8, 1, 1);
  if (ingot_hal_cpu_pool_run(pool, &work, NULL, &fault)) _exit(4);
  return false;
}

TEST(a_fork_inside_a_dispatch_cancels_it_in_the_child) {
  if (!CHILDREN_HAVE_THREADS) return;
  ingot_hal_cpu_pool_t *pool = make_pool(1);
  static float target[64];
  void *bindings[1] = {target};
  ingot_kernel_fault_t fault = {0};
  ingot_hal_cpu_work_t work = make_work(mark, bindings, NULL, 64, 1, 1);
  ingot_stop_t stop = {.flags = INGOT_STOP_BUSY | INGOT_STOP_CALL | INGOT_STOP_LIMITED,
                       .should_stop = fork_inside,
                       .user = pool};
  work.stop = &stop;
  atomic_store(&is_blocked, false);
  atomic_store(&is_blocking, true);
  EXPECT(ingot_hal_cpu_pool_run(pool, &work, NULL, &fault));
  REQUIRE(forked >= 0);
  if (forked == 0) _exit(ingot_stop_is_found(&stop) ? use_after_fork(pool) : 5);
  int status = -1;
  EXPECT(waitpid(forked, &status, 0) == forked);
  EXPECT(WIFEXITED(status));
  EXPECT_EQUAL(WEXITSTATUS(status), 0);
  EXPECT(!ingot_stop_is_found(&stop));
  for (int i = 0; i < 64; i++) EXPECT(target[i] == 1);
  ingot_hal_cpu_pool_destroy(pool);
}

int main(void) {
  main_thread = pthread_self();
  RUN_TESTS();
  return TEST_RESULT();
}
