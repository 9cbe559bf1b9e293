/* Prints nanoseconds of calls of a module that maps f32[4] to f32[4], the least over batches:
 * a call; ingot_session_submit alone; a submitted call among many, until the last has ended; a
 * submitted call until its fence is reached, one at a time. Results go to the caller's memory. */
#include <stdio.h>
#include <time.h>

#include "ingot/ingot.h"

enum { REPEATS = 60, CALLS = 2000, COUNT = 4, FIGURES = 4 };

typedef struct bench_t {
  ingot_session_t *session;
  uint32_t function;
  ingot_buffer_view_t *argument;
  ingot_buffer_view_t *result;
  ingot_fence_t *fence;
  uint64_t value; /* of the fence, when all that was submitted has ended */
} bench_t;

static double now(void) {
  struct timespec time;
  timespec_get(&time, TIME_UTC);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static ingot_status_t call(bench_t *bench) {
  return ingot_session_call(bench->session, bench->function, &bench->argument, 1, &bench->result, 1,
                            NULL);
}

static ingot_status_t submit(bench_t *bench) {
  const ingot_fence_value_t signal = {bench->fence, ++bench->value};
  const ingot_submission_t submission = {.function = bench->function,
                                         .argument_count = 1,
                                         .arguments = &bench->argument,
                                         .result_count = 1,
                                         .results = &bench->result,
                                         .signals = &signal,
                                         .signal_count = 1};
  return ingot_session_submit(bench->session, &submission, NULL);
}

static ingot_status_t wait(const bench_t *bench) {
  return ingot_fence_wait(bench->fence, bench->value, INGOT_FOREVER);
}

static ingot_status_t submit_and_wait(bench_t *bench) {
  ingot_status_t status = submit(bench);
  return status ? status : wait(bench);
}

/* Nanoseconds of each of CALLS. */
static ingot_status_t time_calls(bench_t *bench, ingot_status_t (*work)(bench_t *bench),
                                 double *least) {
  ingot_status_t status = NULL;
  const double start = now();
  for (int i = 0; i < CALLS && status == NULL; ++i) status = work(bench);
  const double each = (now() - start) / CALLS;
  if (each < *least) *least = each;
  return status;
}

static ingot_status_t measure(bench_t *bench, double least[FIGURES]) {
  ingot_status_t status = NULL;
  for (int f = 0; f < FIGURES; ++f) least[f] = 1e18;
  for (int repeat = 0; repeat < REPEATS && status == NULL; ++repeat) {
    status = time_calls(bench, call, &least[0]);
    const double start = now();
    if (status == NULL) status = time_calls(bench, submit, &least[1]);
    if (status == NULL) status = wait(bench);
    const double each = (now() - start) / CALLS;
    if (each < least[2]) least[2] = each;
    if (status == NULL) status = time_calls(bench, submit_and_wait, &least[3]);
  }
  return status;
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
  bench_t bench = {.value = 0};
  float x[COUNT] = {1, 2, 3, 4}, y[COUNT] = {0};
  const int64_t dims[1] = {COUNT};
  double least[FIGURES];

  ingot_status_t status = ingot_instance_create(NULL, &instance);
  if (!status) status = ingot_device_create(instance, "cpu://?threads=1", NULL, &device);
  if (!status) status = ingot_module_load_file(instance, arguments[1], 0, &module);
  if (!status) status = ingot_program_create(device, &module, 1, NULL, NULL, &program);
  if (!status) status = ingot_program_find_function(program, "main", &bench.function);
  if (!status) status = ingot_session_create(program, NULL, &bench.session);
  if (!status) status = ingot_fence_create(instance, 0, &bench.fence);
  if (!status) {
    status = ingot_buffer_view_wrap(device, x, sizeof x, INGOT_DTYPE_F32, 1, dims, NULL, NULL,
                                    &bench.argument);
  }
  if (!status) {
    status = ingot_buffer_view_wrap(device, y, sizeof y, INGOT_DTYPE_F32, 1, dims, NULL, NULL,
                                    &bench.result);
  }
  if (!status) status = measure(&bench, least);
  if (status) fprintf(stderr, "%s\n", ingot_status_message(status));
  const bool is_done = status == NULL;
  ingot_status_free(status);
  ingot_buffer_view_release(bench.result);
  ingot_buffer_view_release(bench.argument);
  ingot_fence_release(bench.fence);
  ingot_session_release(bench.session);
  ingot_program_release(program);
  ingot_module_release(module);
  ingot_device_release(device);
  ingot_instance_release(instance);
  if (!is_done) return 1;
  for (int f = 0; f < FIGURES; ++f) printf("%.1f\n", least[f]);
  return 0;
}
