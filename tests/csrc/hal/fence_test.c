/* Fences by themselves: values, failures, waits with and without an end, functions that are told.
 */
#include <pthread.h>

#include "platform/platform.h"
#include "test.h"

#define MILLISECOND INT64_C(1000000)

static ingot_instance_t *instance;

static ingot_fence_t *new_fence(uint64_t value) {
  ingot_fence_t *fence = NULL;
  EXPECT_OK(ingot_fence_create(instance, value, &fence));
  return fence;
}

TEST(a_value_only_grows) {
  ingot_fence_t *fence = new_fence(5);
  uint64_t value = 0;
  EXPECT_OK(ingot_fence_query(fence, &value));
  EXPECT_EQUAL(value, 5);
  EXPECT_OK(ingot_fence_signal(fence, 7));
  EXPECT_STATUS(ingot_fence_signal(fence, 7), INVALID_ARGUMENT,
                "at 7 is to be signalled with 7: expected a larger value");
  EXPECT_STATUS(ingot_fence_signal(fence, 6), INVALID_ARGUMENT, "larger");
  EXPECT_OK(ingot_fence_query(fence, &value));
  EXPECT_EQUAL(value, 7);
  EXPECT_OK(ingot_fence_wait(fence, 6, 0));
  EXPECT_OK(ingot_fence_wait(fence, 7, INGOT_FOREVER));
  ingot_fence_release(fence);
}

TEST(a_wait_ends_with_its_time) {
  ingot_fence_t *fence = new_fence(0);
  EXPECT_STATUS(ingot_fence_wait(fence, 1, 0), DEADLINE_EXCEEDED,
                "at 0 when the time to wait for 1");
  int64_t begin = ingot_clock();
  EXPECT_STATUS(ingot_fence_wait(fence, 1, 5 * MILLISECOND), DEADLINE_EXCEEDED, "time");
  EXPECT(ingot_clock() - begin >= 5 * MILLISECOND);
  ingot_fence_release(fence);
}

TEST(a_failure_stays_and_what_was_reached_too) {
  ingot_fence_t *fence = new_fence(0);
  uint64_t value = 99;
  EXPECT_OK(ingot_fence_signal(fence, 2));
  ingot_fence_fail(fence, NULL); /* is none */
  ingot_fence_fail(fence, ingot_status_make(INGOT_STATUS_DATA_LOSS, "the disk is gone"));
  ingot_fence_fail(fence, ingot_status_make(INGOT_STATUS_INTERNAL, "later"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_STATUS(ingot_fence_wait(fence, 3, INGOT_FOREVER), DATA_LOSS, "the disk is gone");
    EXPECT_STATUS(ingot_fence_query(fence, &value), DATA_LOSS, "the disk is gone");
    EXPECT_STATUS(ingot_fence_signal(fence, 3), DATA_LOSS, "the disk is gone");
    EXPECT_OK(ingot_fence_wait(fence, 2, 0));
  }
  EXPECT_EQUAL(value, 99);
  ingot_fence_release(fence);
}

typedef struct told_t {
  int count;
  ingot_status_code_t code;
  ingot_fence_t *fence; /* to signal then */
} told_t;

static void note(void *user, ingot_status_t status) {
  told_t *told = user;
  ++told->count;
  told->code = ingot_status_code(status);
  ingot_status_free(status);
  if (told->fence) EXPECT_OK(ingot_fence_signal(told->fence, 1));
}

TEST(functions_are_told_once) {
  ingot_fence_t *fence = new_fence(0), *other = new_fence(0);
  told_t now = {0}, first = {.fence = other}, second = {0}, never = {0};
  EXPECT_OK(ingot_fence_notify(fence, 0, note, &now));
  EXPECT_EQUAL(now.count, 1);
  EXPECT_OK(ingot_fence_notify(fence, 1, note, &first));
  EXPECT_OK(ingot_fence_notify(fence, 2, note, &second));
  EXPECT_OK(ingot_fence_notify(fence, 3, note, &never));
  EXPECT_OK(ingot_fence_signal(fence, 2));
  EXPECT(first.count == 1 && second.count == 1 && never.count == 0);
  EXPECT_OK(ingot_fence_wait(other, 1, 0));
  ingot_fence_fail(fence, ingot_status_make(INGOT_STATUS_NOT_FOUND, "gone"));
  EXPECT(never.count == 1 && never.code == INGOT_STATUS_NOT_FOUND && first.count == 1);
  EXPECT_OK(ingot_fence_notify(fence, 2, note, &now));
  EXPECT_EQUAL(now.code, INGOT_STATUS_OK);
  EXPECT_OK(ingot_fence_notify(fence, 3, note, &now));
  EXPECT_EQUAL(now.code, INGOT_STATUS_NOT_FOUND);
  EXPECT_EQUAL(now.count, 3);
  ingot_fence_release(fence);
  ingot_fence_release(other);
}

TEST(a_released_fence_tells_those_who_wait) {
  ingot_fence_t *fence = new_fence(0);
  told_t told = {0};
  EXPECT_OK(ingot_fence_notify(fence, 1, note, &told));
  ingot_fence_retain(fence);
  ingot_fence_release(fence);
  EXPECT_EQUAL(told.count, 0);
  ingot_fence_release(fence);
  EXPECT(told.count == 1 && told.code == INGOT_STATUS_CANCELLED);
  ingot_fence_release(NULL);
}

enum { THREADS = 4, ROUNDS = 2000 };

/* Threads hand a number round: thread t waits for every value that is t modulo THREADS. */
typedef struct runner_t {
  ingot_fence_t *fence;
  uint64_t first;
} runner_t;

static void *run(void *argument) {
  const runner_t *runner = argument;
  for (uint64_t value = runner->first; value < ROUNDS; value += THREADS) {
    EXPECT_OK(ingot_fence_wait(runner->fence, value, INGOT_FOREVER));
    EXPECT_OK(ingot_fence_signal(runner->fence, value + 1));
  }
  return NULL;
}

TEST(threads_take_turns) {
  ingot_fence_t *fence = new_fence(0);
  pthread_t threads[THREADS];
  runner_t runners[THREADS];
  for (int t = 0; t < THREADS; ++t) {
    runners[t] = (runner_t){fence, (uint64_t)t};
    REQUIRE(pthread_create(&threads[t], NULL, run, &runners[t]) == 0);
  }
  for (int t = 0; t < THREADS; ++t) EXPECT_EQUAL(pthread_join(threads[t], NULL), 0);
  EXPECT_OK(ingot_fence_wait(fence, ROUNDS, 0));
  ingot_fence_release(fence);
}

/* It is freed by whoever lets go last, which may be the thread that signals. */
static void *signal_and_release(void *argument) {
  EXPECT_OK(ingot_fence_signal(argument, 1));
  ingot_fence_release(argument);
  return NULL;
}

TEST(a_fence_may_go_as_soon_as_it_is_reached) {
  for (int round = 0; round < 100; ++round) {
    ingot_fence_t *fence = new_fence(0);
    pthread_t thread;
    ingot_fence_retain(fence);
    REQUIRE(pthread_create(&thread, NULL, signal_and_release, fence) == 0);
    EXPECT_OK(ingot_fence_wait(fence, 1, INGOT_FOREVER));
    ingot_fence_release(fence);
    EXPECT_EQUAL(pthread_join(thread, NULL), 0);
  }
}

TEST(every_allocation_may_fail) {
  for (int64_t fail_at = 1;; ++fail_at) {
    test_allocator_t counter = {.fail_at = fail_at};
    const ingot_allocator_t allocator = test_allocator(&counter);
    const ingot_instance_options_t options = {.allocator = &allocator};
    ingot_instance_t *own = NULL;
    ingot_fence_t *fence = NULL;
    told_t told = {0};
    ingot_status_t status = ingot_instance_create(&options, &own);
    if (!status) status = ingot_fence_create(own, 0, &fence);
    if (!status) status = ingot_fence_notify(fence, 1, note, &told);
    if (!status) {
      ingot_status_free(ingot_fence_wait(fence, 1, 0));
      ingot_status_free(ingot_fence_signal(fence, 0));
    }
    bool is_waiting = !status;
    if (status) EXPECT_EQUAL(ingot_status_code(status), INGOT_STATUS_OUT_OF_MEMORY);
    ingot_status_free(status);
    ingot_fence_release(fence); /* which tells those who wait */
    EXPECT_EQUAL(told.count, is_waiting ? 1 : 0);
    EXPECT(!is_waiting || told.code != INGOT_STATUS_OK);
    ingot_instance_release(own);
    EXPECT_EQUAL(counter.live, 0);
    if (counter.allocations < fail_at) break;
  }
}

int main(void) {
  ingot_status_t status = ingot_instance_create(NULL, &instance);
  if (status) return 1;
  RUN_TESTS();
  ingot_instance_release(instance);
  return TEST_RESULT();
}
