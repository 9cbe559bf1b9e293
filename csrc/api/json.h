/* A strict reader of JSON text, value by value, without a tree: the caller asks for what it
 * expects. Anything that is not RFC 8259, or not what was asked for, is a DataLoss status
 * with the position.
 */
#ifndef INGOT_API_JSON_H_
#define INGOT_API_JSON_H_

#include "base/allocator.h"

typedef struct ingot_json_t {
  const ingot_allocator_t *allocator; /* of messages */
  const uint8_t *text;
  size_t length;
  size_t position;
} ingot_json_t;

/* The next token must be `symbol`, one of { } [ ] : and comma. */
ingot_status_t ingot_json_expect(ingot_json_t *json, char symbol);

/* Takes `symbol` if it is next. */
bool ingot_json_take(ingot_json_t *json, char symbol);

/* Before each item of an object or array that ends in `end`, whose opening has been taken:
 * *out_more tells whether there is one; commas and the end are taken. */
ingot_status_t ingot_json_next(ingot_json_t *json, char end, bool first, bool *out_more);

/* The same for an object, with the key of its next member; what follows is the value. */
ingot_status_t ingot_json_member(ingot_json_t *json, bool first, char *out_key, size_t capacity,
                                 bool *out_more);

/* A string; escapes become UTF-8. `out_text` has room for `capacity` bytes with the NUL. A
 * longer string and one with U+0000 are DataLoss. It is skipped where `out_text` is NULL. */
ingot_status_t ingot_json_string(ingot_json_t *json, char *out_text, size_t capacity);

/* A non-negative integer that fits int64_t. */
ingot_status_t ingot_json_size(ingot_json_t *json, int64_t *out_value);

/* Any value, checked and dropped. */
ingot_status_t ingot_json_skip(ingot_json_t *json);

/* Only white space may be left. */
ingot_status_t ingot_json_end(ingot_json_t *json);

#endif /* INGOT_API_JSON_H_ */
