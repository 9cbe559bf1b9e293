/* Making a program: modules made ready on a device. Init is weights.c, parameters are parameters.c,
 * native functions natives.c.
 */
#include <string.h>

#include "api/program.h"
#include "hal/account.h"
#include "platform/platform.h"

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
  return ingot_status_create(ingot_program_allocator(program), INGOT_STATUS_UNSUPPORTED,
                             "the module has code for target '%s' only, and the device is '%s': "
                             "compile it for both, with `ingot compile --target %s,%s` or "
                             "ingot.compile(..., target=[\"%s\", \"%s\"])",
                             other, program->device->target, other, program->device->target, other,
                             program->device->target);
}

/* Functions of modules without a name must differ in theirs; within a module they do. */
static ingot_status_t check_names(const ingot_program_t *program) {
  if (program->image_count < 2) return NULL;
  for (uint32_t i = 0; i < program->function_count; ++i) {
    if (program->names[program->functions[i].image][0]) continue;
    uint32_t found = 0;
    while (strcmp(ingot_program_function_name(program, found),
                  ingot_program_function_name(program, i)) != 0)
      ++found;
    if (found == i) continue;
    return ingot_status_create(ingot_program_allocator(program), INGOT_STATUS_INVALID_ARGUMENT,
                               "two of the modules have a function '%s': give the modules names",
                               ingot_program_function_name(program, i));
  }
  return NULL;
}

/* Copies the names of the modules, which must differ. */
static ingot_status_t take_names(ingot_program_t *program, const ingot_program_options_t *options) {
  const ingot_allocator_t *allocator = ingot_program_allocator(program);
  void *memory = NULL;
  INGOT_TRY(ingot_allocate_array(allocator, program->image_count, sizeof(char *), &memory));
  program->names = memory;
  for (uint32_t i = 0; i < program->image_count; ++i) {
    const char *name = options->names && options->names[i] ? options->names[i] : "";
    size_t length = strlen(name) + 1;
    INGOT_TRY(ingot_allocate(allocator, length, &memory));
    program->names[i] = memory;
    memcpy(memory, name, length);
    for (uint32_t k = 0; k < i; ++k) {
      if (!name[0] || strcmp(name, program->names[k]) != 0) continue;
      return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                                 "two of the modules have the name '%s'", name);
    }
  }
  return NULL;
}

static ingot_status_t create_image(ingot_program_t *program, ingot_module_t *module) {
  ingot_vm_image_t *image = &program->images[program->image_count];
  for (uint32_t i = 0; i < program->image_count; ++i) {
    image->first_variable += program->images[i].module->variable_count;
    image->first_global += program->images[i].module->global_count;
  }
  ++program->image_count;
  INGOT_TRY(ingot_vm_image_initialize(image, program->device, program->account, module));
  return list_functions(program, program->image_count - 1);
}

static ingot_status_t create_images(ingot_program_t *program, ingot_module_t *const *modules,
                                    uint32_t module_count, const ingot_program_options_t *options) {
  const ingot_allocator_t *allocator = ingot_program_allocator(program);
  size_t function_count = 0;
  for (uint32_t i = 0; i < module_count; ++i) function_count += modules[i]->function_count;
  void *memory = NULL;
  INGOT_TRY(ingot_allocate_array(allocator, module_count, sizeof(*program->images), &memory));
  program->images = memory;
  INGOT_TRY(ingot_allocate_array(allocator, function_count, sizeof(*program->functions), &memory));
  program->functions = memory;
  for (uint32_t i = 0; i < module_count; ++i) INGOT_TRY(create_image(program, modules[i]));
  INGOT_TRY(take_names(program, options));
  INGOT_TRY(check_names(program));
  return INGOT_WITH_NATIVES ? ingot_program_take_natives(program, options) : NULL;
}

/* The first weights: what lies packed in files, then what init makes. */
static ingot_status_t create_weights(ingot_program_t *program, const ingot_parameters_t *parameters,
                                     const ingot_program_options_t *options, int64_t begin) {
  ingot_vm_weights_t *weights = NULL;
  uint32_t global_count = 0;
  for (uint32_t i = 0; i < program->image_count; ++i) {
    global_count += program->images[i].module->global_count;
  }
  INGOT_TRY(
      ingot_vm_weights_create(ingot_program_allocator(program), global_count, NULL, &weights));
  atomic_init(&program->weights, weights);
  for (uint32_t i = 0; i < options->packed_count; ++i) {
    INGOT_TRY(
        ingot_program_open_packed(program, options->packed[i], options->verify_packed, weights));
  }
  const ingot_making_t making = {parameters, &options->limits, begin, false, NULL};
  if (INGOT_WITH_INIT) INGOT_TRY(ingot_program_make_weights(program, &making, weights));
  /* What init alone needed of the constants need not stay on the device. */
  for (uint32_t i = 0; i < program->image_count; ++i) {
    ingot_hal_buffer_trim(program->images[i].constants);
  }
  return NULL;
}

ingot_status_t ingot_program_create(ingot_device_t *device, ingot_module_t *const *modules,
                                    uint32_t module_count, const ingot_parameters_t *parameters,
                                    const ingot_program_options_t *options,
                                    ingot_program_t **out_program) {
  ingot_program_options_t wanted = {.packed_count = 0};
  int64_t begin = ingot_clock();
  if (options) wanted = *options;
  void *memory = NULL;
  INGOT_TRY(ingot_allocate(ingot_hal_device_allocator(device), sizeof(ingot_program_t), &memory));
  ingot_program_t *program = memory;
  ingot_reference_count_initialize(&program->references);
  ingot_hal_device_retain(device);
  program->device = device;
  program->zero_memory = wanted.zero_memory;
  ingot_mutex_initialize(&program->mutex);
  ingot_status_t status = ingot_hal_account_create(ingot_program_allocator(program), "program",
                                                   wanted.memory_limit, NULL, &program->account);
  if (!status) status = create_images(program, modules, module_count, &wanted);
  if (!status) status = create_weights(program, parameters, &wanted, begin);
  if (status) {
    ingot_program_release(program);
    return status;
  }
  *out_program = program;
  return NULL;
}
