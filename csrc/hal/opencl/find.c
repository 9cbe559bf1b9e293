/* Platforms, devices and URIs. */
#include "hal/opencl/find.h"

#include <stdio.h>
#include <string.h>

#define INGOT_OPENCL_MAX_PLATFORMS 64
#define INGOT_OPENCL_LIST_CAPACITY 1024

/* -- all devices ----------------------------------------------------------------------------- */

/* Adds one platform's devices to the array. */
static ingot_status_t ingot_opencl_find_in(ingot_instance_t *instance,
                                           const ingot_cl_functions_t *cl,
                                           ingot_cl_platform_t platform,
                                           ingot_opencl_found_t **devices, uint32_t *count) {
  enum { MAX_DEVICES = 64 };
  const ingot_allocator_t *allocator = &instance->allocator;
  ingot_cl_device_t handles[MAX_DEVICES];
  uint32_t added = 0;
  int32_t error =
      cl->GetDeviceIDs(platform, INGOT_CL_DEVICE_TYPE_ALL, MAX_DEVICES, handles, &added);
  if (error == INGOT_CL_DEVICE_NOT_FOUND) return NULL;
  if (error) return ingot_opencl_status(allocator, "clGetDeviceIDs", error);
  if (added > MAX_DEVICES) added = MAX_DEVICES;
  void *array = *devices;
  INGOT_TRY(ingot_reallocate_array(allocator, *count + added, sizeof(**devices), &array));
  *devices = array;
  for (uint32_t d = 0; d < added; d++) {
    ingot_opencl_found_t *found = &(*devices)[*count];
    *found = (ingot_opencl_found_t){.platform = platform, .device = handles[d]};
    INGOT_OPENCL_TRY(allocator, cl, GetDeviceInfo, handles[d], INGOT_CL_DEVICE_NAME,
                     sizeof(found->name) - 1, found->name, NULL);
    INGOT_OPENCL_TRY(allocator, cl, GetDeviceInfo, handles[d], INGOT_CL_DEVICE_TYPE,
                     sizeof(found->type), &found->type, NULL);
    INGOT_OPENCL_TRY(allocator, cl, GetPlatformInfo, platform, INGOT_CL_PLATFORM_NAME,
                     sizeof(found->platform_name) - 1, found->platform_name, NULL);
    (*count)++;
  }
  return NULL;
}

ingot_status_t ingot_opencl_find_all(ingot_instance_t *instance, const ingot_cl_functions_t *cl,
                                     ingot_opencl_found_t **out_devices, uint32_t *out_count) {
  const ingot_allocator_t *allocator = &instance->allocator;
  ingot_cl_platform_t platforms[INGOT_OPENCL_MAX_PLATFORMS];
  uint32_t platform_count = 0;
  int32_t error = cl->GetPlatformIDs(INGOT_OPENCL_MAX_PLATFORMS, platforms, &platform_count);
  if (error == INGOT_CL_PLATFORM_NOT_FOUND_KHR) platform_count = 0;
  else if (error) return ingot_opencl_status(allocator, "clGetPlatformIDs", error);
  if (platform_count > INGOT_OPENCL_MAX_PLATFORMS) platform_count = INGOT_OPENCL_MAX_PLATFORMS;
  ingot_opencl_found_t *devices = NULL;
  uint32_t count = 0;
  for (uint32_t p = 0; p < platform_count; p++) {
    uint32_t before = count;
    ingot_status_t status = ingot_opencl_find_in(instance, cl, platforms[p], &devices, &count);
    if (!status) continue;
    if (status == ingot_status_out_of_memory()) {
      ingot_release_memory(allocator, devices);
      return status;
    }
    /* A driver that is installed badly must not hide the others. */
    ingot_log(&instance->log, INGOT_LOG_WARNING, "OpenCL platform %u is left out: %s", p,
              ingot_status_message(status));
    ingot_status_free(status);
    count = before;
  }
  *out_devices = devices;
  *out_count = count;
  return NULL;
}

/* -- one device ------------------------------------------------------------------------------ */

static char ingot_opencl_lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : letter;
}

static bool ingot_opencl_is_same(const char *a, const char *b, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (ingot_opencl_lower(a[i]) != ingot_opencl_lower(b[i])) return false;
  }
  return true;
}

/* Whether `text` has the part somewhere, in any case. */
static bool ingot_opencl_contains(const char *text, const char *part, size_t part_length) {
  size_t length = strlen(text);
  for (size_t i = 0; i + part_length <= length; i++) {
    if (ingot_opencl_is_same(text + i, part, part_length)) return true;
  }
  return false;
}

/* The type that a path names; 0 if it names none. */
static uint64_t ingot_opencl_type(const char *path, size_t length) {
  static const struct {
    const char *name;
    uint64_t type;
  } types[] = {{"gpu", INGOT_CL_DEVICE_TYPE_GPU},
               {"cpu", INGOT_CL_DEVICE_TYPE_CPU},
               {"accelerator", INGOT_CL_DEVICE_TYPE_ACCELERATOR}};
  for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
    if (strlen(types[t].name) == length && ingot_opencl_is_same(path, types[t].name, length)) {
      return types[t].type;
    }
  }
  return 0;
}

/* The number that a path is; false if it is none. */
static bool ingot_opencl_ordinal(const char *path, size_t length, uint32_t *out_ordinal) {
  *out_ordinal = 0;
  for (size_t i = 0; i < length; i++) {
    if (path[i] < '0' || path[i] > '9' || i > 6) return false;
    *out_ordinal = *out_ordinal * 10 + (uint32_t)(path[i] - '0');
  }
  return true;
}

static bool ingot_opencl_matches(const ingot_opencl_found_t *found, uint32_t ordinal,
                                 const ingot_hal_uri_t *uri) {
  uint32_t wanted;
  if (ingot_opencl_ordinal(uri->path, uri->path_length, &wanted)) return ordinal == wanted;
  uint64_t type = ingot_opencl_type(uri->path, uri->path_length);
  if (type) return (found->type & type) != 0;
  return ingot_opencl_contains(found->name, uri->path, uri->path_length) ||
         ingot_opencl_contains(found->platform_name, uri->path, uri->path_length);
}

static const char *ingot_opencl_type_name(uint64_t type) {
  if (type & INGOT_CL_DEVICE_TYPE_GPU) return "gpu";
  if (type & INGOT_CL_DEVICE_TYPE_CPU) return "cpu";
  return "accelerator";
}

static ingot_status_t ingot_opencl_not_found(const ingot_allocator_t *allocator,
                                             const ingot_hal_uri_t *uri,
                                             const ingot_opencl_found_t *devices, uint32_t count) {
  char list[INGOT_OPENCL_LIST_CAPACITY] = "";
  size_t length = 0;
  for (uint32_t d = 0; d < count && length + 1 < sizeof(list); d++) {
    int added = snprintf(list + length, sizeof(list) - length, "%sopencl://%u is '%s' (%s, %s)",
                         d > 0 ? "; " : "", d, devices[d].name,
                         ingot_opencl_type_name(devices[d].type), devices[d].platform_name);
    length += added > 0 ? (size_t)added : 0;
  }
  return ingot_status_create(allocator, INGOT_STATUS_NOT_FOUND,
                             "no OpenCL device is '%.100s'; %s%s", uri->text,
                             count ? "there are: "
                                   : "there is none: install a driver for the GPU, or "
                                     "pocl-opencl-icd for the CPU",
                             list);
}

ingot_status_t ingot_opencl_find(ingot_instance_t *instance, const ingot_cl_functions_t *cl,
                                 const ingot_hal_uri_t *uri, ingot_opencl_found_t *out_device) {
  ingot_opencl_found_t *devices = NULL;
  uint32_t count = 0;
  INGOT_TRY(ingot_opencl_find_all(instance, cl, &devices, &count));
  uint32_t d = 0;
  while (d < count && !ingot_opencl_matches(&devices[d], d, uri)) d++;
  ingot_status_t status = NULL;
  if (d < count) *out_device = devices[d];
  else status = ingot_opencl_not_found(&instance->allocator, uri, devices, count);
  ingot_release_memory(&instance->allocator, devices);
  return status;
}

/* -- options --------------------------------------------------------------------------------- */

static bool ingot_opencl_is_text(const char *text, size_t length, const char *expected) {
  return strlen(expected) == length && memcmp(text, expected, length) == 0;
}

/* "on" or "off" into *out_value. */
static bool ingot_opencl_parse_switch(const char *value, size_t length, bool *out_value) {
  *out_value = ingot_opencl_is_text(value, length, "on");
  return *out_value || ingot_opencl_is_text(value, length, "off");
}

/* One option; false if its name or its value is unknown. */
static bool ingot_opencl_parse_option(const char *name, size_t name_length, const char *value,
                                      size_t length, ingot_opencl_options_t *options) {
  if (ingot_opencl_is_text(name, name_length, "zero_copy")) {
    return ingot_opencl_parse_switch(value, length, &options->zero_copy);
  }
  if (ingot_opencl_is_text(name, name_length, "self_test")) {
    return ingot_opencl_parse_switch(value, length, &options->self_test);
  }
  if (ingot_opencl_is_text(name, name_length, "groups")) {
    bool is_large = ingot_opencl_is_text(value, length, "large");
    options->groups = is_large ? INGOT_OPENCL_GROUPS_LARGE : INGOT_OPENCL_GROUPS_SMALL;
    return is_large || ingot_opencl_is_text(value, length, "small");
  }
  if (length == 0) return false;
  if (ingot_opencl_is_text(name, name_length, "library")) {
    options->library = value;
    options->library_length = length;
    return true;
  }
  if (!ingot_opencl_is_text(name, name_length, "cache")) return false;
  if (ingot_opencl_parse_switch(value, length, &options->is_cached)) return true;
  options->is_cached = true;
  options->cache = value;
  options->cache_length = length;
  return true;
}

ingot_status_t ingot_opencl_parse_options(const ingot_allocator_t *allocator,
                                          const ingot_hal_uri_t *uri,
                                          ingot_opencl_options_t *out_options) {
  *out_options = (ingot_opencl_options_t){
      .library = "", .is_cached = true, .zero_copy = true, .self_test = true};
  for (const char *option = uri->query; *option;) {
    size_t length = strcspn(option, "&");
    size_t name_length = strcspn(option, "=&");
    size_t value_offset = name_length < length ? name_length + 1 : length;
    if (!ingot_opencl_parse_option(option, name_length, option + value_offset,
                                   length - value_offset, out_options)) {
      return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                                 "device '%.100s': bad option at '%.60s', expected library=PATH, "
                                 "cache=FOLDER, cache=off, zero_copy=off, self_test=off, "
                                 "groups=large or groups=small",
                                 uri->text, option);
    }
    option += length + (option[length] == '&');
  }
  return NULL;
}
