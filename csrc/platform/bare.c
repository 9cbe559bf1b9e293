/* No operating system. The program may define ingot_clock itself; where it does not, time stands
 * still, and timeouts never end a call. */
#include "platform/platform.h"

#if defined(INGOT_PLATFORM_BARE)

__attribute__((weak)) int64_t ingot_clock(void) { return 0; }

uint32_t ingot_processor_count(void) { return 1; }

ingot_processor_capabilities_t ingot_processor_capabilities(void) {
  return (ingot_processor_capabilities_t){{0, 0}};
}
#endif

/* The same in a page, whose engine has no more to say of its machine. */
#if defined(INGOT_PLATFORM_BARE) || defined(INGOT_PLATFORM_WASM)

int64_t ingot_clock_tick(void) { return ingot_clock(); }

int64_t ingot_memory_length(void) { return 0; }

bool ingot_processors_usable(ingot_processor_set_t *out_set) {
  (void)out_set;
  return false;
}

bool ingot_processor_has_tiles(void) { return false; }
bool ingot_processor_request_tiles(void) { return false; }

#endif /* INGOT_PLATFORM_BARE, INGOT_PLATFORM_WASM */

/* Large pages are asked for on Linux alone. */
#if !defined(INGOT_PLATFORM_POSIX) || !defined(__linux__)

bool ingot_memory_prefer_large_pages(void *data, size_t length, size_t written) {
  (void)data;
  (void)length;
  (void)written;
  return false;
}

bool ingot_memory_move_to_large_pages(void *data, size_t length) {
  (void)data;
  (void)length;
  return false;
}

#endif /* not on Linux */

/* Nor has Windows anything to be told of pages. */
#if defined(INGOT_PLATFORM_BARE) || defined(INGOT_PLATFORM_WASM) || defined(INGOT_PLATFORM_WINDOWS)

void ingot_memory_leave(const void *data, size_t length) {
  (void)data;
  (void)length;
}

bool ingot_memory_give_back(void *data, size_t length) {
  (void)data;
  (void)length;
  return false;
}

#endif /* INGOT_PLATFORM_BARE, INGOT_PLATFORM_WASM, INGOT_PLATFORM_WINDOWS */
