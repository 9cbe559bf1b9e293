/* Reads handwritten digits with a module that digits.py saved, and prints how many are right.
 *
 *   digits MODULE IMAGES LABELS
 *
 * IMAGES and LABELS are .npy files of bytes, n x 8 x 8 and n. They are small, so they are read
 * whole. The network takes any number of images at once; here it gets all. With INGOT_TRACE=FILE
 * it writes a timeline of the call, which ui.perfetto.dev opens.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ingot/ingot.h"
#include "ingot/timeline.h"

enum { PIXELS = 64, CLASSES = 10, NPY_LENGTH_OFFSET = 8, NPY_HEADER_OFFSET = 10 };

/* The bytes of a .npy file behind its header; the caller frees `*out_file`. NULL if the file
 * cannot be read. */
static const unsigned char *read_npy(const char *path, unsigned char **out_file,
                                     size_t *out_length) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) return NULL;
  enum { CAPACITY = 1 << 20 };
  unsigned char *data = malloc(CAPACITY);
  size_t length = data == NULL ? 0 : fread(data, 1, CAPACITY, file);
  fclose(file);
  *out_file = data;
  if (length < NPY_HEADER_OFFSET || memcmp(data, "\x93NUMPY", 6) != 0) return NULL;
  const size_t header =
      NPY_HEADER_OFFSET + data[NPY_LENGTH_OFFSET] + 256u * (size_t)data[NPY_LENGTH_OFFSET + 1];
  if (header > length) return NULL;
  *out_length = length - header;
  return data + header;
}

/* Runs the network on all images at once; `scores` gets CLASSES numbers for each. */
static ingot_status_t classify(const char *module_path, float *pixels, int64_t count,
                               float *scores) {
  ingot_instance_t *instance = NULL;
  ingot_device_t *device = NULL;
  ingot_module_t *module = NULL;
  ingot_program_t *program = NULL;
  ingot_session_t *session = NULL;
  ingot_buffer_view_t *images = NULL;
  ingot_buffer_view_t *results[1] = {NULL};
  const int64_t dims[4] = {count, 1, 8, 8};
  const size_t pixel_length = (size_t)count * PIXELS * sizeof(float);
  uint32_t function = 0;
  const char *trace = getenv("INGOT_TRACE");
  ingot_timeline_t *timeline = ingot_timeline_open(trace);
  if (timeline == NULL && trace != NULL && trace[0] != 0) {
    fprintf(stderr, "INGOT_TRACE=%s cannot be written: %s\n", trace, strerror(errno));
  }

  ingot_status_t status = ingot_instance_create(NULL, &instance);
  if (status == NULL) status = ingot_device_create(instance, "cpu", NULL, &device);
  if (status == NULL) status = ingot_module_load_file(instance, module_path, 0, &module);
  if (status == NULL) status = ingot_program_create(device, &module, 1, NULL, NULL, &program);
  if (status == NULL) status = ingot_program_find_function(program, "main", &function);
  if (status == NULL) status = ingot_session_create(program, NULL, &session);
  if (status == NULL && timeline != NULL) {
    status = ingot_session_set_trace(session, ingot_timeline_add, timeline);
  }
  if (status == NULL) {
    status = ingot_buffer_view_wrap(device, pixels, pixel_length, INGOT_DTYPE_F32, 4, dims, NULL,
                                    NULL, &images);
  }
  if (status == NULL) status = ingot_session_call(session, function, &images, 1, results, 1, NULL);
  if (status == NULL) {
    const ingot_buffer_view_layout_t *layout = ingot_buffer_view_layout(results[0]);
    status = ingot_buffer_read(layout->buffer, layout->offset, scores,
                               (size_t)count * CLASSES * sizeof(float));
  }
  ingot_buffer_view_release(results[0]);
  ingot_buffer_view_release(images);
  ingot_session_release(session);
  if (!ingot_timeline_close(timeline)) fprintf(stderr, "the timeline is not whole\n");
  ingot_program_release(program);
  ingot_module_release(module);
  ingot_device_release(device);
  ingot_instance_release(instance);
  return status;
}

/* How many of the greatest scores stand at their labels. */
static int64_t count_right(const float *scores, const unsigned char *labels, int64_t count) {
  int64_t right = 0;
  for (int64_t image = 0; image < count; ++image) {
    const float *row = scores + image * CLASSES;
    int best = 0;
    for (int digit = 1; digit < CLASSES; ++digit) {
      if (row[digit] > row[best]) best = digit;
    }
    right += best == labels[image];
  }
  return right;
}

int main(int argument_count, char **arguments) {
  if (argument_count != 4) {
    fprintf(stderr, "usage: %s MODULE IMAGES LABELS\n", arguments[0]);
    return 2;
  }
  unsigned char *image_file = NULL;
  unsigned char *label_file = NULL;
  size_t image_length = 0;
  size_t count = 0;
  const unsigned char *bytes = read_npy(arguments[2], &image_file, &image_length);
  const unsigned char *labels = read_npy(arguments[3], &label_file, &count);
  float *pixels = malloc((image_length + 1) * sizeof(float));
  float *scores = malloc((count * CLASSES + 1) * sizeof(float));
  int failed = 1;
  if (bytes == NULL || labels == NULL || image_length != count * PIXELS) {
    fprintf(stderr, "'%s' and '%s' are not .npy files of the same images\n", arguments[2],
            arguments[3]);
  } else if (pixels != NULL && scores != NULL) {
    for (size_t pixel = 0; pixel < image_length; ++pixel) pixels[pixel] = bytes[pixel];
    ingot_status_t status = classify(arguments[1], pixels, (int64_t)count, scores);
    failed = status != NULL;
    if (failed) {
      fprintf(stderr, "%s\n", ingot_status_message(status));
    } else {
      const int64_t right = count_right(scores, labels, (int64_t)count);
      printf("%lld of %zu right (%.2f %%)\n", (long long)right, count,
             100.0 * (double)right / (double)count);
    }
    ingot_status_free(status);
  }
  free(scores);
  free(pixels);
  free(label_file);
  free(image_file);
  return failed;
}
