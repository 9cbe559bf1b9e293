/* Read-only wrapped bytes on a device with memory of its own: copies of the ranges that work uses,
 * and where in memory objects the bytes of any buffer lie.
 */
#include <inttypes.h>
#include <string.h>

#include "hal/opencl/opencl.h"

/* Parts begin and end on multiples of it, so that no element lies across an end. */
#define INGOT_OPENCL_PART_ALIGNMENT 64

ingot_status_t ingot_opencl_check_allocation(const ingot_opencl_device_t *device, int64_t length) {
  if ((uint64_t)length <= device->max_allocation && (uint64_t)length <= SIZE_MAX) return NULL;
  return ingot_status_create(ingot_hal_device_allocator(&device->base), INGOT_STATUS_OUT_OF_MEMORY,
                             "%" PRId64
                             " bytes of memory are asked for in one buffer, but %s has "
                             "buffers of at most %" PRIu64
                             " bytes: use smaller sizes or batches, "
                             "or run on device 'cpu'",
                             length, device->base.description, device->max_allocation);
}

static ingot_opencl_device_t *ingot_opencl_parts_device(const ingot_opencl_buffer_t *buffer) {
  return (ingot_opencl_device_t *)buffer->base.device;
}

/* The part that holds the range; NULL if there is none. Under the mutex. */
static const ingot_opencl_part_t *ingot_opencl_find_part(const ingot_opencl_buffer_t *buffer,
                                                         int64_t begin, int64_t end) {
  uint32_t low = 0, high = buffer->part_count; /* the last part that begins at `begin` or before */
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (buffer->parts[middle].begin <= begin) low = middle + 1;
    else high = middle;
  }
  while (low-- > 0) { /* nearly always the first one; parts may overlap */
    if (buffer->parts[low].end >= end) return &buffer->parts[low];
  }
  return NULL;
}

static ingot_status_t ingot_opencl_upload(const ingot_opencl_buffer_t *buffer,
                                          ingot_opencl_part_t *part) {
  ingot_opencl_device_t *device = ingot_opencl_parts_device(buffer);
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(&device->base);
  size_t length = (size_t)(part->end - part->begin);
  int32_t error = 0;
  INGOT_TRY(ingot_opencl_check_allocation(device, (int64_t)length));
  part->memory =
      device->cl->CreateBuffer(device->context, INGOT_CL_MEM_READ_ONLY, length, NULL, &error);
  if (error) {
    return ingot_status_prefix(ingot_opencl_status(allocator, "clCreateBuffer", error),
                               "a copy of %zu bytes", length);
  }
  ingot_status_t status = ingot_opencl_transfer(device, part->memory, 0, (int64_t)length, true,
                                                buffer->wrapped + part->begin);
  if (status) (void)device->cl->ReleaseMemObject(part->memory);
  return status;
}

/* Copies a range that is not there. Under the mutex. */
static ingot_status_t ingot_opencl_add_part(ingot_opencl_buffer_t *buffer, int64_t begin,
                                            int64_t end, const ingot_opencl_part_t **out_part) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(buffer->base.device);
  ingot_opencl_part_t part = {.begin = begin - begin % INGOT_OPENCL_PART_ALIGNMENT, .end = end};
  int64_t excess = end % INGOT_OPENCL_PART_ALIGNMENT;
  int64_t padding = excess ? INGOT_OPENCL_PART_ALIGNMENT - excess : 0;
  part.end += padding <= buffer->base.length - end ? padding : buffer->base.length - end;
  void *parts = buffer->parts;
  INGOT_TRY(
      ingot_reallocate_array(allocator, buffer->part_count + (size_t)1, sizeof(part), &parts));
  buffer->parts = parts;
  INGOT_TRY(ingot_opencl_upload(buffer, &part));
  uint32_t place = buffer->part_count;
  while (place > 0 && buffer->parts[place - 1].begin > part.begin) place--;
  memmove(&buffer->parts[place + 1], &buffer->parts[place],
          (buffer->part_count - place) * sizeof(part));
  buffer->parts[place] = part;
  buffer->part_count++;
  *out_part = &buffer->parts[place];
  return NULL;
}

static ingot_status_t ingot_opencl_locate_part(ingot_opencl_buffer_t *buffer, int64_t begin,
                                               int64_t length, ingot_opencl_place_t *out_place) {
  ingot_opencl_device_t *device = ingot_opencl_parts_device(buffer);
  if (length == 0) begin = 0, length = 1; /* no bytes lie wherever there are some */
  int64_t end = begin + length;
  ingot_mutex_lock(&device->mutex);
  const ingot_opencl_part_t *part = ingot_opencl_find_part(buffer, begin, end);
  ingot_status_t status = part ? NULL : ingot_opencl_add_part(buffer, begin, end, &part);
  if (!status) *out_place = (ingot_opencl_place_t){part->memory, begin - part->begin};
  ingot_mutex_unlock(&device->mutex);
  return status;
}

ingot_status_t ingot_opencl_locate(const ingot_buffer_t *buffer, int64_t offset, int64_t length,
                                   ingot_opencl_place_t *out_place) {
  ingot_opencl_buffer_t *root = ingot_opencl_root(buffer);
  int64_t begin = buffer->root_offset + offset;
  if (!root->memory) return ingot_opencl_locate_part(root, begin, length, out_place);
  *out_place = (ingot_opencl_place_t){root->memory, root->memory_offset + begin};
  return NULL;
}

void ingot_opencl_buffer_trim(ingot_buffer_t *root) {
  ingot_opencl_buffer_t *buffer = (ingot_opencl_buffer_t *)root;
  ingot_opencl_device_t *device = ingot_opencl_parts_device(buffer);
  ingot_mutex_lock(&device->mutex);
  for (uint32_t p = 0; p < buffer->part_count; p++) {
    (void)device->cl->ReleaseMemObject(buffer->parts[p].memory);
  }
  ingot_release_memory(ingot_hal_device_allocator(root->device), buffer->parts);
  buffer->parts = NULL;
  buffer->part_count = 0;
  ingot_mutex_unlock(&device->mutex);
}
