/* The options behind the "?" of a CPU device's URI. */
#include <stdlib.h>
#include <string.h>

#include "hal/cpu/device_options.h"

/* One "name=value"; the value ends at `end`. */
typedef struct option_t {
  const char *text;
  const char *value;
  const char *end;
} option_t;

static ingot_status_t bad_option(const ingot_allocator_t *allocator, const ingot_hal_uri_t *uri,
                                 const option_t *option, const char *expected) {
  return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                             "device '%.100s': bad option '%.60s', expected %s", uri->text,
                             option->text, expected);
}

static bool is_named(const option_t *option, const char *name) {
  size_t length = strlen(name);
  return (size_t)(option->value - option->text) == length + 1 &&
         memcmp(option->text, name, length) == 0;
}

static bool is_value(const option_t *option, const char *value) {
  size_t length = strlen(value);
  return (size_t)(option->end - option->value) == length &&
         memcmp(option->value, value, length) == 0;
}

/* A number below 10000 at *text, which moves behind it. */
static bool read_number(const char **text, uint32_t *out_number) {
  const char *start = *text;
  *out_number = 0;
  while (**text >= '0' && **text <= '9' && *text - start < 4) {
    *out_number = *out_number * 10 + (uint32_t)(*(*text)++ - '0');
  }
  return *text > start;
}

static ingot_status_t read_threads(const ingot_allocator_t *allocator, const ingot_hal_uri_t *uri,
                                   const option_t *option, ingot_hal_cpu_options_t *options) {
  const char *text = option->value;
  if (read_number(&text, &options->thread_count) && text == option->end &&
      options->thread_count >= 1 && options->thread_count <= INGOT_HAL_CPU_MAX_THREADS) {
    return NULL;
  }
  return bad_option(allocator, uri, option, "threads= and a number from 1 to 1024");
}

/* "0-3,6", all of which this process may use. */
static ingot_status_t read_affinity(const ingot_allocator_t *allocator, const ingot_hal_uri_t *uri,
                                    const option_t *option, ingot_hal_cpu_options_t *options) {
  ingot_processor_set_t usable;
  const char *text = option->value;
  if (!ingot_processors_usable(&usable)) {
    return ingot_status_create(allocator, INGOT_STATUS_UNSUPPORTED,
                               "device '%.100s': this system does not bind threads to processors; "
                               "leave affinity= out",
                               uri->text);
  }
  do {
    uint32_t first, last;
    bool is_right = read_number(&text, &first);
    last = first;
    if (is_right && *text == '-') {
      ++text;
      is_right = read_number(&text, &last) && last >= first;
    }
    if (!is_right || (text != option->end && *text != ',')) {
      return bad_option(allocator, uri, option, "affinity= and processors such as 0-3,6");
    }
    for (uint32_t p = first; p <= last; ++p) {
      if (!ingot_processor_set_has(&usable, p)) {
        return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                                   "device '%.100s': this process may not use processor %u",
                                   uri->text, p);
      }
      options->processors.words[p / 64] |= UINT64_C(1) << p % 64;
    }
  } while (*text++ == ',');
  options->is_bound = true;
  return NULL;
}

static ingot_status_t read_priority(const ingot_allocator_t *allocator, const ingot_hal_uri_t *uri,
                                    const option_t *option, ingot_hal_cpu_options_t *options) {
  options->priority = is_value(option, "high") - is_value(option, "low");
  if (options->priority != 0 || is_value(option, "normal")) return NULL;
  return bad_option(allocator, uri, option, "priority= and low, normal or high");
}

static ingot_status_t read_spin(const ingot_allocator_t *allocator, const ingot_hal_uri_t *uri,
                                const option_t *option, ingot_hal_cpu_options_t *options) {
  options->is_calm = is_value(option, "off");
  if (options->is_calm || is_value(option, "on")) return NULL;
  return bad_option(allocator, uri, option, "spin= and on or off");
}

ingot_status_t ingot_hal_cpu_read_options(const ingot_allocator_t *allocator,
                                          const ingot_hal_uri_t *uri,
                                          ingot_hal_cpu_options_t *out_options) {
  *out_options = (ingot_hal_cpu_options_t){.thread_count = 0};
  if (uri->path_length > 0) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "device '%.100s': the cpu has no path; write options as "
                               "'cpu://?threads=4'",
                               uri->text);
  }
  for (const char *text = uri->query; *text;) {
    option_t option = {.text = text, .end = text + strcspn(text, "&")};
    option.value = text + strcspn(text, "=&");
    option.value += *option.value == '=';
    ingot_status_t status = NULL;
    if (is_named(&option, "threads")) status = read_threads(allocator, uri, &option, out_options);
    else if (is_named(&option, "affinity"))
      status = read_affinity(allocator, uri, &option, out_options);
    else if (is_named(&option, "priority"))
      status = read_priority(allocator, uri, &option, out_options);
    else if (is_named(&option, "spin")) status = read_spin(allocator, uri, &option, out_options);
    else {
      status = ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                                   "device '%.100s': unknown option at '%.60s', expected threads=, "
                                   "affinity=, priority= or spin=",
                                   uri->text, text);
    }
    if (status) return status;
    text = option.end + (*option.end == '&');
  }
  return NULL;
}
