/* Variables: their buffers, initial values, and what a failed call leaves of them. */
#include "vm/state.h"

#include <stdatomic.h>
#include <string.h>

#include "base/arithmetic.h"

typedef ingot_status_t (*variable_function_t)(const ingot_vm_state_t *state,
                                              ingot_vm_variable_t *variable,
                                              const ingot_vm_image_t *image,
                                              const ingot_layout_variable_t *layout,
                                              ingot_hal_queue_t *queue);

/* Up to the first failure. */
static ingot_status_t for_each_variable(const ingot_vm_state_t *state, ingot_hal_queue_t *queue,
                                        const ingot_vm_image_t *images, uint32_t image_count,
                                        variable_function_t function) {
  for (uint32_t i = 0; i < image_count; ++i) {
    const ingot_module_t *module = images[i].module;
    for (uint32_t v = 0; v < module->variable_count; ++v) {
      INGOT_TRY(function(state, &state->variables[images[i].first_variable + v], &images[i],
                         &module->variables[v], queue));
    }
  }
  return NULL;
}

/* -- lifetime -------------------------------------------------------------------------------- */

/* Every length fits, as the tables have been checked; their sum need not. */
static ingot_status_t check_memory(const ingot_device_t *device, const ingot_vm_image_t *images,
                                   uint32_t image_count) {
  int64_t total = 0;
  for (uint32_t i = 0; i < image_count; ++i) {
    for (uint32_t v = 0; v < images[i].module->variable_count; ++v) {
      int64_t length = ingot_module_variable_length(images[i].module, v, 0);
      if (!ingot_add_i64(total, length, &total)) total = INT64_MAX;
    }
  }
  return ingot_status_prefix(ingot_hal_device_check_memory(device, total), "state");
}

ingot_status_t ingot_vm_variable_create(ingot_device_t *device, ingot_hal_account_t *account,
                                        int64_t length, ingot_vm_variable_t *out_variable) {
  ingot_vm_variable_t made = {.is_changing = false};
  INGOT_TRY(
      ingot_hal_buffer_create_counted(device, account, INGOT_MEMORY_STATE, length, &made.buffer));
  ingot_status_t status = ingot_hal_buffer_subspan(made.buffer, 0, length, &made.readable);
  if (status) {
    ingot_hal_buffer_release(made.buffer);
    return status;
  }
  made.readable->access = INGOT_HAL_ACCESS_READ; /* nobody has seen it yet */
  *out_variable = made;
  return NULL;
}

void ingot_vm_variable_release(ingot_vm_variable_t *variable) {
  ingot_hal_buffer_release(variable->readable);
  ingot_hal_buffer_release(variable->buffer);
}

/* Two references are one state's: its own and that of `readable`. Only who has one can make
 * more, and a state is used by one thread, so a buffer that is not shared stays so. */
bool ingot_vm_variable_is_shared(const ingot_vm_variable_t *variable) {
  return atomic_load_explicit(&variable->buffer->references.value, memory_order_acquire) > 2;
}

ingot_status_t ingot_vm_variable_renew(const ingot_vm_state_t *state, ingot_vm_variable_t *variable,
                                       int64_t length) {
  const ingot_buffer_t *buffer = variable->buffer;
  if (!ingot_vm_variable_is_shared(variable) && buffer->length == length) return NULL;
  ingot_vm_variable_t made;
  INGOT_TRY(ingot_vm_variable_create(buffer->device, state->account, length, &made));
  made.is_changing = variable->is_changing;
  ingot_vm_variable_release(variable);
  *variable = made;
  return NULL;
}

static ingot_status_t create_variable(const ingot_vm_state_t *state, ingot_vm_variable_t *variable,
                                      const ingot_vm_image_t *image,
                                      const ingot_layout_variable_t *layout,
                                      ingot_hal_queue_t *queue) {
  uint32_t ordinal = (uint32_t)(layout - image->module->variables);
  (void)queue;
  return ingot_status_prefix(
      ingot_vm_variable_create(image->device, state->account,
                               ingot_module_variable_length(image->module, ordinal, 0), variable),
      "variable '%s'", ingot_module_string(image->module, layout->name));
}

static ingot_status_t allocate_variables(ingot_vm_state_t *state,
                                         const ingot_allocator_t *allocator, uint32_t count) {
  void *memory = NULL;
  INGOT_TRY(ingot_allocate_array(allocator, count, sizeof(ingot_vm_variable_t), &memory));
  state->variables = memory;
  state->count = count;
  return NULL;
}

ingot_status_t ingot_vm_state_allocate(ingot_vm_state_t *state, ingot_device_t *device,
                                       const ingot_vm_image_t *images, uint32_t image_count) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < image_count; ++i) count += images[i].module->variable_count;
  INGOT_TRY(check_memory(device, images, image_count));
  INGOT_TRY(allocate_variables(state, ingot_hal_device_allocator(device), count));
  return for_each_variable(state, NULL, images, image_count, create_variable);
}

ingot_status_t ingot_vm_state_initialize(ingot_vm_state_t *state, ingot_hal_queue_t *queue,
                                         const ingot_vm_image_t *images, uint32_t image_count) {
  INGOT_TRY(ingot_vm_state_allocate(state, queue->device, images, image_count));
  return ingot_vm_state_reset(state, queue, images, image_count);
}

ingot_status_t ingot_vm_state_fork(ingot_vm_state_t *state, const ingot_vm_state_t *source,
                                   const ingot_allocator_t *allocator) {
  INGOT_TRY(allocate_variables(state, allocator, source->count));
  for (uint32_t v = 0; v < source->count; ++v) {
    state->variables[v] = source->variables[v];
    ingot_hal_buffer_retain(state->variables[v].buffer);
    ingot_hal_buffer_retain(state->variables[v].readable);
  }
  return NULL;
}

void ingot_vm_state_deinitialize(ingot_vm_state_t *state, const ingot_allocator_t *allocator) {
  for (uint32_t v = 0; v < state->count; ++v) ingot_vm_variable_release(&state->variables[v]);
  ingot_release_memory(allocator, state->variables);
  *state = (ingot_vm_state_t){.variables = NULL};
}

/* -- values ---------------------------------------------------------------------------------- */

static ingot_status_t reset_variable(const ingot_vm_state_t *state, ingot_vm_variable_t *variable,
                                     const ingot_vm_image_t *image,
                                     const ingot_layout_variable_t *layout,
                                     ingot_hal_queue_t *queue) {
  INGOT_TRY(ingot_vm_variable_renew(state, variable, variable->buffer->length));
  ingot_buffer_t *buffer = variable->buffer;
  if (layout->length == (uint64_t)buffer->length) {
    return ingot_hal_queue_copy(queue, image->constants, (int64_t)layout->offset, buffer, 0,
                                buffer->length);
  }
  uint64_t pattern = 0;
  if (layout->length == 0) return ingot_hal_queue_fill(queue, buffer, 0, buffer->length, 0, 1);
  memcpy(&pattern, image->module->constants + layout->offset, (size_t)layout->length);
  return ingot_hal_queue_fill(queue, buffer, 0, buffer->length, pattern, (uint32_t)layout->length);
}

ingot_status_t ingot_vm_state_reset(ingot_vm_state_t *state, ingot_hal_queue_t *queue,
                                    const ingot_vm_image_t *images, uint32_t image_count) {
  for (uint32_t v = 0; v < state->count; ++v) state->variables[v].is_changing = true;
  state->is_changing = state->count > 0;
  INGOT_TRY(for_each_variable(state, queue, images, image_count, reset_variable));
  ingot_vm_state_keep(state);
  return NULL;
}

void ingot_vm_state_keep(ingot_vm_state_t *state) {
  for (uint32_t v = 0; v < state->count; ++v) state->variables[v].is_changing = false;
  state->is_changing = false;
}

/* -- after a failed call ----------------------------------------------------------------------- */

static ingot_status_t torn_status(const ingot_vm_image_t *image, uint32_t variable) {
  const ingot_module_t *module = image->module;
  return ingot_status_create(
      ingot_hal_device_allocator(image->device), INGOT_STATUS_FAILED_PRECONDITION,
      "the last call failed while it was changing variable '%s': reset the session or load its "
      "state",
      ingot_module_string(module, module->variables[variable].name));
}

ingot_status_t ingot_vm_state_check(const ingot_vm_state_t *state, const ingot_vm_image_t *images,
                                    uint32_t image_count) {
  for (uint32_t i = 0; i < image_count; ++i) {
    for (uint32_t v = 0; v < images[i].module->variable_count; ++v) {
      bool is_changing = state->variables[images[i].first_variable + v].is_changing;
      if (is_changing) return torn_status(&images[i], v);
    }
  }
  return NULL;
}

ingot_status_t ingot_vm_state_get(const ingot_vm_state_t *state, const ingot_vm_image_t *image,
                                  uint32_t variable, void *data, int64_t length) {
  const ingot_vm_variable_t *found = &state->variables[image->first_variable + variable];
  if (found->is_changing) return torn_status(image, variable);
  return ingot_hal_buffer_read(found->buffer, 0, length, data);
}

ingot_status_t ingot_vm_state_set(ingot_vm_state_t *state, const ingot_vm_image_t *image,
                                  uint32_t variable, const void *data, int64_t length) {
  ingot_vm_variable_t *found = &state->variables[image->first_variable + variable];
  INGOT_TRY(ingot_vm_variable_renew(state, found, length));
  INGOT_TRY(ingot_hal_buffer_write(found->buffer, 0, length, data));
  found->is_changing = false;
  state->is_changing = false;
  for (uint32_t v = 0; v < state->count; ++v) {
    state->is_changing = state->is_changing || state->variables[v].is_changing;
  }
  return NULL;
}
