/* Threads of the application in place of a device's own, and where a device's own run. */
#define _GNU_SOURCE /* sched_getcpu */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "hal/hal.h"
#include "platform/platform.h"
#include "test.h"

enum { COUNT = 256, THREADS = 2, QUEUE = 64 };

/* A small pool of the application: a ring of tasks. */
typedef struct app_pool_t {
  pthread_mutex_t mutex;
  pthread_cond_t news;
  struct {
    void (*function)(void *argument);
    void *argument;
  } tasks[QUEUE];
  uint32_t first, count;
  bool ends, refuses;
  int scheduled, released;
  pthread_t threads[THREADS];
} app_pool_t;

static void *run_tasks(void *argument) {
  app_pool_t *pool = argument;
  (void)pthread_mutex_lock(&pool->mutex);
  while (!pool->ends || pool->count > 0) {
    if (pool->count == 0) {
      (void)pthread_cond_wait(&pool->news, &pool->mutex);
      continue;
    }
    uint32_t at = pool->first;
    pool->first = (at + 1) % QUEUE;
    --pool->count;
    (void)pthread_mutex_unlock(&pool->mutex);
    pool->tasks[at].function(pool->tasks[at].argument);
    (void)pthread_mutex_lock(&pool->mutex);
  }
  (void)pthread_mutex_unlock(&pool->mutex);
  return NULL;
}

static bool schedule(void *user, void (*function)(void *argument), void *argument) {
  app_pool_t *pool = user;
  (void)pthread_mutex_lock(&pool->mutex);
  bool takes = !pool->refuses && pool->count < QUEUE;
  if (takes) {
    uint32_t at = (pool->first + pool->count++) % QUEUE;
    pool->tasks[at].function = function;
    pool->tasks[at].argument = argument;
    ++pool->scheduled;
  }
  (void)pthread_cond_signal(&pool->news);
  (void)pthread_mutex_unlock(&pool->mutex);
  return takes;
}

static uint32_t count_threads(void *user) {
  (void)user;
  return THREADS;
}

static void release(void *user) { ((app_pool_t *)user)->released++; }

static void start(app_pool_t *pool) {
  *pool = (app_pool_t){.mutex = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};
  for (int t = 0; t < THREADS; ++t) {
    (void)pthread_create(&pool->threads[t], NULL, run_tasks, pool);
  }
}

static void end(app_pool_t *pool) {
  (void)pthread_mutex_lock(&pool->mutex);
  pool->ends = true;
  (void)pthread_cond_broadcast(&pool->news);
  (void)pthread_mutex_unlock(&pool->mutex);
  for (int t = 0; t < THREADS; ++t) (void)pthread_join(pool->threads[t], NULL);
}

static _Atomic uint32_t elsewhere;
static _Atomic uint64_t processors;
static pthread_t main_thread;

/* target[x] = x + 1, slowly; says where it runs. */
static uint32_t INGOT_KERNEL_CALL count_up(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                           int64_t y, int64_t z, void *scratch,
                                           ingot_kernel_fault_t *fault) {
  (void)y, (void)z, (void)scratch, (void)fault;
  (void)usleep(20);
  ((float *)dispatch->bindings[0])[x] = (float)x + 1;
  if (!pthread_equal(pthread_self(), main_thread)) {
    atomic_fetch_add(&elsewhere, 1);
    atomic_fetch_or(&processors, UINT64_C(1) << (sched_getcpu() & 63));
  }
  return 0;
}

static uint32_t INGOT_KERNEL_CALL any_fits(const ingot_kernel_dispatch_t *dispatch) {
  (void)dispatch;
  return 0;
}

static const ingot_kernel_library_t *INGOT_KERNEL_CALL query(uint32_t abi_version) {
  static const ingot_kernel_entry_t entry = {count_up, {1, 1, 1}, 64, any_fits, 1, 1, 0};
  static const ingot_kernel_library_t library = {INGOT_KERNEL_ABI_VERSION, 1, &entry};
  return abi_version == INGOT_KERNEL_ABI_VERSION ? &library : NULL;
}

/* A device, and the kernel on it. */
typedef struct place_t {
  ingot_instance_t *instance;
  ingot_device_t *device;
  ingot_hal_executable_t *executable;
} place_t;

static ingot_status_t make_place(const char *uri, const ingot_thread_pool_t *pool, place_t *place) {
  const ingot_static_kernels_t kernels = {"count_up", query};
  const ingot_instance_options_t options = {.kernels = &kernels, .kernel_count = 1};
  const ingot_device_options_t device_options = {.thread_pool = pool};
  const ingot_hal_entry_description_t entry = {"count_up", "", 1, 0, 1};
  const ingot_hal_executable_description_t description = {
      .name = "count_up", .entries = &entry, .entry_count = 1};
  *place = (place_t){NULL, NULL, NULL};
  INGOT_TRY(ingot_instance_create(&options, &place->instance));
  INGOT_TRY(ingot_device_create(place->instance, uri, &device_options, &place->device));
  return ingot_hal_executable_create(place->device, &description, &place->executable);
}

static void release_place(place_t *place) {
  ingot_hal_executable_destroy(place->executable);
  ingot_device_release(place->device);
  ingot_instance_release(place->instance);
}

/* Dispatches that are worth sharing; whether all results were right. */
static bool dispatch_often(const place_t *place, int rounds) {
  static _Thread_local float target[COUNT];
  ingot_buffer_t *buffer = NULL;
  ingot_hal_queue_t *queue = NULL;
  bool is_right = true;
  EXPECT_OK(ingot_buffer_wrap(place->device, target, sizeof(target), NULL, NULL, &buffer));
  EXPECT_OK(ingot_hal_queue_create(place->device, &queue));
  const ingot_hal_binding_t binding = {buffer, 0, sizeof(target)};
  const ingot_hal_dispatch_t dispatch = {.executable = place->executable,
                                         .binding_count = 1,
                                         .bindings = &binding,
                                         .workload = {COUNT, 1, 1},
                                         .cost_flops = 1 << 30};
  for (int r = 0; r < rounds; ++r) {
    memset(target, 0, sizeof(target));
    EXPECT_OK(ingot_hal_queue_dispatch(queue, &dispatch));
    for (int i = 0; i < COUNT; ++i) is_right = is_right && target[i] == (float)i + 1;
  }
  ingot_hal_queue_destroy(queue);
  ingot_buffer_release(buffer);
  return is_right;
}

TEST(threads_of_the_application_do_the_work) {
  app_pool_t pool;
  place_t place;
  start(&pool);
  const ingot_thread_pool_t lent = {&pool, count_threads, schedule, release};
  REQUIRE_OK(make_place("cpu", &lent, &place));
  EXPECT(strstr(ingot_device_description(place.device), "3 threads") != NULL);
  atomic_store(&elsewhere, 0);
  EXPECT(dispatch_often(&place, 20));
  EXPECT(atomic_load(&elsewhere) > 0);
  EXPECT(pool.scheduled > 0);
  EXPECT_EQUAL(pool.released, 0);
  release_place(&place);
  EXPECT_EQUAL(pool.released, 1);
  end(&pool);
}

TEST(a_pool_that_takes_nothing_leaves_the_work_to_the_caller) {
  app_pool_t pool;
  place_t place;
  start(&pool);
  pool.refuses = true;
  const ingot_thread_pool_t lent = {&pool, count_threads, schedule, NULL};
  REQUIRE_OK(make_place("cpu://?threads=2", &lent, &place));
  EXPECT(strstr(ingot_device_description(place.device), "2 threads") != NULL);
  EXPECT(dispatch_often(&place, 2));
  EXPECT_EQUAL(pool.scheduled, 0);
  release_place(&place);
  end(&pool);
}

static void *dispatch_in_thread(void *place) { return dispatch_often(place, 20) ? place : NULL; }

TEST(several_devices_and_callers_share_the_threads) {
  app_pool_t pool;
  place_t places[2];
  pthread_t callers[4];
  start(&pool);
  const ingot_thread_pool_t lent = {&pool, count_threads, schedule, release};
  for (int p = 0; p < 2; ++p) REQUIRE_OK(make_place("cpu", &lent, &places[p]));
  for (int c = 0; c < 4; ++c) {
    REQUIRE(pthread_create(&callers[c], NULL, dispatch_in_thread, &places[c % 2]) == 0);
  }
  for (int c = 0; c < 4; ++c) {
    void *right = NULL;
    EXPECT_EQUAL(pthread_join(callers[c], &right), 0);
    EXPECT(right != NULL);
  }
  for (int p = 0; p < 2; ++p) release_place(&places[p]);
  EXPECT_EQUAL(pool.released, 2);
  end(&pool);
}

TEST(a_pool_without_functions_is_refused) {
  place_t place;
  const ingot_thread_pool_t no_count = {NULL, NULL, schedule, NULL};
  const ingot_thread_pool_t no_schedule = {NULL, count_threads, NULL, NULL};
  const ingot_thread_pool_t whole = {NULL, count_threads, schedule, NULL};
  EXPECT_STATUS(make_place("cpu", &no_count, &place), INVALID_ARGUMENT,
                "device 'cpu' with a thread_pool: its function count is NULL");
  ingot_instance_release(place.instance);
  EXPECT_STATUS(make_place("cpu", &no_schedule, &place), INVALID_ARGUMENT,
                "its function schedule is NULL");
  ingot_instance_release(place.instance);
  EXPECT_STATUS(make_place("cpu://?spin=off", &whole, &place), INVALID_ARGUMENT,
                "spin= are for threads of the device's own");
  ingot_instance_release(place.instance);
}

TEST(a_device_keeps_its_threads_to_its_processors) {
  ingot_processor_set_t usable;
  char uri[64];
  place_t place;
  uint32_t processor = 0;
  if (!ingot_processors_usable(&usable)) return;
  while (!ingot_processor_set_has(&usable, processor)) ++processor;
  (void)snprintf(uri, sizeof(uri), "cpu://?threads=3&spin=off&priority=low&affinity=%u", processor);
  REQUIRE_OK(make_place(uri, NULL, &place));
  atomic_store(&elsewhere, 0);
  atomic_store(&processors, 0);
  EXPECT(dispatch_often(&place, 10));
  EXPECT(atomic_load(&elsewhere) > 0);
  EXPECT_EQUAL(atomic_load(&processors), UINT64_C(1) << (processor & 63));
  release_place(&place);
}

int main(void) {
  main_thread = pthread_self();
  RUN_TESTS();
  return TEST_RESULT();
}
