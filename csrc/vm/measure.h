/* Measuring: a function's code runs without its work, and what it asks for is added up.
 *
 * It runs as under a debugger, a copy in which the opcodes of what reaches the device are marked.
 * Sizes come out as the call would compute them, since the code computes them. Where code reads
 * data, it ends there.
 */
#ifndef INGOT_VM_MEASURE_H_
#define INGOT_VM_MEASURE_H_

#include "vm/context.h"

struct ingot_vm_measure_t {
  const int64_t *argument_dims; /* of all tensors; NULL: those of context->arguments */
  int64_t *result_dims; /* of all results, one after another, where they are known; or NULL */
  int64_t slab_length;
  bool is_exact;          /* the slab will not be longer */
  const uint16_t *stop;   /* what reads data, in context->code; NULL if there is none */
  const uint16_t *widest; /* the dispatch that uses the slab's last bytes; NULL without one */
  int64_t widest_end;
};

/* Runs context->function of context->image. Fails as the call would. The code's words lie in
 * context->code until ingot_vm_measure_end, which must be called in any case. */
ingot_status_t ingot_vm_measure_begin(ingot_vm_context_t *context, ingot_vm_measure_t *measure);
void ingot_vm_measure_end(ingot_vm_context_t *context);

/* Takes the failure of a call that got no slab and says which dispatch it is for. */
ingot_status_t ingot_vm_name_widest(ingot_vm_context_t *context, ingot_status_t status);

#endif /* INGOT_VM_MEASURE_H_ */
