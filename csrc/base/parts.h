/* What of the runtime is built: all, but for a bundle (docs/bundles.md), whose configuration is of the
 * one module that it runs and has what that uses:
 *
 *   INGOT_ONLY_MODULE     the crc in the header of the one module that is loaded; it was verified when
 *                         the bundle was made, and is only compared
 *   INGOT_WITH_OP(code)   whether the module has instructions INGOT_OP_*; without INGOT_ONLY_MODULE: all
 *   INGOT_STRIP_MESSAGES  a status has its code, and as its message the code's name
 */
#ifndef INGOT_BASE_PARTS_H_
#define INGOT_BASE_PARTS_H_

#include <stdbool.h>

#if !defined(INGOT_ONLY_MODULE)
#define INGOT_WITH_OP(code) true
#endif

#if defined(INGOT_STRIP_MESSAGES)
#define INGOT_WITH_MESSAGES false
#else
#define INGOT_WITH_MESSAGES true
#endif

#define INGOT_WITH_INIT INGOT_WITH_OP(INGOT_OP_GLOBAL_STORE)
#define INGOT_WITH_LISTS INGOT_WITH_OP(INGOT_OP_LIST_ARGUMENT)
#define INGOT_WITH_NATIVES INGOT_WITH_OP(INGOT_OP_NATIVE_CALL)

#endif /* INGOT_BASE_PARTS_H_ */
