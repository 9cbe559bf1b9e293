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

/* Fills `data` from the file's start. */
static ingot_status_t read_all(const ingot_allocator_t *allocator, const char *path,
                               int descriptor, uint8_t *data, size_t length) {
  while (length > 0) {
    ssize_t count = read(descriptor, data, length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_failed(allocator, path, errno);
    if (count == 0) {
      return ingot_status_create(allocator, INGOT_STATUS_DATA_LOSS,
                                 "'%s' was cut while it was read", path);
    }
    data += count;
    length -= (size_t)count;
  }
  return NULL;
}

ingot_status_t ingot_file_open(const ingot_allocator_t *allocator, const char *path, bool mapped,
                               ingot_file_t *out_file) {
  ingot_status_t status = NULL;
  struct stat facts;
  int reason = 0;
  void *data = NULL;
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return file_failed(allocator, path, errno);
  if (fstat(descriptor, &facts) != 0) {
    reason = errno;
  } else if (S_ISDIR(facts.st_mode)) {
    reason = EISDIR;
  } else if (facts.st_size > 0 && mapped) { /* an empty file cannot be mapped */
    data = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) reason = errno;
  } else if (facts.st_size > 0) {
    status = ingot_allocate(allocator, (size_t)facts.st_size, &data);
    if (!status) status = read_all(allocator, path, descriptor, data, (size_t)facts.st_size);
    if (status) ingot_release_memory(allocator, data);
  }
  (void)close(descriptor);
  if (reason) return file_failed(allocator, path, reason);
  if (status) return status;
  out_file->data = data ? data : (const uint8_t *)empty_file;
  out_file->length = data ? (size_t)facts.st_size : 0;
  out_file->mapped = mapped;
  return NULL;
}

void ingot_file_close(const ingot_allocator_t *allocator, ingot_file_t *file) {
  void *data = (void *)(uintptr_t)file->data;
  if (file->length > 0 && file->mapped) (void)munmap(data, file->length);
  else if (file->length > 0) ingot_release_memory(allocator, data);
  *file = (ingot_file_t){NULL, 0, false};
}

#else

ingot_status_t ingot_file_open(const ingot_allocator_t *allocator, const char *path, bool mapped,
                               ingot_file_t *out_file) {
  (void)mapped;
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
  *file = (ingot_file_t){NULL, 0, false};
}

#endif
