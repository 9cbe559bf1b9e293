/* Files as bytes: mmap on POSIX systems, stdio elsewhere.
 */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* mmap flags under -std=c11 */
#endif
#include "module/file.h"

#include <errno.h>
#include <string.h>

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define FILE_IS_MAPPED 1
#else
#include <stdio.h>
#define FILE_IS_MAPPED 0
#endif

static ingot_status_t file_failed(const ingot_allocator_t *allocator, const char *path,
                                  int reason) {
  ingot_status_code_t code = INGOT_STATUS_INTERNAL;
  if (reason == ENOENT || reason == ENOTDIR) code = INGOT_STATUS_NOT_FOUND;
  if (reason == EACCES || reason == EPERM) code = INGOT_STATUS_PERMISSION_DENIED;
  if (reason == ENOMEM) code = INGOT_STATUS_OUT_OF_MEMORY;
  if (reason == EISDIR) code = INGOT_STATUS_INVALID_ARGUMENT;
  return ingot_status_create(allocator, code, "cannot read '%s': %s", path, strerror(reason));
}

#if FILE_IS_MAPPED

static const uint64_t empty_file[1] = {0}; /* aligned as any file is */

ingot_status_t ingot_file_open(const ingot_allocator_t *allocator, const char *path,
                               ingot_file_t *out_file) {
  struct stat facts;
  int reason = 0;
  void *data = NULL;
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return file_failed(allocator, path, errno);
  if (fstat(descriptor, &facts) != 0) {
    reason = errno;
  } else if (S_ISDIR(facts.st_mode)) {
    reason = EISDIR;
  } else if (facts.st_size > 0) { /* an empty file cannot be mapped */
    data = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) reason = errno;
  }
  (void)close(descriptor);
  if (reason) return file_failed(allocator, path, reason);
  out_file->data = data ? data : (const uint8_t *)empty_file;
  out_file->length = data ? (size_t)facts.st_size : 0;
  return NULL;
}

void ingot_file_close(const ingot_allocator_t *allocator, ingot_file_t *file) {
  (void)allocator;
  if (file->length > 0) (void)munmap((void *)(uintptr_t)file->data, file->length);
  *file = (ingot_file_t){NULL, 0};
}

#else

ingot_status_t ingot_file_open(const ingot_allocator_t *allocator, const char *path,
                               ingot_file_t *out_file) {
  void *data = NULL;
  size_t length = 0;
  size_t capacity = 0;
  ingot_status_t status = NULL;
  FILE *stream = fopen(path, "rb");
  if (!stream) return file_failed(allocator, path, errno);
  for (;;) {
    if (length == capacity) {
      capacity = capacity ? 2 * capacity : 65536;
      status = ingot_reallocate_array(allocator, capacity, 1, &data);
      if (status) break;
    }
    size_t count = fread((uint8_t *)data + length, 1, capacity - length, stream);
    if (count == 0) break;
    length += count;
  }
  if (!status && ferror(stream)) status = file_failed(allocator, path, EIO);
  (void)fclose(stream);
  if (status) {
    ingot_release_memory(allocator, data);
    return status;
  }
  out_file->data = data;
  out_file->length = length;
  return NULL;
}

void ingot_file_close(const ingot_allocator_t *allocator, ingot_file_t *file) {
  ingot_release_memory(allocator, (void *)(uintptr_t)file->data);
  *file = (ingot_file_t){NULL, 0};
}

#endif
