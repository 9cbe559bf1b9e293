/* Kernels in the OpenCL queue: their arguments, their scratch, their size. */
#include <inttypes.h>

#include "base/arithmetic.h"
#include "hal/opencl/queue.h"
#include "platform/platform.h"

/* The arguments of a kernel, set one after the other. The first error stays. */
typedef struct ingot_opencl_arguments_t {
  const ingot_cl_functions_t *cl;
  ingot_cl_kernel_t kernel;
  uint32_t count;
  int32_t error;
} ingot_opencl_arguments_t;

static void ingot_opencl_add_argument(ingot_opencl_arguments_t *arguments, const void *value,
                                      size_t length) {
  if (arguments->error) return;
  arguments->error =
      arguments->cl->SetKernelArg(arguments->kernel, arguments->count++, length, value);
}

static void ingot_opencl_add_i64(ingot_opencl_arguments_t *arguments, int64_t value) {
  ingot_opencl_add_argument(arguments, &value, sizeof(value));
}

/* What indices of 32 bits do for: with room for groups that reach over the end, for padding,
 * and for sums of a few such numbers. */
#define INGOT_OPENCL_MAX_NARROW (INT64_C(1) << 30)

/* Where the bindings lie, and how wide indices must be for them and for the numbers. */
typedef struct ingot_opencl_places_t {
  uint32_t width; /* INGOT_OPENCL_NARROW unless something reaches INGOT_OPENCL_MAX_NARROW */
  ingot_opencl_place_t places[INGOT_HAL_MAX_BINDINGS];
} ingot_opencl_places_t;

/* Constants may be numbers of the caller, of any size, that kernels compare with indices. */
static bool ingot_opencl_needs_wide(const int64_t *numbers, uint32_t count) {
  for (uint32_t n = 0; n < count; n++) {
    if (numbers[n] > INGOT_OPENCL_MAX_NARROW || numbers[n] < -INGOT_OPENCL_MAX_NARROW) return true;
  }
  return false;
}

/* InvalidArgument if an operand begins within an element, or within a word of codes. */
static ingot_status_t ingot_opencl_locate_bindings(const ingot_hal_queue_t *queue,
                                                   const ingot_hal_dispatch_t *dispatch,
                                                   const ingot_opencl_kernel_t *kernel,
                                                   ingot_opencl_places_t *places) {
  places->width = ingot_opencl_needs_wide(dispatch->constants, dispatch->constant_count) ||
                          ingot_opencl_needs_wide(dispatch->workload, 3)
                      ? INGOT_OPENCL_WIDE
                      : INGOT_OPENCL_NARROW;
  for (uint32_t b = 0; b < dispatch->binding_count; b++) {
    const ingot_hal_binding_t *binding = &dispatch->bindings[b];
    ingot_opencl_place_t *place = &places->places[b];
    int64_t element_length = kernel->bindings[b].element_length;
    INGOT_TRY(ingot_opencl_locate(binding->buffer, binding->offset, binding->length, place));
    /* A byte may hold up to four elements that have an index each. */
    int64_t greatest = INGOT_OPENCL_MAX_NARROW / (element_length == 1 ? 4 : 1);
    if ((place->offset + binding->length) / element_length > greatest) {
      places->width = INGOT_OPENCL_WIDE;
    }
    uint32_t alignment = kernel->bindings[b].alignment;
    if (place->offset % alignment == 0) continue;
    char text[INGOT_HAL_DESCRIPTION_CAPACITY];
    ingot_hal_describe_dispatch(queue, dispatch, text);
    return ingot_status_create(
        ingot_hal_device_allocator(queue->device), INGOT_STATUS_INVALID_ARGUMENT,
        "%s, binding %u: it begins at byte %" PRId64
        " of its memory, expected a multiple of the %" PRIu32 " bytes that are read at once",
        text, b, place->offset, alignment);
  }
  return NULL;
}

/* -- scratch --------------------------------------------------------------------------------- */

static ingot_status_t ingot_opencl_grow_scratch(ingot_opencl_queue_t *queue, uint64_t length) {
  const ingot_opencl_device_t *device = ingot_opencl_queue_device(queue);
  int32_t error = 0;
  ingot_cl_memory_t scratch = device->cl->CreateBuffer(device->context, INGOT_CL_MEM_READ_WRITE,
                                                       (size_t)length, NULL, &error);
  if (error) {
    return ingot_status_prefix(
        ingot_opencl_status(ingot_hal_device_allocator(&device->base), "clCreateBuffer", error),
        "%" PRIu64 " bytes of scratch", length);
  }
  /* OpenCL keeps the old one until the kernels that were queued with it have run. */
  if (queue->scratch) (void)device->cl->ReleaseMemObject(queue->scratch);
  queue->scratch = scratch;
  queue->scratch_length = length;
  return NULL;
}

/* Scratch for every group of the grid at once. */
static ingot_status_t ingot_opencl_reserve_scratch(ingot_opencl_queue_t *queue,
                                                   uint64_t group_length, const int64_t grid[3]) {
  const ingot_opencl_device_t *device = ingot_opencl_queue_device(queue);
  uint64_t length = group_length;
  for (int axis = 0; axis < 3; axis++) {
    if (!ingot_multiply_u64(length, (uint64_t)grid[axis], &length)) length = UINT64_MAX;
  }
  if (length > device->max_allocation) {
    return ingot_status_create(ingot_hal_device_allocator(&device->base),
                               INGOT_STATUS_OUT_OF_MEMORY,
                               "%" PRId64 " x %" PRId64 " x %" PRId64 " groups with %" PRIu64
                               " bytes of scratch each are more than the device's largest buffer "
                               "of %" PRIu64 " bytes: use smaller sizes",
                               grid[0], grid[1], grid[2], group_length, device->max_allocation);
  }
  return length > queue->scratch_length ? ingot_opencl_grow_scratch(queue, length) : NULL;
}

/* -- the dispatch ---------------------------------------------------------------------------- */

static void ingot_opencl_add_bindings(ingot_opencl_arguments_t *arguments,
                                      const ingot_opencl_kernel_t *kernel,
                                      const ingot_opencl_places_t *places) {
  for (uint32_t b = 0; b < kernel->entry->binding_count; b++) {
    const ingot_opencl_place_t *place = &places->places[b];
    int64_t first = place->offset / kernel->bindings[b].element_length;
    int32_t narrow_first = (int32_t)first;
    ingot_opencl_add_argument(arguments, &place->memory, sizeof(place->memory));
    if (places->width == INGOT_OPENCL_WIDE) ingot_opencl_add_i64(arguments, first);
    else ingot_opencl_add_argument(arguments, &narrow_first, sizeof(narrow_first));
  }
}

/* Groups of one launch along y and z: GPUs take no more. */
#define INGOT_OPENCL_MAX_GROUPS 65535

/* The groups of a grid that one launch runs. */
typedef struct ingot_opencl_part_of_grid_t {
  int64_t first[3];
  int64_t count[3];
} ingot_opencl_part_of_grid_t;

/* Work items of the part: those before it, and its own. OutOfRange if they cannot be counted. */
static ingot_status_t ingot_opencl_size_launch(const ingot_allocator_t *allocator,
                                               const ingot_opencl_part_of_grid_t *part,
                                               const size_t local[3], size_t offset[3],
                                               size_t global[3]) {
  for (int axis = 0; axis < 3; axis++) {
    size_t end;
    offset[axis] = (size_t)part->first[axis] * local[axis]; /* less than the end */
    global[axis] = (size_t)part->count[axis] * local[axis];
    if (!ingot_multiply_size((size_t)(part->first[axis] + part->count[axis]), local[axis], &end)) {
      return ingot_status_create(allocator, INGOT_STATUS_OUT_OF_RANGE,
                                 "a grid of %" PRId64 " groups is more than the device can count",
                                 part->first[axis] + part->count[axis]);
    }
  }
  return NULL;
}

/* Under the executable's mutex: a kernel's arguments are its own until it is queued. */
static ingot_status_t ingot_opencl_enqueue(ingot_opencl_queue_t *queue,
                                           const ingot_hal_dispatch_t *dispatch,
                                           const ingot_opencl_part_of_grid_t *part,
                                           const ingot_opencl_places_t *places,
                                           ingot_opencl_record_t *record) {
  ingot_opencl_executable_t *executable = (ingot_opencl_executable_t *)dispatch->executable;
  const ingot_opencl_kernel_t *kernel = &executable->kernels[dispatch->entry];
  const ingot_cl_functions_t *cl = ingot_opencl_queue_device(queue)->cl;
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(queue->base.device);
  ingot_opencl_arguments_t arguments = {.cl = cl};
  int32_t ticket = (int32_t)queue->record_count + 1;
  const uint32_t *size = kernel->entry->local_size;
  const size_t local[3] = {size[0], size[1], size[2]};
  size_t offset[3], global[3];
  INGOT_TRY(ingot_opencl_size_launch(allocator, part, local, offset, global));
  INGOT_TRY(ingot_opencl_executable_kernel(executable, dispatch->entry, places->width,
                                           &arguments.kernel));
  ingot_opencl_add_bindings(&arguments, kernel, places);
  for (uint32_t c = 0; c < dispatch->constant_count; c++) {
    ingot_opencl_add_i64(&arguments, dispatch->constants[c]);
  }
  for (int axis = 0; axis < 3; axis++) {
    ingot_opencl_add_i64(&arguments, dispatch->workload[axis]);
  }
  if (kernel->entry->scratch_length > 0) {
    ingot_opencl_add_argument(&arguments, &queue->scratch, sizeof(queue->scratch));
  }
  ingot_opencl_add_argument(&arguments, &queue->fault, sizeof(queue->fault));
  ingot_opencl_add_argument(&arguments, &ticket, sizeof(ticket));
  if (arguments.error) return ingot_opencl_status(allocator, "clSetKernelArg", arguments.error);
  INGOT_OPENCL_TRY(allocator, cl, EnqueueNDRangeKernel, queue->queue, arguments.kernel, 3, offset,
                   global, local, 0, NULL, ingot_opencl_event(queue, record));
  return NULL;
}

static ingot_status_t ingot_opencl_prepare(ingot_opencl_queue_t *queue,
                                           const ingot_hal_dispatch_t *dispatch,
                                           const int64_t grid[3]) {
  const ingot_hal_entry_t *entry = &dispatch->executable->entries[dispatch->entry];
  const ingot_opencl_kernel_t *kernel =
      &((const ingot_opencl_executable_t *)dispatch->executable)->kernels[dispatch->entry];
  if (kernel->entry->scratch_length > 0) {
    INGOT_TRY(ingot_opencl_reserve_scratch(queue, kernel->entry->scratch_length, grid));
  }
  INGOT_TRY(ingot_opencl_reserve_written(queue, dispatch->binding_count));
  for (uint32_t b = 0; b < dispatch->binding_count; b++) {
    ingot_buffer_t *buffer = dispatch->bindings[b].buffer;
    if (entry->description.written >> b & 1) ingot_opencl_will_write(queue, buffer);
    else ingot_opencl_will_use(queue, buffer);
  }
  return NULL;
}

static ingot_status_t ingot_opencl_launch(ingot_opencl_queue_t *queue,
                                          const ingot_hal_dispatch_t *dispatch,
                                          const ingot_opencl_part_of_grid_t *part,
                                          const ingot_opencl_places_t *places) {
  ingot_opencl_executable_t *executable = (ingot_opencl_executable_t *)dispatch->executable;
  bool is_first = part->first[1] == 0 && part->first[2] == 0;
  ingot_opencl_record_t record = {
      .executable = dispatch->executable,
      .entry = dispatch->entry,
      .site = dispatch->site,
      .kernel = executable->base.entries[dispatch->entry].description.name,
      .length = is_first ? dispatch->cost_bytes : 0};
  INGOT_TRY(ingot_opencl_begin(queue, &record));
  ingot_mutex_lock(&executable->mutex);
  ingot_status_t status = ingot_opencl_enqueue(queue, dispatch, part, places, &record);
  ingot_mutex_unlock(&executable->mutex);
  if (status) {
    char text[INGOT_HAL_DESCRIPTION_CAPACITY];
    ingot_hal_describe_dispatch(&queue->base, dispatch, text);
    return ingot_status_prefix(status, "%s", text);
  }
  return ingot_opencl_end(queue, &record);
}

ingot_status_t ingot_opencl_queue_dispatch(ingot_hal_queue_t *base,
                                           const ingot_hal_dispatch_t *dispatch,
                                           const int64_t grid[3]) {
  ingot_opencl_queue_t *queue = (ingot_opencl_queue_t *)base;
  const ingot_opencl_kernel_t *kernel =
      &((ingot_opencl_executable_t *)dispatch->executable)->kernels[dispatch->entry];
  ingot_opencl_places_t places;
  if (ingot_opencl_is_misfit(kernel, dispatch)) return ingot_hal_misfit_status(base, dispatch);
  INGOT_TRY(ingot_opencl_locate_bindings(base, dispatch, kernel, &places));
  INGOT_TRY(ingot_opencl_prepare(queue, dispatch, grid));
  const int64_t most = INGOT_OPENCL_MAX_GROUPS;
  for (int64_t z = 0; z < grid[2]; z += most) {
    for (int64_t y = 0; y < grid[1]; y += most) {
      const ingot_opencl_part_of_grid_t part = {{0, y, z},
                                                {grid[0], grid[1] - y < most ? grid[1] - y : most,
                                                 grid[2] - z < most ? grid[2] - z : most}};
      INGOT_TRY(ingot_opencl_launch(queue, dispatch, &part, &places));
    }
  }
  return NULL;
}
