/* Submitted calls: order, fences, failures, cancels, deadlines, and who may be gone when they end.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include <pthread.h>
#include <sched.h>

#include "vm/harness.h"

#define MILLISECOND INT64_C(1000000)
#define ENDLESS INT64_MAX /* steps of the sum module */

static harness_t harness; /* one thread makes submitted calls */
static harness_program_t adder, summer;

static ingot_fence_t *new_fence(void) {
  ingot_fence_t *fence = NULL;
  EXPECT_OK(ingot_fence_create(harness.instance, 0, &fence));
  return fence;
}

/* One call of "main" with an argument, a result, and at most a fence to wait for and to signal. */
typedef struct one_t {
  ingot_buffer_view_t *argument;
  ingot_buffer_view_t *result;
  ingot_fence_value_t wait;
  ingot_fence_value_t signal;
  ingot_submission_t submission;
} one_t;

static one_t *set_up(one_t *one, ingot_buffer_view_t *argument, ingot_buffer_view_t *result,
                     ingot_fence_t *signal, uint64_t value) {
  *one = (one_t){.argument = argument, .result = result, .signal = {signal, value}};
  one->submission = (ingot_submission_t){.argument_count = 1,
                                         .arguments = &one->argument,
                                         .result_count = 1,
                                         .results = &one->result,
                                         .waits = &one->wait,
                                         .signals = &one->signal,
                                         .signal_count = signal ? 1 : 0};
  return one;
}

static void set_wait(one_t *one, ingot_fence_t *fence, uint64_t value) {
  one->wait = (ingot_fence_value_t){fence, value};
  one->submission.wait_count = 1;
}

static ingot_status_t submit(ingot_session_t *session, const one_t *one) {
  return ingot_session_submit(session, &one->submission, NULL);
}

/* An argument and a result of the sum module. */
typedef struct sum_t {
  int64_t x, y;
  one_t one;
} sum_t;

static void set_up_sum(sum_t *sum, int64_t steps, ingot_fence_t *signal, uint64_t value) {
  *sum = (sum_t){.x = steps, .y = -1};
  set_up(&sum->one, harness_view(&harness, &sum->x, INGOT_DTYPE_I64, 1),
         harness_view(&harness, &sum->y, INGOT_DTYPE_I64, 1), signal, value);
}

static void release_sum(sum_t *sum) {
  ingot_buffer_view_release(sum->one.argument);
  ingot_buffer_view_release(sum->one.result);
}

/* What a function that is told has heard. */
typedef struct told_t {
  _Atomic int count;
  _Atomic ingot_status_code_t code;
} told_t;

static void note(void *user, ingot_status_t status) {
  told_t *told = user;
  told->code = ingot_status_code(status);
  ingot_status_free(status);
  ++told->count;
}

/* -- order ------------------------------------------------------------------------------------- */

TEST(results_are_made_or_written_in_place) {
  float x[4] = {1, 2, 3, 4}, y[4] = {0};
  told_t told = {0};
  uint64_t number = 0;
  ingot_fence_t *fence = new_fence();
  one_t made, given;
  set_up(&made, harness_view(&harness, x, INGOT_DTYPE_F32, 4), NULL, fence, 1);
  made.submission.done = note;
  made.submission.user = &told;
  EXPECT_OK(ingot_session_submit(adder.session, &made.submission, &number));
  EXPECT_EQUAL(number, 1);
  EXPECT_OK(ingot_fence_wait(fence, 1, INGOT_FOREVER));
  EXPECT(told.count == 1 && told.code == INGOT_STATUS_OK);
  REQUIRE(made.result != NULL);
  EXPECT_OK(ingot_buffer_read(ingot_buffer_view_layout(made.result)->buffer, 0, y, sizeof(y)));
  EXPECT(y[0] == 2 && y[3] == 5);

  ingot_buffer_view_t *view = harness_view(&harness, y, INGOT_DTYPE_F32, 4);
  set_up(&given, made.result, view, fence, 2);
  EXPECT_OK(submit(adder.session, &given));
  EXPECT_OK(ingot_fence_wait(fence, 2, INGOT_FOREVER));
  EXPECT(given.result == view && y[0] == 3 && y[3] == 6);
  ingot_buffer_view_release(made.argument);
  ingot_buffer_view_release(made.result);
  ingot_buffer_view_release(view);
  ingot_fence_release(fence);
}

/* Each call adds one to what the call before it gave. */
TEST(calls_of_a_session_keep_their_order) {
  enum { CALLS = 200 };
  float values[CALLS + 1][4] = {{0}};
  ingot_buffer_view_t *views[CALLS + 1];
  ingot_fence_t *fence = new_fence();
  for (int i = 0; i <= CALLS; ++i) {
    views[i] = harness_view(&harness, values[i], INGOT_DTYPE_F32, 4);
  }
  one_t ones[CALLS];
  for (int i = 0; i < CALLS; ++i) {
    set_up(&ones[i], views[i], views[i + 1], fence, (uint64_t)i + 1);
    EXPECT_OK(submit(adder.session, &ones[i]));
  }
  for (int i = 0; i <= CALLS; ++i) ingot_buffer_view_release(views[i]); /* the calls keep them */
  EXPECT_OK(ingot_fence_wait(fence, CALLS, INGOT_FOREVER));
  for (int i = 0; i <= CALLS; ++i) EXPECT(values[i][3] == (float)i);
  ingot_fence_release(fence);
}

enum { SIDES = 3, TURNS = 50 };

/* Sessions hand a value round, each waiting for the one before it. */
TEST(sessions_side_by_side_wait_for_each_other) {
  harness_t wide;
  const ingot_static_kernels_t kernels = {"add_one", builder_add_one_query};
  const ingot_instance_options_t options = {.kernels = &kernels, .kernel_count = 1};
  REQUIRE_OK(ingot_instance_create(&options, &wide.instance));
  REQUIRE_OK(ingot_device_create(wide.instance, "cpu://?threads=4", NULL, &wide.device));
  harness_program_t program;
  REQUIRE_OK(harness_load(&wide, builder_add_one_module(), NULL, &program));
  static float values[SIDES * TURNS + 1][4];
  static one_t ones[SIDES * TURNS];
  ingot_session_t *sessions[SIDES];
  ingot_fence_t *fence = NULL;
  REQUIRE_OK(ingot_fence_create(wide.instance, 0, &fence));
  for (int s = 0; s < SIDES; ++s) {
    REQUIRE_OK(ingot_session_create(program.program, NULL, &sessions[s]));
    for (int turn = 0; turn < TURNS; ++turn) {
      int i = turn * SIDES + s;
      set_up(&ones[i], harness_view(&wide, values[i], INGOT_DTYPE_F32, 4),
             harness_view(&wide, values[i + 1], INGOT_DTYPE_F32, 4), fence, (uint64_t)i + 1);
      set_wait(&ones[i], fence, (uint64_t)i);
      EXPECT_OK(submit(sessions[s], &ones[i]));
    }
  }
  EXPECT_OK(ingot_fence_wait(fence, SIDES * TURNS, INGOT_FOREVER));
  EXPECT(values[SIDES * TURNS][0] == SIDES * TURNS);
  for (int i = 0; i < SIDES * TURNS; ++i) {
    ingot_buffer_view_release(ones[i].argument);
    ingot_buffer_view_release(ones[i].result);
  }
  for (int s = 0; s < SIDES; ++s) ingot_session_release(sessions[s]);
  ingot_fence_release(fence);
  harness_unload(&program);
  harness_release(&wide);
}

TEST(a_call_waits_for_every_fence) {
  ingot_fence_t *first = new_fence(), *second = new_fence(), *end = new_fence();
  const ingot_fence_value_t waits[2] = {{first, 2}, {second, 1}};
  sum_t sum;
  set_up_sum(&sum, 3, end, 1);
  sum.one.submission.waits = waits;
  sum.one.submission.wait_count = 2;
  EXPECT_OK(submit(summer.session, &sum.one));
  EXPECT_OK(ingot_fence_signal(second, 1));
  EXPECT_OK(ingot_fence_signal(first, 1));
  EXPECT_STATUS(ingot_fence_wait(end, 1, 2 * MILLISECOND), DEADLINE_EXCEEDED, "at 0");
  EXPECT_OK(ingot_fence_signal(first, 2));
  EXPECT_OK(ingot_fence_wait(end, 1, INGOT_FOREVER));
  EXPECT_EQUAL(sum.y, 6);
  release_sum(&sum);
  ingot_fence_release(first);
  ingot_fence_release(second);
  ingot_fence_release(end);
}

/* -- failures ---------------------------------------------------------------------------------- */

TEST(a_failed_call_fails_its_fences_and_others_go_on) {
  float bad[4] = {1, 2, 666, 4}, good[4] = {1, 2, 3, 4}, y[4];
  ingot_fence_t *chain = new_fence(), *other = new_fence();
  told_t failed = {0}, behind = {0};
  one_t ones[3];
  ingot_buffer_view_t *views[3] = {harness_view(&harness, bad, INGOT_DTYPE_F32, 4),
                                   harness_view(&harness, good, INGOT_DTYPE_F32, 4),
                                   harness_view(&harness, y, INGOT_DTYPE_F32, 4)};
  set_up(&ones[0], views[0], NULL, chain, 1)->submission.done = note;
  ones[0].submission.user = &failed;
  set_up(&ones[1], views[1], NULL, chain, 2)->submission.done = note; /* which cannot be reached */
  ones[1].submission.user = &behind;
  set_up(&ones[2], views[1], views[2], other, 1);
  for (int i = 0; i < 3; ++i) EXPECT_OK(submit(adder.session, &ones[i]));
  EXPECT_OK(ingot_fence_wait(other, 1, INGOT_FOREVER));
  EXPECT(y[3] == 5);
  for (int i = 0; i < 2; ++i) {
    EXPECT_STATUS(ingot_fence_wait(chain, 1, 0), OUT_OF_RANGE,
                  "Add 'net/add' (operand 1): index 30523 is out of range [0, 30522)");
  }
  EXPECT(failed.count == 1 && failed.code == INGOT_STATUS_OUT_OF_RANGE);
  EXPECT(behind.count == 1 && behind.code == INGOT_STATUS_OUT_OF_RANGE);
  EXPECT(!ones[0].result && !ones[1].result);
  for (int i = 0; i < 3; ++i) ingot_buffer_view_release(views[i]);
  ingot_fence_release(chain);
  ingot_fence_release(other);
}

TEST(a_wait_that_fails_fails_the_call) {
  for (int is_released = 0; is_released < 2; ++is_released) {
    ingot_fence_t *wait = new_fence(), *end = new_fence();
    sum_t sum;
    set_up_sum(&sum, 3, end, 1);
    set_wait(&sum.one, wait, 1);
    EXPECT_OK(submit(summer.session, &sum.one));
    if (is_released) {
      ingot_fence_release(wait);
      EXPECT_STATUS(ingot_fence_wait(end, 1, INGOT_FOREVER), CANCELLED,
                    "released at 0, which 1 was waited for: nobody can signal it");
    } else {
      ingot_fence_fail(wait, ingot_status_make(INGOT_STATUS_DATA_LOSS, "the disk is gone"));
      EXPECT_STATUS(ingot_fence_wait(end, 1, INGOT_FOREVER), DATA_LOSS, "the disk is gone");
      ingot_fence_release(wait);
    }
    EXPECT_EQUAL(sum.y, -1);
    release_sum(&sum);
    ingot_fence_release(end);
  }
}

TEST(wrong_submissions_are_refused_at_once) {
  ingot_fence_t *fence = new_fence();
  sum_t sum;
  set_up_sum(&sum, 3, fence, 0);
  EXPECT_STATUS(submit(summer.session, &sum.one), INVALID_ARGUMENT,
                "at 0 is to be signalled with 0: expected a larger value");
  sum.one.signal.value = 1;
  sum.one.submission.wait_count = 1;
  EXPECT_STATUS(submit(summer.session, &sum.one), INVALID_ARGUMENT,
                "a fence of the submission is NULL");
  sum.one.submission.wait_count = 0;
  sum.one.submission.function = 9;
  EXPECT_STATUS(submit(summer.session, &sum.one), OUT_OF_RANGE, "function 9");
  EXPECT_STATUS(submit(adder.session, set_up(&sum.one, sum.one.argument, sum.one.result, NULL, 0)),
                INVALID_ARGUMENT, "argument 0 'x' is i64, expected f32");
  release_sum(&sum);
  ingot_fence_release(fence);
}

/* -- cancels and deadlines --------------------------------------------------------------------- */

TEST(a_call_is_cancelled_by_its_number) {
  ingot_fence_t *fences[3] = {new_fence(), new_fence(), new_fence()};
  sum_t sums[3];
  uint64_t numbers[3];
  for (int i = 0; i < 3; ++i) {
    set_up_sum(&sums[i], i == 0 ? ENDLESS : 4, fences[i], 1);
    EXPECT_OK(ingot_session_submit(summer.session, &sums[i].one.submission, &numbers[i]));
  }
  EXPECT(ingot_session_cancel(summer.session, numbers[1]));
  EXPECT_STATUS(ingot_fence_wait(fences[1], 1, 0), CANCELLED, "cancelled before it began");
  EXPECT(!ingot_session_cancel(summer.session, numbers[1]));
  EXPECT_STATUS(ingot_fence_wait(fences[0], 1, MILLISECOND), DEADLINE_EXCEEDED, "at 0");
  EXPECT(ingot_session_cancel(summer.session, numbers[0]));
  EXPECT_STATUS(ingot_fence_wait(fences[0], 1, INGOT_FOREVER), CANCELLED, "was cancelled");
  EXPECT_OK(ingot_fence_wait(fences[2], 1, INGOT_FOREVER));
  EXPECT(sums[1].y == -1 && sums[2].y == 10);
  EXPECT(!ingot_session_cancel(summer.session, numbers[2]));
  EXPECT(!ingot_session_cancel(summer.session, INGOT_ALL_CALLS));
  for (int i = 0; i < 3; ++i) release_sum(&sums[i]);
  for (int i = 0; i < 3; ++i) ingot_fence_release(fences[i]);
}

TEST(all_calls_are_cancelled) {
  ingot_fence_t *fence = new_fence();
  told_t told = {0};
  sum_t sums[3];
  for (int i = 0; i < 3; ++i) {
    set_up_sum(&sums[i], ENDLESS, i == 0 ? fence : NULL, 1);
    sums[i].one.submission.done = note;
    sums[i].one.submission.user = &told;
    EXPECT_OK(submit(summer.session, &sums[i].one));
  }
  while (!ingot_session_cancel(summer.session, INGOT_RUNNING_CALL)) continue; /* it has begun */
  EXPECT_STATUS(ingot_fence_wait(fence, 1, INGOT_FOREVER), CANCELLED, "was cancelled");
  EXPECT(ingot_session_cancel(summer.session, INGOT_ALL_CALLS));
  while (told.count < 3) (void)ingot_session_cancel(summer.session, INGOT_ALL_CALLS);
  EXPECT_EQUAL(told.code, INGOT_STATUS_CANCELLED);
  for (int i = 0; i < 3; ++i) release_sum(&sums[i]);
  ingot_fence_release(fence);
}

/* The second call waits for the third, which is behind it. */
TEST(a_circle_ends_with_its_time_or_a_cancel) {
  for (int is_cancelled = 0; is_cancelled < 2; ++is_cancelled) {
    ingot_fence_t *fence = new_fence(), *end = new_fence();
    sum_t sums[2];
    uint64_t number = 0;
    set_up_sum(&sums[0], 4, end, 1);
    set_wait(&sums[0].one, fence, 1);
    if (!is_cancelled) sums[0].one.submission.options.timeout = 50 * MILLISECOND;
    set_up_sum(&sums[1], 4, fence, 1);
    EXPECT_OK(ingot_session_submit(summer.session, &sums[0].one.submission, &number));
    EXPECT_OK(submit(summer.session, &sums[1].one));
    if (is_cancelled) EXPECT(ingot_session_cancel(summer.session, number));
    EXPECT_OK(ingot_fence_wait(fence, 1, INGOT_FOREVER));
    ingot_status_t status = ingot_fence_wait(end, 1, INGOT_FOREVER);
    EXPECT_EQUAL(ingot_status_code(status),
                 is_cancelled ? INGOT_STATUS_CANCELLED : INGOT_STATUS_DEADLINE_EXCEEDED);
    ingot_status_free(status);
    EXPECT(sums[0].y == -1 && sums[1].y == 10);
    for (int i = 0; i < 2; ++i) release_sum(&sums[i]);
    ingot_fence_release(fence);
    ingot_fence_release(end);
  }
}

/* The only thread is busy: still the second call ends in time, and the first at its own. */
TEST(deadlines_count_from_the_submission_on) {
  ingot_fence_t *fences[2] = {new_fence(), new_fence()};
  sum_t sums[2];
  for (int i = 0; i < 2; ++i) {
    set_up_sum(&sums[i], ENDLESS, fences[i], 1);
    /* Long beside what a busy machine may take of a submission, which fails if it is too late. */
    sums[i].one.submission.options.timeout = (i ? 50 : 500) * MILLISECOND;
    REQUIRE_OK(submit(summer.session, &sums[i].one));
  }
  EXPECT_STATUS(ingot_fence_wait(fences[1], 1, INGOT_FOREVER), DEADLINE_EXCEEDED,
                "the call did not begin within its timeout");
  EXPECT_STATUS(ingot_fence_wait(fences[0], 1, 0), DEADLINE_EXCEEDED, "at 0");
  EXPECT_STATUS(ingot_fence_wait(fences[0], 1, INGOT_FOREVER), DEADLINE_EXCEEDED,
                "longer than its timeout");
  for (int i = 0; i < 2; ++i) release_sum(&sums[i]);
  for (int i = 0; i < 2; ++i) ingot_fence_release(fences[i]);
}

/* -- beside calls that wait -------------------------------------------------------------------- */

TEST(others_are_refused_while_calls_are_queued) {
  ingot_fence_t *fence = new_fence(), *end = new_fence();
  sum_t sum, own;
  set_up_sum(&sum, 4, end, 1);
  set_up_sum(&own, 5, NULL, 0);
  set_wait(&sum.one, fence, 1);
  EXPECT_OK(submit(summer.session, &sum.one));
  EXPECT_STATUS(
      ingot_session_call(summer.session, 0, &own.one.argument, 1, &own.one.result, 1, NULL),
      FAILED_PRECONDITION, "submitted calls that have not ended");
  EXPECT_STATUS(ingot_session_trim(summer.session), FAILED_PRECONDITION, "submitted calls");
  EXPECT_OK(ingot_fence_signal(fence, 1));
  EXPECT_OK(ingot_fence_wait(end, 1, INGOT_FOREVER));
  EXPECT_OK(ingot_session_call(summer.session, 0, &own.one.argument, 1, &own.one.result, 1, NULL));
  EXPECT(sum.y == 10 && own.y == 15);
  release_sum(&sum);
  release_sum(&own);
  ingot_fence_release(fence);
  ingot_fence_release(end);
}

/* Submits once; the call goes on. */
static bool submit_from_within(void *user) {
  sum_t *sum = user;
  if (sum->one.submission.user) return true; /* the next question: the call is to end */
  sum->one.submission.user = sum;
  EXPECT_OK(submit(summer.session, &sum->one));
  return false;
}

TEST(calls_that_are_submitted_during_a_call_come_behind_it) {
  ingot_fence_t *end = new_fence();
  sum_t sum, own;
  set_up_sum(&sum, 4, end, 1);
  set_up_sum(&own, ENDLESS, NULL, 0);
  const ingot_call_options_t options = {.should_stop = submit_from_within, .user = &sum};
  EXPECT_STATUS(
      ingot_session_call(summer.session, 0, &own.one.argument, 1, &own.one.result, 1, &options),
      CANCELLED, "was cancelled");
  EXPECT_OK(ingot_fence_wait(end, 1, INGOT_FOREVER));
  EXPECT_EQUAL(sum.y, 10);
  release_sum(&sum);
  release_sum(&own);
  ingot_fence_release(end);
}

#if defined(__linux__)
static void note_processors(void *user, ingot_status_t status) {
  cpu_set_t set;
  EXPECT_OK(status);
  EXPECT_EQUAL(sched_getaffinity(0, sizeof(set), &set), 0);
  *(int *)user = CPU_COUNT(&set);
}

TEST(threads_stand_where_the_device_says) {
  cpu_set_t set;
  char uri[64];
  size_t first = 0;
  int count = 0;
  EXPECT_EQUAL(sched_getaffinity(0, sizeof(set), &set), 0);
  while (!CPU_ISSET(first, &set)) ++first;
  (void)snprintf(uri, sizeof(uri), "cpu://?threads=1&affinity=%zu", first);
  harness_t bound = {harness.instance, NULL};
  harness_program_t program;
  float x[4] = {1, 2, 3, 4};
  one_t one;
  ingot_fence_t *fence = new_fence();
  REQUIRE_OK(ingot_device_create(harness.instance, uri, NULL, &bound.device));
  REQUIRE_OK(harness_load(&bound, builder_add_one_module(), NULL, &program));
  set_up(&one, harness_view(&bound, x, INGOT_DTYPE_F32, 4), NULL, fence, 1)->submission.done =
      note_processors;
  one.submission.user = &count;
  EXPECT_OK(submit(program.session, &one));
  EXPECT_OK(ingot_fence_wait(fence, 1, INGOT_FOREVER));
  EXPECT_EQUAL(count, 1);
  ingot_buffer_view_release(one.argument);
  ingot_buffer_view_release(one.result);
  ingot_fence_release(fence);
  harness_unload(&program);
  ingot_device_release(bound.device);
}
#endif

/* -- ends -------------------------------------------------------------------------------------- */

/* Everything is released but the fences, of which one lets the calls begin. */
TEST(what_was_submitted_ends_without_its_owner) {
  harness_t own;
  harness_program_t program;
  ingot_fence_t *begin = NULL, *end = NULL;
  ingot_instance_t *instance;
  float x[4] = {1, 2, 3, 4}, y[2][4] = {{0}};
  REQUIRE_OK(harness_create(NULL, &own));
  REQUIRE_OK(harness_load(&own, builder_add_one_module(), NULL, &program));
  instance = own.instance;
  REQUIRE_OK(ingot_fence_create(instance, 0, &begin));
  REQUIRE_OK(ingot_fence_create(instance, 0, &end));
  one_t ones[2];
  for (int i = 0; i < 2; ++i) {
    set_up(&ones[i], harness_view(&own, x, INGOT_DTYPE_F32, 4),
           harness_view(&own, y[i], INGOT_DTYPE_F32, 4), end, (uint64_t)i + 1);
    set_wait(&ones[i], begin, 1);
    EXPECT_OK(submit(program.session, &ones[i]));
    ingot_buffer_view_release(ones[i].argument);
    ingot_buffer_view_release(ones[i].result);
  }
  builder_bytes_t file = program.file;
  program.file.data = NULL; /* which the module uses in place */
  harness_unload(&program);
  harness_release(&own);
  EXPECT_OK(ingot_fence_signal(begin, 1));
  EXPECT_OK(ingot_fence_wait(end, 2, INGOT_FOREVER));
  EXPECT(y[0][3] == 5 && y[1][3] == 5);
  ingot_fence_release(begin);
  ingot_fence_release(end);
  free(file.data);
}

/* As soon as a fence is reached nothing is left to free but what the application holds. */
TEST(nothing_is_left_when_the_fence_is_reached) {
  for (int round = 0; round < 50; ++round) {
    test_allocator_t counter = {.fail_at = 0};
    const ingot_allocator_t allocator = test_allocator(&counter);
    harness_t own;
    harness_program_t program;
    ingot_fence_t *fence = NULL;
    float x[4] = {1, 2, 3, 4};
    one_t one;
    REQUIRE_OK(harness_create(&allocator, &own));
    REQUIRE_OK(harness_load(&own, builder_add_one_module(), NULL, &program));
    REQUIRE_OK(ingot_fence_create(own.instance, 0, &fence));
    set_up(&one, harness_view(&own, x, INGOT_DTYPE_F32, 4), NULL, fence, 1);
    EXPECT_OK(submit(program.session, &one));
    EXPECT_OK(ingot_fence_wait(fence, 1, INGOT_FOREVER));
    ingot_fence_release(fence);
    ingot_buffer_view_release(one.argument);
    ingot_buffer_view_release(one.result);
    harness_unload(&program);
    harness_release(&own);
    EXPECT_EQUAL(counter.live, 0);
  }
}

static ingot_status_t load_and_submit(const ingot_allocator_t *allocator) {
  harness_t own;
  harness_program_t program = {.module = NULL};
  float x[4] = {1, 2, 3, 4};
  one_t one = {.argument = NULL};
  ingot_fence_t *fence = NULL, *again = NULL;
  ingot_status_t status = harness_create(allocator, &own);
  if (!status) status = harness_load(&own, builder_add_one_module(), NULL, &program);
  if (!status) status = ingot_fence_create(own.instance, 0, &fence);
  if (!status) status = ingot_fence_create(own.instance, 0, &again);
  if (!status) {
    int64_t four = 4;
    status = ingot_buffer_view_wrap(own.device, x, sizeof(x), INGOT_DTYPE_F32, 1, &four, NULL, NULL,
                                    &one.argument);
  }
  if (!status) {
    set_up(&one, one.argument, NULL, fence, 1)->submission.options.timeout = 60000 * MILLISECOND;
    status = submit(program.session, &one);
    if (!status) status = ingot_fence_wait(fence, 1, INGOT_FOREVER);
    if (status) { /* the session stays usable */
      set_up(&one, one.argument, NULL, again, 1);
      EXPECT_OK(submit(program.session, &one));
      EXPECT_OK(ingot_fence_wait(again, 1, INGOT_FOREVER));
    }
  }
  ingot_buffer_view_release(one.result);
  ingot_buffer_view_release(one.argument);
  ingot_fence_release(fence);
  ingot_fence_release(again);
  harness_unload(&program);
  harness_release(&own);
  return status;
}

TEST(every_allocation_may_fail) { test_fail_each_allocation(load_and_submit, 20); }

/* -- all of it at once ------------------------------------------------------------------------- */

static void *submit_often(void *argument) {
  enum { ROUNDS = 300 };
  ingot_session_t *session = argument;
  ingot_fence_t *fence = new_fence();
  for (uint64_t round = 0; round < ROUNDS; ++round) {
    sum_t sum;
    told_t told = {0};
    uint64_t number = 0;
    set_up_sum(&sum, round % 7 == 3 ? ENDLESS : 20, NULL, 0);
    if (round % 5 == 1) set_wait(&sum.one, fence, round);
    if (round % 3 == 1) sum.one.submission.options.timeout = MILLISECOND / 4;
    sum.one.submission.done = note;
    sum.one.submission.user = &told;
    ingot_status_t status = ingot_session_submit(session, &sum.one.submission, &number);
    bool is_late = ingot_status_code(status) == INGOT_STATUS_DEADLINE_EXCEEDED;
    if (!is_late) EXPECT_OK(status);
    else ingot_status_free(status);
    EXPECT_OK(ingot_fence_signal(fence, round + 1));
    while (!is_late && told.count == 0) (void)ingot_session_cancel(session, number);
    EXPECT(told.code == INGOT_STATUS_OK ? sum.y == 210 || is_late : sum.y == -1);
    release_sum(&sum);
  }
  ingot_fence_release(fence);
  return NULL;
}

TEST(threads_submit_and_cancel_on_one_session) {
  enum { THREADS = 3 };
  pthread_t threads[THREADS];
  for (int t = 0; t < THREADS; ++t) {
    REQUIRE(pthread_create(&threads[t], NULL, submit_often, summer.session) == 0);
  }
  for (int t = 0; t < THREADS; ++t) EXPECT_EQUAL(pthread_join(threads[t], NULL), 0);
}

int main(void) {
  ingot_status_t status = harness_create(NULL, &harness);
  if (!status) status = harness_load(&harness, builder_add_one_module(), NULL, &adder);
  if (!status) status = harness_load(&harness, builder_sum_module(), NULL, &summer);
  if (status) {
    printf("%s\n", ingot_status_message(status));
    return 1;
  }
  RUN_TESTS();
  harness_unload(&summer);
  harness_unload(&adder);
  harness_release(&harness);
  return TEST_RESULT();
}
