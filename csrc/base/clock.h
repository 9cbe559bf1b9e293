/* The monotonic clock: for deadlines, spinning and traces. */
#ifndef INGOT_BASE_CLOCK_H_
#define INGOT_BASE_CLOCK_H_

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds since some time in the past. */
int64_t ingot_clock(void);

/* Whether a deadline of that clock has passed; 0 is no deadline, and costs nothing. */
static inline bool ingot_clock_is_past(int64_t deadline) {
  return deadline != 0 && ingot_clock() > deadline;
}

#endif /* INGOT_BASE_CLOCK_H_ */
