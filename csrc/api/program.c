/* Programs: lifetime, and the functions that can be called. They are made in create_program.c. */
#include "api/program.h"

#include <string.h>

#include "base/text.h"
#include "hal/account.h"

/* -- lifetime ---------------------------------------------------------------------------------- */

void ingot_program_retain(ingot_program_t *program) {
  ingot_reference_count_retain(&program->references);
}

void ingot_program_release(ingot_program_t *program) {
  if (!program || !ingot_reference_count_release(&program->references)) return;
  ingot_device_t *device = program->device;
  ingot_vm_weights_release(program->weights);
  for (uint32_t i = 0; i < program->image_count; ++i) {
    ingot_vm_image_deinitialize(&program->images[i]);
  }
  ingot_hal_account_release(program->account);
  ingot_mutex_deinitialize(&program->mutex);
  for (uint32_t i = 0; program->names && i < program->image_count; ++i) {
    ingot_release_memory(ingot_program_allocator(program), program->names[i]);
  }
  ingot_release_memory(ingot_program_allocator(program), program->names);
  ingot_release_memory(ingot_program_allocator(program), program->links);
  ingot_release_memory(ingot_program_allocator(program), program->functions);
  ingot_release_memory(ingot_program_allocator(program), program->images);
  ingot_release_memory(ingot_program_allocator(program), program);
  ingot_hal_device_release(device); /* last: it keeps the allocator alive */
}

/* -- questions --------------------------------------------------------------------------------- */

uint32_t ingot_program_function_count(const ingot_program_t *program) {
  return program->function_count;
}

ingot_status_t ingot_program_function(const ingot_program_t *program, uint32_t function,
                                      ingot_module_t **out_module, uint32_t *out_module_function) {
  if (function >= program->function_count) {
    return ingot_status_create(ingot_program_allocator(program), INGOT_STATUS_OUT_OF_RANGE,
                               "program: function %u of %u", function, program->function_count);
  }
  *out_module = program->images[program->functions[function].image].module;
  *out_module_function = program->functions[function].function;
  return NULL;
}

bool ingot_program_find_link(const ingot_program_t *program, const char *name,
                             uint32_t *out_function) {
  for (uint32_t i = 0; i < program->function_count; ++i) {
    const char *scope = program->names[program->functions[i].image];
    size_t length = strlen(scope);
    if (length == 0 || strncmp(name, scope, length) != 0 || name[length] != '.') continue;
    if (strcmp(name + length + 1, ingot_program_function_name(program, i)) != 0) continue;
    *out_function = i;
    return true;
  }
  return false;
}

/* Names are shown with that of their module, if it has one. */
static ingot_status_t no_function(const ingot_program_t *program, const char *name,
                                  uint32_t found) {
  char names[512] = "";
  for (uint32_t i = 0; i < program->function_count; ++i) {
    if (found > 0 && strcmp(ingot_program_function_name(program, i), name) != 0) continue;
    const char *scope = program->names[program->functions[i].image];
    (void)ingot_text_add(names, sizeof(names), "%s'%s%s%s'", names[0] ? ", " : "", scope,
                         scope[0] ? "." : "", ingot_program_function_name(program, i));
  }
  return ingot_status_create(ingot_program_allocator(program), INGOT_STATUS_NOT_FOUND,
                             "there is %s function '%s'; the program has %s",
                             found > 0 ? "more than one" : "no", name, names[0] ? names : "none");
}

ingot_status_t ingot_program_find_function(const ingot_program_t *program, const char *name,
                                           uint32_t *out_function) {
  uint32_t function = 0;
  if (ingot_program_find_link(program, name, out_function)) return NULL;
  uint32_t found = 0;
  for (uint32_t i = 0; i < program->function_count; ++i) {
    if (strcmp(ingot_program_function_name(program, i), name) != 0) continue;
    ++found;
    function = i;
  }
  if (found != 1) return no_function(program, name, found);
  *out_function = function;
  return NULL;
}
