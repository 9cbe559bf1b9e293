/* What recorded work could win: a call as the VM makes it, beside its device work alone, which
 * the first call has recorded with all its addresses and numbers.
 *
 *   recorded DEVICE MODULE ARGUMENT...
 *
 * An argument is DTYPE:DIM,...:NUMBER, a tensor of one number; of f32 or i64. Prints how many
 * dispatches a call of main has, and the least nanoseconds over interleaved batches: of a call; of
 * the list. On OpenCL each dispatch of the list has a kernel object with its arguments, and the
 * third time is that of a command buffer (cl_khr_command_buffer; inf without it). What a list must
 * do in a call besides is left out: finding it by the shapes, and exchanging arguments, results
 * and variables. So the difference is the most that it can win.
 *
 * Includes the runtime's single file, to stand between the core and its driver.
 */
#define INGOT_OPENCL
#include "ingot.c"

#include <math.h>
#include <stdlib.h>

#include "ingot/opencl.h"

enum { MOST = 4096, ARGUMENTS = 16, ROUNDS = 400, SIDES = 3 };

#define CHECK(call)                                                      \
  do {                                                                   \
    ingot_status_t check_status = (call);                                \
    if (check_status) {                                                  \
      (void)fprintf(stderr, "%s\n", ingot_status_message(check_status)); \
      exit(1);                                                           \
    }                                                                    \
  } while (0)

#define CHECK_CL(call)                                    \
  do {                                                    \
    int32_t check_error = (call);                         \
    if (check_error) {                                    \
      (void)fprintf(stderr, #call ": %d\n", check_error); \
      exit(1);                                            \
    }                                                     \
  } while (0)

static void *copied(const void *data, size_t length) {
  void *copy = malloc(length + 1);
  if (!copy) exit(1);
  return length ? memcpy(copy, data, length) : copy;
}

/* -- the list on the CPU ----------------------------------------------------------------------- */

static struct {
  bool records;
  uint32_t count;
  ingot_hal_cpu_work_t dispatches[MOST];
  const ingot_hal_device_vtable_t *driver;
  ingot_stop_t stop;
  uint64_t scratch_length;
  void *scratch;
} list;

static ingot_status_t record_dispatch(ingot_hal_queue_t *queue,
                                      const ingot_hal_dispatch_t *dispatch, const int64_t grid[3]) {
  if (list.records) {
    const ingot_hal_cpu_kernel_t *kernel =
        &((const ingot_hal_cpu_executable_t *)dispatch->executable)->kernels[dispatch->entry];
    void *addresses[INGOT_HAL_MAX_BINDINGS];
    int64_t lengths[INGOT_HAL_MAX_BINDINGS];
    for (uint32_t b = 0; b < dispatch->binding_count; ++b) {
      const ingot_hal_binding_t *binding = &dispatch->bindings[b];
      addresses[b] = binding->buffer->host ? binding->buffer->host + binding->offset : NULL;
      lengths[b] = binding->length;
    }
    if (list.count == MOST) exit(1);
    list.dispatches[list.count++] = (ingot_hal_cpu_work_t){
        .function = kernel->function,
        .scratch_length = kernel->scratch_length,
        .stop = &list.stop,
        .dispatch = {.bindings = copied(addresses, dispatch->binding_count * sizeof(void *)),
                     .lengths = copied(lengths, dispatch->binding_count * sizeof(int64_t)),
                     .constants =
                         copied(dispatch->constants, dispatch->constant_count * sizeof(int64_t)),
                     .workload = {dispatch->workload[0], dispatch->workload[1],
                                  dispatch->workload[2]},
                     .poll = ingot_hal_cpu_poll},
        .grid = {grid[0], grid[1], grid[2]},
        .total = grid[0] * grid[1] * grid[2]};
    if (kernel->scratch_length > list.scratch_length) list.scratch_length = kernel->scratch_length;
  }
  return list.driver->queue_dispatch(queue, dispatch, grid);
}

static void play(void) {
  for (uint32_t i = 0; i < list.count; ++i) {
    ingot_kernel_fault_t fault;
    ingot_hal_cpu_run_inline(&list.dispatches[i], list.scratch, &fault);
    if (fault.code != 0) exit(1);
  }
}

/* -- the list on OpenCL ------------------------------------------------------------------------ */

typedef struct launch_t {
  ingot_cl_kernel_t kernel; /* its own, with its arguments */
  size_t offset[3], global[3], local[3];
} launch_t;

typedef void *command_buffer_t;

static struct {
  uint32_t count;
  launch_t launches[MOST];
  const ingot_cl_functions_t *driver;
  ingot_opencl_queue_t *queue;
  command_buffer_t commands; /* NULL: none */
  ingot_cl_kernel_t(INGOT_CL_CALL *clone)(ingot_cl_kernel_t, int32_t *);
  int32_t(INGOT_CL_CALL *play)(uint32_t, ingot_cl_queue_t *, command_buffer_t, uint32_t,
                               const ingot_cl_event_t *, ingot_cl_event_t *);
} gpu;

static int32_t INGOT_CL_CALL record_launch(ingot_cl_queue_t queue, ingot_cl_kernel_t kernel,
                                           uint32_t rank, const size_t *offset,
                                           const size_t *global, const size_t *local,
                                           uint32_t wait_count, const ingot_cl_event_t *waits,
                                           ingot_cl_event_t *event) {
  if (list.records) {
    if (gpu.count == MOST) exit(1);
    launch_t *launch = &gpu.launches[gpu.count++];
    int32_t error = 0;
    launch->kernel = gpu.clone(kernel, &error);
    CHECK_CL(error);
    memcpy(launch->offset, offset, sizeof(launch->offset));
    memcpy(launch->global, global, sizeof(launch->global));
    memcpy(launch->local, local, sizeof(launch->local));
  }
  return gpu.driver->EnqueueNDRangeKernel(queue, kernel, rank, offset, global, local, wait_count,
                                          waits, event);
}

/* As a call ends. */
static void wait_for_launches(void) {
  CHECK_CL(gpu.driver->EnqueueReadBuffer(gpu.queue->queue, gpu.queue->fault, 0, 0,
                                         sizeof(ingot_opencl_fault_t), gpu.queue->staging, 0, NULL,
                                         NULL));
  CHECK_CL(gpu.driver->Finish(gpu.queue->queue));
}

static void play_launches(void) {
  for (uint32_t i = 0; i < gpu.count; ++i) {
    const launch_t *launch = &gpu.launches[i];
    CHECK_CL(gpu.driver->EnqueueNDRangeKernel(gpu.queue->queue, launch->kernel, 3, launch->offset,
                                              launch->global, launch->local, 0, NULL, NULL));
  }
  wait_for_launches();
}

static void play_commands(void) {
  CHECK_CL(gpu.play(0, NULL, gpu.commands, 0, NULL, NULL));
  wait_for_launches();
}

/* A function of cl_khr_command_buffer; NULL without it. */
static void *find_function(const char *name) {
  ingot_cl_platform_t platform = NULL;
  CHECK_CL(gpu.driver->GetDeviceInfo(ingot_opencl_queue_device(gpu.queue)->device,
                                     INGOT_CL_DEVICE_PLATFORM, sizeof(platform), &platform, NULL));
  return gpu.driver->GetExtensionFunctionAddressForPlatform(platform, name);
}

static void record_commands(void) {
  command_buffer_t(INGOT_CL_CALL * create)(uint32_t, ingot_cl_queue_t *, const uint64_t *,
                                           int32_t *) = NULL;
  int32_t(INGOT_CL_CALL * add)(command_buffer_t, ingot_cl_queue_t, const uint64_t *,
                               ingot_cl_kernel_t, uint32_t, const size_t *, const size_t *,
                               const size_t *, uint32_t, const uint32_t *, uint32_t *, void *) =
      NULL;
  int32_t(INGOT_CL_CALL * finalize)(command_buffer_t) = NULL;
  *(void **)&create = find_function("clCreateCommandBufferKHR");
  *(void **)&add = find_function("clCommandNDRangeKernelKHR");
  *(void **)&finalize = find_function("clFinalizeCommandBufferKHR");
  *(void **)&gpu.play = find_function("clEnqueueCommandBufferKHR");
  if (!create || !add || !finalize || !gpu.play) return;
  int32_t error = 0;
  gpu.commands = create(1, &gpu.queue->queue, NULL, &error);
  CHECK_CL(error);
  for (uint32_t i = 0; i < gpu.count; ++i) {
    const launch_t *launch = &gpu.launches[i];
    CHECK_CL(add(gpu.commands, NULL, NULL, launch->kernel, 3, launch->offset, launch->global,
                 launch->local, 0, NULL, NULL, NULL));
  }
  CHECK_CL(finalize(gpu.commands));
}

/* -- a call ------------------------------------------------------------------------------------ */

static struct {
  ingot_session_t *session;
  uint32_t function;
  uint32_t argument_count;
  ingot_buffer_view_t *arguments[ARGUMENTS];
  ingot_buffer_view_t *result;
} bench;

static void call(void) {
  CHECK(ingot_session_call(bench.session, bench.function, bench.arguments, bench.argument_count,
                           &bench.result, 1, NULL));
}

static ingot_buffer_view_t *read_argument(ingot_device_t *device, const char *text) {
  bool is_float = strncmp(text, "f32:", 4) == 0;
  int64_t dims[INGOT_MAX_RANK], count = 1;
  uint32_t rank = 0;
  char *at = (char *)(uintptr_t)text + 4;
  while (*at != ':' && rank < INGOT_MAX_RANK) {
    dims[rank] = strtoll(at, &at, 10);
    count *= dims[rank++];
    if (*at == ',') ++at;
  }
  double number = strtod(at + 1, NULL);
  size_t length = (size_t)count * (is_float ? sizeof(float) : sizeof(int64_t));
  void *data = malloc(length);
  if (!data) exit(1);
  for (int64_t i = 0; i < count; ++i) {
    if (is_float) ((float *)data)[i] = (float)number;
    else ((int64_t *)data)[i] = (int64_t)number;
  }
  ingot_buffer_view_t *view = NULL;
  CHECK(ingot_buffer_view_wrap(device, data, length, is_float ? INGOT_DTYPE_F32 : INGOT_DTYPE_I64,
                               rank, dims, NULL, NULL, &view));
  return view;
}

/* Loads the module on a device whose operations pass by here. */
static ingot_device_t *load(const char *uri, const char *path) {
  static ingot_hal_device_vtable_t vtable;
  static ingot_cl_functions_t functions;
  const ingot_driver_t *drivers[] = {ingot_opencl_driver()};
  const ingot_instance_options_t options = {.drivers = drivers, .driver_count = 1};
  ingot_instance_t *instance = NULL;
  ingot_device_t *device = NULL;
  ingot_module_t *module = NULL;
  ingot_program_t *program = NULL;
  CHECK(ingot_instance_create(&options, &instance));
  CHECK(ingot_device_create(instance, uri, NULL, &device));
  if (strncmp(uri, "opencl", 6) == 0) {
    ingot_opencl_device_t *opencl = (ingot_opencl_device_t *)device;
    gpu.driver = opencl->cl;
    functions = *opencl->cl;
    functions.EnqueueNDRangeKernel = record_launch;
    opencl->cl = &functions;
    *(void **)&gpu.clone = dlsym(dlopen("libOpenCL.so.1", RTLD_NOW), "clCloneKernel");
    if (!gpu.clone) exit(1);
  } else {
    list.driver = device->vtable;
    vtable = *device->vtable;
    vtable.queue_dispatch = record_dispatch;
    device->vtable = &vtable;
  }
  CHECK(ingot_module_load_file(instance, path, 0, &module));
  CHECK(ingot_program_create(device, &module, 1, NULL, NULL, &program));
  CHECK(ingot_program_find_function(program, "main", &bench.function));
  CHECK(ingot_session_create(program, NULL, &bench.session));
  return device;
}

/* Records a call, and takes away what has recorded it. */
static void record(ingot_device_t *device) {
  call(); /* makes the slab and the result */
  list.records = true;
  call();
  list.records = false;
  if (list.driver) {
    device->vtable = list.driver;
    list.scratch = aligned_alloc(64, ((size_t)list.scratch_length + 64) & ~(size_t)63);
    return;
  }
  ((ingot_opencl_device_t *)device)->cl = gpu.driver;
  gpu.queue = ((ingot_opencl_device_t *)device)->queues;
  record_commands();
}

/* Plays over zeros what a call has computed: the bytes must be the same. */
static void check_side(void (*side)(void)) {
  ingot_buffer_t *span = bench.result->span;
  const size_t length = (size_t)span->length;
  uint8_t *const expected = malloc(3 * length), *const got = expected + length;
  if (!expected) exit(1);
  memset(expected + 2 * length, 0, length);
  call();
  CHECK(ingot_hal_buffer_read(span, 0, span->length, expected));
  CHECK(ingot_hal_buffer_write(span, 0, span->length, expected + 2 * length));
  side();
  CHECK(ingot_hal_buffer_read(span, 0, span->length, got));
  if (memcmp(expected, got, length) != 0) {
    (void)fprintf(stderr, "the list computes something else\n");
    exit(1);
  }
  free(expected);
}

/* Nanoseconds of one. */
static double time_batch(void (*work)(void), int count) {
  int64_t start = ingot_clock();
  for (int i = 0; i < count; ++i) work();
  return (double)(ingot_clock() - start) / count;
}

int main(int argument_count, char **arguments) {
  if (argument_count < 3) return 2;
  ingot_device_t *device = load(arguments[1], arguments[2]);
  for (int i = 3; i < argument_count && i < 3 + ARGUMENTS; ++i) {
    bench.arguments[bench.argument_count++] = read_argument(device, arguments[i]);
  }
  record(device);
  void (*const sides[SIDES])(void) = {call, list.driver ? play : play_launches,
                                      gpu.commands ? play_commands : NULL};
  double least[SIDES] = {INFINITY, INFINITY, INFINITY};
  for (int s = 1; s < SIDES && sides[s]; ++s) check_side(sides[s]);
  int count = 1 + (int)(1e5 / time_batch(call, 3)); /* a tenth of a millisecond or so */
  for (int round = 0; round < ROUNDS; ++round) {
    for (int s = 0; s < SIDES && sides[s]; ++s) {
      double time = time_batch(sides[s], count);
      if (time < least[s]) least[s] = time;
    }
  }
  printf("%u\n", list.driver ? list.count : gpu.count);
  for (int s = 0; s < SIDES; ++s) printf("%.1f\n", least[s]);
  (void)fflush(stdout);
  _Exit(0); /* objects go with the process */
}
