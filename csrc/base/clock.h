/* The monotonic clock: for deadlines, spinning and traces. */
#ifndef INGOT_BASE_CLOCK_H_
#define INGOT_BASE_CLOCK_H_

#include <stdint.h>

/* Nanoseconds since some time in the past. */
int64_t ingot_clock(void);

/* The same as it was at the last tick, some milliseconds ago at most: for a third of the cost,
 * where the system has such a clock. */
int64_t ingot_clock_tick(void);

#endif /* INGOT_BASE_CLOCK_H_ */
