/* Lists: tensors in order that code inserts, erases and reads, or one tensor that grows.
 *
 * A list keeps the bytes of all its elements in one buffer whose capacity doubles. Elements
 * are copied in; they are read where they lie, through a reference that cannot write. A
 * buffer that is outgrown lives until the call ends, as registers may hold it; since
 * capacities double, all of those together are no larger than the last. What erased elements
 * leave is reclaimed by moving the others to a second buffer of the same capacity.
 *
 * Lists belong to a context, and are empty when a call begins. Not for several threads.
 */
#ifndef INGOT_VM_LIST_H_
#define INGOT_VM_LIST_H_

#include "vm/context.h"

/* Bytes of an element to be, and its dims. The range is checked when it is copied. */
typedef struct ingot_vm_tensor_t {
  ingot_buffer_t *buffer;
  int64_t offset;
  int64_t length;
  const int64_t *dims;
  uint32_t rank;
} ingot_vm_tensor_t;

/* Makes the list empty; it keeps its memory. */
void ingot_vm_list_clear(ingot_vm_list_t *list);

/* Gives the memory back. */
void ingot_vm_list_release(ingot_vm_context_t *context, ingot_vm_list_t *list);

/* Puts a tensor in front of element `index`; at the end where that is the count. OutOfRange
 * for another index, InvalidArgument for a rank that the other elements do not have. */
ingot_status_t ingot_vm_list_insert(ingot_vm_context_t *context, ingot_vm_list_t *list,
                                    int64_t index, const ingot_vm_tensor_t *tensor);

/* Makes the tensor, which may lie in the list, its only element. */
ingot_status_t ingot_vm_list_set(ingot_vm_context_t *context, ingot_vm_list_t *list,
                                 const ingot_vm_tensor_t *tensor);

/* Makes a tensor of arbitrary content, whose `buffer` means nothing, the only element. What the list
 * held before stays as it is until the list is changed again. */
ingot_status_t ingot_vm_list_make(ingot_vm_context_t *context, ingot_vm_list_t *list,
                                  const ingot_vm_tensor_t *tensor);

/* Puts bytes behind those of the only element, which has `rows` more in dim 0 from then on.
 * InvalidArgument unless there is one element, of rank 1 at least. */
ingot_status_t ingot_vm_list_extend(ingot_vm_context_t *context, ingot_vm_list_t *list,
                                    const ingot_vm_tensor_t *bytes, int64_t rows);

/* OutOfRange for an index that no element has, here and below. */
ingot_status_t ingot_vm_list_erase(ingot_vm_context_t *context, ingot_vm_list_t *list,
                                   int64_t index);
ingot_status_t ingot_vm_list_dim(ingot_vm_context_t *context, const ingot_vm_list_t *list,
                                 int64_t index, uint32_t axis, int64_t *out_dim);

/* Where an element lies. The bytes stay as they are until the list changes, and the buffer
 * lives to the end of the call. */
ingot_status_t ingot_vm_list_get(ingot_vm_context_t *context, const ingot_vm_list_t *list,
                                 int64_t index, ingot_buffer_t **out_buffer, int64_t *out_offset);

/* A copy of the elements, of that dtype, for the caller. */
ingot_status_t ingot_vm_list_give(ingot_vm_context_t *context, const ingot_vm_list_t *list,
                                  ingot_dtype_t dtype, ingot_buffer_view_t **out_list);

/* Makes `target` a copy of `source`. */
ingot_status_t ingot_vm_list_copy(ingot_vm_context_t *context, ingot_vm_list_t *target,
                                  const ingot_vm_list_t *source);

#endif /* INGOT_VM_LIST_H_ */
