/* Formatting of log lines. */
#include "base/log.h"

#if !defined(INGOT_STRIP_MESSAGES)
#include <stdio.h>

void ingot_log(const ingot_log_t *log, int32_t severity, const char *format, ...) {
  char message[512];
  va_list arguments;
  if (!log->function) return;
  va_start(arguments, format);
  (void)vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  log->function(log->user, severity, message);
}
#endif
