/* SHA-256 (FIPS 180-4): names of programs that nobody can make two of.
 */
#ifndef INGOT_HAL_OPENCL_SHA256_H_
#define INGOT_HAL_OPENCL_SHA256_H_

#include <stddef.h>
#include <stdint.h>

typedef struct ingot_sha256_t {
  uint32_t words[8];
  uint64_t length; /* bytes so far */
  uint8_t block[64];
} ingot_sha256_t;

ingot_sha256_t ingot_sha256_begin(void);
void ingot_sha256_add(ingot_sha256_t *hash, const void *data, size_t length);
void ingot_sha256_finish(ingot_sha256_t *hash, uint8_t out_digest[32]);

#endif /* INGOT_HAL_OPENCL_SHA256_H_ */
