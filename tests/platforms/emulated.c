/* What tests run under an emulator: the kernels of an object, or a model, on numbers from the
 * standard input. emulators.py writes them and reads what comes back.
 *
 *   emulated kernels OBJECT   jobs: see run_job
 *   emulated model MODULE     arguments: see read_view
 *
 * Little-endian words without padding; a failure is one line on the standard error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hal/cpu/library.h"
#include "ingot/ingot.h"

static void fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static void check(ingot_status_t status) {
  if (status) fail(ingot_status_message(status));
}

static void *allocate(size_t length) {
  void *memory = aligned_alloc(64, (length + 127) / 64 * 64);
  if (!memory) fail("out of memory");
  return memory;
}

static bool read_bytes(void *to, size_t length) { return fread(to, 1, length, stdin) == length; }

static void need_bytes(void *to, size_t length) {
  if (!read_bytes(to, length)) fail("the input ends too early");
}

static void write_bytes(const void *from, size_t length) {
  if (fwrite(from, 1, length, stdout) != length) fail("cannot write");
}

/* -- kernels ------------------------------------------------------------------------------------- */

static uint32_t INGOT_KERNEL_CALL go_on(const ingot_kernel_dispatch_t *dispatch) {
  (void)dispatch;
  return 0;
}

static int64_t tiles(int64_t work, int64_t tile) { return (work + tile - 1) / tile; }

/* A job: i64 entry, binding count, constant count, workload[3], constants; then per binding an i64
 * length and its bytes. Back come an i64, 0 or the code of a fault, and the bytes of all bindings. */
static bool run_job(const ingot_kernel_library_t *kernels) {
  int64_t head[6], *constants, *lengths;
  if (!read_bytes(head, sizeof(head))) return false;
  const ingot_kernel_entry_t *entry = &kernels->entries[head[0]];
  size_t count = (size_t)head[1];
  if (count != entry->binding_count || head[2] != entry->constant_count) fail("another contract");
  constants = allocate((size_t)head[2] * 8);
  need_bytes(constants, (size_t)head[2] * 8);
  lengths = allocate(count * 8);
  void **bindings = allocate(count * sizeof(void *));
  for (size_t b = 0; b < count; b++) {
    need_bytes(&lengths[b], 8);
    bindings[b] = allocate((size_t)lengths[b]);
    need_bytes(bindings[b], (size_t)lengths[b]);
  }
  ingot_kernel_dispatch_t dispatch = {
      bindings, lengths, constants, {head[3], head[4], head[5]}, go_on};
  ingot_kernel_fault_t fault = {0, 0, 0, 0};
  void *scratch = allocate((size_t)entry->scratch_length);
  int64_t code = entry->misfit(&dispatch) ? -1 : 0;
  for (int64_t z = 0; z < tiles(head[5], entry->tile[2]); z++) {
    for (int64_t y = 0; y < tiles(head[4], entry->tile[1]); y++) {
      for (int64_t x = 0; x < tiles(head[3], entry->tile[0]) && !code; x++) {
        code = entry->function(&dispatch, x, y, z, scratch, &fault);
      }
    }
  }
  write_bytes(&code, 8);
  for (size_t b = 0; b < count; b++) {
    write_bytes(bindings[b], (size_t)lengths[b]);
    free(bindings[b]);
  }
  free(constants), free(lengths), free((void *)bindings), free(scratch);
  return true;
}

static void run_kernels(ingot_instance_t *instance, const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) fail("cannot open the object");
  size_t length = (size_t)ftell(file);
  rewind(file);
  uint8_t *data = allocate(length);
  if (fread(data, 1, length, file) != length) fail("cannot read the object");
  (void)fclose(file);
  uint32_t count;
  need_bytes(&count, 4);
  ingot_hal_cpu_library_t library;
  check(ingot_hal_cpu_library_load(&instance->allocator, data, length, count, &library));
  while (run_job(library.kernels)) {
  }
  ingot_hal_cpu_library_unload(&library);
  free(data);
}

/* -- models -------------------------------------------------------------------------------------- */

/* i32 dtype, i32 rank, i64 dims, i64 length, bytes. */
static ingot_buffer_view_t *read_view(ingot_device_t *device) {
  int32_t head[2];
  int64_t dims[16], length;
  need_bytes(head, sizeof(head));
  need_bytes(dims, (size_t)head[1] * 8);
  need_bytes(&length, 8);
  void *data = allocate((size_t)length); /* as long as the process */
  need_bytes(data, (size_t)length);
  ingot_buffer_view_t *view;
  check(ingot_buffer_view_wrap(device, data, (size_t)length, (ingot_dtype_t)head[0],
                               (uint32_t)head[1], dims, NULL, NULL, &view));
  return view;
}

static void write_view(ingot_buffer_view_t *view) {
  const ingot_buffer_view_layout_t *layout = ingot_buffer_view_layout(view);
  int32_t head[2] = {(int32_t)layout->dtype, (int32_t)layout->rank};
  int64_t length = (int64_t)layout->length;
  write_bytes(head, sizeof(head));
  write_bytes(layout->dims, layout->rank * 8);
  write_bytes(&length, 8);
  void *data = allocate(layout->length);
  check(ingot_buffer_read(layout->buffer, layout->offset, data, layout->length));
  write_bytes(data, layout->length);
  free(data);
}

/* The u32 count of arguments, they, the u32 count of results; back come the results. */
static void run_model(ingot_instance_t *instance, const char *path) {
  ingot_device_t *device;
  ingot_module_t *module;
  ingot_program_t *program;
  ingot_session_t *session;
  ingot_buffer_view_t *arguments[16], *results[16] = {NULL};
  uint32_t argument_count, result_count;
  check(ingot_device_create(instance, "cpu", NULL, &device));
  check(ingot_module_load_file(instance, path, 0, &module));
  check(ingot_program_create(device, &module, 1, NULL, NULL, &program));
  check(ingot_session_create(program, NULL, &session));
  need_bytes(&argument_count, 4);
  for (uint32_t a = 0; a < argument_count; a++) arguments[a] = read_view(device);
  need_bytes(&result_count, 4);
  check(ingot_session_call(session, 0, arguments, argument_count, results, result_count, NULL));
  for (uint32_t r = 0; r < result_count; r++) write_view(results[r]);
  for (uint32_t r = 0; r < result_count; r++) ingot_buffer_view_release(results[r]);
  for (uint32_t a = 0; a < argument_count; a++) ingot_buffer_view_release(arguments[a]);
  ingot_session_release(session);
  ingot_program_release(program);
  ingot_module_release(module);
  fprintf(stderr, "%s\n", ingot_device_description(device));
  ingot_device_release(device);
}

int main(int count, char **words) {
  if (count != 3) fail("use: emulated kernels OBJECT, or emulated model MODULE");
  ingot_instance_t *instance;
  check(ingot_instance_create(NULL, &instance));
  (strcmp(words[1], "kernels") == 0 ? run_kernels : run_model)(instance, words[2]);
  ingot_instance_release(instance);
  return fflush(stdout) ? 1 : 0;
}
