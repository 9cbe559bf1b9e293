/* Builds kernel objects with the C compiler while a test runs.
 */
#ifndef INGOT_TESTS_OBJECT_H_
#define INGOT_TESTS_OBJECT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct test_object_t {
  uint8_t *data; /* NULL if it could not be built; the compiler has said why */
  size_t length;
} test_object_t;

/* The conformance suite's kernels (tests/cts/kernels.c) with the flags of generated code. */
test_object_t test_object_build_kernels(void);

/* The same for C text, with more flags ("" for none). */
test_object_t test_object_build_text(const char *text, const char *flags);

/* A file's bytes. */
test_object_t test_object_read(const char *path);

void test_object_free(test_object_t *object);

#endif /* INGOT_TESTS_OBJECT_H_ */
