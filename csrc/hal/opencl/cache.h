/* Built programs on disk, so that a second start need not compile.
 */
#ifndef INGOT_HAL_OPENCL_CACHE_H_
#define INGOT_HAL_OPENCL_CACHE_H_

#include "hal/hal.h"

/* What a binary is of: the SHA-256 of all that matters to it. */
typedef struct ingot_opencl_key_t {
  uint8_t digest[32];
} ingot_opencl_key_t;

/* What the cache knows of a program. */
typedef struct ingot_opencl_cached_t {
  uint8_t *verdicts; /* per entry: INGOT_OPENCL_VERDICT_* */
  uint32_t entry_count;
  uint8_t *binary;
  size_t binary_length;
} ingot_opencl_cached_t;

enum { /* of the self-test; written to files */
       INGOT_OPENCL_VERDICT_NONE = 0, /* not tested */
       INGOT_OPENCL_VERDICT_RIGHT = 1,
       INGOT_OPENCL_VERDICT_WRONG = 2,
};

/* The folder to cache in: `folder`, else $INGOT_CACHE, else `ingot` in the user's cache folder;
 * made if it is not there. NULL in *out_folder if there is none that only this user can write:
 * then nothing is cached. */
ingot_status_t ingot_opencl_cache_folder(const ingot_allocator_t *allocator, const char *folder,
                                         size_t folder_length, char **out_folder);

/* False if there is no such file, if it is damaged, or without memory. The parts are to be
 * released. */
bool ingot_opencl_cache_read(const ingot_allocator_t *allocator, const char *folder,
                             const ingot_opencl_key_t *key, uint32_t entry_count,
                             ingot_opencl_cached_t *out_cached);

/* Writes another file and renames it, so that readers see a whole one or none. A failure is no
 * failure of the program. */
void ingot_opencl_cache_write(const char *folder, const ingot_opencl_key_t *key,
                              const ingot_opencl_cached_t *cached);

#endif /* INGOT_HAL_OPENCL_CACHE_H_ */
