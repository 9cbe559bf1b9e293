/* WebAssembly: WASI, and hosts of one's own (pages, node). */
#include "platform/platform.h"

#if defined(INGOT_PLATFORM_WASM)

#if defined(__wasi__)

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int64_t ingot_clock(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

ingot_processor_capabilities_t ingot_processor_capabilities(void) {
  return (ingot_processor_capabilities_t){{0, 0}};
}

#else

/* What the host gives: web/src/host.js. */
#define INGOT_WASM_IMPORT(name) __attribute__((import_module("ingot"), import_name(name)))

/* Milliseconds, as performance.now(). */
INGOT_WASM_IMPORT("now") double ingot_wasm_now(void);

int64_t ingot_clock(void) { return (int64_t)(ingot_wasm_now() * 1e6); }

/* Bit 0: simd128, bit 1: relaxed SIMD. */
INGOT_WASM_IMPORT("features") uint32_t ingot_wasm_features(void);

ingot_processor_capabilities_t ingot_processor_capabilities(void) {
  return (ingot_processor_capabilities_t){{ingot_wasm_features(), 0}};
}

#if !defined(INGOT_NO_LOADER)

/* Instantiates a side module on this memory and table: its number, 0 if that failed. */
INGOT_WASM_IMPORT("open") uint32_t ingot_wasm_open(const void *data, size_t length);
/* Puts what it exports under the name into the table; NULL if there is none. */
INGOT_WASM_IMPORT("symbol") void *ingot_wasm_symbol(uint32_t library, const char *name);
INGOT_WASM_IMPORT("close") void ingot_wasm_close(uint32_t library);

bool ingot_dynamic_library_open_bytes(const void *data, size_t length,
                                      ingot_dynamic_library_t *out_library) {
  *out_library = (ingot_dynamic_library_t){(void *)(uintptr_t)ingot_wasm_open(data, length), -1};
  return out_library->handle;
}

void *ingot_dynamic_library_symbol(const ingot_dynamic_library_t *library, const char *name) {
  return ingot_wasm_symbol((uint32_t)(uintptr_t)library->handle, name);
}

void ingot_dynamic_library_close(ingot_dynamic_library_t *library) {
  if (library->handle) ingot_wasm_close((uint32_t)(uintptr_t)library->handle);
}

#endif /* INGOT_NO_LOADER */

#endif

/* -- files --------------------------------------------------------------------------------------- */

#if !defined(INGOT_NO_FILES)

static ingot_status_code_t ingot_wasm_failed(int error, ingot_reason_t *out_reason) {
  (void)snprintf(out_reason->text, sizeof(out_reason->text), "%s", strerror(error));
  if (error == ENOENT || error == ENOTDIR) return INGOT_STATUS_NOT_FOUND;
  if (error == EACCES || error == EPERM || error == ENOTCAPABLE) {
    return INGOT_STATUS_PERMISSION_DENIED;
  }
  return error == ENOMEM ? INGOT_STATUS_OUT_OF_MEMORY : INGOT_STATUS_INTERNAL;
}

static ingot_status_code_t ingot_wasm_load(const ingot_allocator_t *allocator, int descriptor,
                                           ingot_file_t *out_file, ingot_reason_t *out_reason) {
  struct stat facts;
  if (fstat(descriptor, &facts) != 0) return ingot_wasm_failed(errno, out_reason);
  if (!S_ISREG(facts.st_mode)) {
    (void)snprintf(out_reason->text, sizeof(out_reason->text), "it is no regular file");
    return INGOT_STATUS_INVALID_ARGUMENT;
  }
  if ((uint64_t)facts.st_size >= SIZE_MAX) return ingot_wasm_failed(ENOMEM, out_reason);
  size_t length = (size_t)facts.st_size;
  uint8_t *data = allocator->resize(allocator->user, NULL, length + 1);
  if (!data) return ingot_wasm_failed(ENOMEM, out_reason);
  ingot_status_code_t code = INGOT_STATUS_OK;
  for (size_t at = 0; at < length && !code;) {
    ssize_t count = read(descriptor, data + at, length - at);
    if (count < 0) code = ingot_wasm_failed(errno, out_reason);
    if (count == 0) code = INGOT_STATUS_DATA_LOSS;
    at += count > 0 ? (size_t)count : 0;
  }
  if (code == INGOT_STATUS_DATA_LOSS) {
    (void)snprintf(out_reason->text, sizeof(out_reason->text), "it was cut while it was read");
  }
  *out_file = (ingot_file_t){data, length};
  if (code) ingot_file_unload(allocator, out_file);
  return code;
}

ingot_status_code_t ingot_file_load(const ingot_allocator_t *allocator, const char *path,
                                    ingot_file_choose_t choose, ingot_file_t *out_file,
                                    ingot_reason_t *out_reason) {
  (void)choose;
  int descriptor = open(path, O_RDONLY | O_NONBLOCK);
  if (descriptor < 0) return ingot_wasm_failed(errno, out_reason);
  ingot_status_code_t code = ingot_wasm_load(allocator, descriptor, out_file, out_reason);
  (void)close(descriptor);
  return code;
}

void ingot_file_unload(const ingot_allocator_t *allocator, ingot_file_t *file) {
  (void)allocator->resize(allocator->user, (void *)(uintptr_t)file->data, 0);
  *file = (ingot_file_t){NULL, 0};
}

#endif /* INGOT_NO_FILES */

#endif /* INGOT_PLATFORM_WASM */
