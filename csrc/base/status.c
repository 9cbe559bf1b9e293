/* Statuses, their messages and the static out-of-memory status. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "platform/platform.h"

struct ingot_status_object_t {
  ingot_allocator_t allocator; /* of this object */
  ingot_reference_count_t references;
  ingot_status_code_t code;
  const char *message; /* behind the object, but for the static one */
};

#if defined(INGOT_STRIP_MESSAGES)

static const struct ingot_status_object_t ingot_static_statuses[] = {
#define STATUS(number, ENUM, name) {.code = (number), .message = name},
#include "ingot/spec/status.def"
#undef STATUS
};

ingot_status_t ingot_status_of(ingot_status_code_t code) {
  uint32_t place = 0;
  while (ingot_static_statuses[place].code != code) ++place;
  return (ingot_status_t)(uintptr_t)&ingot_static_statuses[place];
}

ingot_status_t ingot_status_out_of_memory(void) {
  return ingot_status_of(INGOT_STATUS_OUT_OF_MEMORY);
}

ingot_status_t ingot_status_retain(ingot_status_t status) { return status; }

void ingot_status_free(ingot_status_t status) { (void)status; }

#else

static const struct ingot_status_object_t ingot_status_no_memory = {
    .code = INGOT_STATUS_OUT_OF_MEMORY,
#if defined(INGOT_NO_MALLOC)
    .message =
        "out of memory: the allocator returned NULL; this runtime was built without one of "
        "its own, so the instance's options must name it",
#else
    .message = "out of memory: the allocator returned NULL",
#endif
};

ingot_status_t ingot_status_out_of_memory(void) {
  /* Never written: ingot_status_free compares the address first. */
  return (ingot_status_t)(uintptr_t)&ingot_status_no_memory;
}

/* An object with room for `length` bytes and a NUL in *out_text; NULL without memory. */
static ingot_status_t ingot_status_allocate(const ingot_allocator_t *allocator,
                                            ingot_status_code_t code, size_t length,
                                            char **out_text) {
  ingot_status_t status = allocator->resize(allocator->user, NULL, sizeof(*status) + length + 1);
  if (!status) return NULL;
  *out_text = (char *)(status + 1);
  status->allocator = *allocator;
  ingot_reference_count_initialize(&status->references);
  status->code = code;
  status->message = *out_text;
  return status;
}

ingot_status_t ingot_status_create_variadic(const ingot_allocator_t *allocator,
                                            ingot_status_code_t code, const char *format,
                                            va_list arguments) {
  va_list copy;
  va_copy(copy, arguments);
  int length = vsnprintf(NULL, 0, format, copy);
  va_end(copy);
  size_t text_length = length > 0 ? (size_t)length : 0;
  char *text;
  ingot_status_t status = ingot_status_allocate(allocator, code, text_length, &text);
  if (!status) return ingot_status_out_of_memory();
  text[0] = 0;
  (void)vsnprintf(text, text_length + 1, format, arguments);
  return status;
}

ingot_status_t ingot_status_create(const ingot_allocator_t *allocator, ingot_status_code_t code,
                                   const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  ingot_status_t status = ingot_status_create_variadic(allocator, code, format, arguments);
  va_end(arguments);
  return status;
}

ingot_status_t ingot_status_retain(ingot_status_t status) {
  if (status && status != ingot_status_out_of_memory()) {
    ingot_reference_count_retain(&status->references);
  }
  return status;
}

ingot_status_t ingot_status_prefix(ingot_status_t status, const char *format, ...) {
  if (!status || status == ingot_status_out_of_memory()) return status;
  va_list arguments;
  va_start(arguments, format);
  ingot_status_t prefix =
      ingot_status_create_variadic(&status->allocator, status->code, format, arguments);
  va_end(arguments);
  if (prefix == ingot_status_out_of_memory()) return status;
  ingot_status_t result = ingot_status_create(&status->allocator, status->code, "%s: %s",
                                              prefix->message, status->message);
  ingot_status_free(prefix);
  if (result == ingot_status_out_of_memory()) return status;
  ingot_status_free(status);
  return result;
}

void ingot_status_free(ingot_status_t status) {
  if (!status || status == ingot_status_out_of_memory()) return;
  if (!ingot_reference_count_release(&status->references)) return;
  ingot_allocator_t allocator = status->allocator;
  (void)allocator.resize(allocator.user, status, 0);
}

#endif /* INGOT_STRIP_MESSAGES */

ingot_status_code_t ingot_status_code(ingot_status_t status) {
  return status ? status->code : INGOT_STATUS_OK;
}

const char *ingot_status_message(ingot_status_t status) { return status ? status->message : ""; }

const char *ingot_status_code_name(ingot_status_code_t code) {
  static const char names[] = "OK\0" /* by code, which have no gaps */
#define STATUS(number, ENUM, name) name "\0"
#include "ingot/spec/status.def"
#undef STATUS
      ;
  const char *name = names;
  for (uint32_t i = 0; i < (uint32_t)code && *name; ++i) name += strlen(name) + 1;
  return *name ? name : NULL;
}
