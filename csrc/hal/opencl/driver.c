/* The driver: what it keeps in an instance - opened libraries and the devices' URIs. */
#include <stdio.h>
#include <string.h>

#include "hal/opencl/opencl.h"
#include "ingot/opencl.h"

typedef struct ingot_opencl_library_t {
  struct ingot_opencl_library_t *next;
  ingot_cl_functions_t functions;
  char path[]; /* as it was asked for; "": the usual one */
} ingot_opencl_library_t;

typedef struct ingot_opencl_uri_t {
  char text[24];
} ingot_opencl_uri_t;

typedef struct ingot_opencl_state_t {
  ingot_opencl_library_t *libraries;
  char *default_path; /* NULL: the usual one */
  bool is_listed;
  uint32_t uri_count;
  ingot_opencl_uri_t *uris;
} ingot_opencl_state_t;

/* The state, made when first needed; under the driver_mutex. */
static ingot_status_t ingot_opencl_state(ingot_instance_t *instance, void **slot,
                                         ingot_opencl_state_t **out_state) {
  if (!*slot) {
    INGOT_TRY(ingot_allocate(&instance->allocator, sizeof(ingot_opencl_state_t), slot));
  }
  *out_state = *slot;
  return NULL;
}

static void ingot_opencl_state_destroy(ingot_instance_t *instance, void *memory) {
  ingot_opencl_state_t *state = memory;
  while (state->libraries) {
    ingot_opencl_library_t *next = state->libraries->next;
    ingot_release_memory(&instance->allocator, state->libraries);
    state->libraries = next;
  }
  ingot_release_memory(&instance->allocator, state->uris);
  ingot_release_memory(&instance->allocator, state->default_path);
  ingot_release_memory(&instance->allocator, state);
}

/* -- libraries ------------------------------------------------------------------------------- */

/* Under the driver_mutex. */
static ingot_status_t ingot_opencl_state_open(ingot_instance_t *instance,
                                              ingot_opencl_state_t *state, const char *path,
                                              size_t path_length,
                                              const ingot_cl_functions_t **out_functions) {
  if (path_length == 0 && state->default_path) {
    path = state->default_path;
    path_length = strlen(path);
  }
  for (ingot_opencl_library_t *library = state->libraries; library; library = library->next) {
    if (strlen(library->path) == path_length && strncmp(library->path, path, path_length) == 0) {
      *out_functions = &library->functions;
      return NULL;
    }
  }
  void *memory;
  INGOT_TRY(ingot_allocate(&instance->allocator, sizeof(ingot_opencl_library_t) + path_length + 1,
                           &memory));
  ingot_opencl_library_t *library = memory;
  if (path_length > 0) memcpy(library->path, path, path_length);
  ingot_status_t status =
      ingot_opencl_library_open(&instance->allocator, library->path, &library->functions);
  if (status) {
    ingot_release_memory(&instance->allocator, library);
    return status;
  }
  library->next = state->libraries;
  state->libraries = library;
  *out_functions = &library->functions;
  return NULL;
}

static ingot_status_t ingot_opencl_not_a_driver(ingot_instance_t *instance) {
  return ingot_status_create(&instance->allocator, INGOT_STATUS_FAILED_PRECONDITION,
                             "the instance has no OpenCL driver: name ingot_opencl_driver() in "
                             "the options that it is created with");
}

/* The functions of the library at `path` ("": the instance's choice). */
static ingot_status_t ingot_opencl_open_library(ingot_instance_t *instance, const char *path,
                                                size_t path_length,
                                                const ingot_cl_functions_t **out_functions) {
  void **slot = ingot_hal_instance_driver_state(instance, &ingot_hal_opencl_driver);
  if (!slot) return ingot_opencl_not_a_driver(instance);
  ingot_opencl_state_t *state;
  ingot_mutex_lock(&instance->driver_mutex);
  ingot_status_t status = ingot_opencl_state(instance, slot, &state);
  if (!status) {
    status = ingot_opencl_state_open(instance, state, path, path_length, out_functions);
  }
  ingot_mutex_unlock(&instance->driver_mutex);
  return status;
}

ingot_status_t ingot_opencl_set_library(ingot_instance_t *instance, const char *path) {
  void **slot = ingot_hal_instance_driver_state(instance, &ingot_hal_opencl_driver);
  if (!slot) return ingot_opencl_not_a_driver(instance);
  ingot_opencl_state_t *state;
  char *copy = NULL;
  INGOT_TRY(ingot_allocate_string(&instance->allocator, path, &copy));
  ingot_mutex_lock(&instance->driver_mutex);
  ingot_status_t status = ingot_opencl_state(instance, slot, &state);
  if (!status && state->is_listed) {
    status =
        ingot_status_create(&instance->allocator, INGOT_STATUS_FAILED_PRECONDITION,
                            "the devices are listed already: set the library '%s' before", path);
  }
  if (!status) {
    char *old = state->default_path;
    state->default_path = copy;
    copy = old;
  }
  ingot_mutex_unlock(&instance->driver_mutex);
  ingot_release_memory(&instance->allocator, copy);
  return status;
}

/* -- devices --------------------------------------------------------------------------------- */

static ingot_status_t ingot_opencl_list(ingot_instance_t *instance, ingot_opencl_state_t *state) {
  const ingot_cl_functions_t *cl;
  ingot_opencl_found_t *devices = NULL;
  uint32_t count = 0;
  INGOT_TRY(ingot_opencl_state_open(instance, state, "", 0, &cl));
  INGOT_TRY(ingot_opencl_find_all(instance, cl, &devices, &count));
  ingot_release_memory(&instance->allocator, devices);
  void *uris;
  INGOT_TRY(ingot_allocate_array(&instance->allocator, count, sizeof(*state->uris), &uris));
  state->uris = uris;
  state->uri_count = count;
  for (uint32_t d = 0; d < count; d++) {
    (void)snprintf(state->uris[d].text, sizeof(state->uris[d].text), "opencl://%u", d);
  }
  return NULL;
}

/* A machine without OpenCL has no such devices; that is no failure, but the log tells why. */
static const char *ingot_opencl_device_uri(ingot_instance_t *instance, void **slot,
                                           uint32_t ordinal) {
  ingot_opencl_state_t *state;
  ingot_status_t status = ingot_opencl_state(instance, slot, &state);
  if (!status && !state->is_listed) {
    status = ingot_opencl_list(instance, state);
    state->is_listed = true;
  }
  if (status) {
    ingot_log(&instance->log, INGOT_LOG_INFO, "no OpenCL devices: %s",
              ingot_status_message(status));
    ingot_status_free(status);
    return NULL;
  }
  return ordinal < state->uri_count ? state->uris[ordinal].text : NULL;
}

ingot_status_t ingot_opencl_open(ingot_instance_t *instance, const ingot_hal_uri_t *uri,
                                 ingot_cl_context_t context, ingot_cl_queue_t queue,
                                 ingot_device_t **out_device) {
  ingot_opencl_options_t options;
  const ingot_cl_functions_t *cl;
  INGOT_TRY(ingot_opencl_parse_options(&instance->allocator, uri, &options));
  INGOT_TRY(ingot_opencl_open_library(instance, options.library, options.library_length, &cl));
  return ingot_opencl_device_open(instance, cl, uri, &options, context, queue, out_device);
}

static ingot_status_t ingot_opencl_device_create(ingot_instance_t *instance,
                                                 const ingot_hal_uri_t *uri,
                                                 const ingot_device_options_t *options,
                                                 ingot_device_t **out_device) {
  if (options->thread_pool) {
    return ingot_status_create(&instance->allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "device '%.100s': a thread_pool is for the cpu; leave it out",
                               uri->text);
  }
  return ingot_opencl_open(instance, uri, NULL, NULL, out_device);
}

const ingot_hal_driver_t ingot_hal_opencl_driver = {
    .scheme = "opencl",
    .device_uri = ingot_opencl_device_uri,
    .state_destroy = ingot_opencl_state_destroy,
    .device_create = ingot_opencl_device_create,
};

const ingot_driver_t *ingot_opencl_driver(void) { return &ingot_hal_opencl_driver; }
