/* Init: weights, parameters wrapped for as long as init runs, and the three things that it does.
 */
#include "vm/init.h"

#include <inttypes.h>

#include "base/arithmetic.h"
#include "base/dtype.h"
#include "hal/account.h"
#include "module/instruction.h"
#include "platform/platform.h"

static const ingot_allocator_t *init_allocator(const ingot_vm_init_t *init) {
  return ingot_hal_device_allocator(init->image->device);
}

/* -- weights ----------------------------------------------------------------------------------- */

ingot_status_t ingot_vm_weights_create(const ingot_allocator_t *allocator, uint32_t count,
                                       const ingot_vm_weights_t *old,
                                       ingot_vm_weights_t **out_weights) {
  void *memory = NULL;
  INGOT_TRY(ingot_allocate(
      allocator, sizeof(ingot_vm_weights_t) + (size_t)count * sizeof(ingot_buffer_t *), &memory));
  ingot_vm_weights_t *weights = memory;
  ingot_reference_count_initialize(&weights->references);
  weights->allocator = allocator;
  weights->count = count;
  for (uint32_t i = 0; old && i < count; ++i) {
    if (!old->globals[i]) continue;
    ingot_hal_buffer_retain(old->globals[i]);
    weights->globals[i] = old->globals[i];
  }
  *out_weights = weights;
  return NULL;
}

void ingot_vm_weights_retain(ingot_vm_weights_t *weights) {
  ingot_reference_count_retain(&weights->references);
}

void ingot_vm_weights_release(ingot_vm_weights_t *weights) {
  if (!weights || !ingot_reference_count_release(&weights->references)) return;
  for (uint32_t i = 0; i < weights->count; ++i) ingot_hal_buffer_release(weights->globals[i]);
  ingot_release_memory(weights->allocator, weights);
}

void ingot_vm_weights_set(ingot_vm_weights_t *weights, uint32_t global, ingot_buffer_t *buffer) {
  ingot_hal_buffer_release(weights->globals[global]);
  weights->globals[global] = buffer;
}

int64_t ingot_vm_weights_length(const ingot_vm_weights_t *weights) {
  int64_t length = 0;
  for (uint32_t i = 0; i < weights->count; ++i) {
    ingot_buffer_t *buffer = weights->globals[i];
    bool is_new = buffer != NULL;
    for (uint32_t k = 0; k < i; ++k) is_new = is_new && weights->globals[k] != buffer;
    if (is_new) length += buffer->length;
  }
  return length;
}

/* -- lifetime ---------------------------------------------------------------------------------- */

ingot_status_t ingot_vm_init_initialize(ingot_vm_init_t *init, const ingot_vm_image_t *image,
                                        ingot_vm_weights_t *weights,
                                        const ingot_parameter_span_t *spans) {
  *init = (ingot_vm_init_t){.image = image, .weights = weights, .spans = spans};
  void *parameters = NULL;
  INGOT_TRY(ingot_allocate_array(init_allocator(init), image->module->parameter_count,
                                 sizeof(void *), &parameters));
  init->parameters = parameters;
  return NULL;
}

/* Code reads one parameter after the other. Where it comes back to one, its pages come back, too. */
static void leave_last(ingot_vm_init_t *init, const ingot_parameter_span_t *next) {
  if (init->last == next) return;
  if (init->last && init->last->is_mapped) ingot_memory_leave(init->last->data, init->last->length);
  init->last = next;
}

void ingot_vm_init_deinitialize(ingot_vm_init_t *init) {
  for (uint32_t i = 0; init->parameters && i < init->image->module->parameter_count; ++i) {
    ingot_hal_buffer_release(init->parameters[i]);
  }
  for (uint32_t i = 0; i < init->arena_count; ++i) {
    ingot_hal_buffer_settle(init->arenas[i]);
    ingot_hal_buffer_release(init->arenas[i]);
  }
  leave_last(init, NULL);
  ingot_release_memory(init_allocator(init), init->parameters);
  ingot_release_memory(init_allocator(init), init->arenas);
}

void ingot_vm_init_scan(const ingot_module_t *module, const ingot_layout_function_t *function,
                        bool *parameters, bool *globals) {
  const uint16_t *code = module->code + function->code_offset;
  uint32_t length = (uint32_t)function->code_length;
  ingot_decoded_t decoded;
  for (uint32_t word = 0; ingot_instruction_decode(code, length, word, &decoded);
       word = decoded.next) {
    bool *marks = decoded.code == INGOT_OP_PARAMETER      ? parameters
                  : decoded.code == INGOT_OP_GLOBAL_STORE ? globals
                                                          : NULL;
    if (marks) marks[decoded.operands[decoded.operand_count - 1].value] = true;
  }
}

/* -- instructions ------------------------------------------------------------------------------ */

ingot_status_t ingot_vm_init_parameter(ingot_vm_init_t *init, uint32_t parameter,
                                       ingot_buffer_t **out_buffer) {
  if (!init->parameters[parameter]) {
    const ingot_parameter_span_t *span = &init->spans[parameter];
    ingot_device_t *device = init->image->device;
    size_t alignment = ingot_dtype_length(span->dtype);
    ingot_hal_account_t *account = init->image->account;
    ingot_buffer_t *buffer = NULL;
    ingot_status_t status = NULL;
    if ((uintptr_t)span->data % alignment == 0) {
      INGOT_TRY(ingot_hal_buffer_wrap(device, (void *)(uintptr_t)span->data, (int64_t)span->length,
                                      INGOT_HAL_ACCESS_READ, NULL, NULL, &buffer));
      status = ingot_hal_account_add(account, INGOT_MEMORY_PARAMETERS, buffer);
    } else { /* kernels rely on aligned elements; files do not */
      INGOT_TRY(ingot_hal_buffer_create_counted(device, account, INGOT_MEMORY_PARAMETERS,
                                                (int64_t)span->length, &buffer));
      status = ingot_hal_buffer_write(buffer, 0, (int64_t)span->length, span->data);
    }
    if (status) {
      ingot_hal_buffer_release(buffer);
      return status;
    }
    init->parameters[parameter] = buffer;
  }
  leave_last(init, &init->spans[parameter]);
  *out_buffer = init->parameters[parameter];
  return NULL;
}

ingot_status_t ingot_vm_init_arena(ingot_vm_init_t *init, ingot_hal_queue_t *queue, int64_t length,
                                   ingot_buffer_t **out_buffer) {
  void *arenas = init->arenas;
  INGOT_TRY(ingot_reallocate_array(init_allocator(init), (size_t)init->arena_count + 1,
                                   sizeof(*init->arenas), &arenas));
  init->arenas = arenas;
  ingot_buffer_t *buffer = NULL;
  INGOT_TRY(ingot_hal_buffer_create_counted(init->image->device, init->image->account,
                                            INGOT_MEMORY_WEIGHTS, length, &buffer));
  init->arenas[init->arena_count++] = buffer;
  *out_buffer = buffer;
  return ingot_hal_queue_fill(queue, buffer, 0, length, 0, 1);
}

ingot_status_t ingot_vm_init_set_global(ingot_vm_init_t *init, uint32_t global,
                                        ingot_buffer_t *buffer) {
  bool lasts = buffer == init->image->constants;
  for (uint32_t i = 0; !lasts && i < init->arena_count; ++i) lasts = buffer == init->arenas[i];
  if (!lasts) {
    return ingot_status_create(init_allocator(init), INGOT_STATUS_INVALID_ARGUMENT,
                               "global %" PRIu32
                               " is set to a buffer that ends with init; expected an arena or the "
                               "constants",
                               global);
  }
  ingot_hal_buffer_retain(buffer);
  ingot_vm_weights_set(init->weights, init->image->first_global + global, buffer);
  return NULL;
}
