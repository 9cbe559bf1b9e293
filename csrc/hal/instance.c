/* The instance: allocator, driver table, statically linked kernels. */
#include <string.h>

#include "hal/hal.h"

ingot_status_t ingot_hal_instance_create(const ingot_allocator_t *allocator,
                                         const ingot_hal_driver_t *const *drivers,
                                         uint32_t driver_count, ingot_instance_t **out_instance) {
  ingot_allocator_t chosen = allocator ? *allocator : ingot_allocator_system();
  void *memory;
  INGOT_TRY(ingot_allocate(&chosen, sizeof(ingot_instance_t) + 2 * driver_count * sizeof(void *),
                           &memory));
  ingot_instance_t *instance = memory;
  ingot_reference_count_initialize(&instance->references);
  instance->allocator = chosen;
  instance->driver_count = driver_count;
  instance->driver_states = (void **)(instance + 1);
  instance->drivers = (const ingot_hal_driver_t **)(instance->driver_states + driver_count);
  for (uint32_t d = 0; d < driver_count; d++) instance->drivers[d] = drivers[d];
  ingot_mutex_initialize(&instance->driver_mutex);
  ingot_mutex_initialize(&instance->mutex);
  *out_instance = instance;
  return NULL;
}

void ingot_hal_instance_retain(ingot_instance_t *instance) {
  ingot_reference_count_retain(&instance->references);
}

void ingot_hal_instance_release(ingot_instance_t *instance) {
  if (!instance || !ingot_reference_count_release(&instance->references)) return;
  ingot_allocator_t allocator = instance->allocator;
  for (uint32_t d = 0; d < instance->driver_count; d++) {
    void *state = instance->driver_states[d];
    if (state) instance->drivers[d]->state_destroy(instance, state);
  }
  for (ingot_hal_static_library_t *library = instance->static_libraries; library;) {
    ingot_hal_static_library_t *next = library->next;
    ingot_release_memory(&allocator, library);
    library = next;
  }
  ingot_mutex_deinitialize(&instance->mutex);
  ingot_mutex_deinitialize(&instance->driver_mutex);
  ingot_release_memory(&allocator, instance);
}

const char *ingot_hal_instance_device_uri(ingot_instance_t *instance, uint32_t ordinal) {
  const char *uri = NULL;
  ingot_mutex_lock(&instance->driver_mutex);
  for (uint32_t d = 0; d < instance->driver_count && !uri; d++) {
    for (uint32_t i = 0;; i++) {
      uri = instance->drivers[d]->device_uri(instance, &instance->driver_states[d], i);
      if (!uri || ordinal-- == 0) break;
    }
  }
  ingot_mutex_unlock(&instance->driver_mutex);
  return uri;
}

void **ingot_hal_instance_driver_state(ingot_instance_t *instance,
                                       const ingot_hal_driver_t *driver) {
  for (uint32_t d = 0; d < instance->driver_count; d++) {
    if (instance->drivers[d] == driver) return &instance->driver_states[d];
  }
  return NULL;
}

/* Of two registrations one waits; whoever looks for kernels comes after all of them. */
static const ingot_hal_static_library_t *ingot_hal_static_find(const ingot_instance_t *instance,
                                                               const char *name) {
  const ingot_hal_static_library_t *library = instance->static_libraries;
  while (library && strcmp(library->name, name) != 0) library = library->next;
  return library;
}

ingot_kernel_query_t ingot_hal_instance_find_static(ingot_instance_t *instance, const char *name) {
  const ingot_hal_static_library_t *library = ingot_hal_static_find(instance, name);
  return library ? library->query : NULL;
}

ingot_status_t ingot_hal_cpu_register_static(ingot_instance_t *instance, const char *name,
                                             ingot_kernel_query_t query) {
  size_t name_length = strlen(name) + 1;
  void *memory;
  INGOT_TRY(ingot_allocate(&instance->allocator, sizeof(ingot_hal_static_library_t) + name_length,
                           &memory));
  ingot_hal_static_library_t *library = memory;
  library->name = memcpy(library + 1, name, name_length);
  library->query = query;
  ingot_mutex_lock(&instance->mutex);
  bool is_taken = ingot_hal_static_find(instance, name) != NULL;
  if (!is_taken) {
    library->next = instance->static_libraries;
    instance->static_libraries = library;
  }
  ingot_mutex_unlock(&instance->mutex);
  if (!is_taken) return NULL;
  ingot_release_memory(&instance->allocator, library);
  return ingot_status_create(&instance->allocator, INGOT_STATUS_INVALID_ARGUMENT,
                             "static kernels '%s' are registered already: use another name", name);
}
