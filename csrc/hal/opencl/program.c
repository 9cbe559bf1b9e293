/* Building programs. */
#include "hal/opencl/program.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hal/opencl/sha256.h"

#define INGOT_OPENCL_OPTIONS_CAPACITY 512

static const ingot_allocator_t *ingot_opencl_program_allocator(
    const ingot_opencl_device_t *device) {
  return ingot_hal_device_allocator(&device->base);
}

/* What opencl_object.h promises to kernels. Nothing here makes arithmetic less exact. */
static void ingot_opencl_write_options(const ingot_opencl_device_t *device, uint32_t width,
                                       char text[INGOT_OPENCL_OPTIONS_CAPACITY]) {
  uint64_t features = device->features;
  (void)snprintf(text, INGOT_OPENCL_OPTIONS_CAPACITY,
                 "-cl-std=%s -D INGOT_INDEX=%s -D INGOT_GROUP_SIZE=%zu "
                 "-D INGOT_LOCAL_LENGTH=%" PRIu64 "%s%s%s%s%s",
                 device->has_dot_products ? "CL3.0" : "CL1.2",
                 width == INGOT_OPENCL_WIDE ? "long" : "int", device->group_size,
                 device->local_length,
                 device->has_exact_division ? " -cl-fp32-correctly-rounded-divide-sqrt"
                                              " -D INGOT_OPENCL_EXACT_DIVISION=1"
                                            : "",
                 features & INGOT_OPENCL_FP64 ? " -D INGOT_OPENCL_FP64=1" : "",
                 features & INGOT_OPENCL_FP16 ? " -D INGOT_OPENCL_FP16=1" : "",
                 features & INGOT_OPENCL_INT64_ATOMICS ? " -D INGOT_OPENCL_INT64_ATOMICS=1" : "",
                 features & INGOT_OPENCL_SUBGROUPS ? " -D INGOT_OPENCL_SUBGROUPS=1" : "");
}

/* -- building -------------------------------------------------------------------------------- */

/* The compiler's log as a failure. */
static ingot_status_t ingot_opencl_build_status(const ingot_opencl_device_t *device,
                                                ingot_cl_program_t program, int32_t error) {
  const ingot_allocator_t *allocator = ingot_opencl_program_allocator(device);
  size_t length = 0;
  void *memory;
  (void)device->cl->GetProgramBuildInfo(program, device->device, INGOT_CL_PROGRAM_BUILD_LOG, 0,
                                        NULL, &length);
  INGOT_TRY(ingot_allocate(allocator, length + 1, &memory));
  (void)device->cl->GetProgramBuildInfo(program, device->device, INGOT_CL_PROGRAM_BUILD_LOG, length,
                                        memory, NULL);
  ingot_status_t status = ingot_status_create(
      allocator, INGOT_STATUS_UNSUPPORTED,
      "the OpenCL compiler of %s refuses the kernels (clBuildProgram gives %d): update the "
      "driver, or run on device 'cpu'. Its log: %.2000s",
      device->base.description, (int)error, (const char *)memory);
  ingot_release_memory(allocator, memory);
  return status;
}

static ingot_status_t ingot_opencl_build_source(const ingot_opencl_device_t *device,
                                                const uint8_t *object, const char *options,
                                                ingot_cl_program_t *out_program) {
  const ingot_opencl_header_t *header = (const void *)object;
  size_t length = (size_t)header->source_length;
  /* Length 0 would tell OpenCL that the text ends in NUL. */
  const char *source = length > 0 ? (const char *)object + header->source_offset : "";
  int32_t error = 0;
  ingot_cl_program_t program =
      device->cl->CreateProgramWithSource(device->context, 1, &source, &length, &error);
  if (error) {
    return ingot_opencl_status(ingot_opencl_program_allocator(device), "clCreateProgramWithSource",
                               error);
  }
  error = device->cl->BuildProgram(program, 1, &device->device, options, NULL, NULL);
  if (error) {
    ingot_status_t status = ingot_opencl_build_status(device, program, error);
    (void)device->cl->ReleaseProgram(program);
    return status;
  }
  *out_program = program;
  return NULL;
}

/* False if the driver does not take the binary: then the source is built. */
static bool ingot_opencl_build_binary(const ingot_opencl_device_t *device,
                                      const ingot_opencl_cached_t *cached, const char *options,
                                      ingot_cl_program_t *out_program) {
  const unsigned char *binary = cached->binary;
  int32_t error = 0, binary_error = 0;
  ingot_cl_program_t program = device->cl->CreateProgramWithBinary(
      device->context, 1, &device->device, &cached->binary_length, &binary, &binary_error, &error);
  if (error) return false;
  if (!binary_error) {
    error = device->cl->BuildProgram(program, 1, &device->device, options, NULL, NULL);
  }
  if (error || binary_error) {
    (void)device->cl->ReleaseProgram(program);
    return false;
  }
  *out_program = program;
  return true;
}

/* Everything that a binary and the verdicts on it depend on. */
static ingot_opencl_key_t ingot_opencl_program_key(const ingot_opencl_device_t *device,
                                                   const uint8_t *object, size_t object_length,
                                                   const char *options) {
  ingot_opencl_key_t key;
  ingot_sha256_t hash = ingot_sha256_begin();
  ingot_sha256_add(&hash, INGOT_VERSION, sizeof(INGOT_VERSION));
  ingot_sha256_add(&hash, device->identity, strlen(device->identity) + 1);
  ingot_sha256_add(&hash, options, strlen(options) + 1);
  ingot_sha256_add(&hash, object, object_length);
  ingot_sha256_finish(&hash, key.digest);
  return key;
}

ingot_status_t ingot_opencl_program_build(ingot_opencl_device_t *device, const uint8_t *object,
                                          size_t object_length, uint32_t width,
                                          ingot_opencl_built_t *out_built) {
  const ingot_allocator_t *allocator = ingot_opencl_program_allocator(device);
  const ingot_opencl_header_t *header = (const void *)object;
  char options[INGOT_OPENCL_OPTIONS_CAPACITY];
  ingot_opencl_write_options(device, width, options);
  ingot_opencl_built_t built = {
      .key = ingot_opencl_program_key(device, object, object_length, options)};
  ingot_opencl_cached_t cached = {.verdicts = NULL};
  if (device->cache_folder && ingot_opencl_cache_read(allocator, device->cache_folder, &built.key,
                                                      header->entry_count, &cached)) {
    built.is_cached = ingot_opencl_build_binary(device, &cached, options, &built.program);
    ingot_release_memory(allocator, cached.binary);
    if (built.is_cached) {
      built.verdicts = cached.verdicts;
      *out_built = built;
      return NULL;
    }
    ingot_release_memory(allocator, cached.verdicts);
  }
  void *verdicts;
  INGOT_TRY(ingot_allocate(allocator, header->entry_count, &verdicts));
  built.verdicts = verdicts;
  ingot_status_t status = ingot_opencl_build_source(device, object, options, &built.program);
  if (status) {
    ingot_release_memory(allocator, verdicts);
    return status;
  }
  *out_built = built;
  return NULL;
}

void ingot_opencl_program_release(const ingot_opencl_device_t *device,
                                  ingot_opencl_built_t *built) {
  if (built->program) (void)device->cl->ReleaseProgram(built->program);
  ingot_release_memory(ingot_opencl_program_allocator(device), built->verdicts);
  *built = (ingot_opencl_built_t){.program = NULL};
}

/* -- keeping --------------------------------------------------------------------------------- */

/* False if there is none to be had. */
static bool ingot_opencl_read_binary(const ingot_opencl_device_t *device,
                                     ingot_cl_program_t program, ingot_opencl_cached_t *cached) {
  const ingot_allocator_t *allocator = ingot_opencl_program_allocator(device);
  size_t length = 0, answer_length = 0;
  /* An application's context with several devices has as many binaries: not worth the trouble. */
  if (device->cl->GetProgramInfo(program, INGOT_CL_PROGRAM_BINARY_SIZES, 0, NULL, &answer_length) ||
      answer_length != sizeof(length) ||
      device->cl->GetProgramInfo(program, INGOT_CL_PROGRAM_BINARY_SIZES, sizeof(length), &length,
                                 NULL) ||
      length == 0) {
    return false;
  }
  unsigned char *binary = allocator->resize(allocator->user, NULL, length);
  cached->binary = binary;
  cached->binary_length = length;
  return binary && !device->cl->GetProgramInfo(program, INGOT_CL_PROGRAM_BINARIES, sizeof(binary),
                                               &binary, NULL);
}

void ingot_opencl_program_keep(const ingot_opencl_device_t *device,
                               const ingot_opencl_built_t *built, uint32_t entry_count) {
  if (!device->cache_folder) return;
  ingot_opencl_cached_t cached = {.verdicts = built->verdicts, .entry_count = entry_count};
  if (ingot_opencl_read_binary(device, built->program, &cached)) {
    ingot_opencl_cache_write(device->cache_folder, &built->key, &cached);
  }
  ingot_release_memory(ingot_opencl_program_allocator(device), cached.binary);
}
