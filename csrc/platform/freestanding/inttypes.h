/* What the runtime uses of <inttypes.h>: see string.h. */
#ifndef INGOT_PLATFORM_FREESTANDING_INTTYPES_H_
#define INGOT_PLATFORM_FREESTANDING_INTTYPES_H_

#include <stdint.h>

#if defined(__LP64__) && !defined(__APPLE__) /* as compilers that check formats have it */
#define PRId64 "ld"
#define PRIu64 "lu"
#define PRIx64 "lx"
#else
#define PRId64 "lld"
#define PRIu64 "llu"
#define PRIx64 "llx"
#endif
#define PRIu32 "u"

#endif /* INGOT_PLATFORM_FREESTANDING_INTTYPES_H_ */
