/* The four memory functions that compilers call on their own, for one file of an executable.
 *
 * They are hidden: an executable imports and exports none of them. Compilers would turn
 * the loops back into calls of themselves, hence the empty asm.
 */
#include <stddef.h>

#define INGOT_KEEP_LOOP __asm__ volatile("" ::: "memory")

void *memcpy(void *restrict target, const void *restrict source,
                                   size_t length) {
  unsigned char *to = target;
  const unsigned char *from = source;
  for (size_t at = 0; at < length; ++at) {
    to[at] = from[at];
    INGOT_KEEP_LOOP;
  }
  return target;
}

void *memmove(void *target, const void *source, size_t length) {
  unsigned char *to = target;
  const unsigned char *from = source;
  if (to <= from) {
    for (size_t at = 0; at < length; ++at) {
      to[at] = from[at];
      INGOT_KEEP_LOOP;
    }
  } else {
    for (size_t at = length; at > 0; --at) {
      to[at - 1] = from[at - 1];
      INGOT_KEEP_LOOP;
    }
  }
  return target;
}

void *memset(void *target, int value, size_t length) {
  unsigned char *to = target;
  for (size_t at = 0; at < length; ++at) {
    to[at] = (unsigned char)value;
    INGOT_KEEP_LOOP;
  }
  return target;
}

int memcmp(const void *a, const void *b, size_t length) {
  const unsigned char *left = a, *right = b;
  for (size_t at = 0; at < length; ++at) {
    if (left[at] != right[at]) {
      return left[at] < right[at] ? -1 : 1;
    }
    INGOT_KEEP_LOOP;
  }
  return 0;
}
