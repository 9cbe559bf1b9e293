/* What the runtime uses of <stdio.h>: see string.h. Of formats: %s %c %d %u %x %%, with l, ll or z,
 * a width with zeros in front, and a precision of texts.
 */
#ifndef INGOT_PLATFORM_FREESTANDING_STDIO_H_
#define INGOT_PLATFORM_FREESTANDING_STDIO_H_

#include <stdarg.h>
#include <stddef.h>

#define INGOT_BARE_LIBC 1 /* libc.c of this folder is compiled */

#define snprintf ingot_bare_snprintf
#define vsnprintf ingot_bare_vsnprintf

int snprintf(char *out_text, size_t capacity, const char *format, ...);
int vsnprintf(char *out_text, size_t capacity, const char *format, va_list arguments);

#endif /* INGOT_PLATFORM_FREESTANDING_STDIO_H_ */
