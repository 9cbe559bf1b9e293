/* The monotonic clock of the operating system. */
#if !defined(_GNU_SOURCE) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* clock_gettime under -std=c11 */
#endif
#include "base/clock.h"

#include <time.h>

static int64_t read_clock(clockid_t clock) {
  struct timespec now;
  (void)clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t ingot_clock(void) { return read_clock(CLOCK_MONOTONIC); }

int64_t ingot_clock_tick(void) {
#if defined(CLOCK_MONOTONIC_COARSE)
  return read_clock(CLOCK_MONOTONIC_COARSE);
#else
  return read_clock(CLOCK_MONOTONIC);
#endif
}
