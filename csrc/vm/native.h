/* Calls of the application's functions from compiled code.
 */
#ifndef INGOT_VM_NATIVE_H_
#define INGOT_VM_NATIVE_H_

#include "vm/context.h"

/* The native.call instruction at *pc, which moves behind it on success. */
ingot_status_t ingot_vm_call_native(ingot_vm_context_t *context, const uint16_t **pc,
                                    const int64_t *i64, ingot_buffer_t *const *references);

#endif /* INGOT_VM_NATIVE_H_ */
