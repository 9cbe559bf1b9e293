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

#else

/* The host gives it: milliseconds, as performance.now(). */
__attribute__((import_module("ingot"), import_name("now"))) double ingot_wasm_now(void);

int64_t ingot_clock(void) { return (int64_t)(ingot_wasm_now() * 1e6); }

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
