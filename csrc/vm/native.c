/* Native calls: the operands as tensors, dims that the function decides, and what it gives.
 *
 * A result with known dims is bytes that the function fills. One whose dims the function decides
 * becomes the only element of a list: in memory made for the dims that `shape` writes, or as a copy
 * of the view that the function gives.
 */
#include "vm/native.h"

#include <inttypes.h>

#include "base/dtype.h"
#include "module/instruction.h"
#include "vm/list.h"
#include "vm/reference.h"

#define MOST_DECIDED 64 /* dims that one function decides */

/* One call while it runs. */
typedef struct native_run_t {
  ingot_vm_context_t *context;
  const ingot_layout_native_t *layout;
  const ingot_native_t *native;
  ingot_native_call_t call;
  ingot_native_function_t function; /* that runs, with so many tensors */
  uint32_t count;
  const int64_t *i64;
  const uint16_t *dim_words; /* the registers of all dims */
  uint32_t first_list;
  int64_t decided[MOST_DECIDED];                         /* -1 until it is known */
  ingot_native_tensor_t tensors[INGOT_HAL_MAX_BINDINGS]; /* arguments, then results */
  ingot_hal_binding_t bindings[INGOT_HAL_MAX_BINDINGS];  /* theirs; no buffer: not known yet */
} native_run_t;

static const ingot_allocator_t *run_allocator(const native_run_t *run) {
  return ingot_hal_device_allocator(run->context->device);
}

static const char *signature_of(const native_run_t *run) {
  return ingot_module_string(run->context->image->module, run->layout->signature);
}

static bool is_result_decided(const native_run_t *run, uint32_t result) {
  return run->layout->decided >> result & 1;
}

/* -- operands ---------------------------------------------------------------------------------- */

static bool measure(ingot_native_tensor_t *tensor) {
  int64_t length = 0;
  if (!ingot_dtype_tensor_length(tensor->dtype, tensor->rank, tensor->dims, &length)) return false;
  tensor->length = (size_t)length;
  return true;
}

/* Known dims are those of the signature, and of the bytes. Others become -1. */
static bool operand_fits(native_run_t *run, uint32_t ordinal, const ingot_layout_value_t *value) {
  ingot_native_tensor_t *tensor = &run->tensors[ordinal];
  const ingot_layout_dim_t *dims = &run->context->image->module->dims[value->first_dim];
  bool decided = !run->bindings[ordinal].buffer;
  bool fits =
      decided || (measure(tensor) && run->bindings[ordinal].length == (int64_t)tensor->length);
  for (uint32_t d = 0; d < tensor->rank; ++d) {
    fits = fits && (dims[d].size < 0 || dims[d].size == tensor->dims[d]);
    fits = fits && tensor->dims[d] >= -MOST_DECIDED;
    if (decided && tensor->dims[d] < 0) tensor->dims[d] = -1;
  }
  return fits;
}

/* Makes an operand that is a reference what the function gets. */
static ingot_status_t take_reference(native_run_t *run, uint32_t ordinal) {
  ingot_native_tensor_t *tensor = &run->tensors[ordinal];
  const ingot_hal_binding_t *handle = &run->bindings[ordinal];
  tensor->dtype = 0;
  tensor->length = 0;
  if (ordinal >= run->layout->argument_count) return NULL;
  INGOT_TRY(ingot_vm_reference_find(run->context, handle->buffer, handle->offset, tensor->type,
                                    &tensor->view));
  tensor->data = ingot_reference_of(tensor->view)->object;
  return NULL;
}

/* Takes the instruction at *pc apart. Dims lie in context->constants. */
static ingot_status_t read_operands(native_run_t *run, const uint16_t **pc,
                                    ingot_buffer_t *const *references) {
  const ingot_module_t *module = run->context->image->module;
  const uint16_t *words = *pc + 5; /* behind opcode, native, list, attributes */
  int64_t *dims = run->context->constants;
  uint32_t dim_count = *words++;
  run->dim_words = words;
  for (uint32_t d = 0; d < dim_count; ++d) dims[d] = run->i64[words[d]];
  words += dim_count + 1;
  uint32_t count = run->layout->argument_count + run->layout->result_count;
  for (uint32_t k = 0; k < count; ++k) {
    const ingot_layout_value_t *value = &module->values[run->layout->first_value + k];
    run->tensors[k] = (ingot_native_tensor_t){.dtype = value->dtype,
                                              .rank = value->rank,
                                              .dims = dims,
                                              .type = ingot_module_reference_type(module, value)};
    dims += value->rank;
    run->bindings[k] = (ingot_hal_binding_t){NULL, 0, 0};
    if (k < run->layout->argument_count ||
        !is_result_decided(run, k - run->layout->argument_count)) {
      run->bindings[k] =
          (ingot_hal_binding_t){references[words[0]], run->i64[words[1]], run->i64[words[2]]};
      words += 3;
    }
    if (!operand_fits(run, k, value)) {
      return ingot_status_create(run_allocator(run), INGOT_STATUS_DATA_LOSS,
                                 "the dims of value %u are not those of its bytes or of %s: the "
                                 "module is damaged",
                                 k, signature_of(run));
    }
    if (value->kind) INGOT_TRY(take_reference(run, k));
  }
  *pc = words;
  return NULL;
}

/* -- dims that the function decides -------------------------------------------------------------- */

/* Checks the dims of a result, which the function has decided, and learns from them. */
static ingot_status_t check_decided(native_run_t *run, uint32_t result, const int64_t *dims) {
  ingot_native_tensor_t *tensor = &run->call.results[result];
  const uint16_t *words = run->dim_words + (tensor->dims - run->context->constants);
  for (uint32_t d = 0; d < tensor->rank; ++d) {
    int64_t expected = run->i64[words[d]];
    int64_t *known = expected < 0 ? &run->decided[-1 - expected] : &expected;
    if (*known < 0) *known = dims[d];
    if (dims[d] >= 0 && dims[d] == *known) continue;
    return ingot_status_create(run_allocator(run), INGOT_STATUS_INVALID_ARGUMENT,
                               "dim %u of result %u is %" PRId64 ", expected %s%" PRId64 " by %s",
                               d, result, dims[d], dims[d] < 0 ? "at least " : "",
                               dims[d] < 0 ? 0 : *known, signature_of(run));
  }
  for (uint32_t d = 0; d < tensor->rank; ++d) tensor->dims[d] = dims[d];
  if (measure(tensor)) return NULL;
  return ingot_status_create(run_allocator(run), INGOT_STATUS_INVALID_ARGUMENT,
                             "result %u has more than 2^63 bytes", result);
}

static ingot_vm_list_t *list_of(const native_run_t *run, uint32_t result) {
  uint64_t before = run->layout->decided & ((UINT64_C(1) << result) - 1);
  return &run->context->lists[run->first_list + (uint32_t)__builtin_popcountll(before)];
}

/* -- the call ---------------------------------------------------------------------------------- */

/* The function that runs, over mapped bytes; the queue calls it. */
static ingot_status_t call_function(void *user, const ingot_hal_binding_t *mapped) {
  native_run_t *run = user;
  for (uint32_t k = 0; k < run->count; ++k) {
    if (!run->bindings[k].buffer || !run->tensors[k].dtype) continue;
    if (mapped) {
      run->tensors[k].data = mapped++->buffer->host;
    } else {
      run->tensors[k].buffer = run->bindings[k].buffer;
      run->tensors[k].offset = (size_t)run->bindings[k].offset;
    }
  }
  ingot_status_t status = run->function(run->native->user, &run->call);
  if (status || !ingot_stop_is_due(&run->context->stop, true)) return status;
  return ingot_stop_status(run_allocator(run), &run->context->stop);
}

/* Calls `shape` or `call` with the bytes of the first `count` tensors. */
static ingot_status_t queue_function(native_run_t *run, ingot_native_function_t function,
                                     uint32_t count) {
  ingot_hal_binding_t bindings[INGOT_HAL_MAX_BINDINGS];
  ingot_hal_call_t call = {
      .name = run->call.name,
      .function = call_function,
      .user = run,
      .bindings = bindings,
      .on_device = run->native->on_device,
  };
  run->function = function;
  run->count = count;
  for (uint32_t k = 0; k < count; ++k) {
    if (!run->bindings[k].buffer || !run->tensors[k].dtype) continue;
    if (k >= run->call.argument_count) call.written |= UINT64_C(1) << call.binding_count;
    call.length += run->bindings[k].length;
    bindings[call.binding_count++] = run->bindings[k];
  }
  return ingot_hal_queue_call(run->context->queue, &call);
}

/* Asks for the dims of results, and makes their memory. */
static ingot_status_t make_decided(native_run_t *run) {
  INGOT_TRY(queue_function(run, run->native->shape, run->call.argument_count));
  for (uint32_t r = 0; r < run->call.result_count; ++r) {
    if (!is_result_decided(run, r)) continue;
    const ingot_native_tensor_t *tensor = &run->call.results[r];
    INGOT_TRY(check_decided(run, r, tensor->dims));
    ingot_vm_list_t *list = list_of(run, r);
    const ingot_vm_tensor_t made = {NULL, 0, (int64_t)tensor->length, tensor->dims, tensor->rank};
    INGOT_TRY(ingot_vm_list_make(run->context, list, &made));
    run->bindings[run->call.argument_count + r] =
        (ingot_hal_binding_t){list->storage.buffer, 0, made.length};
  }
  return NULL;
}

/* -- results ----------------------------------------------------------------------------------- */

static ingot_status_t check_native_view(native_run_t *run, uint32_t result,
                                        const ingot_buffer_view_t *view) {
  const ingot_native_tensor_t *tensor = &run->call.results[result];
  const ingot_allocator_t *allocator = run_allocator(run);
  if (!tensor->dtype) {
    return ingot_status_prefix(ingot_reference_check(run->context->device, view, tensor->type),
                               "result %u", result);
  }
  if (!view || !view->layout.dtype) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "result %u is %s, expected a view, as the function decides its dims",
                               result, view ? "no tensor" : "not given");
  }
  if (view->span->device != run->context->device) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "result %u is on another device than the program", result);
  }
  if (view->layout.dtype != tensor->dtype || view->layout.rank != tensor->rank) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "result %u is %s of rank %u, expected %s of rank %u by %s", result,
                               ingot_dtype_name(view->layout.dtype), view->layout.rank,
                               ingot_dtype_name(tensor->dtype), tensor->rank, signature_of(run));
  }
  return check_decided(run, result, view->dims);
}

/* Copies a view that the function has given to where the result lies. */
static ingot_status_t take_view(native_run_t *run, uint32_t result, ingot_buffer_view_t *view) {
  INGOT_TRY(check_native_view(run, result, view));
  const ingot_hal_binding_t *binding = &run->bindings[run->call.argument_count + result];
  const ingot_vm_tensor_t tensor = {view->span, 0, view->span->length, view->dims,
                                    view->layout.rank};
  INGOT_TRY(ingot_vm_context_retire(run->context, view->span));
  ingot_hal_buffer_retain(view->span); /* the copy may wait in the queue for long */
  return is_result_decided(run, result)
             ? ingot_vm_list_set(run->context, list_of(run, result), &tensor)
             : ingot_hal_queue_copy(run->context->queue, view->span, 0, binding->buffer,
                                    binding->offset, tensor.length);
}

/* Takes what the function has given, and drops it. */
static ingot_status_t take_views(native_run_t *run, ingot_status_t status) {
  for (uint32_t r = 0; r < run->call.result_count; ++r) {
    ingot_native_tensor_t *tensor = &run->call.results[r];
    bool must = !tensor->dtype || (is_result_decided(run, r) && !run->native->shape);
    if (!status && (tensor->view || must)) status = take_view(run, r, tensor->view);
  }
  uint32_t count = run->call.argument_count + run->call.result_count;
  for (uint32_t k = 0; k < count; ++k) ingot_buffer_view_release(run->tensors[k].view);
  return status;
}

ingot_status_t ingot_vm_call_native(ingot_vm_context_t *context, const uint16_t **pc,
                                    const int64_t *i64, ingot_buffer_t *const *references) {
  const ingot_module_t *module = context->image->module;
  const uint16_t *words = *pc;
  native_run_t run = {
      .context = context,
      .layout = &module->natives[words[1]],
      .native = &context->image->natives[words[1]],
      .i64 = i64,
      .first_list = words[2],
  };
  run.call = (ingot_native_call_t){
      .name = ingot_module_string(module, run.layout->name),
      .attributes = ingot_module_string(module, ingot_code_u32(words + 3)),
      .device = context->device,
      .argument_count = run.layout->argument_count,
      .result_count = run.layout->result_count,
      .arguments = run.tensors,
      .results = run.tensors + run.layout->argument_count,
      .runtime = context->queue,
  };
  for (uint32_t k = 0; k < MOST_DECIDED; ++k) run.decided[k] = -1;
  ingot_status_t status = read_operands(&run, pc, references);
  atomic_store(&context->native, run.call.name);
  if (!status && run.layout->decided && run.native->shape) status = make_decided(&run);
  ingot_native_function_t call = run.native->call ? run.native->call : context->call_link;
  uint32_t count = run.call.argument_count + run.call.result_count;
  if (!status) status = queue_function(&run, call, count);
  atomic_store(&context->native, NULL);
  return ingot_status_prefix(take_views(&run, status), "native function '%s'", run.call.name);
}

bool ingot_native_should_stop(const ingot_native_call_t *call) {
  const ingot_hal_queue_t *queue = call->runtime;
  return ingot_stop_is_due(queue->stop, true);
}
