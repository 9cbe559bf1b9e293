/* The JSON reader: tokens, strings with escapes, sizes, and skipping of whole values.
 */
#include "platform/platform.h"

#if !defined(INGOT_NO_FILES)
#include "api/json.h"

#include <string.h>

#include "base/arithmetic.h"

#define MAX_DEPTH 64

static ingot_status_t json_refuse(const ingot_json_t *json, const char *what) {
  return ingot_status_create(json->allocator, INGOT_STATUS_DATA_LOSS, "JSON, byte %zu: expected %s",
                             json->position, what);
}

/* The byte at the position, 0 at the end; JSON text has no byte 0. */
static uint8_t peek(const ingot_json_t *json) {
  return json->position < json->length ? json->text[json->position] : 0;
}

static void skip_space(ingot_json_t *json) {
  while (peek(json) == ' ' || peek(json) == '\t' || peek(json) == '\n' || peek(json) == '\r') {
    ++json->position;
  }
}

bool ingot_json_take(ingot_json_t *json, char symbol) {
  skip_space(json);
  if (peek(json) != (uint8_t)symbol) return false;
  ++json->position;
  return true;
}

ingot_status_t ingot_json_expect(ingot_json_t *json, char symbol) {
  if (ingot_json_take(json, symbol)) return NULL;
  char text[4] = {'\'', symbol, '\'', 0};
  return json_refuse(json, text);
}

ingot_status_t ingot_json_next(ingot_json_t *json, char end, bool first, bool *out_more) {
  *out_more = !ingot_json_take(json, end);
  if (!*out_more || first) return NULL;
  return ingot_json_expect(json, ',');
}

/* -- strings ----------------------------------------------------------------------------------- */

static ingot_status_t read_hex(ingot_json_t *json, uint32_t *out_value) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    uint8_t digit = peek(json);
    if (digit >= '0' && digit <= '9') value = value * 16 + (digit - '0');
    else if (digit >= 'a' && digit <= 'f') value = value * 16 + (digit - 'a' + 10u);
    else if (digit >= 'A' && digit <= 'F') value = value * 16 + (digit - 'A' + 10u);
    else return json_refuse(json, "four hexadecimal digits");
    ++json->position;
  }
  *out_value = value;
  return NULL;
}

/* A code point behind \u, with the second half of a surrogate pair. */
static ingot_status_t read_code_point(ingot_json_t *json, uint32_t *out_point) {
  uint32_t high = 0;
  uint32_t low = 0;
  INGOT_TRY(read_hex(json, &high));
  *out_point = high;
  if (high == 0) return json_refuse(json, "a character other than U+0000");
  if (high < 0xD800 || high > 0xDFFF) return NULL;
  bool pair = high < 0xDC00 && json->length - json->position >= 2 &&
              json->text[json->position] == '\\' && json->text[json->position + 1] == 'u';
  if (pair) {
    json->position += 2;
    INGOT_TRY(read_hex(json, &low));
  }
  if (low < 0xDC00 || low > 0xDFFF) return json_refuse(json, "a surrogate pair");
  *out_point = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  return NULL;
}

static size_t encode_utf8(uint32_t point, char *out_text) {
  size_t count = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  static const uint8_t leads[5] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = count; i-- > 1; point >>= 6) out_text[i] = (char)(0x80 | (point & 0x3F));
  out_text[0] = (char)(leads[count] | point);
  return count;
}

/* The character behind a backslash, as a code point. */
static ingot_status_t read_escape(ingot_json_t *json, uint32_t *out_point) {
  static const char letters[] = "\"\\/bfnrt";
  static const char values[] = "\"\\/\b\f\n\r\t";
  uint8_t letter = peek(json);
  json->position += letter != 0; /* never behind the end */
  if (letter == 'u') return read_code_point(json, out_point);
  const char *found = letter ? strchr(letters, letter) : NULL;
  if (!found) return json_refuse(json, "an escape character");
  *out_point = (uint32_t)values[found - letters];
  return NULL;
}

ingot_status_t ingot_json_string(ingot_json_t *json, char *out_text, size_t capacity) {
  size_t length = 0;
  INGOT_TRY(ingot_json_expect(json, '"'));
  for (;;) {
    char bytes[4];
    size_t count = 1;
    uint8_t byte = peek(json);
    if (byte < 0x20) return json_refuse(json, "the end of the string");
    ++json->position;
    if (byte == '"') break;
    bytes[0] = (char)byte;
    if (byte == '\\') {
      uint32_t point = 0;
      INGOT_TRY(read_escape(json, &point));
      count = encode_utf8(point, bytes);
    }
    if (!out_text) continue;
    if (length + count >= capacity) return json_refuse(json, "a shorter string");
    memcpy(out_text + length, bytes, count);
    length += count;
  }
  if (out_text) out_text[length] = 0;
  return NULL;
}

ingot_status_t ingot_json_member(ingot_json_t *json, bool first, char *out_key, size_t capacity,
                                 bool *out_more) {
  INGOT_TRY(ingot_json_next(json, '}', first, out_more));
  if (!*out_more) return NULL;
  INGOT_TRY(ingot_json_string(json, out_key, capacity));
  return ingot_json_expect(json, ':');
}

/* -- other values ------------------------------------------------------------------------------ */

ingot_status_t ingot_json_size(ingot_json_t *json, int64_t *out_value) {
  skip_space(json);
  int64_t value = 0;
  size_t start = json->position;
  for (uint8_t digit = peek(json); digit >= '0' && digit <= '9'; digit = peek(json)) {
    if (!ingot_multiply_i64(value, 10, &value) || !ingot_add_i64(value, digit - '0', &value)) {
      return json_refuse(json, "a number below 2^63");
    }
    ++json->position;
  }
  size_t digits = json->position - start;
  if (digits == 0 || (digits > 1 && json->text[start] == '0')) {
    return json_refuse(json, "a non-negative integer");
  }
  *out_value = value;
  return NULL;
}

static bool skip_digits(ingot_json_t *json) {
  size_t start = json->position;
  while (peek(json) >= '0' && peek(json) <= '9') ++json->position;
  return json->position > start;
}

static ingot_status_t skip_number(ingot_json_t *json) {
  if (peek(json) == '-') ++json->position;
  bool zero = peek(json) == '0';
  size_t start = json->position;
  bool valid = skip_digits(json) && !(zero && json->position - start > 1);
  if (valid && peek(json) == '.') {
    ++json->position;
    valid = skip_digits(json);
  }
  if (valid && (peek(json) | 0x20) == 'e') {
    ++json->position;
    if (peek(json) == '+' || peek(json) == '-') ++json->position;
    valid = skip_digits(json);
  }
  return valid ? NULL : json_refuse(json, "a value");
}

static ingot_status_t skip_scalar(ingot_json_t *json) {
  static const char words[3][6] = {"true", "false", "null"};
  if (peek(json) == '"') return ingot_json_string(json, NULL, 0);
  for (int i = 0; i < 3; ++i) {
    size_t length = strlen(words[i]);
    if (json->length - json->position < length) continue;
    if (memcmp(json->text + json->position, words[i], length) != 0) continue;
    json->position += length;
    return NULL;
  }
  return skip_number(json);
}

ingot_status_t ingot_json_skip(ingot_json_t *json) {
  char ends[MAX_DEPTH]; /* of the open objects and arrays */
  int depth = 0;
  bool first = true;
  do {
    bool more = true;
    if (depth > 0) INGOT_TRY(ingot_json_next(json, ends[depth - 1], first, &more));
    if (!more) {
      --depth;
      first = false;
      continue;
    }
    if (depth > 0 && ends[depth - 1] == '}') {
      INGOT_TRY(ingot_json_string(json, NULL, 0));
      INGOT_TRY(ingot_json_expect(json, ':'));
    }
    bool object = ingot_json_take(json, '{');
    first = object || ingot_json_take(json, '[');
    if (!first) {
      INGOT_TRY(skip_scalar(json));
    } else if (depth == MAX_DEPTH) {
      return json_refuse(json, "less nesting");
    } else {
      ends[depth++] = object ? '}' : ']';
    }
  } while (depth > 0);
  return NULL;
}

ingot_status_t ingot_json_end(ingot_json_t *json) {
  skip_space(json);
  return json->position == json->length ? NULL : json_refuse(json, "the end");
}

#endif /* INGOT_NO_FILES */
