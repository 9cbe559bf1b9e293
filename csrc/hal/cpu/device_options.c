/* The options behind the "?" of a CPU device's URI. */
#include <string.h>

#include "base/text.h"
#include "hal/cpu/device_options.h"

/* A number below 10000 at *text, which moves behind it. */
static bool take_number(const char **text, uint32_t *out_number) {
  const char *start = *text;
  *out_number = 0;
  while (**text >= '0' && **text <= '9' && *text - start < 4) {
    *out_number = *out_number * 10 + (uint32_t)(*(*text)++ - '0');
  }
  return *text > start;
}

/* "0-3,6" at *text; 1024 and what is behind is no processor. */
static bool take_processors(const char **text, ingot_processor_set_t *set) {
  do {
    uint32_t first, last;
    if (!take_number(text, &first)) return false;
    last = first;
    if (ingot_text_take(text, "-") && (!take_number(text, &last) || last < first)) return false;
    for (uint32_t p = first; p <= last; ++p) {
      if (p >= 1024) return false;
      set->words[p / 64] |= UINT64_C(1) << p % 64;
    }
  } while (ingot_text_take(text, ","));
  return true;
}

/* One option at *text, which moves behind what fits. */
static bool take_option(const char **text, ingot_hal_cpu_options_t *options) {
  if (ingot_text_take(text, "threads=")) {
    return take_number(text, &options->thread_count) && options->thread_count >= 1 &&
           options->thread_count <= INGOT_HAL_CPU_MAX_THREADS;
  }
  if (ingot_text_take(text, "affinity=")) {
    options->is_bound = true;
    return take_processors(text, &options->processors);
  }
  if (ingot_text_take(text, "priority=")) {
    options->priority = ingot_text_take(text, "high") - ingot_text_take(text, "low");
    return options->priority != 0 || ingot_text_take(text, "normal");
  }
  if (!ingot_text_take(text, "spin=")) return false;
  options->is_calm = ingot_text_take(text, "off");
  return options->is_calm || ingot_text_take(text, "on");
}

static ingot_status_t check_processors(const ingot_allocator_t *allocator,
                                       const ingot_hal_uri_t *uri,
                                       const ingot_processor_set_t *wanted) {
  ingot_processor_set_t usable;
  if (!ingot_processors_usable(&usable)) {
    return ingot_status_create(allocator, INGOT_STATUS_UNSUPPORTED,
                               "device '%.100s': this system does not bind threads to processors",
                               uri->text);
  }
  for (uint32_t p = 0; p < 1024; ++p) {
    if (!ingot_processor_set_has(wanted, p) || ingot_processor_set_has(&usable, p)) continue;
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "device '%.100s': this process may not use processor %u", uri->text,
                               p);
  }
  return NULL;
}

ingot_status_t ingot_hal_cpu_read_options(const ingot_allocator_t *allocator,
                                          const ingot_hal_uri_t *uri,
                                          ingot_hal_cpu_options_t *out_options) {
  const char *text = uri->query;
  memset(out_options, 0, sizeof(*out_options));
  while (*text || uri->path_length > 0) {
    const char *option = text;
    bool is_right = uri->path_length == 0 && take_option(&text, out_options);
    if (is_right && (*text == 0 || ingot_text_take(&text, "&"))) continue;
    return ingot_status_create(
        allocator, INGOT_STATUS_INVALID_ARGUMENT,
        "device '%.100s': bad option at '%.60s', expected as in 'cpu://?threads=4&affinity=0-3,6&"
        "priority=low&spin=off': threads= from 1 to %d, priority= low, normal or high, spin= on "
        "or off",
        uri->text, uri->path_length > 0 ? uri->path : option, INGOT_HAL_CPU_MAX_THREADS);
  }
  return out_options->is_bound ? check_processors(allocator, uri, &out_options->processors) : NULL;
}

#if !defined(INGOT_NO_THREADS)
void ingot_hal_cpu_place_thread(const ingot_hal_cpu_options_t *options, const ingot_log_t *log) {
  if ((options->is_bound && !ingot_thread_bind(&options->processors)) ||
      (options->priority && !ingot_thread_prioritize(options->priority))) {
    ingot_log(log, INGOT_LOG_WARNING, "the system refuses a thread its %s",
              options->is_bound ? "affinity or priority" : "priority");
  }
}
#endif
