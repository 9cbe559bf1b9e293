/* Texts that are written and read piece by piece. */
#ifndef INGOT_BASE_TEXT_H_
#define INGOT_BASE_TEXT_H_

#include "base/status.h"

/* Appends to what `text` holds; what does not fit in `capacity` bytes with the NUL is cut. Whether all
 * of it fits. */
#if defined(INGOT_STRIP_MESSAGES)
#define ingot_text_add(text, capacity, ...) \
  ((void)(text), (void)(capacity), INGOT_NO_MESSAGE(__VA_ARGS__), true)
#else
bool ingot_text_add(char *text, size_t capacity, const char *format, ...) INGOT_PRINTF(3, 4);
#endif

/* Moves *text behind `piece` if it begins with that. */
bool ingot_text_take(const char **text, const char *piece);

#endif /* INGOT_BASE_TEXT_H_ */
