/* LZ4 for Python: code and texts of module files. Part of the extension only.
 */
#ifndef INGOT_HAL_EXTENSION_LZ4_H_
#define INGOT_HAL_EXTENSION_LZ4_H_

#ifndef INGOT_CDEF
#include <stdbool.h>
#include <stddef.h>
#endif /* INGOT_CDEF */

/* Writes a block that holds the bytes of `data`, at most 1 GB, from `before` to `length`, and may repeat
 * those in front of them; its length, or 0: there is no memory, or it has more than `capacity` bytes.
 */
size_t ingot_python_lz4_compress(const void *data, size_t before, size_t length, void *block,
                                 size_t capacity);

/* As ingot_lz4_decompress of the runtime. */
bool ingot_python_lz4_decompress(const void *block, size_t block_length, void *out, size_t length,
                                 size_t before);

#endif /* INGOT_HAL_EXTENSION_LZ4_H_ */
