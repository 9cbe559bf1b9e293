/* Lists: elements in one buffer, a table of where they lie, and the buffer's growth.
 */
#include "vm/list.h"

#include <inttypes.h>
#include <string.h>

#include "base/arithmetic.h"

#define ELEMENT_ALIGNMENT 16 /* bytes */
#define LEAST_CAPACITY 256   /* bytes */

/* A row of the table: offset, length, dims. */
enum { ROW_OFFSET, ROW_LENGTH, ROW_DIMS };

static int64_t *row_of(const ingot_vm_list_t *list, int64_t index) {
  return list->table + (size_t)index * (ROW_DIMS + list->rank);
}

static int64_t capacity_of(const ingot_vm_storage_t *storage) {
  return storage->buffer ? storage->buffer->length : 0;
}

/* Bytes up to where the next element may start; lengths in buffers are far from overflow. */
static int64_t aligned(int64_t length) {
  return (length + ELEMENT_ALIGNMENT - 1) / ELEMENT_ALIGNMENT * ELEMENT_ALIGNMENT;
}

static ingot_status_t check_index(const ingot_vm_context_t *context, const ingot_vm_list_t *list,
                                  int64_t index, int64_t limit) {
  if (index >= 0 && index < limit) return NULL;
  return ingot_status_create(ingot_hal_device_allocator(context->device), INGOT_STATUS_OUT_OF_RANGE,
                             "position %" PRId64 " in a sequence of %" PRId64 " elements", index,
                             list->count);
}

/* -- storage ----------------------------------------------------------------------------------- */

static void release_storage(ingot_vm_storage_t *storage) {
  ingot_hal_buffer_release(storage->readable);
  ingot_hal_buffer_release(storage->buffer);
  *storage = (ingot_vm_storage_t){NULL, NULL};
}

static ingot_status_t create_storage(ingot_vm_context_t *context, int64_t length,
                                     ingot_vm_storage_t *out_storage) {
  ingot_vm_storage_t storage = {NULL, NULL};
  if (length < LEAST_CAPACITY) length = LEAST_CAPACITY;
  ingot_status_t status =
      ingot_vm_context_buffer(context, INGOT_MEMORY_LISTS, length, &storage.buffer);
  if (!status) {
    status = ingot_hal_buffer_subspan(storage.buffer, 0, length, &storage.readable);
  }
  if (status) {
    release_storage(&storage);
    return status;
  }
  storage.readable->access = INGOT_HAL_ACCESS_READ; /* nobody has seen it yet */
  *out_storage = storage;
  return NULL;
}

/* Twice the capacity, so that growth by small steps costs little; where that is too much, what
 * is needed. */
static ingot_status_t create_grown(ingot_vm_context_t *context, int64_t capacity, int64_t needed,
                                   ingot_vm_storage_t *out_storage) {
  int64_t doubled = 0;
  if (ingot_add_i64(capacity, capacity, &doubled) && doubled > needed) {
    ingot_status_t status = create_storage(context, doubled, out_storage);
    if (!status) return NULL;
    ingot_status_free(status);
  }
  return create_storage(context, needed, out_storage);
}

/* Keeps what registers may still see of a storage to the end of the call. */
static ingot_status_t retire_storage(ingot_vm_context_t *context, ingot_vm_storage_t *storage) {
  if (!storage->buffer) return NULL;
  INGOT_TRY(ingot_vm_context_retire(context, storage->readable));
  storage->readable = NULL;
  release_storage(storage);
  return NULL;
}

/* Copies the elements to the start of `target`, in order and without gaps, in as few pieces
 * as they lie in. */
static ingot_status_t pack_elements(ingot_vm_context_t *context, const ingot_vm_list_t *list,
                                    ingot_buffer_t *target) {
  int64_t end = 0;
  for (int64_t first = 0; first < list->count;) {
    int64_t start = row_of(list, first)[ROW_OFFSET];
    int64_t length = row_of(list, first)[ROW_LENGTH];
    int64_t next = first + 1;
    while (next < list->count && row_of(list, next)[ROW_OFFSET] == start + aligned(length)) {
      length = aligned(length) + row_of(list, next)[ROW_LENGTH];
      ++next;
    }
    INGOT_TRY(
        ingot_hal_queue_copy(context->queue, list->storage.buffer, start, target, end, length));
    end += aligned(length);
    first = next;
  }
  return NULL;
}

/* Where elements lie once they are packed. */
static void number_packed(ingot_vm_list_t *list) {
  list->used = 0;
  for (int64_t index = 0; index < list->count; ++index) {
    row_of(list, index)[ROW_OFFSET] = list->used;
    list->used += aligned(row_of(list, index)[ROW_LENGTH]);
  }
}

/* The second buffer, as large as the first, for what may be moved there and back. */
static ingot_status_t need_spare(ingot_vm_context_t *context, ingot_vm_list_t *list) {
  int64_t capacity = capacity_of(&list->storage);
  if (list->spare.buffer && capacity_of(&list->spare) >= capacity) return NULL;
  INGOT_TRY(retire_storage(context, &list->spare));
  return create_storage(context, capacity, &list->spare);
}

static void swap_spare(ingot_vm_list_t *list) {
  ingot_vm_storage_t storage = list->storage;
  list->storage = list->spare;
  list->spare = storage;
}

/* Makes room for `length` bytes from `list->used` on. */
static ingot_status_t make_room(ingot_vm_context_t *context, ingot_vm_list_t *list,
                                int64_t length) {
  int64_t capacity = capacity_of(&list->storage);
  int64_t needed = 0;
  if (list->storage.buffer && ingot_range_fits_i64(list->used, length, capacity)) return NULL;
  if (length < 0 || !ingot_add_i64(list->live, length, &needed)) needed = INT64_MAX;
  if (needed <= capacity / 2) {
    INGOT_TRY(need_spare(context, list));
    INGOT_TRY(pack_elements(context, list, list->spare.buffer));
    swap_spare(list);
  } else {
    ingot_vm_storage_t grown;
    INGOT_TRY(create_grown(context, capacity, needed, &grown));
    ingot_status_t status = pack_elements(context, list, grown.buffer);
    if (!status) status = retire_storage(context, &list->spare);
    if (!status) status = retire_storage(context, &list->storage);
    if (status) {
      release_storage(&grown);
      return status;
    }
    list->storage = grown;
  }
  number_packed(list);
  return NULL;
}

/* -- the table --------------------------------------------------------------------------------- */

static ingot_status_t reserve_rows(const ingot_vm_context_t *context, ingot_vm_list_t *list,
                                   int64_t count, uint32_t rank) {
  size_t words = 0;
  if (!ingot_multiply_size((size_t)count, ROW_DIMS + (size_t)rank, &words)) words = SIZE_MAX;
  if (words <= list->table_words) return NULL;
  if (words < SIZE_MAX / 2) words *= 2;
  void *table = list->table;
  INGOT_TRY(ingot_reallocate_array(ingot_hal_device_allocator(context->device), words,
                                   sizeof(int64_t), &table));
  list->table = table;
  list->table_words = words;
  return NULL;
}

/* Room for a row of that rank more; an empty list takes any rank. */
static ingot_status_t reserve_row(const ingot_vm_context_t *context, ingot_vm_list_t *list,
                                  uint32_t rank) {
  if (list->count > 0 && rank != list->rank) {
    return ingot_status_create(ingot_hal_device_allocator(context->device),
                               INGOT_STATUS_INVALID_ARGUMENT,
                               "an element of rank %u for a sequence of rank %u", rank, list->rank);
  }
  INGOT_TRY(reserve_rows(context, list, list->count + 1, rank));
  list->rank = rank;
  return NULL;
}

static void write_row(ingot_vm_list_t *list, int64_t index, int64_t offset,
                      const ingot_vm_tensor_t *tensor) {
  int64_t *row = row_of(list, index);
  row[ROW_OFFSET] = offset;
  row[ROW_LENGTH] = tensor->length;
  if (tensor->rank > 0) memcpy(row + ROW_DIMS, tensor->dims, tensor->rank * sizeof(int64_t));
}

/* -- what instructions do ---------------------------------------------------------------------- */

void ingot_vm_list_clear(ingot_vm_list_t *list) { list->count = list->used = list->live = 0; }

void ingot_vm_list_release(ingot_vm_context_t *context, ingot_vm_list_t *list) {
  release_storage(&list->storage);
  release_storage(&list->spare);
  ingot_release_memory(ingot_hal_device_allocator(context->device), list->table);
  *list = (ingot_vm_list_t){.table = NULL};
}

ingot_status_t ingot_vm_list_insert(ingot_vm_context_t *context, ingot_vm_list_t *list,
                                    int64_t index, const ingot_vm_tensor_t *tensor) {
  INGOT_TRY(check_index(context, list, index, list->count + 1));
  INGOT_TRY(reserve_row(context, list, tensor->rank));
  INGOT_TRY(make_room(context, list, tensor->length));
  INGOT_TRY(ingot_hal_queue_copy(context->queue, tensor->buffer, tensor->offset,
                                 list->storage.buffer, list->used, tensor->length));
  size_t behind = (size_t)(list->count - index) * (ROW_DIMS + list->rank);
  memmove(row_of(list, index + 1), row_of(list, index), behind * sizeof(int64_t));
  write_row(list, index, list->used, tensor);
  list->count += 1;
  list->used += aligned(tensor->length);
  list->live += aligned(tensor->length);
  return NULL;
}

ingot_status_t ingot_vm_list_set(ingot_vm_context_t *context, ingot_vm_list_t *list,
                                 const ingot_vm_tensor_t *tensor) {
  int64_t capacity = capacity_of(&list->storage);
  INGOT_TRY(reserve_rows(context, list, 1, tensor->rank));
  if (!list->storage.buffer || tensor->length > capacity) {
    ingot_vm_storage_t storage;
    INGOT_TRY(create_grown(context, capacity, tensor->length, &storage));
    ingot_status_t status = retire_storage(context, &list->storage);
    if (status) {
      release_storage(&storage);
      return status;
    }
    list->storage = storage;
  } else if (tensor->buffer->root == list->storage.buffer->root) {
    INGOT_TRY(need_spare(context, list)); /* the tensor lies in the list itself */
    swap_spare(list);
  }
  ingot_vm_list_clear(list);
  list->rank = tensor->rank;
  INGOT_TRY(ingot_hal_queue_copy(context->queue, tensor->buffer, tensor->offset,
                                 list->storage.buffer, 0, tensor->length));
  write_row(list, 0, 0, tensor);
  list->count = 1;
  list->used = list->live = aligned(tensor->length);
  return NULL;
}

ingot_status_t ingot_vm_list_make(ingot_vm_context_t *context, ingot_vm_list_t *list,
                                  const ingot_vm_tensor_t *tensor) {
  INGOT_TRY(reserve_rows(context, list, 1, tensor->rank));
  if (list->count > 0) { /* somebody may still read it */
    INGOT_TRY(need_spare(context, list));
    swap_spare(list);
  }
  if (!list->storage.buffer || tensor->length > capacity_of(&list->storage)) {
    ingot_vm_storage_t storage;
    INGOT_TRY(create_grown(context, capacity_of(&list->storage), tensor->length, &storage));
    ingot_status_t status = retire_storage(context, &list->storage);
    if (status) {
      release_storage(&storage);
      return status;
    }
    list->storage = storage;
  }
  ingot_vm_list_clear(list);
  list->rank = tensor->rank;
  write_row(list, 0, 0, tensor);
  list->count = 1;
  list->used = list->live = aligned(tensor->length);
  return NULL;
}

ingot_status_t ingot_vm_list_extend(ingot_vm_context_t *context, ingot_vm_list_t *list,
                                    const ingot_vm_tensor_t *bytes, int64_t rows) {
  int64_t count = 0;
  if (list->count != 1 || list->rank == 0 ||
      !ingot_add_i64(row_of(list, 0)[ROW_DIMS], rows, &count)) {
    return ingot_status_create(ingot_hal_device_allocator(context->device),
                               INGOT_STATUS_INVALID_ARGUMENT,
                               "%" PRId64 " rows for %" PRId64
                               " tensors of rank %u: expected one, "
                               "of rank 1 at least",
                               rows, list->count, list->rank);
  }
  int64_t *row = row_of(list, 0);
  list->used = row[ROW_OFFSET] + row[ROW_LENGTH]; /* behind the only element is nothing */
  INGOT_TRY(make_room(context, list, bytes->length));
  int64_t end = row[ROW_OFFSET] + row[ROW_LENGTH];
  INGOT_TRY(ingot_hal_queue_copy(context->queue, bytes->buffer, bytes->offset, list->storage.buffer,
                                 end, bytes->length));
  row[ROW_LENGTH] += bytes->length;
  row[ROW_DIMS] = count;
  list->live = aligned(row[ROW_LENGTH]);
  list->used = row[ROW_OFFSET] + list->live;
  return NULL;
}

ingot_status_t ingot_vm_list_erase(ingot_vm_context_t *context, ingot_vm_list_t *list,
                                   int64_t index) {
  INGOT_TRY(check_index(context, list, index, list->count));
  list->live -= aligned(row_of(list, index)[ROW_LENGTH]);
  list->count -= 1;
  size_t behind = (size_t)(list->count - index) * (ROW_DIMS + list->rank);
  memmove(row_of(list, index), row_of(list, index + 1), behind * sizeof(int64_t));
  if (list->count == 0) list->used = 0;
  return NULL;
}

ingot_status_t ingot_vm_list_dim(ingot_vm_context_t *context, const ingot_vm_list_t *list,
                                 int64_t index, uint32_t axis, int64_t *out_dim) {
  INGOT_TRY(check_index(context, list, index, list->count));
  if (axis >= list->rank) {
    return ingot_status_create(ingot_hal_device_allocator(context->device),
                               INGOT_STATUS_INVALID_ARGUMENT, "dim %u of an element of rank %u",
                               axis, list->rank);
  }
  *out_dim = row_of(list, index)[ROW_DIMS + axis];
  return NULL;
}

ingot_status_t ingot_vm_list_get(ingot_vm_context_t *context, const ingot_vm_list_t *list,
                                 int64_t index, ingot_buffer_t **out_buffer, int64_t *out_offset) {
  INGOT_TRY(check_index(context, list, index, list->count));
  *out_buffer = list->storage.readable;
  *out_offset = row_of(list, index)[ROW_OFFSET];
  return NULL;
}

ingot_status_t ingot_vm_list_copy(ingot_vm_context_t *context, ingot_vm_list_t *target,
                                  const ingot_vm_list_t *source) {
  if (target == source) return NULL;
  ingot_vm_list_clear(target);
  if (source->count == 0) return NULL;
  INGOT_TRY(reserve_rows(context, target, source->count, source->rank));
  INGOT_TRY(make_room(context, target, source->live));
  INGOT_TRY(pack_elements(context, source, target->storage.buffer));
  size_t words = (size_t)source->count * (ROW_DIMS + source->rank);
  memcpy(target->table, source->table, words * sizeof(int64_t));
  target->rank = source->rank;
  target->count = source->count;
  target->live = source->live;
  number_packed(target);
  return NULL;
}

/* -- out of a call ----------------------------------------------------------------------------- */

/* Views of the elements, which lie packed in `buffer`. */
static ingot_status_t view_packed(const ingot_vm_list_t *list, ingot_dtype_t dtype,
                                  ingot_buffer_t *buffer, ingot_buffer_view_t **views,
                                  uint32_t count) {
  int64_t offset = 0;
  for (uint32_t index = 0; index < count; ++index) {
    const int64_t *row = row_of(list, index);
    INGOT_TRY(ingot_buffer_view_create(buffer, (size_t)offset, dtype, list->rank, row + ROW_DIMS,
                                       &views[index]));
    offset += aligned(row[ROW_LENGTH]);
  }
  return NULL;
}

ingot_status_t ingot_vm_list_give(ingot_vm_context_t *context, const ingot_vm_list_t *list,
                                  ingot_dtype_t dtype, ingot_buffer_view_t **out_list) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(context->device);
  uint32_t count = (uint32_t)list->count; /* in practice: each has a row in memory */
  ingot_buffer_t *buffer = NULL;
  void *memory = NULL;
  INGOT_TRY(ingot_allocate_array(allocator, count, sizeof(ingot_buffer_view_t *), &memory));
  ingot_buffer_view_t **views = memory;
  ingot_status_t status =
      ingot_vm_context_buffer(context, INGOT_MEMORY_RESULTS, list->live, &buffer);
  if (!status) status = pack_elements(context, list, buffer);
  if (!status) status = view_packed(list, dtype, buffer, views, count);
  if (!status) status = ingot_buffer_view_create_list(context->device, views, count, out_list);
  for (uint32_t i = 0; i < count; ++i) ingot_buffer_view_release(views[i]);
  ingot_release_memory(allocator, memory);
  ingot_hal_buffer_release(buffer);
  return status;
}
