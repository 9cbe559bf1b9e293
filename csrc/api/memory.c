/* What applications ask about memory: sizes of calls in advance, statistics.
 */
#include <inttypes.h>

#include "api/session.h"
#include "hal/account.h"
#include "vm/measure.h"

/* -- measuring --------------------------------------------------------------------------------- */

/* Whether the dims fit the signature: those of all tensors among the arguments. */
static ingot_status_t check_dims_of(const ingot_session_t *session, const int64_t *dims,
                                    uint32_t count) {
  const ingot_module_t *module = session->context.image->module;
  const ingot_layout_function_t *function = &module->functions[session->context.function];
  const ingot_layout_value_t *values = &module->values[function->first_value];
  uint32_t at = 0;
  for (uint32_t i = 0; i < function->argument_count; ++i) {
    uint32_t rank = values[i].kind == 0 ? values[i].rank : 0;
    for (uint32_t d = 0; d < rank; ++d, ++at) {
      int64_t expected = module->dims[values[i].first_dim + d].size;
      if (at >= count || (dims[at] >= 0 && (expected < 0 || expected == dims[at]))) continue;
      return ingot_status_create(ingot_session_allocator(session), INGOT_STATUS_INVALID_ARGUMENT,
                                 "argument %u '%s': dim %u is %" PRId64 ", expected %s%" PRId64, i,
                                 ingot_module_string(module, values[i].name), d, dims[at],
                                 expected < 0 ? "at least " : "", expected < 0 ? 0 : expected);
    }
  }
  if (at == count) return NULL;
  return ingot_status_create(ingot_session_allocator(session), INGOT_STATUS_INVALID_ARGUMENT,
                             "function '%s' takes tensors with %u dims together, %u are given",
                             ingot_module_string(module, function->name), at, count);
}

/* The dims of the results as far as the signature has them. */
static void known_dims(const ingot_vm_context_t *context, int64_t *out_dims) {
  const ingot_module_t *module = context->image->module;
  const ingot_layout_function_t *function = &module->functions[context->function];
  const ingot_layout_value_t *value =
      &module->values[function->first_value] + function->argument_count;
  for (uint32_t r = 0; r < function->result_count; ++r, ++value) {
    for (uint32_t d = 0; value->kind == 0 && d < value->rank; ++d) {
      *out_dims++ = module->dims[value->first_dim + d].size;
    }
  }
}

ingot_status_t ingot_session_measure(ingot_session_t *session, uint32_t function,
                                     const int64_t *argument_dims, uint32_t dim_count,
                                     int64_t *out_result_dims, ingot_measure_t *out_measure) {
  static const int64_t no_dims[1] = {0};
  ingot_vm_context_t *context = &session->context;
  ingot_vm_measure_t measure = {.argument_dims = argument_dims ? argument_dims : no_dims,
                                .result_dims = out_result_dims};
  INGOT_TRY(ingot_session_enter_function(session, function));
  ingot_status_t status = check_dims_of(session, argument_dims, dim_count);
  if (!status) {
    if (out_result_dims) known_dims(context, out_result_dims);
    ingot_vm_context_limit(context, NULL, 0);
    status = ingot_vm_measure_begin(context, &measure);
    ingot_vm_measure_end(context);
  }
  if (!status) *out_measure = (ingot_measure_t){(size_t)measure.slab_length, measure.is_exact};
  ingot_session_leave(session);
  return status;
}

/* -- statistics -------------------------------------------------------------------------------- */

ingot_memory_statistics_t ingot_program_statistics(const ingot_program_t *program) {
  return ingot_hal_account_read(program->account);
}

ingot_memory_statistics_t ingot_session_statistics(const ingot_session_t *session) {
  return ingot_hal_account_read(session->context.account);
}
