/* Buffers of the CPU device: one block with the object in front of its bytes, or the
 * caller's bytes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* madvise */
#endif
#include <inttypes.h>
#include <sys/mman.h>

#include "base/arithmetic.h"
#include "hal/cpu/cpu.h"

#define INGOT_CPU_HUGE_PAGE (2 * 1024 * 1024)

typedef struct ingot_cpu_buffer_t {
  ingot_buffer_t base;
  ingot_release_function_t release; /* of wrapped bytes; may be NULL */
  void *user;
  void *wrapped;
} ingot_cpu_buffer_t;

static void ingot_cpu_buffer_destroy(ingot_buffer_t *base) {
  ingot_cpu_buffer_t *buffer = (ingot_cpu_buffer_t *)base;
  ingot_device_t *device = base->device;
  if (buffer->release) buffer->release(buffer->user, buffer->wrapped);
  ingot_release_memory(ingot_hal_device_allocator(device), buffer);
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

static const ingot_hal_buffer_vtable_t ingot_cpu_buffer_vtable = {
    .destroy = ingot_cpu_buffer_destroy,
    .map = ingot_cpu_buffer_map,
    .unmap = ingot_cpu_buffer_unmap,
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
  ingot_reference_count_initialize(&buffer->base.references);
  ingot_hal_device_retain(device);
  return &buffer->base;
}

ingot_status_t ingot_hal_cpu_buffer_create(ingot_device_t *device, int64_t length,
                                           ingot_buffer_t **out_buffer) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(device);
  size_t alignment =
      length >= INGOT_CPU_HUGE_PAGE ? INGOT_CPU_HUGE_PAGE : INGOT_HAL_BUFFER_ALIGNMENT;
  size_t total;
  if (!ingot_add_size((size_t)length, sizeof(ingot_cpu_buffer_t) + alignment, &total) ||
      total > PTRDIFF_MAX) {
    return ingot_status_out_of_memory();
  }
  /* Not ingot_allocate: zeroing would touch every byte. */
  ingot_cpu_buffer_t *buffer = allocator->resize(allocator->user, NULL, total);
  if (!buffer) {
    return ingot_status_create(allocator, INGOT_STATUS_OUT_OF_MEMORY,
                               "there is no memory for a buffer of %" PRId64 " bytes", length);
  }
  uint8_t *data = (uint8_t *)(buffer + 1);
  data += -(uintptr_t)data & (alignment - 1);
#if defined(MADV_HUGEPAGE)
  if (length >= INGOT_CPU_HUGE_PAGE) {
    size_t whole_pages = (size_t)length & ~(size_t)(INGOT_CPU_HUGE_PAGE - 1);
    (void)madvise(data, whole_pages, MADV_HUGEPAGE); /* for speed only */
  }
#endif
  buffer->release = NULL;
  *out_buffer = ingot_cpu_buffer_initialize(buffer, device, data, length,
                                            INGOT_HAL_ACCESS_READ | INGOT_HAL_ACCESS_WRITE);
  return NULL;
}

ingot_status_t ingot_hal_cpu_buffer_wrap(ingot_device_t *device, void *data, int64_t length,
                                         uint32_t access, ingot_release_function_t release,
                                         void *user, ingot_buffer_t **out_buffer) {
  void *memory;
  INGOT_TRY(ingot_allocate(ingot_hal_device_allocator(device), sizeof(ingot_cpu_buffer_t),
                           &memory));
  ingot_cpu_buffer_t *buffer = memory;
  buffer->release = release;
  buffer->user = user;
  buffer->wrapped = data;
  *out_buffer = ingot_cpu_buffer_initialize(buffer, device, data, length, access);
  return NULL;
}
