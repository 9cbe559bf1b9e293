/* The instance's log: lines for people, about what went another way than they may expect.
 *
 * Failures are statuses, never log lines.
 */
#ifndef INGOT_BASE_LOG_H_
#define INGOT_BASE_LOG_H_

#include "base/status.h"

typedef struct ingot_log_t {
  ingot_log_function_t function; /* NULL: nobody listens */
  void *user;
} ingot_log_t;

/* One printf-formatted line, cut at 511 bytes. `severity`: INGOT_LOG_*. Allocates nothing. */
#if defined(INGOT_STRIP_MESSAGES)
#define ingot_log(log, severity, ...) ((void)(log), INGOT_NO_MESSAGE(__VA_ARGS__))
#else
void ingot_log(const ingot_log_t *log, int32_t severity, const char *format, ...)
    INGOT_PRINTF(3, 4);
#endif

#endif /* INGOT_BASE_LOG_H_ */
