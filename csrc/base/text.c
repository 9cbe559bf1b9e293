/* Appending to texts, and taking them apart. */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

bool ingot_text_take(const char **text, const char *piece) {
  size_t length = strlen(piece);
  bool found = strncmp(*text, piece, length) == 0;
  *text += found ? length : 0;
  return found;
}

#if !defined(INGOT_STRIP_MESSAGES)
bool ingot_text_add(char *text, size_t capacity, const char *format, ...) {
  size_t length = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  int added = vsnprintf(text + length, capacity - length, format, arguments);
  va_end(arguments);
  return added >= 0 && (size_t)added < capacity - length;
}
#endif
