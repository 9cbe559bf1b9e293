/* The OpenCL device: what it can do, its context, the queue that orders maps. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hal/opencl/cache.h"
#include "hal/opencl/opencl.h"

/* -- lifetime -------------------------------------------------------------------------------- */

/* Also of a device that was opened in part. */
static void ingot_opencl_device_free(ingot_opencl_device_t *device) {
  const ingot_allocator_t *allocator = &device->base.instance->allocator;
  ingot_opencl_staging_free(device);
  if (device->queue) (void)device->cl->ReleaseCommandQueue(device->queue);
  if (device->context) (void)device->cl->ReleaseContext(device->context);
  ingot_mutex_deinitialize(&device->staging_mutex);
  ingot_mutex_deinitialize(&device->map_mutex);
  ingot_mutex_deinitialize(&device->mutex);
  ingot_release_memory(allocator, device->cache_folder);
  ingot_release_memory(allocator, device);
}

static void ingot_opencl_device_destroy(ingot_device_t *base) {
  ingot_instance_t *instance = base->instance;
  ingot_opencl_device_free((ingot_opencl_device_t *)base);
  ingot_hal_instance_release(instance);
}

const ingot_hal_device_vtable_t ingot_opencl_device_vtable = {
    .destroy = ingot_opencl_device_destroy,
    .buffer_create = ingot_opencl_buffer_create,
    .buffer_wrap = ingot_opencl_buffer_wrap,
    .executable_create = ingot_opencl_executable_create,
    .queue_create = ingot_opencl_queue_create,
    .queue_destroy = ingot_opencl_queue_destroy,
    .queue_wait = ingot_opencl_queue_wait,
    .queue_dispatch = ingot_opencl_queue_dispatch,
    .queue_copy = ingot_opencl_queue_copy,
    .queue_fill = ingot_opencl_queue_fill,
    .queue_write = ingot_opencl_queue_write,
    .queue_read = ingot_opencl_queue_read,
    .traces = true,
};

/* -- what it can do -------------------------------------------------------------------------- */

/* One number of the device; OpenCL's types are as wide as the variables here. */
#define INGOT_OPENCL_QUERY(device, question, out)                                    \
  INGOT_OPENCL_TRY(&(device)->base.instance->allocator, (device)->cl, GetDeviceInfo, \
                   (device)->device, INGOT_CL_DEVICE_##question, sizeof(*(out)), out, NULL)

bool ingot_opencl_has_word(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *found = list; (found = strstr(found, word)) != NULL; found += length) {
    bool begins = found == list || found[-1] == ' ';
    if (begins && (found[length] == ' ' || found[length] == 0)) return true;
  }
  return false;
}

static ingot_status_t ingot_opencl_query_features(ingot_opencl_device_t *device) {
  const ingot_allocator_t *allocator = &device->base.instance->allocator;
  const ingot_cl_functions_t *cl = device->cl;
  size_t length = 0;
  void *memory;
  INGOT_OPENCL_TRY(allocator, cl, GetDeviceInfo, device->device, INGOT_CL_DEVICE_EXTENSIONS, 0,
                   NULL, &length);
  INGOT_TRY(ingot_allocate(allocator, length + 1, &memory));
  char *extensions = memory;
  int32_t error =
      cl->GetDeviceInfo(device->device, INGOT_CL_DEVICE_EXTENSIONS, length, extensions, NULL);
  if (ingot_opencl_has_word(extensions, "cl_khr_fp16")) device->features |= INGOT_OPENCL_FP16;
  if (ingot_opencl_has_word(extensions, "cl_khr_int64_base_atomics") &&
      ingot_opencl_has_word(extensions, "cl_khr_int64_extended_atomics")) {
    device->features |= INGOT_OPENCL_INT64_ATOMICS;
  }
  if (ingot_opencl_has_word(extensions, "cl_khr_subgroups") ||
      ingot_opencl_has_word(extensions, "cl_intel_subgroups")) {
    device->features |= INGOT_OPENCL_SUBGROUPS;
  }
  device->has_dot_products = ingot_opencl_has_word(extensions, "cl_khr_integer_dot_product");
  ingot_release_memory(allocator, memory);
  if (error) return ingot_opencl_status(allocator, "clGetDeviceInfo", error);
  uint64_t singles = 0;
  INGOT_OPENCL_QUERY(device, SINGLE_FP_CONFIG, &singles);
  device->has_exact_division = (singles & INGOT_CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  uint64_t doubles = 0; /* a device of before 1.2 may not know the question */
  error = cl->GetDeviceInfo(device->device, INGOT_CL_DEVICE_DOUBLE_FP_CONFIG, sizeof(doubles),
                            &doubles, NULL);
  if (!error && doubles) device->features |= INGOT_OPENCL_FP64;
  return NULL;
}

/* Whether schedules for large groups pay: on a GPU with memory of its own and room for them. */
static bool ingot_opencl_is_large(const ingot_opencl_device_t *device, bool is_shared) {
  return (device->type & INGOT_CL_DEVICE_TYPE_GPU) && !is_shared && device->group_size >= 256 &&
         device->local_length >= 32768;
}

static ingot_status_t ingot_opencl_query_limits(ingot_opencl_device_t *device,
                                                const ingot_opencl_options_t *options) {
  uint64_t memory_length = 0;
  size_t parameter_length = 0;
  uint32_t is_shared = 0, has_compiler = 0;
  INGOT_OPENCL_QUERY(device, TYPE, &device->type);
  INGOT_OPENCL_QUERY(device, GLOBAL_MEM_SIZE, &memory_length);
  INGOT_OPENCL_QUERY(device, MAX_MEM_ALLOC_SIZE, &device->max_allocation);
  INGOT_OPENCL_QUERY(device, MAX_PARAMETER_SIZE, &parameter_length);
  INGOT_OPENCL_QUERY(device, LOCAL_MEM_SIZE, &device->local_length);
  INGOT_OPENCL_QUERY(device, MAX_WORK_GROUP_SIZE, &device->group_size);
  INGOT_OPENCL_QUERY(device, MAX_WORK_ITEM_SIZES, &device->group_sizes);
  INGOT_OPENCL_QUERY(device, HOST_UNIFIED_MEMORY, &is_shared);
  INGOT_OPENCL_QUERY(device, COMPILER_AVAILABLE, &has_compiler);
  INGOT_OPENCL_QUERY(device, MAX_COMPUTE_UNITS, &device->base.thread_count);
  device->max_parameter_length = parameter_length;
  device->base.call_count = INGOT_OPENCL_CALLS;
  device->base.memory_length = memory_length < INT64_MAX ? (int64_t)memory_length : INT64_MAX;
  device->zero_copy = options->zero_copy && is_shared;
  if (options->groups == INGOT_OPENCL_GROUPS_BY_DEVICE
          ? ingot_opencl_is_large(device, is_shared)
          : options->groups == INGOT_OPENCL_GROUPS_LARGE) {
    device->base.features |= INGOT_OPENCL_LARGE_GROUPS;
  }
  if (has_compiler) return NULL;
  return ingot_status_create(&device->base.instance->allocator, INGOT_STATUS_UNSUPPORTED,
                             "the OpenCL driver brings no compiler: expected a full profile");
}

static ingot_status_t ingot_opencl_query_names(ingot_opencl_device_t *device) {
  char name[256] = "", version[256] = "", driver[128] = "", platform_name[96] = "";
  ingot_cl_platform_t platform = NULL;
  INGOT_OPENCL_QUERY(device, NAME, &name);
  INGOT_OPENCL_QUERY(device, VERSION, &version);
  device->has_dot_products &= strncmp(version, "OpenCL 3.", 9) == 0;
  INGOT_OPENCL_QUERY(device, PLATFORM, &platform);
  const ingot_allocator_t *allocator = &device->base.instance->allocator;
  INGOT_OPENCL_TRY(allocator, device->cl, GetDeviceInfo, device->device, INGOT_CL_DRIVER_VERSION,
                   sizeof(driver), driver, NULL);
  INGOT_OPENCL_TRY(allocator, device->cl, GetPlatformInfo, platform, INGOT_CL_PLATFORM_NAME,
                   sizeof(platform_name), platform_name, NULL);
  (void)snprintf(device->identity, sizeof(device->identity), "%s|%s|%s|%s", platform_name, name,
                 version, driver);
  (void)snprintf(device->description, sizeof(device->description),
                 "%s (%s), %u compute unit%s, %" PRIu64 " MB%s%s%s%s%s%s", name, platform_name,
                 device->base.thread_count, device->base.thread_count == 1 ? "" : "s",
                 (uint64_t)device->base.memory_length >> 20, device->zero_copy ? " shared" : "",
                 device->features & INGOT_OPENCL_FP64 ? ", f64" : "",
                 device->features & INGOT_OPENCL_FP16 ? ", f16" : "",
                 device->features & INGOT_OPENCL_INT64_ATOMICS ? ", int64 atomics" : "",
                 device->features & INGOT_OPENCL_SUBGROUPS ? ", subgroups" : "",
                 device->has_dot_products ? ", dot products" : "");
  device->base.description = device->description;
  return NULL;
}

/* -- context and queue ----------------------------------------------------------------------- */

static ingot_status_t ingot_opencl_make_context(ingot_opencl_device_t *device,
                                                const ingot_hal_uri_t *uri) {
  const ingot_allocator_t *allocator = &device->base.instance->allocator;
  ingot_opencl_found_t found;
  INGOT_TRY(ingot_opencl_find(device->base.instance, device->cl, uri, &found));
  device->device = found.device;
  const ingot_cl_property_t properties[] = {INGOT_CL_CONTEXT_PLATFORM,
                                            (ingot_cl_property_t)found.platform, 0};
  int32_t error = 0;
  device->context = device->cl->CreateContext(properties, 1, &found.device, NULL, NULL, &error);
  if (error) device->context = NULL;
  return error ? ingot_opencl_status(allocator, "clCreateContext", error) : NULL;
}

/* Takes references of the application's objects. */
static ingot_status_t ingot_opencl_take_context(ingot_opencl_device_t *device,
                                                ingot_cl_context_t context,
                                                ingot_cl_queue_t queue) {
  const ingot_allocator_t *allocator = &device->base.instance->allocator;
  const ingot_cl_functions_t *cl = device->cl;
  if (queue) {
    uint64_t properties = 0;
    INGOT_OPENCL_TRY(allocator, cl, GetCommandQueueInfo, queue, INGOT_CL_QUEUE_PROPERTIES,
                     sizeof(properties), &properties, NULL);
    if (properties & INGOT_CL_QUEUE_OUT_OF_ORDER) {
      return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                                 "the command queue runs out of order: expected one in order");
    }
    INGOT_OPENCL_TRY(allocator, cl, GetCommandQueueInfo, queue, INGOT_CL_QUEUE_CONTEXT,
                     sizeof(context), &context, NULL);
    INGOT_OPENCL_TRY(allocator, cl, GetCommandQueueInfo, queue, INGOT_CL_QUEUE_DEVICE,
                     sizeof(device->device), &device->device, NULL);
    INGOT_OPENCL_TRY(allocator, cl, RetainCommandQueue, queue);
    device->queue = queue;
    device->is_queue_shared = true;
  } else {
    enum { MAX_DEVICES = 64 };
    ingot_cl_device_t devices[MAX_DEVICES];
    INGOT_OPENCL_TRY(allocator, cl, GetContextInfo, context, INGOT_CL_CONTEXT_DEVICES,
                     sizeof(devices), devices, NULL);
    device->device = devices[0];
  }
  INGOT_OPENCL_TRY(allocator, cl, RetainContext, context);
  device->context = context;
  return NULL;
}

static ingot_status_t ingot_opencl_make_queue(ingot_opencl_device_t *device) {
  if (device->queue) return NULL;
  int32_t error = 0;
  device->queue = device->cl->CreateCommandQueue(device->context, device->device, 0, &error);
  if (error) device->queue = NULL;
  return error
             ? ingot_opencl_status(&device->base.instance->allocator, "clCreateCommandQueue", error)
             : NULL;
}

/* -- opening --------------------------------------------------------------------------------- */

static ingot_status_t ingot_opencl_device_load(ingot_opencl_device_t *device,
                                               const ingot_hal_uri_t *uri,
                                               const ingot_opencl_options_t *options,
                                               ingot_cl_context_t context, ingot_cl_queue_t queue) {
  INGOT_TRY(context || queue ? ingot_opencl_take_context(device, context, queue)
                             : ingot_opencl_make_context(device, uri));
  INGOT_TRY(ingot_opencl_query_features(device));
  INGOT_TRY(ingot_opencl_query_limits(device, options));
  INGOT_TRY(ingot_opencl_query_names(device));
  INGOT_TRY(ingot_opencl_make_queue(device));
  device->self_test = options->self_test;
  if (!options->is_cached) return NULL;
  return ingot_opencl_cache_folder(&device->base.instance->allocator, options->cache,
                                   options->cache_length, &device->cache_folder);
}

ingot_status_t ingot_opencl_device_open(ingot_instance_t *instance, const ingot_cl_functions_t *cl,
                                        const ingot_hal_uri_t *uri,
                                        const ingot_opencl_options_t *options,
                                        ingot_cl_context_t context, ingot_cl_queue_t queue,
                                        ingot_device_t **out_device) {
  void *memory;
  INGOT_TRY(ingot_allocate(&instance->allocator, sizeof(ingot_opencl_device_t), &memory));
  ingot_opencl_device_t *device = memory;
  device->base.vtable = &ingot_opencl_device_vtable;
  device->base.instance = instance;
  device->base.target = "opencl";
  device->base.format = "opencl-c";
  device->cl = cl;
  ingot_reference_count_initialize(&device->base.references);
  ingot_mutex_initialize(&device->mutex);
  ingot_mutex_initialize(&device->staging_mutex);
  ingot_mutex_initialize(&device->map_mutex);
  ingot_status_t status = ingot_opencl_device_load(device, uri, options, context, queue);
  if (status) {
    ingot_opencl_device_free(device);
    return status;
  }
  ingot_hal_instance_retain(instance);
  *out_device = &device->base;
  return NULL;
}
