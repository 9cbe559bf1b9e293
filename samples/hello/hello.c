/* Calls a compiled model from C: hello MODEL.ingot 1 2 3 4 prints what its first function makes
 * of these f32 numbers. */
#include <stdio.h>
#include <stdlib.h>

#include "ingot/ingot.h"

static void check(ingot_status_t status) {
  if (!status) return;
  fprintf(stderr, "%s\n", ingot_status_message(status));
  exit(1);
}

int main(int count, char **words) {
  if (count < 2) return fprintf(stderr, "use: hello MODEL.ingot NUMBER...\n"), 2;
  float numbers[64];
  int64_t length = count - 2 < 64 ? count - 2 : 64;
  for (int64_t i = 0; i < length; ++i) numbers[i] = strtof(words[i + 2], NULL);
  ingot_instance_t *instance;
  ingot_device_t *device;
  ingot_module_t *module;
  ingot_program_t *program;
  ingot_session_t *session;
  ingot_buffer_view_t *input, *output = NULL;
  check(ingot_instance_create(NULL, &instance));
  check(ingot_device_create(instance, "cpu", NULL, &device));
  check(ingot_module_load_file(instance, words[1], 0, &module));
  check(ingot_program_create(device, &module, 1, NULL, NULL, &program));
  check(ingot_session_create(program, NULL, &session));
  check(ingot_buffer_view_wrap(device, numbers, sizeof(numbers), INGOT_DTYPE_F32, 1, &length, NULL,
                               NULL, &input));
  check(ingot_session_call(session, 0, &input, 1, &output, 1, NULL));
  const ingot_buffer_view_layout_t *layout = ingot_buffer_view_layout(output);
  float result[64];
  size_t bytes = layout->length < sizeof(result) ? layout->length : sizeof(result);
  check(ingot_buffer_read(layout->buffer, layout->offset, result, bytes));
  for (size_t i = 0; i < bytes / sizeof(float); ++i) printf("%g\n", (double)result[i]);
  ingot_buffer_view_release(output);
  ingot_buffer_view_release(input);
  ingot_session_release(session);
  ingot_program_release(program);
  ingot_module_release(module);
  ingot_device_release(device);
  ingot_instance_release(instance);
  return 0;
}
