/* What the tests of calls share: a device with the add_one kernel, and a session from a
 * builder in one line.
 */
#ifndef INGOT_TESTS_HARNESS_H_
#define INGOT_TESTS_HARNESS_H_

#include "hal/hal.h"
#include "module/builder.h"
#include "test.h"

typedef struct harness_t {
  ingot_instance_t *instance;
  ingot_device_t *device;
} harness_t;

/* A module's bytes and everything made of them. */
typedef struct harness_program_t {
  builder_bytes_t file;
  ingot_module_t *module;
  ingot_program_t *program;
  ingot_session_t *session;
} harness_program_t;

static inline ingot_status_t harness_create(const ingot_allocator_t *allocator,
                                            harness_t *harness) {
  *harness = (harness_t){NULL, NULL};
  const ingot_static_kernels_t kernels = {"add_one", builder_add_one_query};
  const ingot_instance_options_t options = {
      .allocator = allocator, .kernels = &kernels, .kernel_count = 1};
  ingot_status_t status = ingot_instance_create(&options, &harness->instance);
  if (!status) {
    status = ingot_device_create(harness->instance, "cpu://?threads=1", NULL, &harness->device);
  }
  return status;
}

static inline void harness_release(harness_t *harness) {
  ingot_device_release(harness->device);
  ingot_instance_release(harness->instance);
}

/* Takes over `file`. On failure harness_unload is still to be called. */
static inline ingot_status_t harness_load_with(const harness_t *harness, builder_bytes_t file,
                                               const ingot_parameters_t *parameters,
                                               const ingot_program_options_t *options,
                                               harness_program_t *out) {
  *out = (harness_program_t){.file = file};
  ingot_status_t status = ingot_module_load_memory(harness->instance, file.data, file.length, 0,
                                                   NULL, NULL, &out->module);
  if (!status) {
    status =
        ingot_program_create(harness->device, &out->module, 1, parameters, options, &out->program);
  }
  if (!status) status = ingot_session_create(out->program, NULL, &out->session);
  return status;
}

static inline ingot_status_t harness_load(const harness_t *harness, builder_bytes_t file,
                                          const ingot_parameters_t *parameters,
                                          harness_program_t *out) {
  return harness_load_with(harness, file, parameters, NULL, out);
}

static inline void harness_unload(harness_program_t *program) {
  ingot_session_release(program->session);
  ingot_program_release(program->program);
  ingot_module_release(program->module);
  free(program->file.data);
}

/* Sets one to `most` bytes to numbers of at most `greatest`, 2^k - 1, and seals: code and tables are
 * hit often, since most of the rest is refused. */
static inline void harness_mutate(builder_bytes_t file, uint64_t most, uint8_t greatest,
                                  uint64_t *random) {
  for (uint64_t changes = 1 + test_random(random) % most; changes > 0; --changes) {
    uint64_t draw = test_random(random);
    file.data[draw % file.length] = (uint8_t)(draw >> 40 & greatest);
  }
  builder_seal(file.data, file.length);
}

/* A view over the test's own array. */
static inline ingot_buffer_view_t *harness_view(const harness_t *harness, void *data,
                                                ingot_dtype_t dtype, int64_t count) {
  ingot_buffer_view_t *view = NULL;
  size_t length = (size_t)count * ingot_dtype_length(dtype);
  ingot_status_t status =
      ingot_buffer_view_wrap(harness->device, data, length, dtype, 1, &count, NULL, NULL, &view);
  if (status) FAIL("view: %s", ingot_status_message(status));
  ingot_status_free(status);
  return view;
}

/* "bias" = 10, 20, 30, 40; of the full module. */
static inline ingot_status_t harness_find(void *user, const char *scope, const char *key,
                                          ingot_parameter_span_t *out_span) {
  static const float bias[4] = {10, 20, 30, 40};
  static const int64_t dims[1] = {4};
  (void)user;
  (void)scope;
  (void)key;
  *out_span = (ingot_parameter_span_t){bias, sizeof(bias), INGOT_DTYPE_F32, 1, dims, false};
  return NULL;
}

static const ingot_parameters_t harness_parameters = {NULL, harness_find};

/* A saved state in memory, for ingot_session_save_state and ingot_session_load_state. */
typedef struct harness_bytes_t {
  uint8_t data[8 * 4096];
  size_t length;
  size_t place; /* of the next byte that is read */
} harness_bytes_t;

static inline bool harness_write(void *user, const void *data, size_t length) {
  harness_bytes_t *bytes = user;
  if (length > sizeof(bytes->data) - bytes->length) return false;
  memcpy(bytes->data + bytes->length, data, length);
  bytes->length += length;
  return true;
}

static inline bool harness_read(void *user, void *data, size_t length) {
  harness_bytes_t *bytes = user;
  if (length > bytes->length - bytes->place) return false;
  memcpy(data, bytes->data + bytes->place, length);
  bytes->place += length;
  return true;
}

static inline ingot_status_t harness_load_state(ingot_session_t *session, harness_bytes_t *bytes) {
  bytes->place = 0;
  return ingot_session_load_state(session, harness_read, bytes);
}

#endif /* INGOT_TESTS_HARNESS_H_ */
