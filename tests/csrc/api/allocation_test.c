/* A steady-state call with the caller's own result buffer allocates nothing: malloc, calloc,
 * realloc, free, mmap and munmap of the whole process are counted while calls run.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "vm/harness.h"

#if defined(__SANITIZE_ADDRESS__)
int main(void) { return 0; } /* the sanitizer has these functions itself */
#else

static _Atomic int calls_counted;
static _Atomic bool counting;

extern void *__libc_malloc(size_t length);
extern void *__libc_calloc(size_t count, size_t length);
extern void *__libc_realloc(void *pointer, size_t length);
extern void __libc_free(void *pointer);

static void count_one(void) {
  if (counting) ++calls_counted;
}

void *malloc(size_t length) {
  count_one();
  return __libc_malloc(length);
}

void *calloc(size_t count, size_t length) {
  count_one();
  return __libc_calloc(count, length);
}

void *realloc(void *pointer, size_t length) {
  count_one();
  return __libc_realloc(pointer, length);
}

void free(void *pointer) {
  count_one();
  __libc_free(pointer);
}

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) {
  static void *(*next)(void *, size_t, int, int, int, off_t);
  count_one();
  if (!next) {
    void *symbol = dlsym(RTLD_NEXT, "mmap");
    memcpy(&next, &symbol, sizeof(next));
  }
  return next(address, length, protection, flags, file, offset);
}

/* Of 1000 calls but the first `skipped`. */
static int count_calls(ingot_session_t *session, int skipped, ingot_buffer_view_t *argument,
                       ingot_buffer_view_t **results, uint32_t result_count) {
  calls_counted = 0;
  for (int i = 0; i < 1000; ++i) {
    counting = i >= skipped;
    ingot_status_t status =
        ingot_session_call(session, 0, &argument, 1, results, result_count, NULL);
    counting = false;
    EXPECT_OK(status);
  }
  return calls_counted;
}

TEST(a_static_function_allocates_nothing) {
  harness_t harness;
  harness_program_t program;
  float x[4] = {1, 2, 3, 4};
  float y[4];
  REQUIRE_OK(harness_create(NULL, &harness));
  REQUIRE_OK(harness_load(&harness, builder_add_one_module(), NULL, &program));
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, 4);
  ingot_buffer_view_t *result = harness_view(&harness, y, INGOT_DTYPE_F32, 4);
  EXPECT_EQUAL(count_calls(program.session, 0, argument, &result, 1), 0);
  ingot_buffer_view_release(result);
  result = NULL;
  counting = true;
  EXPECT_OK(ingot_session_call(program.session, 0, &argument, 1, &result, 1, NULL));
  counting = false;
  EXPECT(calls_counted > 0); /* the counters do count */
  ingot_buffer_view_release(result);
  ingot_buffer_view_release(argument);
  harness_unload(&program);
  harness_release(&harness);
}

TEST(a_function_with_slab_calls_and_loops_allocates_nothing) {
  harness_t harness;
  harness_program_t program;
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float y[8];
  float z[4];
  REQUIRE_OK(harness_create(NULL, &harness));
  REQUIRE_OK(harness_load(&harness, builder_full_module(), &harness_parameters, &program));
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, 8);
  ingot_buffer_view_t *results[2] = {harness_view(&harness, y, INGOT_DTYPE_F32, 8),
                                     harness_view(&harness, z, INGOT_DTYPE_F32, 4)};
  EXPECT_EQUAL(count_calls(program.session, 1, argument, results, 2), 0);
  ingot_buffer_view_release(results[0]);
  ingot_buffer_view_release(results[1]);
  ingot_buffer_view_release(argument);
  harness_unload(&program);
  harness_release(&harness);
}

TEST(a_session_in_memory_of_the_application_never_allocates) {
  static uint8_t bytes[1000];
  harness_t harness;
  harness_program_t program;
  ingot_session_options_t options = {.slab = NULL};
  ingot_session_t *session = NULL;
  ingot_measure_t measure;
  float x[50] = {1};
  const int64_t dims[1] = {50};
  int64_t result_dims[1];
  REQUIRE_OK(harness_create(NULL, &harness));
  REQUIRE_OK(harness_load(&harness, builder_slab_module(), NULL, &program));
  REQUIRE_OK(ingot_session_measure(program.session, 0, dims, 1, result_dims, &measure));
  size_t length = measure.slab_length;
  REQUIRE(length + 200 < sizeof(bytes));
  REQUIRE_OK(ingot_buffer_wrap(harness.device, bytes, length, NULL, NULL, &options.slab));
  REQUIRE_OK(ingot_session_create(program.program, &options, &session));
  ingot_buffer_view_t *argument = harness_view(&harness, x, INGOT_DTYPE_F32, 50);
  ingot_buffer_view_t *result =
      harness_view(&harness, bytes + (length + 63) / 64 * 64, INGOT_DTYPE_F32, result_dims[0]);
  EXPECT_EQUAL(count_calls(session, 0, argument, &result, 1), 0);
  ingot_buffer_view_release(result);
  ingot_buffer_view_release(argument);
  ingot_session_release(session);
  ingot_buffer_release(options.slab);
  harness_unload(&program);
  harness_release(&harness);
}

int main(void) {
  RUN_TESTS();
  return TEST_RESULT();
}

#endif
