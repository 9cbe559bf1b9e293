/* Calls under a debugger: the marked copy of their code. */
#include "vm/debug.h"

#include <string.h>

#include "module/instruction.h"

static const ingot_layout_function_t *function_of(const ingot_vm_context_t *context) {
  return &context->image->module->functions[context->function];
}

ingot_status_t ingot_vm_mark(ingot_vm_context_t *context, bool (*is_marked)(uint32_t code),
                             ingot_vm_trap_t trap) {
  const ingot_layout_function_t *function = function_of(context);
  uint32_t length = (uint32_t)function->code_length;
  void *memory = NULL;
  INGOT_TRY(ingot_allocate_array(ingot_hal_device_allocator(context->device), length,
                                 sizeof(uint16_t), &memory));
  uint16_t *words = memory;
  const uint16_t *code = context->image->module->code + function->code_offset;
  memcpy(words, code, length * sizeof(*words));
  ingot_decoded_t decoded;
  for (uint32_t word = 0; ingot_instruction_decode(code, length, word, &decoded);) {
    if (!is_marked || is_marked(decoded.code)) words[word] |= INGOT_VM_TRAP;
    word = decoded.next;
  }
  memset(context->registers, 0, (size_t)ingot_module_register_bytes(function));
  context->marked = words;
  context->trap = trap;
  context->code = words;
  return NULL;
}

void ingot_vm_unmark(ingot_vm_context_t *context) {
  ingot_release_memory(ingot_hal_device_allocator(context->device), context->marked);
  context->marked = NULL;
}

ingot_status_t ingot_vm_debug_stop(ingot_vm_context_t *context, const uint16_t **pc, int64_t *i64,
                                   ingot_buffer_t **references) {
  const ingot_module_t *module = context->image->module;
  const ingot_layout_function_t *function = function_of(context);
  const ingot_layout_location_t *location = ingot_vm_location(context, *pc);
  const ingot_debug_stop_t stop = {
      .module = module,
      .function = context->function,
      .word = (uint32_t)(*pc - context->code),
      .layer = location ? ingot_module_string(module, location->layer) : "",
      .operations = location ? ingot_module_string(module, location->op) : "",
      .i64_count = function->i64_count,
      .f64_count = function->f64_count,
      .buffer_count = function->ref_count,
      .i64 = i64,
      .f64 = (const double *)(const void *)(i64 + function->i64_count),
      .buffers = references,
  };
  if (context->debug(context->debug_user, &stop)) return NULL;
  return ingot_status_create(ingot_hal_device_allocator(context->device), INGOT_STATUS_CANCELLED,
                             "the debugger ended the call");
}
