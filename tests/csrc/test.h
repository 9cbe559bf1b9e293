/* The test header of the C tests: assertions that print and count, nothing more.
 *
 *   TEST(adding_wraps_nothing) { EXPECT(1 + 1 == 2); }
 *   int main(void) {
 *     RUN_TESTS();
 *     return TEST_RESULT();
 *   }
 *
 * The tests of a file run in the order in which they stand there. A failed EXPECT prints and goes
 * on; main returns 1 if any failed. One file is one program, named *_test.c, so the counter and the
 * list may be static variables here.
 */
#ifndef INGOT_TESTS_TEST_H_
#define INGOT_TESTS_TEST_H_

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ingot/ingot.h"

static int test_failures = 0;
static const char *test_name = "";

typedef struct test_t {
  const char *name;
  void (*run)(void);
  int line;
  struct test_t *next;
} test_t;

static test_t *test_first = NULL;

/* Constructors may run in any order. */
static inline void test_add(test_t *test) {
  test_t **at = &test_first;
  while (*at && (*at)->line < test->line) at = &(*at)->next;
  test->next = *at;
  *at = test;
}

#define TEST(function)                                            \
  static void function(void);                                     \
  __attribute__((constructor)) static void add_##function(void) { \
    static test_t test = {#function, function, __LINE__, NULL};   \
    test_add(&test);                                              \
  }                                                               \
  static void function(void)

#define RUN_TESTS()                                                    \
  do {                                                                 \
    if (test_first == NULL) FAIL("there is no test");                  \
    for (test_t *test = test_first; test != NULL; test = test->next) { \
      test_name = test->name;                                          \
      test->run();                                                     \
    }                                                                  \
  } while (0)

#define TEST_RESULT() (test_failures == 0 ? 0 : (printf("%d failed\n", test_failures), 1))

#define FAIL(...)                                         \
  do {                                                    \
    test_failures++;                                      \
    printf("%s:%d: %s: ", __FILE__, __LINE__, test_name); \
    printf(__VA_ARGS__);                                  \
    printf("\n");                                         \
  } while (0)

#define EXPECT(condition)                              \
  do {                                                 \
    if (!(condition)) FAIL("expected %s", #condition); \
  } while (0)

/* As EXPECT, but leaves the test function: what follows would make no sense. */
#define REQUIRE(condition)             \
  do {                                 \
    if (!(condition)) {                \
      FAIL("required %s", #condition); \
      return;                          \
    }                                  \
  } while (0)

#define EXPECT_EQUAL(got, expected)                                                \
  do {                                                                             \
    int64_t test_got = (int64_t)(got), test_expected = (int64_t)(expected);        \
    if (test_got != test_expected) {                                               \
      FAIL("%s is %" PRId64 ", expected %" PRId64, #got, test_got, test_expected); \
    }                                                                              \
  } while (0)

#define EXPECT_TEXT(got, expected)                                                               \
  do {                                                                                           \
    const char *test_text = (got);                                                               \
    if (!test_text || strcmp(test_text, (expected)) != 0) {                                      \
      FAIL("%s is \"%s\", expected \"%s\"", #got, test_text ? test_text : "(null)", (expected)); \
    }                                                                                            \
  } while (0)

/* Success; the status is freed. */
#define EXPECT_OK(expression)                                                               \
  do {                                                                                      \
    ingot_status_t test_status = (expression);                                              \
    if (test_status) FAIL("%s failed: %s", #expression, ingot_status_message(test_status)); \
    ingot_status_free(test_status);                                                         \
  } while (0)

/* As EXPECT_OK, but leaves the test function on failure. */
#define REQUIRE_OK(expression)                                               \
  do {                                                                       \
    ingot_status_t test_status = (expression);                               \
    if (test_status) {                                                       \
      FAIL("%s failed: %s", #expression, ingot_status_message(test_status)); \
      ingot_status_free(test_status);                                        \
      return;                                                                \
    }                                                                        \
  } while (0)

/* A failure with `code` (as INVALID_ARGUMENT) whose message contains `text`; freed. */
#define EXPECT_STATUS(expression, code, text)                                               \
  do {                                                                                      \
    ingot_status_t test_status = (expression);                                              \
    if (ingot_status_code(test_status) != INGOT_STATUS_##code ||                            \
        !strstr(ingot_status_message(test_status), (text))) {                               \
      FAIL("%s gave %d \"%s\", expected " #code " with \"%s\"", #expression,                \
           (int)ingot_status_code(test_status), ingot_status_message(test_status), (text)); \
    }                                                                                       \
    ingot_status_free(test_status);                                                         \
  } while (0)

#if defined(INGOT_SANITIZE)
/* Memory that is not there is NULL here too. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
#endif

/* An allocator that counts its blocks and fails once, at allocation number `fail_at` (from
 * 1; 0: never). */
typedef struct test_allocator_t {
  _Atomic int64_t live;        /* blocks not freed yet */
  _Atomic int64_t allocations; /* that were asked for so far */
  int64_t fail_at;
} test_allocator_t;

static inline void *test_allocator_resize(void *user, void *pointer, size_t length) {
  test_allocator_t *counter = user;
  if (length == 0) {
    if (pointer) counter->live--;
    free(pointer);
    return NULL;
  }
  if (++counter->allocations == counter->fail_at) return NULL;
  void *result = realloc(pointer, length);
  if (result && !pointer) counter->live++;
  return result;
}

static inline ingot_allocator_t test_allocator(test_allocator_t *counter) {
  ingot_allocator_t allocator = {counter, test_allocator_resize};
  return allocator;
}

/* `work` with a failure at each of its allocations in turn, which are more than `least`: it succeeds
 * or is OutOfMemory, and frees all. */
static inline void test_fail_each_allocation(ingot_status_t (*work)(const ingot_allocator_t *),
                                             int64_t least) {
  int64_t fail_at = 1;
  for (bool is_reached = true; is_reached; ++fail_at) {
    test_allocator_t counter = {.fail_at = fail_at};
    const ingot_allocator_t allocator = test_allocator(&counter);
    ingot_status_t status = work(&allocator);
    is_reached = counter.allocations >= fail_at;
    if (is_reached && status) {
      EXPECT_EQUAL(ingot_status_code(status), INGOT_STATUS_OUT_OF_MEMORY);
    }
    if (!is_reached && status) FAIL("without a failure: %s", ingot_status_message(status));
    ingot_status_free(status);
    if (counter.live != 0) {
      FAIL("allocation %" PRId64 ": %" PRId64 " blocks leaked", fail_at, counter.live);
    }
  }
  EXPECT(fail_at > least);
}

/* Gives no block above 16 MB: a changed size must not fill the machine's memory. */
static inline void *test_resize_small(void *user, void *pointer, size_t length) {
  (void)user;
  if (length > (size_t)1 << 24) return NULL;
  if (length > 0) return realloc(pointer, length);
  free(pointer);
  return NULL;
}

/* The next number of xorshift; the state is not 0. */
static inline uint64_t test_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

#endif /* INGOT_TESTS_TEST_H_ */
