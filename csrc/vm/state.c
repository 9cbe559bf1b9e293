/* Variables: their buffers, initial values, and what a failed call leaves of them. */
#include "vm/state.h"

#include <string.h>

#include "base/arithmetic.h"

typedef ingot_status_t (*variable_function_t)(ingot_vm_variable_t *variable,
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
      INGOT_TRY(function(&state->variables[images[i].first_variable + v], &images[i],
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
      int64_t length = ingot_module_variable_length(images[i].module, v);
      if (!ingot_add_i64(total, length, &total)) total = INT64_MAX;
    }
  }
  return ingot_status_prefix(ingot_hal_device_check_memory(device, total), "state");
}

static ingot_status_t create_variable(ingot_vm_variable_t *variable, const ingot_vm_image_t *image,
                                      const ingot_layout_variable_t *layout,
                                      ingot_hal_queue_t *queue) {
  uint32_t ordinal = (uint32_t)(layout - image->module->variables);
  int64_t length = ingot_module_variable_length(image->module, ordinal);
  (void)queue;
  INGOT_TRY(ingot_hal_buffer_create(image->device, length, &variable->buffer));
  INGOT_TRY(ingot_hal_buffer_subspan(variable->buffer, 0, length, &variable->readable));
  variable->readable->access = INGOT_HAL_ACCESS_READ; /* nobody has seen it yet */
  return NULL;
}

ingot_status_t ingot_vm_state_initialize(ingot_vm_state_t *state, ingot_hal_queue_t *queue,
                                         const ingot_vm_image_t *images, uint32_t image_count) {
  void *memory = NULL;
  uint32_t count = 0;
  for (uint32_t i = 0; i < image_count; ++i) count += images[i].module->variable_count;
  INGOT_TRY(check_memory(queue->device, images, image_count));
  INGOT_TRY(ingot_allocate_array(ingot_hal_device_allocator(queue->device), count,
                                 sizeof(ingot_vm_variable_t), &memory));
  state->variables = memory;
  state->count = count;
  INGOT_TRY(for_each_variable(state, queue, images, image_count, create_variable));
  return ingot_vm_state_reset(state, queue, images, image_count);
}

void ingot_vm_state_deinitialize(ingot_vm_state_t *state, const ingot_allocator_t *allocator) {
  for (uint32_t v = 0; v < state->count; ++v) {
    ingot_hal_buffer_release(state->variables[v].readable);
    ingot_hal_buffer_release(state->variables[v].buffer);
  }
  ingot_release_memory(allocator, state->variables);
  *state = (ingot_vm_state_t){NULL, 0, false};
}

/* -- values ---------------------------------------------------------------------------------- */

static ingot_status_t reset_variable(ingot_vm_variable_t *variable, const ingot_vm_image_t *image,
                                     const ingot_layout_variable_t *layout,
                                     ingot_hal_queue_t *queue) {
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
                                  uint32_t variable, void *data) {
  const ingot_vm_variable_t *found = &state->variables[image->first_variable + variable];
  if (found->is_changing) return torn_status(image, variable);
  return ingot_hal_buffer_read(found->buffer, 0, found->buffer->length, data);
}

ingot_status_t ingot_vm_state_set(ingot_vm_state_t *state, const ingot_vm_image_t *image,
                                  uint32_t variable, const void *data) {
  ingot_vm_variable_t *found = &state->variables[image->first_variable + variable];
  INGOT_TRY(ingot_hal_buffer_write(found->buffer, 0, found->buffer->length, data));
  found->is_changing = false;
  state->is_changing = false;
  for (uint32_t v = 0; v < state->count; ++v) {
    state->is_changing = state->is_changing || state->variables[v].is_changing;
  }
  return NULL;
}
