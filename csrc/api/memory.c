/* What applications ask about memory: sizes of calls in advance, statistics.
 */
#include <inttypes.h>
#include <stdio.h>

#include "api/session.h"
#include "hal/account.h"
#include "vm/measure.h"

/* -- measuring --------------------------------------------------------------------------------- */

/* Stands for the arguments of a call: tensors of these dims without bytes. */
typedef struct shapes_t {
  ingot_buffer_view_t **views;
  const ingot_module_t *module;
  const ingot_layout_function_t *function;
} shapes_t;

static bool is_tensor(const ingot_layout_value_t *value) { return value->kind == 0; }

static ingot_status_t check_dim(const ingot_session_t *session, const shapes_t *shapes,
                                uint32_t argument, uint32_t dim, int64_t size) {
  const ingot_module_t *module = shapes->module;
  const ingot_layout_value_t *value = &module->values[shapes->function->first_value + argument];
  int64_t expected = module->dims[value->first_dim + dim].size;
  if (size >= 0 && (expected < 0 || expected == size)) return NULL;
  char text[32] = "at least 0";
  if (expected >= 0) (void)snprintf(text, sizeof(text), "%" PRId64, expected);
  return ingot_status_create(ingot_session_allocator(session), INGOT_STATUS_INVALID_ARGUMENT,
                             "argument %u '%s': dim %u is %" PRId64 ", expected %s", argument,
                             ingot_module_string(module, value->name), dim, size, text);
}

static ingot_status_t check_dim_count(const ingot_session_t *session, const shapes_t *shapes,
                                      uint32_t count) {
  const ingot_layout_value_t *values = &shapes->module->values[shapes->function->first_value];
  uint32_t expected = 0;
  for (uint32_t i = 0; i < shapes->function->argument_count; ++i) {
    if (is_tensor(&values[i])) expected += values[i].rank;
  }
  if (count == expected) return NULL;
  return ingot_status_create(ingot_session_allocator(session), INGOT_STATUS_INVALID_ARGUMENT,
                             "function '%s' takes tensors with %u dims together, %u are given",
                             ingot_module_string(shapes->module, shapes->function->name), expected,
                             count);
}

/* Fills in views of the arguments; those that are no tensors have none. */
static ingot_status_t make_shapes(const ingot_session_t *session, shapes_t *shapes,
                                  const int64_t *dims) {
  const ingot_allocator_t *allocator = ingot_session_allocator(session);
  const ingot_layout_value_t *values = &shapes->module->values[shapes->function->first_value];
  for (uint32_t i = 0; i < shapes->function->argument_count; ++i) {
    void *memory = NULL;
    if (!is_tensor(&values[i])) continue;
    INGOT_TRY(ingot_allocate(
        allocator, sizeof(ingot_buffer_view_t) + values[i].rank * sizeof(int64_t), &memory));
    shapes->views[i] = memory;
    for (uint32_t d = 0; d < values[i].rank; ++d) {
      INGOT_TRY(check_dim(session, shapes, i, d, dims[d]));
      shapes->views[i]->dims[d] = dims[d];
    }
    dims += values[i].rank;
  }
  return NULL;
}

/* The dims of the results as far as the signature has them. */
static void known_dims(const shapes_t *shapes, int64_t *out_dims) {
  const ingot_layout_function_t *function = shapes->function;
  const ingot_layout_value_t *results =
      &shapes->module->values[function->first_value] + function->argument_count;
  for (uint32_t r = 0; r < function->result_count; ++r) {
    for (uint32_t d = 0; is_tensor(&results[r]) && d < results[r].rank; ++d) {
      *out_dims++ = shapes->module->dims[results[r].first_dim + d].size;
    }
  }
}

static ingot_status_t measure_call(ingot_session_t *session, shapes_t *shapes,
                                   const int64_t *argument_dims, uint32_t dim_count,
                                   int64_t *out_result_dims, ingot_measure_t *out_measure) {
  ingot_vm_context_t *context = &session->context;
  ingot_vm_measure_t measure = {.result_dims = out_result_dims};
  void *views = NULL;
  INGOT_TRY(check_dim_count(session, shapes, dim_count));
  INGOT_TRY(ingot_allocate_array(ingot_session_allocator(session), shapes->function->argument_count,
                                 sizeof(*shapes->views), &views));
  shapes->views = views;
  INGOT_TRY(make_shapes(session, shapes, argument_dims));
  if (out_result_dims) known_dims(shapes, out_result_dims);
  context->arguments = shapes->views;
  ingot_vm_context_limit(context, NULL, 0);
  ingot_status_t status = ingot_vm_measure_begin(context, &measure);
  ingot_vm_measure_end(context);
  if (!status) *out_measure = (ingot_measure_t){(size_t)measure.slab_length, measure.is_exact};
  return status;
}

ingot_status_t ingot_session_measure(ingot_session_t *session, uint32_t function,
                                     const int64_t *argument_dims, uint32_t dim_count,
                                     int64_t *out_result_dims, ingot_measure_t *out_measure) {
  const ingot_allocator_t *allocator = ingot_session_allocator(session);
  INGOT_TRY(ingot_session_enter_function(session, function));
  const ingot_module_t *module = session->context.image->module;
  shapes_t shapes = {NULL, module, &module->functions[session->context.function]};
  ingot_status_t status =
      measure_call(session, &shapes, argument_dims, dim_count, out_result_dims, out_measure);
  for (uint32_t i = 0; shapes.views && i < shapes.function->argument_count; ++i) {
    ingot_release_memory(allocator, shapes.views[i]);
  }
  ingot_release_memory(allocator, shapes.views);
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
