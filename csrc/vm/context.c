/* Contexts: what a session allocates once, and the results of a call.
 */
#include "vm/context.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/dtype.h"
#include "hal/pool.h"
#include "platform/platform.h"
#include "vm/list.h"

static const ingot_allocator_t *context_allocator(const ingot_vm_context_t *context) {
  return ingot_hal_device_allocator(context->device);
}

const ingot_layout_location_t *ingot_vm_location(const ingot_vm_context_t *context,
                                                 const uint16_t *word) {
  const ingot_module_t *module = context->image->module;
  uint64_t start = module->functions[context->function].code_offset;
  const ingot_layout_location_t *location =
      ingot_module_find_location(module, start + (uint64_t)(word - context->code));
  bool is_known = location && (ingot_module_string(module, location->op)[0] != 0 ||
                               ingot_module_string(module, location->layer)[0] != 0);
  return is_known ? location : NULL;
}

bool ingot_vm_describe(void *context, const void *word, char *out_text, size_t capacity) {
  const ingot_module_t *module = ((ingot_vm_context_t *)context)->image->module;
  if (!INGOT_WITH_MESSAGES) return false;
  const ingot_layout_location_t *location = ingot_vm_location(context, word);
  if (!location) return false;
  const char *op = ingot_module_string(module, location->op);
  const char *layer = ingot_module_string(module, location->layer);
  const char *quote = layer[0] ? "'" : "";
  (void)snprintf(out_text, capacity, "%s%s%s%s%s", op, op[0] && layer[0] ? " " : "", quote, layer,
                 quote);
  return true;
}

/* The queue's trace: says which layer the instruction computes, as one kernel may serve
 * several. Work between calls, as a reset of the state, belongs to no instruction. */
static void trace_work(void *user, const ingot_hal_trace_t *work) {
  const ingot_vm_context_t *context = user;
  if (!work->site) return;
  const ingot_layout_location_t *location = ingot_vm_location(context, work->site);
  const char *layer = location ? ingot_module_string(context->image->module, location->layer) : "";
  const ingot_trace_event_t event = {work->kernel, layer, work->begin, work->end,
                                     work->length, 0,     work->kind};
  context->trace(context->trace_user, &event);
}

void ingot_vm_context_set_trace(ingot_vm_context_t *context, ingot_trace_function_t trace,
                                void *user) {
  context->trace = trace;
  context->trace_user = user;
  context->queue->trace = trace ? trace_work : NULL;
  context->queue->trace_user = context;
}

/* -- lifetime -------------------------------------------------------------------------------- */

/* The largest needs of any function and kernel. */
typedef struct context_needs_t {
  uint64_t register_bytes;
  uint32_t constant_count;
  uint32_t result_count;
  uint32_t list_count;
} context_needs_t;

static void add_needs(context_needs_t *needs, const ingot_vm_image_t *image) {
  const ingot_module_t *module = image->module;
  for (uint32_t i = 0; i < module->function_count; ++i) {
    const ingot_layout_function_t *function = &module->functions[i];
    if (!ingot_vm_image_has_target(image, function->target)) continue;
    uint64_t register_bytes = ingot_module_register_bytes(function);
    if (register_bytes > needs->register_bytes) needs->register_bytes = register_bytes;
    if (function->result_count > needs->result_count) {
      needs->result_count = function->result_count;
    }
  }
  for (uint32_t i = 0; i < module->entry_count; ++i) {
    uint32_t count = module->entries[i].constant_count;
    if (count > needs->constant_count) needs->constant_count = count;
  }
  for (uint32_t i = 0; i < module->native_count; ++i) {
    const ingot_layout_native_t *native = &module->natives[i];
    uint32_t count = 0;
    for (uint32_t k = 0; k < native->argument_count + native->result_count; ++k) {
      count += module->values[native->first_value + k].rank;
    }
    if (count > needs->constant_count) needs->constant_count = count;
  }
  if (module->list_count > needs->list_count) needs->list_count = module->list_count;
}

ingot_status_t ingot_vm_context_initialize(ingot_vm_context_t *context, ingot_device_t *device,
                                           const ingot_vm_image_t *images, uint32_t image_count) {
  *context = (ingot_vm_context_t){.device = device};
  ingot_hal_device_retain(device);
  context_needs_t needs = {0, 0, 0, 0};
  for (uint32_t i = 0; i < image_count; ++i) add_needs(&needs, &images[i]);
  const ingot_allocator_t *allocator = context_allocator(context);
  void *memory = NULL;
  INGOT_TRY(ingot_allocate(allocator, (size_t)needs.register_bytes, &memory));
  context->registers = memory;
  INGOT_TRY(ingot_allocate_array(allocator, needs.constant_count, sizeof(int64_t), &memory));
  context->constants = memory;
  INGOT_TRY(
      ingot_allocate_array(allocator, needs.result_count, sizeof(ingot_vm_result_t), &memory));
  context->results = memory;
  INGOT_TRY(ingot_allocate_array(allocator, needs.list_count, sizeof(ingot_vm_list_t), &memory));
  context->lists = memory;
  context->list_count = needs.list_count;
  INGOT_TRY(ingot_hal_queue_create(device, &context->queue));
  context->queue->describe = ingot_vm_describe;
  context->queue->describe_user = context;
  context->queue->stop = &context->stop;
  return NULL;
}

void ingot_vm_context_deinitialize(ingot_vm_context_t *context) {
  if (!context->device) return; /* never initialized */
  const ingot_allocator_t *allocator = context_allocator(context);
  ingot_hal_queue_destroy(context->queue); /* first: it waits for work on the rest */
  if (context->is_slab_given) ingot_hal_slab_leave(context->slab);
  context->is_slab_given = false;
  ingot_vm_context_trim(context);
  ingot_vm_state_deinitialize(&context->state, allocator);
  ingot_release_memory(allocator, context->lists);
  ingot_release_memory(allocator, context->retired);
  ingot_release_memory(allocator, context->results);
  ingot_release_memory(allocator, context->constants);
  ingot_release_memory(allocator, context->registers);
  ingot_hal_device_release(context->device); /* last: it keeps the allocator alive */
}

/* -- calls ----------------------------------------------------------------------------------- */

void ingot_vm_context_limit(ingot_vm_context_t *context, const ingot_call_options_t *options,
                            int64_t begin) {
  context->max_steps = UINT64_MAX;
  if (options && options->max_steps > 0) context->max_steps = (uint64_t)options->max_steps;
  context->look_step = context->max_steps;
  if (!options) return;
  if (options->timeout <= 0 && !options->should_stop) return;
  if (options->timeout > 0 && begin == 0) begin = ingot_clock();
  ingot_stop_limit(&context->stop, options, begin);
  (void)atomic_fetch_or(&context->stop.flags, INGOT_STOP_LIMITED);
  if (context->look_step > INGOT_VM_STEPS_BETWEEN_LOOKS) {
    context->look_step = INGOT_VM_STEPS_BETWEEN_LOOKS;
  }
}

/* -- the end of a call ----------------------------------------------------------------------- */

void ingot_vm_context_finish_call(ingot_vm_context_t *context) {
  for (uint32_t i = 0; i < context->retired_count; ++i) {
    ingot_hal_buffer_release(context->retired[i]);
  }
  context->retired_count = 0;
  if (context->shares_slab) ingot_vm_context_release_slab(context);
  for (uint32_t i = 0; i < context->list_count; ++i) ingot_vm_list_clear(&context->lists[i]);
}

void ingot_vm_context_trim(ingot_vm_context_t *context) {
  ingot_vm_context_finish_call(context);
  for (uint32_t i = 0; i < context->list_count; ++i) {
    ingot_vm_list_release(context, &context->lists[i]);
  }
  if (!context->is_slab_given) ingot_vm_context_release_slab(context);
  ingot_hal_pool_trim(context->device);
  ingot_hal_device_trim(context->device);
}

/* -- results --------------------------------------------------------------------------------- */

static const ingot_layout_value_t *result_value(const ingot_vm_context_t *context,
                                                uint32_t ordinal) {
  const ingot_module_t *module = context->image->module;
  const ingot_layout_function_t *function = &module->functions[context->function];
  return &module->values[function->first_value + function->argument_count + ordinal];
}

static ingot_status_t check_given(const ingot_vm_context_t *context, uint32_t ordinal,
                                  const ingot_layout_value_t *value, const int64_t *dims) {
  const ingot_buffer_view_t *view = context->results[ordinal].view;
  for (uint32_t d = 0; d < value->rank; ++d) {
    if (view->dims[d] == dims[d]) continue;
    return ingot_status_create(
        context_allocator(context), INGOT_STATUS_INVALID_ARGUMENT,
        "result %u '%s': dim %u of the given view is %" PRId64 ", expected %" PRId64, ordinal,
        ingot_module_string(context->image->module, value->name), d, view->dims[d], dims[d]);
  }
  return NULL;
}

ingot_status_t ingot_vm_result_too_large(const ingot_vm_context_t *context, uint32_t ordinal) {
  return ingot_status_create(
      context_allocator(context), INGOT_STATUS_INVALID_ARGUMENT,
      "result %u '%s': a dim is negative or the tensor has more than 2^63 bytes", ordinal,
      ingot_module_string(context->image->module, result_value(context, ordinal)->name));
}

static ingot_status_t make_result(ingot_vm_context_t *context, uint32_t ordinal,
                                  const ingot_layout_value_t *value, const int64_t *dims) {
  int64_t length = 0;
  if (!ingot_dtype_tensor_length(value->dtype, value->rank, dims, &length)) {
    return ingot_vm_result_too_large(context, ordinal);
  }
  ingot_buffer_t *buffer = NULL;
  INGOT_TRY(ingot_status_prefix(
      ingot_vm_context_buffer(context, INGOT_MEMORY_RESULTS, length, &buffer), "result %u '%s'",
      ordinal, ingot_module_string(context->image->module, value->name)));
  buffer->spare = true;
  ingot_status_t status = ingot_buffer_view_create(buffer, 0, value->dtype, value->rank, dims,
                                                   &context->results[ordinal].view);
  ingot_hal_buffer_release(buffer);
  return status;
}

static ingot_status_t check_unmade(const ingot_vm_context_t *context, uint32_t ordinal,
                                   const ingot_layout_value_t *value) {
  if (!context->results[ordinal].made) return NULL;
  return ingot_status_create(context_allocator(context), INGOT_STATUS_INTERNAL,
                             "result %u '%s' is made twice", ordinal,
                             ingot_module_string(context->image->module, value->name));
}

/* Whether static dims are as the signature says; the rank is. */
static ingot_status_t check_dims(const ingot_vm_context_t *context, uint32_t ordinal,
                                 const ingot_layout_value_t *value, const int64_t *dims) {
  for (uint32_t d = 0; d < value->rank; ++d) {
    int64_t size = context->image->module->dims[value->first_dim + d].size;
    if (size < 0 || size == dims[d]) continue;
    return ingot_status_create(
        context_allocator(context), INGOT_STATUS_INTERNAL,
        "result %u '%s': the code makes dim %u as %" PRId64 ", its signature says %" PRId64,
        ordinal, ingot_module_string(context->image->module, value->name), d, dims[d], size);
  }
  return NULL;
}

ingot_status_t ingot_vm_context_result(ingot_vm_context_t *context, uint32_t ordinal,
                                       const int64_t *dims, ingot_buffer_t **out_buffer) {
  ingot_vm_result_t *result = &context->results[ordinal];
  const ingot_layout_value_t *value = result_value(context, ordinal);
  INGOT_TRY(check_unmade(context, ordinal, value));
  INGOT_TRY(check_dims(context, ordinal, value, dims));
  if (result->given) INGOT_TRY(check_given(context, ordinal, value, dims));
  else INGOT_TRY(make_result(context, ordinal, value, dims));
  result->made = true;
  *out_buffer = result->view->span;
  return NULL;
}

static ingot_status_t check_elements(const ingot_vm_context_t *context, uint32_t ordinal,
                                     const ingot_layout_value_t *value, ingot_buffer_view_t *list) {
  for (uint32_t i = 0; i < list->count; ++i) {
    const ingot_buffer_view_t *element = ingot_buffer_view_element(list, i);
    if (element->layout.rank != value->rank && !(value->kind & INGOT_VALUE_ANY_RANK)) {
      return ingot_status_create(context_allocator(context), INGOT_STATUS_INTERNAL,
                                 "result %u '%s': the code makes rank %u, its signature says %u",
                                 ordinal, ingot_module_string(context->image->module, value->name),
                                 element->layout.rank, value->rank);
    }
    INGOT_TRY(check_dims(context, ordinal, value, element->dims));
  }
  return NULL;
}

ingot_status_t ingot_vm_context_result_list(ingot_vm_context_t *context, uint32_t ordinal,
                                            const ingot_vm_list_t *list, bool given) {
  ingot_vm_result_t *result = &context->results[ordinal];
  const ingot_layout_value_t *value = result_value(context, ordinal);
  bool sequence = value->kind & INGOT_VALUE_SEQUENCE;
  INGOT_TRY(check_unmade(context, ordinal, value));
  result->made = true;
  if ((value->kind & INGOT_VALUE_OPTIONAL) && !(given && (sequence || list->count > 0))) {
    return NULL;
  }
  INGOT_TRY(ingot_vm_list_give(context, list, value->dtype, &result->view));
  INGOT_TRY(check_elements(context, ordinal, value, result->view));
  if (sequence) return NULL;
  ingot_buffer_view_t *tensor = ingot_buffer_view_element(result->view, 0);
  ingot_buffer_view_retain(tensor);
  ingot_buffer_view_release(result->view);
  result->view = tensor;
  return NULL;
}
