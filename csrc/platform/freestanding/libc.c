/* The functions of this folder's headers: short, not fast; none is on the way of a kernel. */
#include <stdio.h>

#if defined(INGOT_BARE_LIBC)

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t strlen(const char *text) {
  size_t length = 0;
  while (text[length]) length++;
  return length;
}

int strncmp(const char *left, const char *right, size_t length) {
  for (; length > 0; length--, left++, right++) {
    int difference = (int)(unsigned char)*left - (int)(unsigned char)*right;
    if (difference != 0 || !*left) return difference;
  }
  return 0;
}

int strcmp(const char *left, const char *right) { return strncmp(left, right, SIZE_MAX); }

char *strchr(const char *text, int character) {
  while (*text != (char)character) {
    if (!*text++) return NULL;
  }
  return (char *)(uintptr_t)text;
}

char *strrchr(const char *text, int character) {
  for (const char *at = text + strlen(text);; at--) {
    if (*at == (char)character) return (char *)(uintptr_t)at;
    if (at == text) return NULL;
  }
}

char *strstr(const char *text, const char *part) {
  size_t length = strlen(part);
  for (size_t left = strlen(text); left >= length; left--, text++) {
    if (memcmp(text, part, length) == 0) return (char *)(uintptr_t)text;
  }
  return NULL;
}

size_t strcspn(const char *text, const char *stops) {
  size_t length = 0;
  while (text[length] && !strchr(stops, text[length])) length++;
  return length;
}

char *strpbrk(const char *text, const char *stops) {
  text += strcspn(text, stops);
  return *text ? (char *)(uintptr_t)text : NULL;
}

void *memchr(const void *data, int value, size_t length) {
  const unsigned char *bytes = data;
  for (size_t i = 0; i < length; i++) {
    if (bytes[i] == (unsigned char)value) return (void *)(uintptr_t)(bytes + i);
  }
  return NULL;
}

/* -- sorting: a heap, which needs no memory -------------------------------------------------------- */

static void bare_swap(unsigned char *left, unsigned char *right, size_t length) {
  for (size_t i = 0; i < length; i++) {
    unsigned char byte = left[i];
    left[i] = right[i];
    right[i] = byte;
  }
}

/* Lets item `at` of a heap sink to where no child is greater. */
static void bare_sink(unsigned char *items, size_t at, size_t count, size_t length,
                      int (*compare)(const void *left, const void *right)) {
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= count) return;
    if (child + 1 < count && compare(items + child * length, items + (child + 1) * length) < 0) {
      child++;
    }
    if (compare(items + at * length, items + child * length) >= 0) return;
    bare_swap(items + at * length, items + child * length, length);
    at = child;
  }
}

void qsort(void *items, size_t count, size_t length,
           int (*compare)(const void *left, const void *right)) {
  for (size_t at = count / 2; at > 0; at--) bare_sink(items, at - 1, count, length, compare);
  for (size_t end = count; end > 1; end--) {
    bare_swap(items, (unsigned char *)items + (end - 1) * length, length);
    bare_sink(items, 0, end - 1, length, compare);
  }
}

/* -- formatting ------------------------------------------------------------------------------------ */

typedef struct bare_text_t {
  char *data;
  size_t capacity;
  size_t length; /* that it would have with room for all */
} bare_text_t;

static void bare_put(bare_text_t *text, char character) {
  if (text->length + 1 < text->capacity) text->data[text->length] = character;
  text->length++;
}

static void bare_put_number(bare_text_t *text, uint64_t number, bool is_negative, unsigned base,
                            int width, char fill) {
  char digits[20];
  int count = 0;
  do digits[count++] = "0123456789abcdef"[number % base];
  while ((number /= base) > 0);
  if (is_negative) bare_put(text, '-');
  for (int i = count + is_negative; i < width; i++) bare_put(text, fill);
  while (count > 0) bare_put(text, digits[--count]);
}

static void bare_put_text(bare_text_t *text, const char *plain, int precision) {
  for (int i = 0; i != precision && plain[i]; i++) bare_put(text, plain[i]);
}

/* What stands between '%' and the letter of the conversion. */
typedef struct bare_conversion_t {
  char fill;
  int width;
  int precision; /* -1: none */
  int long_count; /* of l; 3 for z */
} bare_conversion_t;

static int bare_read_number(const char **format) {
  int number = 0;
  while (**format >= '0' && **format <= '9') number = number * 10 + (*(*format)++ - '0');
  return number;
}

static uint64_t bare_pop(va_list *arguments, int long_count, bool is_signed, bool *is_negative) {
  int64_t value;
  *is_negative = false;
  if (!is_signed) {
    if (long_count == 3) return va_arg(*arguments, size_t);
    if (long_count == 2) return va_arg(*arguments, unsigned long long);
    return long_count ? va_arg(*arguments, unsigned long) : va_arg(*arguments, unsigned);
  }
  if (long_count >= 2) value = va_arg(*arguments, long long);
  else value = long_count ? va_arg(*arguments, long) : va_arg(*arguments, int);
  *is_negative = value < 0;
  return value < 0 ? -(uint64_t)value : (uint64_t)value;
}

/* Puts one argument; `format` stands behind the '%' and moves on. */
static void bare_convert(bare_text_t *text, const char **format, va_list *arguments) {
  bare_conversion_t form = {.fill = ' ', .precision = -1};
  bool is_negative;
  if (**format == '0') form.fill = '0';
  form.width = bare_read_number(format);
  if (**format == '.') {
    ++*format;
    if (**format == '*') form.precision = va_arg(*arguments, int);
    if (**format == '*') ++*format;
    else form.precision = bare_read_number(format);
  }
  for (; **format == 'l'; ++*format) form.long_count++;
  if (**format == 'z') form.long_count = 3;
  if (**format == 'z') ++*format;
  char letter = *(*format)++;
  if (letter == 's') {
    bare_put_text(text, va_arg(*arguments, const char *), form.precision);
  } else if (letter == 'c') {
    bare_put(text, (char)va_arg(*arguments, int));
  } else if (letter == 'd' || letter == 'u' || letter == 'x') {
    uint64_t number = bare_pop(arguments, form.long_count, letter == 'd', &is_negative);
    bare_put_number(text, number, is_negative, letter == 'x' ? 16 : 10, form.width, form.fill);
  } else {
    bare_put(text, letter); /* "%%" */
  }
}

int vsnprintf(char *out_text, size_t capacity, const char *format, va_list arguments) {
  bare_text_t text = {out_text, capacity, 0};
  va_list rest;
  va_copy(rest, arguments);
  while (*format) {
    char character = *format++;
    if (character == '%') bare_convert(&text, &format, &rest);
    else bare_put(&text, character);
  }
  va_end(rest);
  if (capacity > 0) out_text[text.length < capacity ? text.length : capacity - 1] = 0;
  return (int)text.length;
}

int snprintf(char *out_text, size_t capacity, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(out_text, capacity, format, arguments);
  va_end(arguments);
  return length;
}

#endif /* INGOT_BARE_LIBC */
