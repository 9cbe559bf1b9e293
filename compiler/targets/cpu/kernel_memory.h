/* The four memory functions that compilers call on their own, for one file of an executable.
 *
 * They are hidden: an executable imports and exports none of them. Compilers would turn
 * plain loops back into calls of themselves, hence the instructions, or else the empty asm.
 */
#include <stddef.h>

#if defined(__x86_64__)
void *memcpy(void *restrict target, const void *restrict source, size_t length) {
  void *to = target;
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(source), "+c"(length) : : "memory");
  return target;
}

void *memmove(void *target, const void *source, size_t length) {
  unsigned char *to = target;
  const unsigned char *from = source;
  if (to <= from || to >= from + length) return memcpy(target, source, length);
  to += length - 1, from += length - 1;
  __asm__ volatile("std\n\trep movsb\n\tcld" : "+D"(to), "+S"(from), "+c"(length) : : "memory");
  return target;
}

void *memset(void *target, int value, size_t length) {
  void *to = target;
  __asm__ volatile("rep stosb" : "+D"(to), "+c"(length) : "a"(value) : "memory");
  return target;
}

int memcmp(const void *a, const void *b, size_t length) {
  int order = 0; /* an addition of 0 clears the flags that no bytes would leave */
  __asm__ volatile("addl $0, %0\n\trepe cmpsb\n\tseta %b0\n\tsbbl $0, %0"
                   : "+&a"(order), "+S"(a), "+D"(b), "+c"(length)
                   :
                   : "memory", "cc");
  return order;
}
#else
#define INGOT_KEEP_LOOP __asm__ volatile("" ::: "memory")

void *memcpy(void *restrict target, const void *restrict source, size_t length) {
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
  if (to <= from) return memcpy(target, source, length);
  for (size_t at = length; at > 0; --at) {
    to[at - 1] = from[at - 1];
    INGOT_KEEP_LOOP;
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
#endif

#if defined(__arm__)
#include "kernel_arm.h"
#endif
