/* The cache of built programs: one file each, named by its key. */
#include "hal/opencl/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hal/opencl/sha256.h"
#include "platform/platform.h"

#if defined(INGOT_NO_FILES)

ingot_status_t ingot_opencl_cache_folder(const ingot_allocator_t *allocator, const char *folder,
                                         size_t folder_length, char **out_folder) {
  (void)allocator;
  (void)folder;
  (void)folder_length;
  *out_folder = NULL;
  return NULL;
}

bool ingot_opencl_cache_read(const ingot_allocator_t *allocator, const char *folder,
                             const ingot_opencl_key_t *key, uint32_t entry_count,
                             ingot_opencl_cached_t *out_cached) {
  (void)allocator;
  (void)folder;
  (void)key;
  (void)entry_count;
  (void)out_cached;
  return false;
}

void ingot_opencl_cache_write(const char *folder, const ingot_opencl_key_t *key,
                              const ingot_opencl_cached_t *cached) {
  (void)folder;
  (void)key;
  (void)cached;
}

#else

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

ingot_status_t ingot_opencl_cache_folder(const ingot_allocator_t *allocator, const char *folder,
                                         size_t folder_length, char **out_folder) {
  char path[INGOT_OPENCL_PATH_CAPACITY];
  const char *chosen = getenv("INGOT_CACHE");
  char base[INGOT_OPENCL_PATH_CAPACITY];
  int length = -1;
  if (folder) length = snprintf(path, sizeof(path), "%.*s", (int)folder_length, folder);
  else if (chosen && *chosen) length = snprintf(path, sizeof(path), "%s", chosen);
  else if (ingot_folder_of_caches(base, sizeof(base))) {
    length = snprintf(path, sizeof(path), "%s/ingot", base);
  }
  *out_folder = NULL;
  if (length <= 0 || (size_t)length >= sizeof(path) || !ingot_folder_make(path)) return NULL;
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
                                        size_t file_length) {
  return memcmp(header->magic, INGOT_OPENCL_CACHE_MAGIC, sizeof(header->magic)) == 0 &&
         header->version == INGOT_OPENCL_CACHE_VERSION && header->entry_count == entry_count &&
         memcmp(&header->key, key, sizeof(*key)) == 0 &&
         header->binary_length <= INGOT_OPENCL_MAX_CACHED &&
         file_length == sizeof(*header) + entry_count + header->binary_length;
}

static bool ingot_opencl_cache_take(const ingot_allocator_t *allocator, const ingot_file_t *file,
                                    const ingot_opencl_key_t *key, uint32_t entry_count,
                                    ingot_opencl_cached_t *cached) {
  ingot_opencl_cache_header_t header;
  if (file->length < sizeof(header)) return false;
  memcpy(&header, file->data, sizeof(header));
  if (!ingot_opencl_header_is_good(&header, key, entry_count, file->length)) return false;
  size_t binary_length = (size_t)header.binary_length;
  cached->verdicts = allocator->resize(allocator->user, NULL, entry_count + 1);
  cached->binary = allocator->resize(allocator->user, NULL, binary_length + 1);
  cached->entry_count = entry_count;
  cached->binary_length = binary_length;
  if (!cached->verdicts || !cached->binary) return false;
  memcpy(cached->verdicts, file->data + sizeof(header), entry_count);
  memcpy(cached->binary, file->data + sizeof(header) + entry_count, binary_length);
  ingot_opencl_key_t content = ingot_opencl_content_key(cached);
  return memcmp(&content, &header.content, sizeof(content)) == 0;
}

bool ingot_opencl_cache_read(const ingot_allocator_t *allocator, const char *folder,
                             const ingot_opencl_key_t *key, uint32_t entry_count,
                             ingot_opencl_cached_t *out_cached) {
  char path[INGOT_OPENCL_PATH_CAPACITY];
  ingot_opencl_cached_t cached = {.verdicts = NULL};
  if (!ingot_opencl_cache_path(folder, key, path)) return false;
  ingot_file_t file;
  ingot_reason_t reason;
  if (ingot_file_load(allocator, path, NULL, &file, &reason)) return false;
  bool is_good = ingot_opencl_cache_take(allocator, &file, key, entry_count, &cached);
  ingot_file_unload(allocator, &file);
  if (is_good) {
    *out_cached = cached;
  } else {
    ingot_release_memory(allocator, cached.verdicts);
    ingot_release_memory(allocator, cached.binary);
  }
  return is_good;
}

/* -- writing --------------------------------------------------------------------------------- */

void ingot_opencl_cache_write(const char *folder, const ingot_opencl_key_t *key,
                              const ingot_opencl_cached_t *cached) {
  char path[INGOT_OPENCL_PATH_CAPACITY];
  ingot_opencl_cache_header_t header = {.version = INGOT_OPENCL_CACHE_VERSION,
                                        .entry_count = cached->entry_count,
                                        .key = *key,
                                        .content = ingot_opencl_content_key(cached),
                                        .binary_length = cached->binary_length};
  memcpy(header.magic, INGOT_OPENCL_CACHE_MAGIC, sizeof(header.magic));
  const ingot_file_part_t parts[] = {{&header, sizeof(header)},
                                     {cached->verdicts, cached->entry_count},
                                     {cached->binary, cached->binary_length}};
  if (ingot_opencl_cache_path(folder, key, path)) (void)ingot_file_write(path, parts, 3);
}

#endif /* INGOT_NO_FILES */
