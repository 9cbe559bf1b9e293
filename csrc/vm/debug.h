/* A debugger's hold on calls. While there is one, a call runs a copy of its function's code in
 * which every opcode is marked, so that the interpreter's switch finds none of its cases: code
 * that nobody debugs pays nothing. Measuring (measure.h) marks some of them.
 */
#ifndef INGOT_VM_DEBUG_H_
#define INGOT_VM_DEBUG_H_

#include "vm/context.h"

/* The mark: no opcode has this bit. */
#define INGOT_VM_TRAP 0x8000u

/* Before a call: a copy in which the opcodes are marked that `is_marked` says, or with NULL all of
 * them, becomes context->code, and all registers are 0 or NULL. Marked instructions go to `trap`. */
ingot_status_t ingot_vm_mark(ingot_vm_context_t *context, bool (*is_marked)(uint32_t code),
                             ingot_vm_trap_t trap);

/* Behind the last use of context->code, also if there is no copy. */
void ingot_vm_unmark(ingot_vm_context_t *context);

/* The debugger's trap: asks it before the instruction at *pc. Cancelled if it ends the call. */
ingot_status_t ingot_vm_debug_stop(ingot_vm_context_t *context, const uint16_t **pc, int64_t *i64,
                                   ingot_buffer_t **references);

#endif /* INGOT_VM_DEBUG_H_ */
