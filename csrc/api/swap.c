/* Swaps of parameters: all that is new is made beside what there is, then one pointer exchanged.
 */
#include "api/program.h"
#include "platform/platform.h"

/* The old ones are freed by whoever lets go of them last. */
static void exchange_weights(ingot_program_t *program, ingot_vm_weights_t *weights) {
  ingot_mutex_lock(&program->mutex);
  ingot_vm_weights_t *old = atomic_exchange(&program->weights, weights);
  ingot_program_renew_sessions(program);
  ingot_mutex_unlock(&program->mutex);
  ingot_vm_weights_release(old);
}

ingot_status_t ingot_program_swap_parameters(ingot_program_t *program, const char *scope,
                                             const ingot_parameters_t *parameters,
                                             const ingot_call_options_t *limits) {
  const ingot_call_options_t none = {0, 0, NULL, NULL};
  const ingot_making_t making = {parameters, limits ? limits : &none, ingot_clock(), true, scope};
  if (atomic_exchange(&program->swapping, true)) {
    return ingot_status_create(ingot_program_allocator(program), INGOT_STATUS_FAILED_PRECONDITION,
                               "another thread is swapping parameters of the program");
  }
  ingot_vm_weights_t *old = program->weights; /* nobody else changes it now */
  ingot_vm_weights_t *weights = NULL;
  ingot_status_t status =
      ingot_vm_weights_create(ingot_program_allocator(program), old->count, old, &weights);
  if (!status) status = ingot_program_make_weights(program, &making, weights);
  if (status) ingot_vm_weights_release(weights);
  else exchange_weights(program, weights);
  atomic_store(&program->swapping, false);
  return status;
}
