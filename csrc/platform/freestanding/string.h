/* What the runtime uses of <string.h>, for compilers that come without a C library: put this folder
 * on the include path. The first four are the program's or the compiler's own library's, as
 * every freestanding C asks for them.
 */
#ifndef INGOT_PLATFORM_FREESTANDING_STRING_H_
#define INGOT_PLATFORM_FREESTANDING_STRING_H_

#include <stddef.h>

void *memcpy(void *restrict target, const void *restrict source, size_t length);
void *memmove(void *target, const void *source, size_t length);
void *memset(void *target, int value, size_t length);
int memcmp(const void *left, const void *right, size_t length);

/* Macros, so that a program may have functions of these names. */
#define strlen ingot_bare_strlen
#define strcmp ingot_bare_strcmp
#define strncmp ingot_bare_strncmp
#define strchr ingot_bare_strchr
#define strrchr ingot_bare_strrchr
#define strpbrk ingot_bare_strpbrk
#define strstr ingot_bare_strstr
#define strcspn ingot_bare_strcspn
#define memchr ingot_bare_memchr

size_t strlen(const char *text);
int strcmp(const char *left, const char *right);
int strncmp(const char *left, const char *right, size_t length);
char *strchr(const char *text, int character);
char *strrchr(const char *text, int character);
char *strpbrk(const char *text, const char *stops);
char *strstr(const char *text, const char *part);
size_t strcspn(const char *text, const char *stops);
void *memchr(const void *data, int value, size_t length);

#endif /* INGOT_PLATFORM_FREESTANDING_STRING_H_ */
