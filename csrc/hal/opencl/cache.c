/* The cache of built programs: one file each, named by its key. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mkstemp */
#endif
#include "hal/opencl/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hal/opencl/sha256.h"

#define INGOT_OPENCL_CACHE_MAGIC "INGOTCB\x1a"
#define INGOT_OPENCL_CACHE_VERSION 2
#define INGOT_OPENCL_MAX_CACHED ((size_t)1 << 30)
#define INGOT_OPENCL_PATH_CAPACITY 4096

/* A file: this, the verdicts, the binary. */
typedef struct ingot_opencl_cache_header_t {
  uint8_t magic[8];
  uint32_t version;
  uint32_t entry_count;
  ingot_opencl_key_t key;     /* of the program */
  ingot_opencl_key_t content; /* of what follows */
  uint64_t binary_length;
} ingot_opencl_cache_header_t;

static ingot_opencl_key_t ingot_opencl_content_key(const ingot_opencl_cached_t *cached) {
  ingot_opencl_key_t key;
  ingot_sha256_t hash = ingot_sha256_begin();
  ingot_sha256_add(&hash, cached->verdicts, cached->entry_count);
  ingot_sha256_add(&hash, cached->binary, cached->binary_length);
  ingot_sha256_finish(&hash, key.digest);
  return key;
}

/* -- folder ---------------------------------------------------------------------------------- */

/* Makes a folder and those above it; whether it is there and this user's alone. */
static bool ingot_opencl_make_folder(char *path) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    (void)mkdir(path, 0700);
    *slash = '/';
  }
  struct stat facts;
  if (mkdir(path, 0700) != 0 && errno != EEXIST) return false;
  return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == geteuid() &&
         !(facts.st_mode & (S_IWGRP | S_IWOTH)) && access(path, W_OK) == 0;
}

ingot_status_t ingot_opencl_cache_folder(const ingot_allocator_t *allocator, const char *folder,
                                         size_t folder_length, char **out_folder) {
  char path[INGOT_OPENCL_PATH_CAPACITY];
  const char *chosen = getenv("INGOT_CACHE");
  const char *base = getenv("XDG_CACHE_HOME");
  const char *home = getenv("HOME");
  int length = -1;
  if (folder) length = snprintf(path, sizeof(path), "%.*s", (int)folder_length, folder);
  else if (chosen && *chosen) length = snprintf(path, sizeof(path), "%s", chosen);
  else if (base && *base) length = snprintf(path, sizeof(path), "%s/ingot", base);
  else if (home && *home) length = snprintf(path, sizeof(path), "%s/.cache/ingot", home);
  *out_folder = NULL;
  if (length <= 0 || (size_t)length >= sizeof(path) || !ingot_opencl_make_folder(path)) return NULL;
  return ingot_allocate_string(allocator, path, out_folder);
}

/* False if the path is too long. */
static bool ingot_opencl_cache_path(const char *folder, const ingot_opencl_key_t *key,
                                    char path[INGOT_OPENCL_PATH_CAPACITY]) {
  char name[2 * sizeof(key->digest) + 1];
  for (size_t i = 0; i < sizeof(key->digest); i++) {
    (void)snprintf(name + 2 * i, 3, "%02x", key->digest[i]);
  }
  int length = snprintf(path, INGOT_OPENCL_PATH_CAPACITY, "%s/opencl-%s", folder, name);
  return length > 0 && length < INGOT_OPENCL_PATH_CAPACITY;
}

/* -- reading --------------------------------------------------------------------------------- */

static bool ingot_opencl_header_is_good(const ingot_opencl_cache_header_t *header,
                                        const ingot_opencl_key_t *key, uint32_t entry_count,
                                        int64_t file_length) {
  return memcmp(header->magic, INGOT_OPENCL_CACHE_MAGIC, sizeof(header->magic)) == 0 &&
         header->version == INGOT_OPENCL_CACHE_VERSION && header->entry_count == entry_count &&
         memcmp(&header->key, key, sizeof(*key)) == 0 &&
         header->binary_length <= INGOT_OPENCL_MAX_CACHED &&
         (uint64_t)file_length == sizeof(*header) + entry_count + header->binary_length;
}

static bool ingot_opencl_cache_read_file(const ingot_allocator_t *allocator, FILE *file,
                                         const ingot_opencl_key_t *key, uint32_t entry_count,
                                         ingot_opencl_cached_t *cached) {
  ingot_opencl_cache_header_t header;
  struct stat facts;
  if (fstat(fileno(file), &facts) != 0 || fread(&header, sizeof(header), 1, file) != 1 ||
      !ingot_opencl_header_is_good(&header, key, entry_count, facts.st_size)) {
    return false;
  }
  size_t binary_length = (size_t)header.binary_length;
  cached->verdicts = allocator->resize(allocator->user, NULL, entry_count + 1);
  cached->binary = allocator->resize(allocator->user, NULL, binary_length + 1);
  cached->entry_count = entry_count;
  cached->binary_length = binary_length;
  if (!cached->verdicts || !cached->binary ||
      fread(cached->verdicts, 1, entry_count, file) != entry_count ||
      fread(cached->binary, 1, binary_length, file) != binary_length) {
    return false;
  }
  ingot_opencl_key_t content = ingot_opencl_content_key(cached);
  return memcmp(&content, &header.content, sizeof(content)) == 0;
}

bool ingot_opencl_cache_read(const ingot_allocator_t *allocator, const char *folder,
                             const ingot_opencl_key_t *key, uint32_t entry_count,
                             ingot_opencl_cached_t *out_cached) {
  char path[INGOT_OPENCL_PATH_CAPACITY];
  ingot_opencl_cached_t cached = {.verdicts = NULL};
  if (!ingot_opencl_cache_path(folder, key, path)) return false;
  FILE *file = fopen(path, "rb");
  if (!file) return false;
  bool is_good = ingot_opencl_cache_read_file(allocator, file, key, entry_count, &cached);
  (void)fclose(file);
  if (is_good) {
    *out_cached = cached;
  } else {
    ingot_release_memory(allocator, cached.verdicts);
    ingot_release_memory(allocator, cached.binary);
  }
  return is_good;
}

/* -- writing --------------------------------------------------------------------------------- */

static bool ingot_opencl_cache_write_file(FILE *file, const ingot_opencl_key_t *key,
                                          const ingot_opencl_cached_t *cached) {
  ingot_opencl_cache_header_t header = {.version = INGOT_OPENCL_CACHE_VERSION,
                                        .entry_count = cached->entry_count,
                                        .key = *key,
                                        .content = ingot_opencl_content_key(cached),
                                        .binary_length = cached->binary_length};
  memcpy(header.magic, INGOT_OPENCL_CACHE_MAGIC, sizeof(header.magic));
  return fwrite(&header, sizeof(header), 1, file) == 1 &&
         fwrite(cached->verdicts, 1, cached->entry_count, file) == cached->entry_count &&
         fwrite(cached->binary, 1, cached->binary_length, file) == cached->binary_length;
}

void ingot_opencl_cache_write(const char *folder, const ingot_opencl_key_t *key,
                              const ingot_opencl_cached_t *cached) {
  char path[INGOT_OPENCL_PATH_CAPACITY], fresh[INGOT_OPENCL_PATH_CAPACITY];
  int length = snprintf(fresh, sizeof(fresh), "%s/.new-XXXXXX", folder);
  if (!ingot_opencl_cache_path(folder, key, path) || length <= 0 ||
      (size_t)length >= sizeof(fresh)) {
    return;
  }
  int descriptor = mkstemp(fresh);
  if (descriptor < 0) return;
  FILE *file = fdopen(descriptor, "wb");
  if (!file) {
    (void)close(descriptor);
    (void)unlink(fresh);
    return;
  }
  bool is_written = ingot_opencl_cache_write_file(file, key, cached);
  is_written = fclose(file) == 0 && is_written;
  if (!is_written || rename(fresh, path) != 0) (void)unlink(fresh);
}
