/* Files as bytes: pages on POSIX systems, stdio elsewhere.
 */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* mmap flags under -std=c11 */
#endif
#include "module/file.h"

#include <errno.h>
#include <limits.h>
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
  bool is_long = reason == ENAMETOOLONG;
  if (reason == EISDIR || reason == ENXIO || reason == ELOOP || is_long) {
    code = INGOT_STATUS_INVALID_ARGUMENT;
  }
  return ingot_status_create(allocator, code, "cannot read '%.*s%s': %s", is_long ? 200 : INT_MAX,
                             path, is_long ? "..." : "", strerror(reason));
}

#if FILE_IS_MAPPED

static uint64_t page_length(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

static const uint64_t empty_file[1] = {0}; /* aligned as any file is */

/* Puts bytes [begin, end) of the file at their place in `data`, which only there takes memory. */
static ingot_status_t read_range(const ingot_allocator_t *allocator, const char *path,
                                 int descriptor, uint8_t *data, uint64_t begin, uint64_t end) {
  uint64_t first = begin / page_length() * page_length();
  if (begin < end && mprotect(data + first, (size_t)(end - first), PROT_READ | PROT_WRITE) != 0) {
    return file_failed(allocator, path, errno);
  }
  while (begin < end) {
    ssize_t count = pread(descriptor, data + begin, (size_t)(end - begin), (off_t)begin);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_failed(allocator, path, errno);
    if (count == 0) {
      return ingot_status_create(allocator, INGOT_STATUS_DATA_LOSS,
                                 "'%s' was cut while it was read", path);
    }
    begin += (uint64_t)count;
  }
  return NULL;
}

/* Fills private memory with the file; whole pages of what `choose` names, but for the head, are
 * the file's own. */
static ingot_status_t fill(const ingot_allocator_t *allocator, const char *path, int descriptor,
                           ingot_file_choose_t choose, uint8_t *data, uint64_t length) {
  uint64_t page = page_length();
  uint64_t head = length < INGOT_FILE_HEAD ? length : INGOT_FILE_HEAD;
  uint64_t begin = 0;
  uint64_t end = 0;
  INGOT_TRY(read_range(allocator, path, descriptor, data, 0, head));
  if (choose) choose(data, (size_t)head, &begin, &end);
  if (end > length) end = 0;
  if (begin < head) begin = head; /* what is checked must not change */
  begin = begin < end ? (begin + page - 1) / page * page : 0;
  end = end / page * page;
  if (begin >= end) return read_range(allocator, path, descriptor, data, head, length);
  if (mmap(data + begin, (size_t)(end - begin), PROT_READ, MAP_PRIVATE | MAP_FIXED, descriptor,
           (off_t)begin) == MAP_FAILED) {
    return file_failed(allocator, path, errno);
  }
  INGOT_TRY(read_range(allocator, path, descriptor, data, head, begin));
  return read_range(allocator, path, descriptor, data, end, length);
}

static ingot_status_t open_descriptor(const ingot_allocator_t *allocator, const char *path,
                                      int descriptor, ingot_file_choose_t choose,
                                      ingot_file_t *out_file) {
  struct stat facts;
  if (descriptor < 0 || fstat(descriptor, &facts) != 0) {
    return file_failed(allocator, path, errno);
  }
  if (S_ISDIR(facts.st_mode)) return file_failed(allocator, path, EISDIR);
  if (!S_ISREG(facts.st_mode)) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "cannot read '%s': it is no regular file", path);
  }
  *out_file = (ingot_file_t){(const uint8_t *)empty_file, 0}; /* it cannot be mapped */
  if (facts.st_size == 0) return NULL;
  size_t length = (size_t)facts.st_size;
  void *data = mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return file_failed(allocator, path, errno);
  *out_file = (ingot_file_t){data, length};
  ingot_status_t status = fill(allocator, path, descriptor, choose, data, length);
  if (status) ingot_file_close(allocator, out_file);
  return status;
}

ingot_status_t ingot_file_open(const ingot_allocator_t *allocator, const char *path,
                               ingot_file_choose_t choose, ingot_file_t *out_file) {
  /* A pipe must not wait for its writer. */
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  ingot_status_t status = open_descriptor(allocator, path, descriptor, choose, out_file);
  if (descriptor >= 0) (void)close(descriptor);
  return status;
}

void ingot_file_close(const ingot_allocator_t *allocator, ingot_file_t *file) {
  (void)allocator;
  if (file->length > 0) (void)munmap((void *)(uintptr_t)file->data, file->length);
  *file = (ingot_file_t){NULL, 0};
}

#else

ingot_status_t ingot_file_open(const ingot_allocator_t *allocator, const char *path,
                               ingot_file_choose_t choose, ingot_file_t *out_file) {
  (void)choose;
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
