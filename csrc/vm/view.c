/* Buffer views: creation with its checks, counting, layout. */
#include "vm/view.h"

#include <inttypes.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/dtype.h"

/* What an element must be aligned to: complex numbers are two of a kind. */
static size_t element_alignment(ingot_dtype_t dtype) {
  const ingot_dtype_facts_t *facts = ingot_dtype_facts(dtype);
  return facts->kind == 'c' ? facts->length / 2u : facts->length;
}

static ingot_status_t check_view(const ingot_buffer_t *buffer, size_t offset, ingot_dtype_t dtype,
                                 uint32_t rank, const int64_t *dims, int64_t *out_length) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(buffer->device);
  if (!ingot_dtype_name(dtype)) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "buffer view: %d is no dtype code", dtype);
  }
  if (rank > INGOT_MAX_RANK) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "buffer view: rank %u, expected at most %d", rank, INGOT_MAX_RANK);
  }
  if (!ingot_dtype_tensor_length(dtype, rank, dims, out_length)) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "buffer view: a dim is negative or the tensor has more than 2^63 "
                               "bytes");
  }
  if (offset > (size_t)INT64_MAX ||
      !ingot_range_fits_i64((int64_t)offset, *out_length, buffer->length)) {
    return ingot_status_create(allocator, INGOT_STATUS_OUT_OF_RANGE,
                               "buffer view: %" PRId64
                               " bytes at offset %zu leave the buffer, "
                               "which has %" PRId64,
                               *out_length, offset, buffer->length);
  }
  size_t alignment = element_alignment(dtype);
  bool aligned = offset % alignment == 0;
  if (buffer->host && buffer->length > 0) { /* of nothing the device chooses the address */
    aligned = aligned && ((uintptr_t)buffer->host + offset) % alignment == 0;
  }
  if (!aligned) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "buffer view: its %s elements must lie on a multiple of %zu bytes; "
                               "copy them to an aligned place",
                               ingot_dtype_name(dtype), alignment);
  }
  return NULL;
}

/* With room for `words` dims or elements behind it. */
static ingot_status_t allocate_view(const ingot_allocator_t *allocator, uint32_t words,
                                    ingot_buffer_view_t **out_view) {
  void *memory = NULL;
  INGOT_TRY(ingot_allocate(allocator, sizeof(ingot_buffer_view_t) + (size_t)words * sizeof(int64_t),
                           &memory));
  *out_view = memory;
  ingot_reference_count_initialize(&(*out_view)->references);
  (*out_view)->count = 1;
  return NULL;
}

/* Fills a view in; `view->span` is set already, and `buffer` is now the view's. */
static void fill_view(ingot_buffer_view_t *view, ingot_buffer_t *buffer, size_t offset,
                      int64_t length, ingot_dtype_t dtype, uint32_t rank, const int64_t *dims) {
  if (rank > 0) memcpy(view->dims, dims, rank * sizeof(int64_t));
  view->layout = (ingot_buffer_view_layout_t){
      .buffer = buffer,
      .offset = offset,
      .length = (size_t)length,
      .dtype = dtype,
      .rank = rank,
      .dims = view->dims,
  };
}

ingot_status_t ingot_buffer_view_create(ingot_buffer_t *buffer, size_t offset, ingot_dtype_t dtype,
                                        uint32_t rank, const int64_t *dims,
                                        ingot_buffer_view_t **out_view) {
  int64_t length = 0;
  ingot_buffer_view_t *view = NULL;
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(buffer->device);
  INGOT_TRY(check_view(buffer, offset, dtype, rank, dims, &length));
  INGOT_TRY(allocate_view(allocator, rank, &view));
  if (length == buffer->length) {
    ingot_hal_buffer_retain(buffer);
    view->span = buffer;
  } else {
    ingot_status_t status = ingot_hal_buffer_subspan(buffer, (int64_t)offset, length, &view->span);
    if (status) {
      ingot_release_memory(allocator, view);
      return status;
    }
  }
  ingot_hal_buffer_retain(buffer);
  fill_view(view, buffer, offset, length, dtype, rank, dims);
  *out_view = view;
  return NULL;
}

ingot_status_t ingot_buffer_view_wrap(ingot_device_t *device, void *data, size_t length,
                                      ingot_dtype_t dtype, uint32_t rank, const int64_t *dims,
                                      ingot_release_function_t release, void *user,
                                      ingot_buffer_view_t **out_view) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(device);
  int64_t room = length < (size_t)INT64_MAX ? (int64_t)length : INT64_MAX;
  const ingot_buffer_t bytes = {.device = device, .length = room, .host = data};
  int64_t needed = 0;
  ingot_buffer_view_t *view = NULL;
  INGOT_TRY(check_view(&bytes, 0, dtype, rank, dims, &needed));
  INGOT_TRY(allocate_view(allocator, rank, &view));
  /* Last of what can fail: the release function belongs to a view that exists. */
  ingot_status_t status =
      ingot_hal_buffer_wrap(device, data, needed, INGOT_HAL_ACCESS_READ | INGOT_HAL_ACCESS_WRITE,
                            release, user, &view->span);
  if (status) {
    ingot_release_memory(allocator, view);
    return status;
  }
  ingot_hal_buffer_retain(view->span);
  fill_view(view, view->span, 0, needed, dtype, rank, dims);
  *out_view = view;
  return NULL;
}

ingot_status_t ingot_buffer_view_create_list(ingot_device_t *device,
                                             ingot_buffer_view_t *const *elements, uint32_t count,
                                             ingot_buffer_view_t **out_list) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(device);
  ingot_buffer_view_t *list = NULL;
  for (uint32_t i = 0; i < count; ++i) {
    if (elements[i] && !elements[i]->elements) continue;
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "element %u of a list is %s, expected a tensor", i,
                               elements[i] ? "a list" : "NULL");
  }
  INGOT_TRY(allocate_view(allocator, count, &list));
  ingot_hal_device_retain(device);
  list->device = device;
  list->elements = (ingot_buffer_view_t **)(void *)list->dims;
  list->count = count;
  for (uint32_t i = 0; i < count; ++i) {
    ingot_buffer_view_retain(elements[i]);
    list->elements[i] = elements[i];
  }
  *out_list = list;
  return NULL;
}

uint32_t ingot_buffer_view_count(const ingot_buffer_view_t *view) { return view->count; }

ingot_buffer_view_t *ingot_buffer_view_element(ingot_buffer_view_t *view, uint32_t element) {
  if (element >= view->count) return NULL;
  return view->elements ? view->elements[element] : view;
}

void ingot_buffer_view_retain(ingot_buffer_view_t *view) {
  ingot_reference_count_retain(&view->references);
}

void ingot_buffer_view_release(ingot_buffer_view_t *view) {
  if (!view || !ingot_reference_count_release(&view->references)) return;
  ingot_buffer_t *buffer = view->layout.buffer;
  ingot_device_t *device = view->device;
  for (uint32_t i = 0; device && i < view->count; ++i) ingot_buffer_view_release(view->elements[i]);
  ingot_hal_buffer_release(view->span);
  ingot_release_memory(ingot_hal_device_allocator(device ? device : buffer->device), view);
  ingot_hal_buffer_release(buffer); /* last: these keep the allocator alive */
  ingot_hal_device_release(device);
}

const ingot_buffer_view_layout_t *ingot_buffer_view_layout(const ingot_buffer_view_t *view) {
  return &view->layout;
}
