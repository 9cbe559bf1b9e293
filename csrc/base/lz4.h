/* Blocks of LZ4: bytes of which those that came before are told by where.
 */
#ifndef INGOT_BASE_LZ4_H_
#define INGOT_BASE_LZ4_H_

#include <stdbool.h>
#include <stddef.h>

/* How many bytes the block behind a u64 holds, which is that number; false: no block that is so long
 * can hold so many. */
bool ingot_lz4_length(const void *data, size_t data_length, size_t *out_length);

/* Writes the bytes that a block holds; false: it is damaged, or holds other than `length` bytes,
 * and what was written is of no use. Of the bytes in front of `out` it may repeat the last `before`. */
bool ingot_lz4_decompress(const void *block, size_t block_length, void *out, size_t length,
                          size_t before);

#endif /* INGOT_BASE_LZ4_H_ */
