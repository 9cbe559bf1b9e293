/* What the runtime uses of <stdlib.h>: see string.h. There is no allocator. */
#ifndef INGOT_PLATFORM_FREESTANDING_STDLIB_H_
#define INGOT_PLATFORM_FREESTANDING_STDLIB_H_

#include <stddef.h>

#define qsort ingot_bare_qsort

void qsort(void *items, size_t count, size_t length,
           int (*compare)(const void *left, const void *right));

#endif /* INGOT_PLATFORM_FREESTANDING_STDLIB_H_ */
