/* Buffers of an OpenCL device: memory objects of its own, wrapped bytes of this process -
 * used in place where the device shares memory, else copied - and the application's objects.
 */
#include "hal/opencl/opencl.h"

#include <inttypes.h>
#include <string.h>

/* Wrapped bytes are used in place from this alignment on: what vector types need at most. */
#define INGOT_OPENCL_WRAP_ALIGNMENT 16

/* A map of wrapped bytes that the device has a copy of: they are the map. */
struct ingot_opencl_map_t {
  ingot_opencl_map_t *next;
  ingot_opencl_buffer_t *root;
  int64_t offset;
  int64_t length;
  bool is_written;
};

static ingot_opencl_device_t *ingot_opencl_device_of(const ingot_opencl_buffer_t *buffer) {
  return (ingot_opencl_device_t *)buffer->base.device;
}

static void ingot_opencl_buffer_destroy(ingot_buffer_t *base) {
  ingot_opencl_buffer_t *buffer = (ingot_opencl_buffer_t *)base;
  ingot_opencl_device_t *device = ingot_opencl_device_of(buffer);
  bool is_foreign = buffer->wrapped || buffer->release;
  if (is_foreign) { /* whoever owns the bytes may free them now: nothing may be left running */
    ingot_status_free(ingot_opencl_device_finish(device, atomic_load(&buffer->users)));
  }
  ingot_opencl_buffer_trim(base);
  void *released = buffer->wrapped ? (void *)buffer->wrapped : (void *)buffer->memory;
  if (buffer->memory) (void)device->cl->ReleaseMemObject(buffer->memory);
  if (buffer->release) buffer->release(buffer->user, released);
  ingot_release_memory(ingot_hal_device_allocator(base->device), buffer);
  ingot_hal_device_release(&device->base);
}

/* -- maps ------------------------------------------------------------------------------------ */

/* Maps wrapped bytes themselves, brought up to date; unmap sends them to the copy. */
static ingot_status_t ingot_opencl_map_wrapped(ingot_opencl_buffer_t *buffer, int64_t offset,
                                               int64_t length, uint32_t access, void **out_data) {
  ingot_opencl_device_t *device = ingot_opencl_device_of(buffer);
  void *memory;
  INGOT_TRY(ingot_allocate(ingot_hal_device_allocator(&device->base), sizeof(ingot_opencl_map_t),
                           &memory));
  ingot_opencl_map_t *map = memory;
  *map = (ingot_opencl_map_t){.root = buffer,
                              .offset = offset,
                              .length = length,
                              .is_written = (access & INGOT_HAL_ACCESS_WRITE) != 0};
  /* Bytes of a read-only wrap were never changed, and may lie on pages that cannot be. */
  ingot_status_t status = buffer->base.access & INGOT_HAL_ACCESS_WRITE
                              ? ingot_opencl_transfer(device, buffer->memory, offset, length, false,
                                                      buffer->wrapped + offset)
                              : NULL;
  if (status) {
    ingot_release_memory(ingot_hal_device_allocator(&device->base), map);
    return status;
  }
  ingot_mutex_lock(&device->mutex);
  map->next = device->maps;
  device->maps = map;
  ingot_mutex_unlock(&device->mutex);
  *out_data = buffer->wrapped + offset;
  return NULL;
}

static ingot_status_t ingot_opencl_buffer_map(ingot_buffer_t *root, int64_t offset, int64_t length,
                                              uint32_t access, void **out_data) {
  ingot_opencl_buffer_t *buffer = (ingot_opencl_buffer_t *)root;
  ingot_opencl_device_t *device = ingot_opencl_device_of(buffer);
  if (length == 0) {
    *out_data = NULL;
    return NULL;
  }
  INGOT_TRY(ingot_opencl_device_finish(device, atomic_load(&buffer->users)));
  if (buffer->is_copy) return ingot_opencl_map_wrapped(buffer, offset, length, access, out_data);
  uint64_t flags = (access & INGOT_HAL_ACCESS_READ ? INGOT_CL_MAP_READ : 0) |
                   (access & INGOT_HAL_ACCESS_WRITE ? INGOT_CL_MAP_WRITE : 0);
  return ingot_opencl_map(device, buffer->memory, flags, buffer->memory_offset + offset, length,
                          out_data);
}

/* Takes the record of a map of wrapped bytes out of the list. */
static ingot_opencl_map_t *ingot_opencl_take_map(ingot_opencl_buffer_t *buffer, const void *data) {
  ingot_opencl_device_t *device = ingot_opencl_device_of(buffer);
  ingot_mutex_lock(&device->mutex);
  ingot_opencl_map_t **link = &device->maps;
  while (*link && ((*link)->root != buffer || buffer->wrapped + (*link)->offset != data)) {
    link = &(*link)->next;
  }
  ingot_opencl_map_t *map = *link;
  if (map) *link = map->next;
  ingot_mutex_unlock(&device->mutex);
  return map;
}

/* Unmapping cannot fail for its caller; what the device lost shows at its next operation. */
static void ingot_opencl_buffer_unmap(ingot_buffer_t *root, void *data) {
  ingot_opencl_buffer_t *buffer = (ingot_opencl_buffer_t *)root;
  ingot_opencl_device_t *device = ingot_opencl_device_of(buffer);
  if (!data) return;
  if (buffer->is_copy) {
    ingot_opencl_map_t *map = ingot_opencl_take_map(buffer, data);
    if (map && map->is_written) {
      ingot_status_free(
          ingot_opencl_transfer(device, buffer->memory, map->offset, map->length, true, data));
    }
    ingot_release_memory(ingot_hal_device_allocator(root->device), map);
    return;
  }
  ingot_status_free(ingot_opencl_unmap(device, buffer->memory, data));
}

/* -- reads and writes ------------------------------------------------------------------------ */

/* Between the buffer and the caller's bytes; through a map where that is as good. */
static ingot_status_t ingot_opencl_buffer_move(ingot_buffer_t *root, int64_t offset, int64_t length,
                                               bool to_device, uint8_t *host) {
  ingot_opencl_buffer_t *buffer = (ingot_opencl_buffer_t *)root;
  ingot_opencl_device_t *device = ingot_opencl_device_of(buffer);
  if (length == 0) return NULL;
  if (!buffer->wrapped) {
    INGOT_TRY(ingot_opencl_device_finish(device, atomic_load(&buffer->users)));
    return ingot_opencl_transfer(device, buffer->memory, buffer->memory_offset + offset, length,
                                 to_device, host);
  }
  void *data = NULL;
  INGOT_TRY(ingot_opencl_buffer_map(
      root, offset, length, to_device ? INGOT_HAL_ACCESS_WRITE : INGOT_HAL_ACCESS_READ, &data));
  memcpy(to_device ? data : host, to_device ? host : data, (size_t)length);
  ingot_opencl_buffer_unmap(root, data);
  return NULL;
}

static ingot_status_t ingot_opencl_buffer_read(ingot_buffer_t *root, int64_t offset, int64_t length,
                                               void *data) {
  return ingot_opencl_buffer_move(root, offset, length, false, data);
}

static ingot_status_t ingot_opencl_buffer_write(ingot_buffer_t *root, int64_t offset,
                                                int64_t length, const void *data) {
  return ingot_opencl_buffer_move(root, offset, length, true, (uint8_t *)(uintptr_t)data);
}

static const ingot_hal_buffer_vtable_t ingot_opencl_buffer_vtable = {
    .destroy = ingot_opencl_buffer_destroy,
    .map = ingot_opencl_buffer_map,
    .unmap = ingot_opencl_buffer_unmap,
    .read = ingot_opencl_buffer_read,
    .write = ingot_opencl_buffer_write,
    .trim = ingot_opencl_buffer_trim,
};

/* -- creation -------------------------------------------------------------------------------- */

/* An object without memory, which others may share at first; it holds a reference of the
 * device. */
static ingot_status_t ingot_opencl_buffer_make(ingot_device_t *device, int64_t length,
                                               uint32_t access,
                                               ingot_opencl_buffer_t **out_buffer) {
  void *memory;
  INGOT_TRY(
      ingot_allocate(ingot_hal_device_allocator(device), sizeof(ingot_opencl_buffer_t), &memory));
  ingot_opencl_buffer_t *buffer = memory;
  buffer->base = (ingot_buffer_t){.vtable = &ingot_opencl_buffer_vtable,
                                  .access = access,
                                  .device = device,
                                  .root = &buffer->base,
                                  .length = length,
                                  .memory = buffer};
  atomic_init(&buffer->users, INGOT_OPENCL_ALL_USERS);
  ingot_reference_count_initialize(&buffer->base.references);
  ingot_hal_device_retain(device);
  *out_buffer = buffer;
  return NULL;
}

/* Gives the object memory on the device; no buffer of OpenCL is empty. */
static ingot_status_t ingot_opencl_buffer_allocate(ingot_opencl_buffer_t *buffer, uint64_t flags,
                                                   void *data) {
  ingot_opencl_device_t *device = ingot_opencl_device_of(buffer);
  size_t length = (size_t)buffer->base.length;
  int32_t error = 0;
  buffer->memory =
      device->cl->CreateBuffer(device->context, flags, length ? length : 1, data, &error);
  if (!error) return NULL;
  buffer->memory = NULL;
  return ingot_status_prefix(
      ingot_opencl_status(ingot_hal_device_allocator(&device->base), "clCreateBuffer", error),
      "a buffer of %" PRId64 " bytes", buffer->base.length);
}

ingot_status_t ingot_opencl_buffer_create(ingot_device_t *device, int64_t length,
                                          ingot_buffer_t **out_buffer) {
  INGOT_TRY(ingot_opencl_check_allocation((ingot_opencl_device_t *)device, length));
  ingot_opencl_buffer_t *buffer;
  INGOT_TRY(ingot_opencl_buffer_make(device, length, INGOT_HAL_ACCESS_READ | INGOT_HAL_ACCESS_WRITE,
                                     &buffer));
  ingot_status_t status = ingot_opencl_buffer_allocate(buffer, INGOT_CL_MEM_READ_WRITE, NULL);
  if (status) {
    ingot_hal_buffer_release(&buffer->base);
    return status;
  }
  atomic_store(&buffer->users, 0);
  buffer->base.memory = buffer->memory; /* which the application may wrap again */
  *out_buffer = &buffer->base;
  return NULL;
}

/* -- wrapped bytes --------------------------------------------------------------------------- */

/* In place if the device can, else a copy of the bytes as they are now; of bytes that stay as
 * they are, parts when they are used. */
static ingot_status_t ingot_opencl_buffer_fill_wrap(ingot_opencl_buffer_t *buffer) {
  ingot_opencl_device_t *device = ingot_opencl_device_of(buffer);
  bool is_read_only = !(buffer->base.access & INGOT_HAL_ACCESS_WRITE);
  if (device->zero_copy && buffer->base.length > 0 &&
      (uint64_t)buffer->base.length <= device->max_allocation &&
      (uintptr_t)buffer->wrapped % INGOT_OPENCL_WRAP_ALIGNMENT == 0) {
    uint64_t flags = is_read_only ? INGOT_CL_MEM_READ_ONLY : INGOT_CL_MEM_READ_WRITE;
    ingot_status_t status =
        ingot_opencl_buffer_allocate(buffer, flags | INGOT_CL_MEM_USE_HOST_PTR, buffer->wrapped);
    if (!status) return NULL;
    ingot_status_free(status); /* drivers refuse some pages, as those of a read-only file */
  }
  buffer->is_copy = true;
  if (is_read_only && buffer->base.length > 0) return NULL;
  INGOT_TRY(ingot_opencl_check_allocation(device, buffer->base.length));
  INGOT_TRY(ingot_opencl_buffer_allocate(buffer, INGOT_CL_MEM_READ_WRITE, NULL));
  return ingot_opencl_transfer(device, buffer->memory, 0, buffer->base.length, true,
                               buffer->wrapped);
}

ingot_status_t ingot_opencl_buffer_wrap(ingot_device_t *device, void *data, int64_t length,
                                        uint32_t access, ingot_release_function_t release,
                                        void *user, ingot_buffer_t **out_buffer) {
  ingot_opencl_buffer_t *buffer;
  INGOT_TRY(ingot_opencl_buffer_make(device, length, access, &buffer));
  buffer->wrapped = data;
  buffer->base.memory = NULL; /* this process's */
  buffer->base.address = (uint64_t)(uintptr_t)data;
  ingot_status_t status = ingot_opencl_buffer_fill_wrap(buffer);
  if (status) {
    ingot_hal_buffer_release(&buffer->base);
    return status;
  }
  buffer->release = release;
  buffer->user = user;
  *out_buffer = &buffer->base;
  return NULL;
}

/* -- the application's memory objects -------------------------------------------------------- */

static ingot_status_t ingot_opencl_check_memory(const ingot_opencl_device_t *device,
                                                ingot_cl_memory_t memory, int64_t offset,
                                                int64_t length, uint32_t *out_access) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(&device->base);
  const ingot_cl_functions_t *cl = device->cl;
  ingot_cl_context_t context = NULL;
  uint64_t flags = 0;
  uint32_t type = 0;
  size_t total = 0;
  INGOT_OPENCL_TRY(allocator, cl, GetMemObjectInfo, memory, INGOT_CL_MEM_TYPE, sizeof(type), &type,
                   NULL);
  INGOT_OPENCL_TRY(allocator, cl, GetMemObjectInfo, memory, INGOT_CL_MEM_CONTEXT, sizeof(context),
                   &context, NULL);
  INGOT_OPENCL_TRY(allocator, cl, GetMemObjectInfo, memory, INGOT_CL_MEM_FLAGS, sizeof(flags),
                   &flags, NULL);
  INGOT_OPENCL_TRY(allocator, cl, GetMemObjectInfo, memory, INGOT_CL_MEM_SIZE, sizeof(total),
                   &total, NULL);
  if (type != INGOT_CL_MEM_OBJECT_BUFFER || context != device->context) {
    return ingot_status_create(
        allocator, INGOT_STATUS_INVALID_ARGUMENT,
        "the memory object is %s: expected a buffer of the device's context",
        type != INGOT_CL_MEM_OBJECT_BUFFER ? "an image or a pipe" : "of another context");
  }
  if (offset < 0 || length < 0 || (uint64_t)offset > total ||
      (uint64_t)length > total - (uint64_t)offset) {
    return ingot_status_create(allocator, INGOT_STATUS_OUT_OF_RANGE,
                               "%" PRId64 " bytes at offset %" PRId64
                               " do not fit a memory object of %zu bytes",
                               length, offset, total);
  }
  *out_access = INGOT_HAL_ACCESS_READ | INGOT_HAL_ACCESS_WRITE;
  if (flags & INGOT_CL_MEM_READ_ONLY) *out_access = INGOT_HAL_ACCESS_READ;
  if (flags & INGOT_CL_MEM_WRITE_ONLY) *out_access = INGOT_HAL_ACCESS_WRITE;
  return NULL;
}

ingot_status_t ingot_opencl_buffer_from_memory(ingot_device_t *device, ingot_cl_memory_t memory,
                                               int64_t offset, int64_t length,
                                               ingot_release_function_t release, void *user,
                                               ingot_buffer_t **out_buffer) {
  const ingot_cl_functions_t *cl = ((ingot_opencl_device_t *)device)->cl;
  uint32_t access = 0;
  INGOT_TRY(
      ingot_opencl_check_memory((ingot_opencl_device_t *)device, memory, offset, length, &access));
  ingot_opencl_buffer_t *buffer;
  INGOT_TRY(ingot_opencl_buffer_make(device, length, access, &buffer));
  int32_t error = cl->RetainMemObject(memory);
  if (error) {
    ingot_hal_buffer_release(&buffer->base);
    return ingot_opencl_status(ingot_hal_device_allocator(device), "clRetainMemObject", error);
  }
  buffer->memory = memory;
  buffer->memory_offset = offset;
  buffer->base.memory = memory;
  buffer->base.address = (uint64_t)offset;
  buffer->release = release;
  buffer->user = user;
  *out_buffer = &buffer->base;
  return NULL;
}
