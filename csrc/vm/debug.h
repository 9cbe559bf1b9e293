/* A debugger's hold on calls. While there is one, a call runs a copy of its function's code in
 * which every opcode is marked, so that the interpreter's switch finds none of its cases: code
 * that nobody debugs pays nothing.
 */
#ifndef INGOT_VM_DEBUG_H_
#define INGOT_VM_DEBUG_H_

#include "vm/context.h"

/* The mark: no opcode has this bit. */
#define INGOT_VM_TRAP 0x8000u

/* Before a call: the marked copy becomes context->code, and all registers are 0 or NULL. */
ingot_status_t ingot_vm_debug_begin(ingot_vm_context_t *context);

/* Behind the last use of context->code, also if there is no copy. */
void ingot_vm_debug_end(ingot_vm_context_t *context);

/* Asks the debugger before the instruction at `pc`: Cancelled if it ends the call. */
ingot_status_t ingot_vm_debug_stop(const ingot_vm_context_t *context, const uint16_t *pc);

#endif /* INGOT_VM_DEBUG_H_ */
