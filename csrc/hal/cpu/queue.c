/* The CPU queue: operations run at once, on the caller's thread, dispatches that are worth
 * it on the pool's too. */
#include <string.h>

#include "hal/cpu/cpu.h"
#include "hal/cpu/guard.h"
#include "platform/platform.h"

/* A dispatch is shared if one thread would need about this long for it: sharing costs less
 * than a microsecond while workers spin, but tens of them once they sleep. */
#define INGOT_CPU_SHARED_NANOSECONDS 5000
#define INGOT_CPU_FLOPS_PER_NANOSECOND 32 /* AVX2; with AVX-512 products reach 113 */
#define INGOT_CPU_BYTES_PER_NANOSECOND 16 /* from its second-level cache */

static bool ingot_cpu_is_worth_sharing(const ingot_hal_dispatch_t *dispatch) {
  /* Unsigned: a nonsensical estimate costs time, never correctness. */
  uint64_t nanoseconds = (uint64_t)dispatch->cost_flops / INGOT_CPU_FLOPS_PER_NANOSECOND +
                         (uint64_t)dispatch->cost_bytes / INGOT_CPU_BYTES_PER_NANOSECOND;
  return nanoseconds >= INGOT_CPU_SHARED_NANOSECONDS;
}

static ingot_status_t ingot_cpu_queue_grow_scratch(ingot_hal_cpu_queue_t *queue, uint64_t length) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(queue->base.device);
  void *scratch;
  INGOT_TRY(
      ingot_allocate_aligned(allocator, (size_t)length, INGOT_HAL_BUFFER_ALIGNMENT, &scratch));
  ingot_release_aligned(allocator, queue->scratch);
  queue->scratch = scratch;
  queue->scratch_length = length;
  return NULL;
}

ingot_status_t ingot_hal_cpu_queue_create(ingot_device_t *base, ingot_hal_queue_t **out_queue) {
  ingot_hal_cpu_device_t *device = (ingot_hal_cpu_device_t *)base;
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(base);
  void *memory;
  INGOT_TRY(ingot_allocate(allocator, sizeof(ingot_hal_cpu_queue_t), &memory));
  ingot_hal_cpu_queue_t *queue = memory;
  queue->base.device = base;
  uint64_t scratch_length = atomic_load(&device->scratch_length);
  ingot_status_t status =
      scratch_length > 0 ? ingot_cpu_queue_grow_scratch(queue, scratch_length) : NULL;
  if (status) {
    ingot_release_memory(allocator, queue);
    return status;
  }
  ingot_hal_device_retain(base);
  *out_queue = &queue->base;
  return NULL;
}

void ingot_hal_cpu_queue_destroy(ingot_hal_queue_t *base) {
  ingot_hal_cpu_queue_t *queue = (ingot_hal_cpu_queue_t *)base;
  ingot_device_t *device = base->device;
  ingot_release_aligned(ingot_hal_device_allocator(device), queue->scratch);
  ingot_release_memory(ingot_hal_device_allocator(device), queue);
  ingot_hal_device_release(device);
}

ingot_status_t ingot_hal_cpu_queue_dispatch(ingot_hal_queue_t *base,
                                            const ingot_hal_dispatch_t *dispatch,
                                            const int64_t grid[3]) {
  ingot_hal_cpu_queue_t *queue = (ingot_hal_cpu_queue_t *)base;
  const ingot_hal_cpu_device_t *device = (const ingot_hal_cpu_device_t *)base->device;
  const ingot_hal_cpu_kernel_t *kernel =
      &((const ingot_hal_cpu_executable_t *)dispatch->executable)->kernels[dispatch->entry];
  if (kernel->scratch_length > queue->scratch_length) {
    INGOT_TRY(ingot_cpu_queue_grow_scratch(queue, kernel->scratch_length));
  }
  void *bindings[INGOT_HAL_MAX_BINDINGS];
  int64_t lengths[INGOT_HAL_MAX_BINDINGS];
  for (uint32_t b = 0; b < dispatch->binding_count; b++) {
    const ingot_hal_binding_t *binding = &dispatch->bindings[b];
    /* Wrapped nothing has no address, and offset 0. */
    bindings[b] = binding->buffer->host ? binding->buffer->host + binding->offset : NULL;
    lengths[b] = binding->length;
  }
  const ingot_hal_cpu_work_t work = {
      .function = kernel->function,
      .scratch_length = kernel->scratch_length,
      .stop = base->stop,
      .dispatch = {.bindings = bindings,
                   .lengths = lengths,
                   .constants = dispatch->constants,
                   .workload = {dispatch->workload[0], dispatch->workload[1],
                                dispatch->workload[2]},
                   .poll = ingot_hal_cpu_poll},
      .grid = {grid[0], grid[1], grid[2]},
      .total = grid[0] * grid[1] * grid[2],
  };
  ingot_stack_prepare();
  if (kernel->misfit(&work.dispatch)) return ingot_hal_misfit_status(base, dispatch);
  ingot_kernel_fault_t fault = {0};
  ingot_guard_raise(dispatch);
  bool is_shared = device->pool && work.total > 1 && ingot_cpu_is_worth_sharing(dispatch);
  if (!is_shared || !ingot_hal_cpu_pool_run(device->pool, &work, queue->scratch, &fault)) {
    ingot_hal_cpu_run_inline(&work, queue->scratch, &fault);
  }
  ingot_guard_lower(dispatch);
  if (fault.code != INGOT_FAULT_NONE) return ingot_hal_fault_status(base, dispatch, &fault);
  if (ingot_stop_is_found(base->stop)) return ingot_hal_stop_status(base, dispatch);
  return NULL;
}

ingot_status_t ingot_hal_cpu_queue_wait(ingot_hal_queue_t *queue) {
  (void)queue;
  return NULL;
}

/* Copies and fills may be stopped after so many bytes: a few milliseconds. */
#define INGOT_CPU_PIECE_LENGTH (INT64_C(1) << 24)
#define INGOT_CPU_FORGOTTEN_LEAST (INT64_C(1) << 20)

ingot_status_t ingot_hal_cpu_queue_copy(ingot_hal_queue_t *queue, ingot_buffer_t *source,
                                        int64_t source_offset, ingot_buffer_t *target,
                                        int64_t target_offset, int64_t length) {
  const uint8_t *from = source->host + source_offset;
  uint8_t *to = target->host + target_offset;
  for (; length > INGOT_CPU_PIECE_LENGTH; length -= INGOT_CPU_PIECE_LENGTH) {
    memcpy(to, from, INGOT_CPU_PIECE_LENGTH);
    INGOT_TRY(ingot_hal_check_stop(queue));
    from += INGOT_CPU_PIECE_LENGTH;
    to += INGOT_CPU_PIECE_LENGTH;
  }
  memcpy(to, from, (size_t)length);
  return NULL;
}

/* Large state and weights that become zeros cost memory from where they are written, so that a
 * cache may have room for more than is ever used, and weights are touched once, by the kernels that
 * make them. Gives the bytes from `to` on that need no more work. */
static int64_t forget(const ingot_buffer_t *target, uint8_t *to, int64_t length) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(target->device);
  uint32_t kind = target->root->kind;
  bool forgets = kind == INGOT_MEMORY_STATE || kind == INGOT_MEMORY_WEIGHTS;
  if (length < INGOT_CPU_FORGOTTEN_LEAST || !forgets || !ingot_allocator_is_system(allocator)) {
    return 0;
  }
  int64_t begin = (int64_t)(-(uintptr_t)to & (INGOT_MEMORY_UNIT - 1));
  int64_t end = begin + ((length - begin) & ~(int64_t)(INGOT_MEMORY_UNIT - 1));
  if (!ingot_memory_give_back(to + begin, (size_t)(end - begin))) return 0;
  memset(to, 0, (size_t)begin);
  return end;
}

/* Takes large pages for weights, all of which will be written, as long as they come quickly. */
static ingot_status_t take_pages(ingot_hal_queue_t *queue, uint8_t *to, int64_t length) {
  bool is_fast = true;
  for (int64_t at = 0; is_fast && at < length; at += INGOT_CPU_PIECE_LENGTH) {
    is_fast = ingot_hal_cpu_prefer_large_pages((ingot_hal_cpu_device_t *)queue->device, to + at,
                                               (size_t)(length - at), INGOT_CPU_PIECE_LENGTH);
    INGOT_TRY(ingot_hal_check_stop(queue));
  }
  return NULL;
}

ingot_status_t ingot_hal_cpu_queue_fill(ingot_hal_queue_t *queue, ingot_buffer_t *target,
                                        int64_t offset, int64_t length, uint64_t pattern,
                                        uint32_t pattern_length) {
  uint8_t bytes[8];
  for (uint32_t i = 0; i < 8; i++) bytes[i] = (uint8_t)(pattern >> (i % pattern_length * 8));
  uint8_t *to = target->host + offset;
  int64_t done = pattern == 0 ? forget(target, to, length) : 0;
  if (target->root->kind == INGOT_MEMORY_WEIGHTS) INGOT_TRY(take_pages(queue, to, done));
  to += done;
  length -= done;
  while (length > 0) {
    int64_t piece = length < INGOT_CPU_PIECE_LENGTH ? length : INGOT_CPU_PIECE_LENGTH;
    int64_t i = 0;
    if (pattern_length == 1) memset(to, bytes[0], (size_t)(i = piece));
    for (; i + 8 <= piece; i += 8) memcpy(to + i, bytes, 8);
    memcpy(to + i, bytes, (size_t)(piece - i));
    to += piece;
    length -= piece;
    if (length > 0) INGOT_TRY(ingot_hal_check_stop(queue));
  }
  return NULL;
}

ingot_status_t ingot_hal_cpu_queue_write(ingot_hal_queue_t *queue, ingot_buffer_t *target,
                                         int64_t offset, const void *data, int64_t length) {
  (void)queue;
  memcpy(target->host + offset, data, (size_t)length);
  return NULL;
}

ingot_status_t ingot_hal_cpu_queue_read(ingot_hal_queue_t *queue, ingot_buffer_t *source,
                                        int64_t offset, void *data, int64_t length) {
  (void)queue;
  if (length > 0) memcpy(data, source->host + offset, (size_t)length);
  return NULL;
}
