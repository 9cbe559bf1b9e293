/* Statuses: how a function says that it failed, and why.
 *
 * An ingot_status_t is NULL on success, else an object with a code and a message that
 * whoever receives it must free or pass on. The public header declares the type, the
 * codes (spec/status.def) and ingot_status_code, _message, _free and _code_name, which
 * status.c defines; here is what the runtime needs to make statuses.
 */
#ifndef INGOT_BASE_STATUS_H_
#define INGOT_BASE_STATUS_H_

#include <stdarg.h>

#include "base/parts.h"
#include "ingot/ingot.h"

#if defined(__GNUC__)
#define INGOT_PRINTF(format_ordinal, first_ordinal) \
  __attribute__((format(printf, format_ordinal, first_ordinal)))
#else
#define INGOT_PRINTF(format_ordinal, first_ordinal)
#endif

/* Leaves the calling function with the status of `expression` unless it is success.
 * The only control macro. Where something must be undone, use a status variable and one
 * `cleanup:` label instead. */
#define INGOT_TRY(expression)                       \
  do {                                              \
    ingot_status_t ingot_try_status = (expression); \
    if (ingot_try_status) return ingot_try_status;  \
  } while (0)

#if defined(INGOT_STRIP_MESSAGES)

/* The static status of a code: freeing it does nothing, any number may be held. */
ingot_status_t ingot_status_of(ingot_status_code_t code);

/* Messages are compiled and never made, so that the program has neither them nor what they need. */
int ingot_status_no_message(const char *format, ...) INGOT_PRINTF(1, 2);
#define INGOT_NO_MESSAGE(...) ((void)(false && ingot_status_no_message(__VA_ARGS__)))
#define ingot_status_create(allocator, code, ...) \
  ((void)(allocator), INGOT_NO_MESSAGE(__VA_ARGS__), ingot_status_of(code))
#define ingot_status_prefix(status, ...) (INGOT_NO_MESSAGE(__VA_ARGS__), (status))

#else

/* A status with a printf-formatted message of any length, allocated from `allocator`
 * (which the status copies, so it may outlive its maker). Where there is no memory it is
 * the static out-of-memory status instead; it is never NULL. `code` is not
 * INGOT_STATUS_OK. */
ingot_status_t ingot_status_create(const ingot_allocator_t *allocator, ingot_status_code_t code,
                                   const char *format, ...) INGOT_PRINTF(3, 4);
ingot_status_t ingot_status_create_variadic(const ingot_allocator_t *allocator,
                                            ingot_status_code_t code, const char *format,
                                            va_list arguments) INGOT_PRINTF(3, 0);

/* Takes `status` and gives back one whose message is "<formatted>: <old message>", same
 * code. NULL stays NULL; where there is no memory, `status` comes back unchanged. */
ingot_status_t ingot_status_prefix(ingot_status_t status, const char *format, ...)
    INGOT_PRINTF(2, 3);

#endif

/* The static out-of-memory status: freeing it does nothing, any number may be held. */
ingot_status_t ingot_status_out_of_memory(void);

/* The same status for another owner, who frees it too; needs no memory. NULL stays NULL. */
ingot_status_t ingot_status_retain(ingot_status_t status);

#endif /* INGOT_BASE_STATUS_H_ */
