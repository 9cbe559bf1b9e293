/* The public face of instances, devices and buffers: names of the HAL under the API's.
 */
#include "hal/hal.h"

const char *ingot_version(void) { return INGOT_VERSION; }

/* -- instance ---------------------------------------------------------------------------------- */

/* The CPU's driver and those of the options: what nobody names is not linked. */
static ingot_status_t create_instance(const ingot_instance_options_t *options,
                                      ingot_instance_t **out_instance) {
  const ingot_hal_driver_t *drivers[1 + INGOT_MAX_DRIVERS] = {&ingot_hal_cpu_driver};
  if (options->driver_count > INGOT_MAX_DRIVERS) {
    ingot_allocator_t allocator =
        options->allocator ? *options->allocator : ingot_allocator_system();
    return ingot_status_create(&allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "%u drivers, expected at most %d", options->driver_count,
                               INGOT_MAX_DRIVERS);
  }
  for (uint32_t d = 0; d < options->driver_count; ++d) drivers[1 + d] = options->drivers[d];
  return ingot_hal_instance_create(options->allocator, drivers, 1 + options->driver_count,
                                   out_instance);
}

ingot_status_t ingot_instance_create(const ingot_instance_options_t *options,
                                     ingot_instance_t **out_instance) {
  const ingot_instance_options_t no_options = {.allocator = NULL};
  if (!options) options = &no_options;
  ingot_instance_t *instance = NULL;
  INGOT_TRY(create_instance(options, &instance));
  instance->log = (ingot_log_t){options->log, options->log_user};
  instance->profiling = options->profiling;
  for (uint32_t i = 0; i < options->kernel_count; ++i) {
    const ingot_static_kernels_t *kernels = &options->kernels[i];
    ingot_status_t status = ingot_hal_cpu_register_static(instance, kernels->name, kernels->query);
    if (status) {
      ingot_hal_instance_release(instance);
      return status;
    }
  }
  *out_instance = instance;
  return NULL;
}

void ingot_instance_retain(ingot_instance_t *instance) { ingot_hal_instance_retain(instance); }

void ingot_instance_release(ingot_instance_t *instance) { ingot_hal_instance_release(instance); }

const char *ingot_instance_device_uri(ingot_instance_t *instance, uint32_t ordinal) {
  return ingot_hal_instance_device_uri(instance, ordinal);
}

/* -- device ------------------------------------------------------------------------------------ */

ingot_status_t ingot_device_create(ingot_instance_t *instance, const char *uri,
                                   const ingot_device_options_t *options,
                                   ingot_device_t **out_device) {
  return ingot_hal_device_create(instance, uri, options, out_device);
}

void ingot_device_retain(ingot_device_t *device) { ingot_hal_device_retain(device); }

void ingot_device_release(ingot_device_t *device) { ingot_hal_device_release(device); }

const char *ingot_device_description(ingot_device_t *device) { return device->description; }

bool ingot_device_runs(ingot_device_t *device, const char *format, uint64_t features) {
  return ingot_hal_device_runs(device, format, features);
}

bool ingot_device_avoids(ingot_device_t *device, uint64_t features) {
  return ingot_hal_device_avoids(device, features);
}

/* -- buffer ------------------------------------------------------------------------------------ */

/* The HAL counts in int64_t; what does not fit it is larger than any buffer. */
static int64_t clamp(size_t value) {
  return value > (size_t)INT64_MAX ? INT64_MAX : (int64_t)value;
}

ingot_status_t ingot_buffer_create(ingot_device_t *device, size_t length,
                                   ingot_buffer_t **out_buffer) {
  return ingot_hal_buffer_create(device, clamp(length), out_buffer);
}

ingot_status_t ingot_buffer_wrap(ingot_device_t *device, void *data, size_t length,
                                 ingot_release_function_t release, void *user,
                                 ingot_buffer_t **out_buffer) {
  return ingot_hal_buffer_wrap(device, data, clamp(length),
                               INGOT_HAL_ACCESS_READ | INGOT_HAL_ACCESS_WRITE, release, user,
                               out_buffer);
}

size_t ingot_buffer_length(const ingot_buffer_t *buffer) { return (size_t)buffer->length; }

void ingot_buffer_retain(ingot_buffer_t *buffer) { ingot_hal_buffer_retain(buffer); }

void ingot_buffer_release(ingot_buffer_t *buffer) { ingot_hal_buffer_release(buffer); }

ingot_status_t ingot_buffer_read(ingot_buffer_t *buffer, size_t offset, void *data, size_t length) {
  return ingot_hal_buffer_read(buffer, clamp(offset), clamp(length), data);
}

ingot_status_t ingot_buffer_write(ingot_buffer_t *buffer, size_t offset, const void *data,
                                  size_t length) {
  return ingot_hal_buffer_write(buffer, clamp(offset), clamp(length), data);
}

ingot_status_t ingot_buffer_map(ingot_buffer_t *buffer, size_t offset, size_t length,
                                uint32_t access, void **out_data) {
  return ingot_hal_buffer_map(buffer, clamp(offset), clamp(length), access, out_data);
}

void ingot_buffer_unmap(ingot_buffer_t *buffer, void *data) {
  ingot_hal_buffer_unmap(buffer, data);
}
