/* Buffers of the CPU device: one block with the object in front of its bytes, or the
 * caller's bytes. */
#include <inttypes.h>

#include "base/arithmetic.h"
#include "hal/cpu/cpu.h"
#include "hal/cpu/mover.h"
#include "platform/platform.h"

#define INGOT_CPU_SPARE_LEAST (64 * 1024)        /* smaller blocks the allocator keeps itself */
#define INGOT_CPU_SPARE_STEP (32 * 1024)         /* a result that grows fits for a while */
#define INGOT_CPU_SPARE_MOST (64 * 1024 * 1024)  /* of all spares */
#define INGOT_CPU_MOVED_LEAST (32 * 1024 * 1024) /* weights that are moved to large pages */

typedef struct ingot_cpu_buffer_t {
  ingot_buffer_t base;
  ingot_release_function_t release; /* of wrapped bytes; may be NULL */
  void *user;
  void *wrapped;
  size_t total; /* bytes of the block */
  ingot_hal_cpu_mover_t *mover; /* NULL: they stay where they are */
} ingot_cpu_buffer_t;

/* -- spare blocks: no lock, so that a fork at any moment leaves them usable -------------------- */

static void *take_spare(ingot_hal_cpu_device_t *device, uint32_t at, size_t least, size_t most,
                        size_t *out_length) {
  ingot_hal_cpu_spare_t *spare = &device->spares[at % INGOT_HAL_CPU_SPARES];
  size_t length = atomic_load(&spare->length);
  if (length < least || length > most ||
      !atomic_compare_exchange_strong(&spare->length, &length, 1)) {
    return NULL;
  }
  void *block = spare->block;
  atomic_fetch_sub(&device->spare_length, length);
  atomic_store(&spare->length, 0);
  *out_length = length;
  return block;
}

static void free_spare(ingot_hal_cpu_device_t *device, uint32_t at) {
  size_t length;
  ingot_release_memory(ingot_hal_device_allocator(&device->base),
                       take_spare(device, at, 2, SIZE_MAX, &length));
}

void ingot_hal_cpu_device_trim(ingot_device_t *device) {
  for (uint32_t i = 0; i < INGOT_HAL_CPU_SPARES; ++i) {
    free_spare((ingot_hal_cpu_device_t *)device, i);
  }
}

/* Keeps a block of at most INGOT_CPU_SPARE_MOST bytes in place of the oldest ones; frees it if
 * that does not do. It is counted before it is kept: so threads together keep no more either. */
static void keep_spare(ingot_hal_cpu_device_t *device, void *block, size_t length) {
  uint32_t at = atomic_fetch_add(&device->next_spare, 1);
  ingot_hal_cpu_spare_t *spare = &device->spares[at % INGOT_HAL_CPU_SPARES];
  size_t none = 0;
  free_spare(device, at);
  atomic_fetch_add(&device->spare_length, length);
  for (uint32_t i = 1; i < INGOT_HAL_CPU_SPARES; ++i) {
    if (atomic_load(&device->spare_length) <= INGOT_CPU_SPARE_MOST) break;
    free_spare(device, at + i);
  }
  if (atomic_load(&device->spare_length) > INGOT_CPU_SPARE_MOST ||
      !atomic_compare_exchange_strong(&spare->length, &none, 1)) {
    atomic_fetch_sub(&device->spare_length, length);
    ingot_release_memory(ingot_hal_device_allocator(&device->base), block);
    return;
  }
  spare->block = block;
  atomic_store(&spare->length, length);
}

/* A block of at least *total bytes, which becomes what it has; NULL if there is no memory. */
static void *find_block(ingot_hal_cpu_device_t *device, size_t *total) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(&device->base);
  if (*total >= INGOT_CPU_SPARE_LEAST && *total < INGOT_CPU_SPARE_MOST) {
    size_t most = *total + *total / 4 + INGOT_CPU_SPARE_STEP;
    for (uint32_t i = 0; i < INGOT_HAL_CPU_SPARES; ++i) {
      void *block = take_spare(device, i, *total, most, total);
      if (block) return block;
    }
    *total += -*total & (INGOT_CPU_SPARE_STEP - 1);
  }
  void *block = allocator->resize(allocator->user, NULL, *total);
  if (block || atomic_load(&device->spare_length) == 0) return block;
  ingot_hal_cpu_device_trim(&device->base);
  return allocator->resize(allocator->user, NULL, *total);
}

/* -- buffers ----------------------------------------------------------------------------------- */

static void ingot_cpu_buffer_destroy(ingot_buffer_t *base) {
  ingot_cpu_buffer_t *buffer = (ingot_cpu_buffer_t *)base;
  ingot_device_t *device = base->device;
  ingot_hal_cpu_mover_stop(buffer->mover);
  if (buffer->release) buffer->release(buffer->user, buffer->wrapped);
  if (base->spare && buffer->total >= INGOT_CPU_SPARE_LEAST &&
      buffer->total <= INGOT_CPU_SPARE_MOST) {
    keep_spare((ingot_hal_cpu_device_t *)device, buffer, buffer->total);
  } else {
    ingot_release_memory(ingot_hal_device_allocator(device), buffer);
  }
  ingot_hal_device_release(device);
}

static ingot_status_t ingot_cpu_buffer_map(ingot_buffer_t *root, int64_t offset, int64_t length,
                                           uint32_t access, void **out_data) {
  (void)length;
  (void)access;
  *out_data = root->host ? root->host + offset : NULL;
  return NULL;
}

static void ingot_cpu_buffer_unmap(ingot_buffer_t *root, void *data) {
  (void)root;
  (void)data;
}

/* Only what a call reads from memory: less than that stays in caches. */
static void ingot_cpu_buffer_settle(ingot_buffer_t *root) {
  ingot_cpu_buffer_t *buffer = (ingot_cpu_buffer_t *)root;
  ingot_hal_cpu_device_t *device = (ingot_hal_cpu_device_t *)root->device;
  if (root->length < INGOT_CPU_MOVED_LEAST || !atomic_load(&device->has_slow_pages)) return;
  size_t whole_pages = (size_t)root->length & ~(size_t)(INGOT_LARGE_PAGE - 1);
  buffer->mover = ingot_hal_cpu_mover_start(device, root->host, whole_pages);
}

static const ingot_hal_buffer_vtable_t ingot_cpu_buffer_vtable = {
    .destroy = ingot_cpu_buffer_destroy,
    .map = ingot_cpu_buffer_map,
    .unmap = ingot_cpu_buffer_unmap,
    .settle = ingot_cpu_buffer_settle,
};

static ingot_buffer_t *ingot_cpu_buffer_initialize(ingot_cpu_buffer_t *buffer,
                                                   ingot_device_t *device, void *data,
                                                   int64_t length, uint32_t access) {
  buffer->base = (ingot_buffer_t){
      .vtable = &ingot_cpu_buffer_vtable,
      .access = access,
      .device = device,
      .root = &buffer->base,
      .length = length,
      .host = data,
      .address = (uint64_t)(uintptr_t)data,
  };
  buffer->mover = NULL;
  ingot_reference_count_initialize(&buffer->base.references);
  ingot_hal_device_retain(device);
  return &buffer->base;
}

bool ingot_hal_cpu_prefer_large_pages(ingot_hal_cpu_device_t *device, void *data, size_t length,
                                      size_t written) {
  bool is_sampled = length >= 2 * INGOT_LARGE_PAGE;
  if (!is_sampled && atomic_load(&device->has_slow_pages)) return false;
  bool is_fast = ingot_memory_prefer_large_pages(data, length, written);
  if (is_sampled) atomic_store(&device->has_slow_pages, !is_fast);
  return is_fast;
}

ingot_status_t ingot_hal_cpu_buffer_create(ingot_device_t *device, int64_t length,
                                           ingot_buffer_t **out_buffer) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(device);
  size_t alignment = length >= INGOT_LARGE_PAGE ? INGOT_LARGE_PAGE : INGOT_HAL_BUFFER_ALIGNMENT;
  size_t total;
  if (!ingot_add_size((size_t)length, sizeof(ingot_cpu_buffer_t) + alignment, &total) ||
      total > PTRDIFF_MAX) {
    return ingot_status_out_of_memory();
  }
  /* Not ingot_allocate: zeroing would touch every byte. */
  ingot_cpu_buffer_t *buffer = find_block((ingot_hal_cpu_device_t *)device, &total);
  if (!buffer) {
    return ingot_status_create(allocator, INGOT_STATUS_OUT_OF_MEMORY,
                               "there is no memory for a buffer of %" PRId64 " bytes", length);
  }
  uint8_t *data = (uint8_t *)(buffer + 1);
  data += -(uintptr_t)data & (alignment - 1);
  if (length >= INGOT_LARGE_PAGE) {
    size_t whole_pages = (size_t)length & ~(size_t)(INGOT_LARGE_PAGE - 1);
    ingot_hal_cpu_prefer_large_pages((ingot_hal_cpu_device_t *)device, data, whole_pages, 0);
  }
  buffer->release = NULL;
  buffer->total = total;
  *out_buffer = ingot_cpu_buffer_initialize(buffer, device, data, length,
                                            INGOT_HAL_ACCESS_READ | INGOT_HAL_ACCESS_WRITE);
  return NULL;
}

ingot_status_t ingot_hal_cpu_buffer_wrap(ingot_device_t *device, void *data, int64_t length,
                                         uint32_t access, ingot_release_function_t release,
                                         void *user, ingot_buffer_t **out_buffer) {
  void *memory;
  INGOT_TRY(
      ingot_allocate(ingot_hal_device_allocator(device), sizeof(ingot_cpu_buffer_t), &memory));
  ingot_cpu_buffer_t *buffer = memory;
  buffer->release = release;
  buffer->user = user;
  buffer->wrapped = data;
  if (length == 0) data = (void *)((uintptr_t)data & ~(uintptr_t)7); /* kernels want it aligned */
  *out_buffer = ingot_cpu_buffer_initialize(buffer, device, data, length, access);
  return NULL;
}
