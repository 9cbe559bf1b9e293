/* A picture's colour, from the bytes of its file: native MODULE.ingot PICTURE.ppm.
 *
 * The module, which native.py makes, calls acme.decode: a function of this program. Its first half
 * says how large the picture is, the second one copies the pixels to where the model wants them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ingot/ingot.h"

static void check(ingot_status_t status) {
  if (!status) return;
  fprintf(stderr, "%s\n", ingot_status_message(status));
  exit(1);
}

/* Where the pixels of a binary PPM file begin; 0 if it is none. The header need not end in NUL. */
static size_t read_header(const ingot_native_tensor_t *file, int64_t *height, int64_t *width) {
  char header[64] = "";
  int greatest = 0, length = 0;
  memcpy(header, file->data, file->length < sizeof(header) ? file->length : sizeof(header) - 1);
  int found =
      sscanf(header, "P6 %10" SCNd64 " %10" SCNd64 " %d%n", width, height, &greatest, &length);
  if (found != 3 || *width < 1 || *height < 1 || greatest != 255) return 0;
  if ((file->length - (size_t)length - 1) / 3 / (size_t)*width < (size_t)*height) return 0;
  return (size_t)length + 1;
}

static ingot_status_t shape_of_picture(void *user, const ingot_native_call_t *call) {
  int64_t *dims = call->results[0].dims; /* height, width, 3 */
  (void)user;
  if (read_header(&call->arguments[0], &dims[0], &dims[1])) return NULL;
  return ingot_status_make(INGOT_STATUS_INVALID_ARGUMENT, "this is no binary PPM file of 8 bits");
}

static ingot_status_t decode(void *user, const ingot_native_call_t *call) {
  const ingot_native_tensor_t *file = &call->arguments[0];
  int64_t height, width;
  (void)user;
  size_t begin = read_header(file, &height, &width);
  memcpy(call->results[0].data, (const char *)file->data + begin, call->results[0].length);
  return NULL;
}

static char *read_file(const char *path, int64_t *out_length) {
  FILE *file = fopen(path, "rb");
  char *bytes = NULL;
  if (file && fseek(file, 0, SEEK_END) == 0 && (*out_length = ftell(file)) >= 0) {
    rewind(file);
    bytes = malloc((size_t)*out_length + 1);
    if (bytes && fread(bytes, 1, (size_t)*out_length, file) != (size_t)*out_length) exit(1);
  }
  if (!bytes) fprintf(stderr, "%s cannot be read\n", path), exit(1);
  fclose(file);
  return bytes;
}

int main(int count, char **words) {
  if (count != 3) return fprintf(stderr, "use: native MODULE.ingot PICTURE.ppm\n"), 2;
  const ingot_native_t natives[] = {{.name = "acme.decode",
                                     .signature = "(u8[length]) -> (u8[height,width,3])",
                                     .call = decode,
                                     .shape = shape_of_picture}};
  const ingot_program_options_t options = {.natives = natives, .native_count = 1};
  ingot_instance_t *instance;
  ingot_device_t *device;
  ingot_module_t *module;
  ingot_program_t *program;
  ingot_session_t *session;
  ingot_buffer_view_t *input, *results[2] = {NULL, NULL};
  int64_t length = 0, best = 0;
  float shares[3];
  char *bytes = read_file(words[2], &length);
  check(ingot_instance_create(NULL, &instance));
  check(ingot_device_create(instance, "cpu", NULL, &device));
  check(ingot_module_load_file(instance, words[1], 0, &module));
  check(ingot_program_create(device, &module, 1, NULL, &options, &program));
  check(ingot_session_create(program, NULL, &session));
  check(ingot_buffer_view_wrap(device, bytes, (size_t)length, INGOT_DTYPE_U8, 1, &length, NULL,
                               NULL, &input));
  check(ingot_session_call(session, 0, &input, 1, results, 2, NULL));
  check(ingot_buffer_read(ingot_buffer_view_layout(results[0])->buffer, 0, &best, sizeof(best)));
  check(ingot_buffer_read(ingot_buffer_view_layout(results[1])->buffer, 0, shares, sizeof(shares)));
  static const char *const colours[] = {"red", "green", "blue"};
  printf("%s: %.3f %.3f %.3f\n", colours[best], (double)shares[0], (double)shares[1],
         (double)shares[2]);
  for (int i = 0; i < 2; ++i) ingot_buffer_view_release(results[i]);
  ingot_buffer_view_release(input);
  ingot_session_release(session);
  ingot_program_release(program);
  ingot_module_release(module);
  ingot_device_release(device);
  ingot_instance_release(instance);
  free(bytes);
  return 0;
}
