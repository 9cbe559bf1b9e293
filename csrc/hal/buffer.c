/* Buffers: ranges of device memory with checked access, and views into them. */
#include <inttypes.h>
#include <string.h>

#include "base/arithmetic.h"
#include "hal/account.h"
#include "hal/check.h"
#include "hal/hal.h"

ingot_status_t ingot_hal_check_range(const ingot_buffer_t *buffer, int64_t offset, int64_t length,
                                     uint32_t access) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(buffer->device);
  if (!ingot_range_fits_i64(offset, length, buffer->length)) {
    return ingot_status_create(allocator, INGOT_STATUS_OUT_OF_RANGE,
                               "%" PRId64 " bytes at offset %" PRId64
                               " do not fit a buffer of %" PRId64 " bytes",
                               length, offset, buffer->length);
  }
  if ((buffer->access & access) != access) {
    return ingot_status_create(allocator, INGOT_STATUS_PERMISSION_DENIED,
                               "the buffer is %s only, but is to be %s: wrap it with the access",
                               buffer->access & INGOT_HAL_ACCESS_READ ? "readable" : "writable",
                               access & INGOT_HAL_ACCESS_WRITE ? "written" : "read");
  }
  return NULL;
}

static ingot_status_t ingot_hal_check_length(ingot_device_t *device, int64_t length) {
  if (length >= 0) return NULL;
  return ingot_status_create(ingot_hal_device_allocator(device), INGOT_STATUS_INVALID_ARGUMENT,
                             "buffer length is %" PRId64 ", expected at least 0", length);
}

ingot_status_t ingot_hal_buffer_create(ingot_device_t *device, int64_t length,
                                       ingot_buffer_t **out_buffer) {
  INGOT_TRY(ingot_hal_check_length(device, length));
  INGOT_TRY(ingot_hal_device_check_memory(device, length));
  return device->vtable->buffer_create(device, length, out_buffer);
}

/* Counted first: what is too much is not tried. */
ingot_status_t ingot_hal_buffer_create_counted(ingot_device_t *device, ingot_hal_account_t *account,
                                               uint32_t kind, int64_t length,
                                               ingot_buffer_t **out_buffer) {
  ingot_buffer_t counted = {.length = length};
  INGOT_TRY(ingot_hal_check_length(device, length));
  INGOT_TRY(ingot_hal_device_check_memory(device, length));
  INGOT_TRY(ingot_hal_account_add(account, kind, &counted));
  ingot_status_t status = ingot_hal_buffer_create(device, length, out_buffer);
  if (status) {
    ingot_hal_account_remove(&counted);
    return status;
  }
  (*out_buffer)->account = account;
  (*out_buffer)->kind = kind;
  return NULL;
}

ingot_status_t ingot_hal_buffer_wrap(ingot_device_t *device, void *data, int64_t length,
                                     uint32_t access, ingot_release_function_t release, void *user,
                                     ingot_buffer_t **out_buffer) {
  const uint32_t known = INGOT_HAL_ACCESS_READ | INGOT_HAL_ACCESS_WRITE;
  INGOT_TRY(ingot_hal_check_length(device, length));
  if ((!data && length > 0) || access == 0 || (access & ~known)) {
    return ingot_status_create(ingot_hal_device_allocator(device), INGOT_STATUS_INVALID_ARGUMENT,
                               "cannot wrap %" PRId64
                               " bytes at %s with access %u: expected "
                               "bytes, and access 1 (read), 2 (write) or 3 (both)",
                               length, data ? "an address" : "NULL", access);
  }
  return device->vtable->buffer_wrap(device, data, length, access, release, user, out_buffer);
}

static void ingot_hal_subspan_destroy(ingot_buffer_t *buffer) {
  ingot_buffer_t *root = buffer->root;
  ingot_release_memory(ingot_hal_device_allocator(buffer->device), buffer);
  ingot_hal_buffer_release(root); /* last: it keeps device and allocator alive */
}

ingot_status_t ingot_hal_buffer_subspan(ingot_buffer_t *parent, int64_t offset, int64_t length,
                                        ingot_buffer_t **out_buffer) {
  INGOT_TRY(ingot_hal_check_range(parent, offset, length, 0));
  void *memory;
  INGOT_TRY(
      ingot_allocate(ingot_hal_device_allocator(parent->device), sizeof(ingot_buffer_t), &memory));
  ingot_buffer_t *buffer = memory;
  *buffer = (ingot_buffer_t){
      .vtable = parent->vtable,
      .access = parent->access,
      .device = parent->device,
      .root = parent->root,
      .root_offset = parent->root_offset + offset,
      .length = length,
      .host = parent->host ? parent->host + offset : NULL,
      .memory = parent->memory,
      .address = parent->address + (uint64_t)offset,
  };
  ingot_reference_count_initialize(&buffer->references);
  ingot_hal_buffer_retain(buffer->root);
  *out_buffer = buffer;
  return NULL;
}

void ingot_hal_buffer_retain(ingot_buffer_t *buffer) {
  ingot_reference_count_retain(&buffer->references);
}

void ingot_hal_buffer_release(ingot_buffer_t *buffer) {
  if (!buffer || !ingot_reference_count_release(&buffer->references)) return;
  if (buffer->root == buffer) {
    if (buffer->account) ingot_hal_account_remove(buffer);
    buffer->vtable->destroy(buffer);
  } else {
    ingot_hal_subspan_destroy(buffer);
  }
}

ingot_status_t ingot_hal_buffer_map(ingot_buffer_t *buffer, int64_t offset, int64_t length,
                                    uint32_t access, void **out_data) {
  INGOT_TRY(ingot_hal_check_range(buffer, offset, length, access));
  return buffer->vtable->map(buffer->root, buffer->root_offset + offset, length, access, out_data);
}

void ingot_hal_buffer_unmap(ingot_buffer_t *buffer, void *data) {
  buffer->vtable->unmap(buffer->root, data);
}

void ingot_hal_buffer_settle(ingot_buffer_t *buffer) {
  if (buffer->vtable->settle) buffer->vtable->settle(buffer->root);
}

void ingot_hal_buffer_trim(ingot_buffer_t *buffer) {
  if (buffer->vtable->trim) buffer->vtable->trim(buffer->root);
}

ingot_status_t ingot_hal_buffer_read(ingot_buffer_t *buffer, int64_t offset, int64_t length,
                                     void *data) {
  if (buffer->vtable->read) {
    INGOT_TRY(ingot_hal_check_range(buffer, offset, length, INGOT_HAL_ACCESS_READ));
    return buffer->vtable->read(buffer->root, buffer->root_offset + offset, length, data);
  }
  void *bytes;
  INGOT_TRY(ingot_hal_buffer_map(buffer, offset, length, INGOT_HAL_ACCESS_READ, &bytes));
  if (length > 0) memcpy(data, bytes, (size_t)length);
  ingot_hal_buffer_unmap(buffer, bytes);
  return NULL;
}

ingot_status_t ingot_hal_buffer_write(ingot_buffer_t *buffer, int64_t offset, int64_t length,
                                      const void *data) {
  if (buffer->vtable->write) {
    INGOT_TRY(ingot_hal_check_range(buffer, offset, length, INGOT_HAL_ACCESS_WRITE));
    return buffer->vtable->write(buffer->root, buffer->root_offset + offset, length, data);
  }
  void *bytes;
  INGOT_TRY(ingot_hal_buffer_map(buffer, offset, length, INGOT_HAL_ACCESS_WRITE, &bytes));
  if (length > 0) memcpy(bytes, data, (size_t)length);
  ingot_hal_buffer_unmap(buffer, bytes);
  return NULL;
}

bool ingot_hal_ranges_overlap(const ingot_buffer_t *a, int64_t a_offset, int64_t a_length,
                              const ingot_buffer_t *b, int64_t b_offset, int64_t b_length) {
  if (a_length == 0 || b_length == 0 || a->memory != b->memory) return false;
  uint64_t a_first = a->address + (uint64_t)a_offset;
  uint64_t b_first = b->address + (uint64_t)b_offset;
  return a_first < b_first + (uint64_t)b_length && b_first < a_first + (uint64_t)a_length;
}
