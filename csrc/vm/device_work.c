/* Instructions that reach the device or the caller's tensors.
 */
#include "vm/device_work.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/float.h"
#include "module/instruction.h"
#include "vm/list.h"
#include "vm/scalar.h"

/* -- dispatch ---------------------------------------------------------------------------------- */

ingot_status_t ingot_vm_dispatch(ingot_vm_context_t *context, const uint16_t **pc,
                                 const int64_t *i64, ingot_buffer_t *const *references) {
  ingot_hal_binding_t bindings[INGOT_HAL_MAX_BINDINGS];
  const ingot_module_t *module = context->image->module;
  const uint16_t *words = *pc + 1;
  uint32_t entry = *words++;
  uint32_t executable = module->entry_executables[entry];
  const ingot_hal_dispatch_t dispatch = {
      .executable = context->image->executables[executable],
      .entry = entry - module->executables[executable].first_entry,
      .binding_count = words[6 + words[5]],
      .constant_count = words[5],
      .bindings = bindings,
      .constants = context->constants,
      .workload = {i64[words[0]], i64[words[1]], i64[words[2]]},
      .cost_flops = i64[words[3]],
      .cost_bytes = i64[words[4]],
      .site = *pc,
  };
  for (uint32_t k = 0; k < dispatch.constant_count; ++k) context->constants[k] = i64[words[6 + k]];
  words += 7 + dispatch.constant_count;
  for (uint32_t k = 0; k < dispatch.binding_count; ++k, words += 3) {
    bindings[k] = (ingot_hal_binding_t){references[words[0]], i64[words[1]], i64[words[2]]};
  }
  *pc = words;
  return ingot_hal_queue_dispatch(context->queue, &dispatch);
}

/* -- copies ----------------------------------------------------------------------------------- */

ingot_status_t ingot_vm_copy(ingot_vm_context_t *context, const uint16_t *pc, const int64_t *i64,
                             ingot_buffer_t *const *references) {
  int64_t length = i64[pc[5]];
  return ingot_hal_queue_copy(context->queue, references[pc[1]], i64[pc[2]], references[pc[3]],
                              i64[pc[4]], length);
}

/* -- lists ------------------------------------------------------------------------------------- */

/* The tensor whose operands start at `words`: reference, offset, length, dims. */
static ingot_vm_tensor_t tensor_at(const uint16_t *words, const int64_t *i64,
                                   ingot_buffer_t *const *references, int64_t *dims) {
  const ingot_vm_tensor_t tensor = {references[words[0]], i64[words[1]], i64[words[2]], dims,
                                    words[3]};
  for (uint32_t d = 0; d < tensor.rank; ++d) dims[d] = i64[words[4 + d]];
  return tensor;
}

ingot_status_t ingot_vm_insert_element(ingot_vm_context_t *context, const uint16_t *pc,
                                       const int64_t *i64, ingot_buffer_t *const *references) {
  int64_t dims[INGOT_MAX_RANK];
  const ingot_vm_tensor_t tensor = tensor_at(pc + 3, i64, references, dims);
  return ingot_vm_list_insert(context, &context->lists[pc[1]], i64[pc[2]], &tensor);
}

ingot_status_t ingot_vm_set_element(ingot_vm_context_t *context, const uint16_t *pc,
                                    const int64_t *i64, ingot_buffer_t *const *references) {
  int64_t dims[INGOT_MAX_RANK];
  const ingot_vm_tensor_t tensor = tensor_at(pc + 2, i64, references, dims);
  return ingot_vm_list_set(context, &context->lists[pc[1]], &tensor);
}

ingot_status_t ingot_vm_extend_element(ingot_vm_context_t *context, const uint16_t *pc,
                                       const int64_t *i64, ingot_buffer_t *const *references) {
  const ingot_vm_tensor_t bytes = {references[pc[2]], i64[pc[3]], i64[pc[4]], NULL, 0};
  return ingot_vm_list_extend(context, &context->lists[pc[1]], &bytes, i64[pc[5]]);
}

ingot_status_t ingot_vm_copy_list(ingot_vm_context_t *context, const uint16_t *pc) {
  const ingot_vm_list_t *source = &context->lists[pc[2]];
  return ingot_vm_list_copy(context, &context->lists[pc[1]], source);
}

ingot_status_t ingot_vm_list_argument(ingot_vm_context_t *context, const uint16_t *pc,
                                      int64_t *out_given) {
  ingot_buffer_view_t *view = context->arguments[pc[3]];
  ingot_vm_list_t *list = &context->lists[pc[2]];
  ingot_vm_list_clear(list);
  for (uint32_t i = 0; view && i < view->count; ++i) {
    const ingot_buffer_view_t *element = ingot_buffer_view_element(view, i);
    const ingot_vm_tensor_t tensor = {element->span, 0, (int64_t)element->layout.length,
                                      element->dims, element->layout.rank};
    INGOT_TRY(ingot_vm_list_insert(context, list, i, &tensor));
  }
  *out_given = view != NULL;
  return NULL;
}

ingot_status_t ingot_vm_list_result(ingot_vm_context_t *context, const uint16_t *pc,
                                    int64_t given) {
  return ingot_vm_context_result_list(context, pc[1], &context->lists[pc[2]], given != 0);
}

/* -- results, asserts -------------------------------------------------------------------------- */

ingot_status_t ingot_vm_make_result(ingot_vm_context_t *context, const uint16_t *pc,
                                    const int64_t *i64, ingot_buffer_t **out_buffer,
                                    int64_t *out_offset) {
  int64_t dims[INGOT_MAX_RANK];
  uint32_t rank = pc[4]; /* the verifier compares it with the signature's */
  for (uint32_t d = 0; d < rank; ++d) dims[d] = i64[pc[5 + d]];
  INGOT_TRY(ingot_vm_context_result(context, pc[3], dims, out_buffer));
  *out_offset = 0;
  return NULL;
}

ingot_status_t ingot_vm_assert_failure(const ingot_vm_context_t *context, const uint16_t *pc,
                                       const int64_t *i64) {
  enum { VALUE_LENGTH = 24 };
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(context->device);
  const char *text = ingot_module_string(context->image->module, ingot_code_u32(pc + 3));
  const uint16_t *values = pc + 6;
  void *memory = NULL;
  INGOT_TRY(ingot_allocate(allocator, strlen(text) + (size_t)pc[5] * VALUE_LENGTH + 1, &memory));
  char *message = memory;
  while (*text) {
    if (text[0] == '{' && text[1] == '}') {
      message += snprintf(message, VALUE_LENGTH, "%" PRId64, i64[*values++]);
      text += 2;
    } else {
      *message++ = *text++;
    }
  }
  *message = 0;
  ingot_status_t status =
      ingot_status_create(allocator, (ingot_status_code_t)pc[2], "%s", (const char *)memory);
  ingot_release_memory(allocator, memory);
  return status;
}

/* -- elements ---------------------------------------------------------------------------------- */

/* Elements lie in buffers little-endian, as every host is. */
static ingot_status_t read_element(ingot_vm_context_t *context, ingot_buffer_t *buffer,
                                   int64_t offset, ingot_dtype_t dtype, uint64_t *out_bits) {
  *out_bits = 0;
  return ingot_hal_queue_read(context->queue, buffer, offset, out_bits,
                              (int64_t)ingot_dtype_length(dtype));
}

static ingot_status_t write_element(ingot_vm_context_t *context, ingot_buffer_t *buffer,
                                    int64_t offset, ingot_dtype_t dtype, uint64_t bits) {
  return ingot_hal_queue_write(context->queue, buffer, offset, &bits,
                               (int64_t)ingot_dtype_length(dtype));
}

ingot_status_t ingot_vm_read_i64(ingot_vm_context_t *context, ingot_buffer_t *buffer,
                                 int64_t offset, ingot_dtype_t dtype, int64_t *out_value) {
  uint64_t bits;
  INGOT_TRY(read_element(context, buffer, offset, dtype, &bits));
  *out_value = ingot_scalar_decode_i64(bits, dtype);
  return NULL;
}

ingot_status_t ingot_vm_read_f64(ingot_vm_context_t *context, ingot_buffer_t *buffer,
                                 int64_t offset, ingot_dtype_t dtype, double *out_value) {
  uint64_t bits;
  INGOT_TRY(read_element(context, buffer, offset, dtype, &bits));
  *out_value = ingot_float_decode(bits, dtype);
  return NULL;
}

ingot_status_t ingot_vm_write_i64(ingot_vm_context_t *context, ingot_buffer_t *buffer,
                                  int64_t offset, int64_t value, ingot_dtype_t dtype) {
  return write_element(context, buffer, offset, dtype, ingot_scalar_encode_i64(value, dtype));
}

ingot_status_t ingot_vm_write_f64(ingot_vm_context_t *context, ingot_buffer_t *buffer,
                                  int64_t offset, double value, ingot_dtype_t dtype) {
  return write_element(context, buffer, offset, dtype, ingot_float_encode(value, dtype));
}
