/* Copies, fills, writes and reads in the OpenCL queue. */
#include <string.h>

#include "hal/opencl/queue.h"

ingot_status_t ingot_opencl_queue_copy(ingot_hal_queue_t *base, ingot_buffer_t *source,
                                       int64_t source_offset, ingot_buffer_t *target,
                                       int64_t target_offset, int64_t length) {
  ingot_opencl_queue_t *queue = (ingot_opencl_queue_t *)base;
  ingot_opencl_record_t record = {.site = base->site, .kernel = "copy", .length = length};
  ingot_opencl_place_t from, to;
  INGOT_TRY(ingot_opencl_locate(source, source_offset, length, &from));
  INGOT_TRY(ingot_opencl_locate(target, target_offset, length, &to));
  INGOT_TRY(ingot_opencl_reserve_written(queue, 1));
  ingot_opencl_will_use(queue, source);
  ingot_opencl_will_write(queue, target);
  INGOT_TRY(ingot_opencl_begin(queue, &record));
  INGOT_OPENCL_TRY(ingot_hal_device_allocator(base->device), ingot_opencl_queue_device(queue)->cl,
                   EnqueueCopyBuffer, queue->queue, from.memory, to.memory, (size_t)from.offset,
                   (size_t)to.offset, (size_t)length, 0, NULL, ingot_opencl_event(queue, &record));
  return ingot_opencl_end(queue, &record);
}

/* -- fills ----------------------------------------------------------------------------------- */

/* One fill whose offset and length are multiples of its pattern's. */
static ingot_status_t ingot_opencl_fill_aligned(ingot_opencl_queue_t *queue,
                                                ingot_cl_memory_t memory, int64_t offset,
                                                int64_t length, const uint8_t *pattern,
                                                uint32_t pattern_length) {
  ingot_opencl_record_t record = {.site = queue->base.site, .kernel = "fill", .length = length};
  if (length == 0) return NULL;
  INGOT_TRY(ingot_opencl_begin(queue, &record));
  INGOT_OPENCL_TRY(ingot_hal_device_allocator(queue->base.device),
                   ingot_opencl_queue_device(queue)->cl, EnqueueFillBuffer, queue->queue, memory,
                   pattern, pattern_length, (size_t)offset, (size_t)length, 0, NULL,
                   ingot_opencl_event(queue, &record));
  return ingot_opencl_end(queue, &record);
}

/* OpenCL fills on multiples of the pattern only: what lies before the first and behind the last
 * goes byte by byte. */
ingot_status_t ingot_opencl_queue_fill(ingot_hal_queue_t *base, ingot_buffer_t *target,
                                       int64_t offset, int64_t length, uint64_t pattern,
                                       uint32_t pattern_length) {
  ingot_opencl_queue_t *queue = (ingot_opencl_queue_t *)base;
  ingot_opencl_place_t place;
  INGOT_TRY(ingot_opencl_locate(target, offset, length, &place));
  int64_t first = place.offset;
  int64_t skew = first % pattern_length;
  int64_t head = skew ? pattern_length - skew : 0;
  int64_t middle = (length - head) / pattern_length * pattern_length;
  uint8_t bytes[16]; /* twice, so that it can be read from any byte on */
  for (uint32_t i = 0; i < 16; i++) bytes[i] = (uint8_t)(pattern >> (i % pattern_length * 8));
  INGOT_TRY(ingot_opencl_reserve_written(queue, 1));
  ingot_opencl_will_write(queue, target);
  for (int64_t i = 0; i < head; i++) {
    INGOT_TRY(ingot_opencl_fill_aligned(queue, place.memory, first + i, 1, &bytes[i], 1));
  }
  INGOT_TRY(ingot_opencl_fill_aligned(queue, place.memory, first + head, middle, &bytes[head],
                                      pattern_length));
  for (int64_t i = head + middle; i < length; i++) {
    INGOT_TRY(ingot_opencl_fill_aligned(queue, place.memory, first + i, 1,
                                        &bytes[i % pattern_length], 1));
  }
  return NULL;
}

/* -- reads and writes ------------------------------------------------------------------------ */

ingot_status_t ingot_opencl_queue_write(ingot_hal_queue_t *base, ingot_buffer_t *target,
                                        int64_t offset, const void *data, int64_t length) {
  ingot_opencl_queue_t *queue = (ingot_opencl_queue_t *)base;
  ingot_opencl_place_t place;
  INGOT_TRY(ingot_opencl_locate(target, offset, length, &place));
  if (queue->staging_used + length > INGOT_OPENCL_STAGING_LENGTH - INGOT_OPENCL_STAGING_WRITE) {
    INGOT_TRY(ingot_opencl_settle(queue, NULL));
  }
  INGOT_TRY(ingot_opencl_reserve_written(queue, 1));
  ingot_opencl_will_write(queue, target);
  uint8_t *staged = queue->staging + INGOT_OPENCL_STAGING_WRITE + queue->staging_used;
  memcpy(staged, data, (size_t)length);
  INGOT_OPENCL_TRY(ingot_hal_device_allocator(base->device), ingot_opencl_queue_device(queue)->cl,
                   EnqueueWriteBuffer, queue->queue, place.memory, 0, (size_t)place.offset,
                   (size_t)length, staged, 0, NULL, NULL);
  queue->staging_used += length;
  ingot_opencl_record_t record = {.kernel = "write"};
  return ingot_opencl_end(queue, &record);
}

ingot_status_t ingot_opencl_queue_read(ingot_hal_queue_t *base, ingot_buffer_t *source,
                                       int64_t offset, void *data, int64_t length) {
  ingot_opencl_place_t place;
  ingot_opencl_queue_t *queue = (ingot_opencl_queue_t *)base;
  INGOT_TRY(ingot_opencl_locate(source, offset, length, &place));
  if (length > INGOT_OPENCL_READ_CAPACITY) {
    INGOT_TRY(ingot_opencl_settle(queue, NULL));
    return ingot_opencl_transfer(ingot_opencl_queue_device(queue), place.memory, place.offset,
                                 length, false, data);
  }
  const ingot_opencl_read_t read = {place.memory, (size_t)place.offset, (size_t)length, data};
  return ingot_opencl_settle(queue, &read);
}
