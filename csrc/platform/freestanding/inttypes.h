/* What the runtime uses of <inttypes.h>: see string.h. */
#ifndef INGOT_PLATFORM_FREESTANDING_INTTYPES_H_
#define INGOT_PLATFORM_FREESTANDING_INTTYPES_H_

#include <stdint.h>

#define PRId64 "lld" /* 64 bits everywhere, whatever type int64_t is */
#define PRIu64 "llu"
#define PRIx64 "llx"
#define PRIu32 "u"

#endif /* INGOT_PLATFORM_FREESTANDING_INTTYPES_H_ */
