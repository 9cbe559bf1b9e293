/* Weights of programs: init functions are chosen and run, once when a program is made, and again
 * for parameters that are swapped.
 */
#include <string.h>

#include "api/program.h"
#include "base/float_environment.h"
#include "platform/platform.h"
#include "vm/context.h"

/* Init is code without loops, or nearly: what takes so many steps never ends. */
#define INIT_MAX_STEPS (INT64_C(1) << 27)

/* What is to be done for one image. The arrays lie in one block. */
typedef struct plan_t {
  const ingot_vm_image_t *image;
  const ingot_parameter_span_t *spans;
  bool *runs;   /* per function */
  bool *wanted; /* per parameter: read by one that runs */
  bool *reads;  /* of one function */
  bool *sets;   /* the same per global */
} plan_t;

/* -- which functions run ----------------------------------------------------------------------- */

bool ingot_program_reads_scope(const ingot_module_t *module, const bool *reads, const char *scope) {
  for (uint32_t i = 0; i < module->parameter_count; ++i) {
    if (!reads[i]) continue;
    if (!scope || strcmp(ingot_module_string(module, module->parameters[i].scope), scope) == 0) {
      return true;
    }
  }
  return false;
}

/* Whether all that the function makes is there; not for one that makes nothing. */
static bool is_made(const plan_t *plan, const ingot_vm_weights_t *weights) {
  bool found = false;
  for (uint32_t i = 0; i < plan->image->module->global_count; ++i) {
    if (!plan->sets[i]) continue;
    if (!weights->globals[plan->image->first_global + i]) return false;
    found = true;
  }
  return found;
}

/* Whether any function runs. */
static bool choose_functions(plan_t *plan, const ingot_making_t *making,
                             const ingot_vm_weights_t *weights) {
  const ingot_module_t *module = plan->image->module;
  bool any = false;
  for (uint32_t f = 0; f < module->function_count; ++f) {
    const ingot_layout_function_t *function = &module->functions[f];
    if (!ingot_vm_image_is_init(plan->image, function)) continue;
    memset(plan->reads, 0, module->parameter_count);
    memset(plan->sets, 0, module->global_count);
    ingot_vm_init_scan(module, function, plan->reads, plan->sets);
    plan->runs[f] = making->swaps ? ingot_program_reads_scope(module, plan->reads, making->scope)
                                  : !is_made(plan, weights);
    if (!plan->runs[f]) continue;
    any = true;
    for (uint32_t i = 0; i < module->parameter_count; ++i) plan->wanted[i] |= plan->reads[i];
  }
  return any;
}

/* -- running them ------------------------------------------------------------------------------ */

static ingot_status_t run_functions(const plan_t *plan, const ingot_making_t *making,
                                    bool zero_memory, ingot_vm_init_t *init) {
  const ingot_vm_image_t *image = plan->image;
  ingot_vm_context_t context;
  ingot_call_options_t limits = *making->limits;
  if (limits.max_steps <= 0) limits.max_steps = INIT_MAX_STEPS;
  ingot_status_t status = ingot_vm_context_initialize(&context, image->device, image, 1);
  context.image = image;
  context.initializing = init;
  context.globals = init->weights->globals + image->first_global;
  context.zero_memory = zero_memory;
  context.account = image->account;
  atomic_init(&context.stop.flags, INGOT_STOP_BUSY | INGOT_STOP_CALL);
  ingot_vm_context_limit(&context, &limits, making->begin);
  if (!status && ingot_stop_is_due(&context.stop, true)) {
    status = ingot_stop_status(ingot_hal_device_allocator(image->device), &context.stop);
  }
  ingot_float_environment_t saved = ingot_float_environment_enter();
  for (uint32_t f = 0; !status && f < image->module->function_count; ++f) {
    if (!plan->runs[f]) continue;
    context.function = f;
    status = ingot_vm_run(&context);
  }
  if (!status) status = ingot_hal_queue_wait(context.queue);
  ingot_float_environment_leave(saved);
  ingot_vm_context_deinitialize(&context); /* waits for the queue */
  return ingot_status_prefix(status, "init");
}

static ingot_status_t run_plan(const ingot_program_t *program, const plan_t *plan,
                               const ingot_making_t *making, ingot_parameter_span_t *spans,
                               ingot_vm_weights_t *weights) {
  ingot_vm_init_t init;
  INGOT_TRY(
      ingot_program_find_parameters(plan->image->module, plan->wanted, making->parameters, spans));
  ingot_status_t status = ingot_vm_init_initialize(&init, plan->image, weights, spans);
  if (!status) status = run_functions(plan, making, program->zero_memory, &init);
  ingot_vm_init_deinitialize(&init);
  return status;
}

/* Adds whether a function has run to `any`. */
static ingot_status_t make_image_weights(const ingot_program_t *program,
                                         const ingot_vm_image_t *image,
                                         const ingot_making_t *making, ingot_vm_weights_t *weights,
                                         bool *any) {
  const ingot_allocator_t *allocator = ingot_program_allocator(program);
  const ingot_module_t *module = image->module;
  void *spans = NULL;
  void *marks = NULL;
  INGOT_TRY(ingot_allocate_array(allocator, module->parameter_count, sizeof(ingot_parameter_span_t),
                                 &spans));
  size_t mark_count = (size_t)module->function_count + module->global_count;
  ingot_status_t status = ingot_allocate_array(
      allocator, mark_count + 2 * (size_t)module->parameter_count, sizeof(bool), &marks);
  if (!status) {
    bool *runs = marks;
    plan_t plan = {.image = image, .runs = runs, .sets = runs + module->function_count};
    plan.wanted = plan.sets + module->global_count;
    plan.reads = plan.wanted + module->parameter_count;
    if (choose_functions(&plan, making, weights)) {
      *any = true;
      status = run_plan(program, &plan, making, spans, weights);
    }
  }
  ingot_release_memory(allocator, marks);
  ingot_release_memory(allocator, spans);
  return status;
}

ingot_status_t ingot_program_make_weights(const ingot_program_t *program,
                                          const ingot_making_t *making,
                                          ingot_vm_weights_t *weights) {
  bool any = false;
  for (uint32_t i = 0; i < program->image_count; ++i) {
    INGOT_TRY(make_image_weights(program, &program->images[i], making, weights, &any));
  }
  if (any || !making->swaps) return NULL;
  return ingot_program_refuse_scope(program, making->scope);
}

ingot_vm_weights_t *ingot_program_hold_weights(ingot_program_t *program) {
  ingot_mutex_lock(&program->mutex);
  ingot_vm_weights_t *weights = program->weights;
  ingot_vm_weights_retain(weights);
  ingot_mutex_unlock(&program->mutex);
  return weights;
}
