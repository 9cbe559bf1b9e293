/* CRC-32 (IEEE 802.3, reflected 0xEDB88320), as zlib and Python's binascii.crc32.
 */
#ifndef INGOT_BASE_CRC32_H_
#define INGOT_BASE_CRC32_H_

#include <stddef.h>
#include <stdint.h>

/* The crc of `length` bytes that follow bytes with crc `seed`; 0 to start. Pieces chain:
 * crc(a ++ b) = ingot_crc32(ingot_crc32(0, a), b). About 2 GB/s on large inputs. */
uint32_t ingot_crc32(uint32_t seed, const void *data, size_t length);

#endif /* INGOT_BASE_CRC32_H_ */
