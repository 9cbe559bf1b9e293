/* Prints the nanoseconds of one call of a module that maps f32[4] to f32[4], the least over
 * batches. The result goes to the caller's memory, so that a call allocates nothing. */
#include <stdio.h>
#include <time.h>

#include "ingot/ingot.h"

enum { REPEATS = 50, CALLS = 20000, COUNT = 4 };

static double now(void) {
  struct timespec time;
  timespec_get(&time, TIME_UTC);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* The least time of a call; negative if one failed. */
static double measure(ingot_session_t *session, uint32_t function, ingot_buffer_view_t *argument,
                      ingot_buffer_view_t *result) {
  double best = 1e18;
  for (int repeat = 0; repeat < REPEATS; ++repeat) {
    const double start = now();
    for (int call = 0; call < CALLS; ++call) {
      ingot_status_t status = ingot_session_call(session, function, &argument, 1, &result, 1, NULL);
      if (status != NULL) {
        fprintf(stderr, "%s\n", ingot_status_message(status));
        ingot_status_free(status);
        return -1;
      }
    }
    const double each = (now() - start) / CALLS;
    if (each < best) best = each;
  }
  return best;
}

int main(int argument_count, char **arguments) {
  if (argument_count != 2) {
    fprintf(stderr, "usage: %s MODULE\n", arguments[0]);
    return 2;
  }
  ingot_instance_t *instance = NULL;
  ingot_device_t *device = NULL;
  ingot_module_t *module = NULL;
  ingot_program_t *program = NULL;
  ingot_session_t *session = NULL;
  ingot_buffer_view_t *argument = NULL;
  ingot_buffer_view_t *result = NULL;
  uint32_t function = 0;
  float x[COUNT] = {1, 2, 3, 4};
  float y[COUNT] = {0};
  const int64_t dims[1] = {COUNT};
  double nanoseconds = -1;

  ingot_status_t status = ingot_instance_create(NULL, &instance);
  if (status == NULL) status = ingot_device_create(instance, "cpu://?threads=1", NULL, &device);
  if (status == NULL) status = ingot_module_load_file(instance, arguments[1], 0, &module);
  if (status == NULL) status = ingot_program_create(device, &module, 1, NULL, NULL, &program);
  if (status == NULL) status = ingot_program_find_function(program, "main", &function);
  if (status == NULL) status = ingot_session_create(program, NULL, &session);
  if (status == NULL) {
    status = ingot_buffer_view_wrap(device, x, sizeof x, INGOT_DTYPE_F32, 1, dims, NULL, NULL,
                                    &argument);
  }
  if (status == NULL) {
    status =
        ingot_buffer_view_wrap(device, y, sizeof y, INGOT_DTYPE_F32, 1, dims, NULL, NULL, &result);
  }
  if (status == NULL) nanoseconds = measure(session, function, argument, result);
  if (status != NULL) fprintf(stderr, "%s\n", ingot_status_message(status));
  ingot_status_free(status);
  ingot_buffer_view_release(result);
  ingot_buffer_view_release(argument);
  ingot_session_release(session);
  ingot_program_release(program);
  ingot_module_release(module);
  ingot_device_release(device);
  ingot_instance_release(instance);
  if (nanoseconds < 0) return 1;
  printf("%.1f\n", nanoseconds);
  return 0;
}
