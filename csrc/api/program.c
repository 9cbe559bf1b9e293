/* Programs: modules made ready on a device, with init run. Parameters are parameters.c,
 * native functions natives.c.
 */
#include "api/program.h"

#include <stdio.h>
#include <string.h>

#include "base/float_environment.h"
#include "platform/platform.h"
#include "vm/context.h"

static const ingot_allocator_t *program_allocator(const ingot_program_t *program) {
  return ingot_hal_device_allocator(program->device);
}

/* -- creation ---------------------------------------------------------------------------------- */

/* Lists the exported functions of an image behind those before it. */
static ingot_status_t list_functions(ingot_program_t *program, uint32_t image_ordinal) {
  const ingot_vm_image_t *image = &program->images[image_ordinal];
  const ingot_module_t *module = image->module;
  uint32_t before = program->function_count;
  const char *other = NULL;
  for (uint32_t i = 0; i < module->function_count; ++i) {
    const ingot_layout_function_t *function = &module->functions[i];
    if (!(function->flags & INGOT_FUNCTION_EXPORTED)) continue;
    if (!ingot_vm_image_has_target(image, function->target)) {
      other = ingot_module_string(module, function->target);
      continue;
    }
    program->functions[program->function_count++] = (ingot_program_function_t){image_ordinal, i};
  }
  if (program->function_count > before || !other) return NULL;
  return ingot_status_create(program_allocator(program), INGOT_STATUS_UNSUPPORTED,
                             "the module has code for target '%s' only, and the device is '%s': "
                             "compile it for both, with `ingot compile --target %s,%s` or "
                             "ingot.compile(..., target=[\"%s\", \"%s\"])",
                             other, program->device->target, other, program->device->target, other,
                             program->device->target);
}

/* Exported names are looked up without their module, so they must differ; within a module
 * they do. */
static ingot_status_t check_names(const ingot_program_t *program) {
  if (program->image_count < 2) return NULL;
  for (uint32_t i = 0; i < program->function_count; ++i) {
    ingot_program_function_t one = program->functions[i];
    const ingot_module_t *module = program->images[one.image].module;
    const char *name = ingot_module_string(module, module->functions[one.function].name);
    uint32_t found = 0;
    INGOT_TRY(ingot_program_find_function(program, name, &found));
    if (found == i) continue;
    return ingot_status_create(program_allocator(program), INGOT_STATUS_INVALID_ARGUMENT,
                               "two of the modules have a function '%s': compile one under another "
                               "name, with `ingot compile NAME=MODEL`",
                               name);
  }
  return NULL;
}

/* Init is code without loops, or nearly: what takes so many steps never ends. */
#define INIT_MAX_STEPS (INT64_C(1) << 27)

/* How programs are made: the caller's options, and since when. */
typedef struct making_t {
  const ingot_parameters_t *parameters;
  ingot_program_options_t options;
  int64_t begin; /* of ingot_clock */
} making_t;

static ingot_status_t run_init_functions(ingot_vm_image_t *image, const making_t *making) {
  const ingot_module_t *module = image->module;
  ingot_vm_context_t context;
  ingot_status_t status = ingot_vm_context_initialize(&context, image->device, image, 1);
  context.image = image;
  context.initializing = image;
  context.zero_memory = making->options.zero_memory;
  atomic_init(&context.stop.flags, INGOT_STOP_BUSY | INGOT_STOP_CALL);
  ingot_vm_context_limit(&context, &making->options.limits, making->begin);
  if (!status && ingot_stop_is_due(&context.stop, true)) {
    status = ingot_stop_status(ingot_hal_device_allocator(image->device), &context.stop);
  }
  ingot_float_environment_t saved = ingot_float_environment_enter();
  for (uint32_t i = 0; !status && i < module->function_count; ++i) {
    const ingot_layout_function_t *function = &module->functions[i];
    if (!(function->flags & INGOT_FUNCTION_INIT)) continue;
    if (!ingot_vm_image_has_target(image, function->target)) continue;
    context.function = i;
    status = ingot_vm_run(&context);
  }
  if (!status) status = ingot_hal_queue_wait(context.queue);
  ingot_float_environment_leave(saved);
  ingot_vm_context_deinitialize(&context); /* waits for the queue */
  return ingot_status_prefix(status, "init");
}

static ingot_status_t create_image(ingot_program_t *program, ingot_module_t *module,
                                   const making_t *making) {
  ingot_vm_image_t *image = &program->images[program->image_count];
  uint32_t first_variable = 0;
  for (uint32_t i = 0; i < program->image_count; ++i) {
    first_variable += program->images[i].module->variable_count;
  }
  const ingot_allocator_t *allocator = program_allocator(program);
  void *spans = NULL;
  INGOT_TRY(ingot_allocate_array(allocator, module->parameter_count, sizeof(ingot_parameter_span_t),
                                 &spans));
  ingot_status_t status = ingot_program_find_parameters(module, making->parameters, spans);
  if (!status) {
    ++program->image_count;
    status = ingot_vm_image_initialize(image, program->device, module, spans);
    image->first_variable = first_variable;
    if (!status) status = ingot_program_take_natives(image, &making->options);
    if (!status) status = list_functions(program, program->image_count - 1);
    if (!status) status = run_init_functions(image, making);
    ingot_vm_image_finish_init(image);
  }
  ingot_release_memory(allocator, spans);
  return status;
}

static ingot_status_t create_images(ingot_program_t *program, ingot_module_t *const *modules,
                                    uint32_t module_count, const making_t *making) {
  const ingot_allocator_t *allocator = program_allocator(program);
  size_t function_count = 0;
  for (uint32_t i = 0; i < module_count; ++i) function_count += modules[i]->function_count;
  void *memory = NULL;
  INGOT_TRY(ingot_allocate_array(allocator, module_count, sizeof(*program->images), &memory));
  program->images = memory;
  INGOT_TRY(ingot_program_check_natives(program->device, modules, module_count, &making->options));
  INGOT_TRY(ingot_allocate_array(allocator, function_count, sizeof(*program->functions), &memory));
  program->functions = memory;
  for (uint32_t i = 0; i < module_count; ++i) {
    INGOT_TRY(create_image(program, modules[i], making));
  }
  return check_names(program);
}

ingot_status_t ingot_program_create(ingot_device_t *device, ingot_module_t *const *modules,
                                    uint32_t module_count, const ingot_parameters_t *parameters,
                                    const ingot_program_options_t *options,
                                    ingot_program_t **out_program) {
  making_t making = {.parameters = parameters, .begin = ingot_clock()};
  if (options) making.options = *options;
  if (making.options.limits.max_steps <= 0) making.options.limits.max_steps = INIT_MAX_STEPS;
  void *memory = NULL;
  INGOT_TRY(ingot_allocate(ingot_hal_device_allocator(device), sizeof(ingot_program_t), &memory));
  ingot_program_t *program = memory;
  ingot_reference_count_initialize(&program->references);
  ingot_hal_device_retain(device);
  program->device = device;
  program->zero_memory = making.options.zero_memory;
  ingot_status_t status = create_images(program, modules, module_count, &making);
  if (status) {
    ingot_program_release(program);
    return status;
  }
  *out_program = program;
  return NULL;
}

void ingot_program_retain(ingot_program_t *program) {
  ingot_reference_count_retain(&program->references);
}

void ingot_program_release(ingot_program_t *program) {
  if (!program || !ingot_reference_count_release(&program->references)) return;
  ingot_device_t *device = program->device;
  for (uint32_t i = 0; i < program->image_count; ++i) {
    ingot_vm_image_deinitialize(&program->images[i]);
  }
  ingot_release_memory(program_allocator(program), program->functions);
  ingot_release_memory(program_allocator(program), program->images);
  ingot_release_memory(program_allocator(program), program);
  ingot_hal_device_release(device); /* last: it keeps the allocator alive */
}

/* -- questions --------------------------------------------------------------------------------- */

uint32_t ingot_program_function_count(const ingot_program_t *program) {
  return program->function_count;
}

ingot_status_t ingot_program_function(const ingot_program_t *program, uint32_t function,
                                      ingot_module_t **out_module, uint32_t *out_module_function) {
  if (function >= program->function_count) {
    return ingot_status_create(program_allocator(program), INGOT_STATUS_OUT_OF_RANGE,
                               "program: function %u of %u", function, program->function_count);
  }
  *out_module = program->images[program->functions[function].image].module;
  *out_module_function = program->functions[function].function;
  return NULL;
}

static const char *function_name(const ingot_program_t *program, uint32_t ordinal) {
  ingot_program_function_t function = program->functions[ordinal];
  const ingot_module_t *module = program->images[function.image].module;
  return ingot_module_string(module, module->functions[function.function].name);
}

ingot_status_t ingot_program_find_function(const ingot_program_t *program, const char *name,
                                           uint32_t *out_function) {
  for (uint32_t i = 0; i < program->function_count; ++i) {
    if (strcmp(function_name(program, i), name) != 0) continue;
    *out_function = i;
    return NULL;
  }
  char names[512] = "";
  for (uint32_t i = 0; i < program->function_count; ++i) {
    size_t length = strlen(names);
    (void)snprintf(names + length, sizeof(names) - length, "%s'%s'", i ? ", " : "",
                   function_name(program, i));
  }
  return ingot_status_create(program_allocator(program), INGOT_STATUS_NOT_FOUND,
                             "there is no function '%s'; the program has %s", name,
                             names[0] ? names : "none");
}
