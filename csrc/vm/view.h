/* Buffer views: a dense tensor in a buffer, or a list of such. The public functions ingot_buffer_view_* are
 * view.c; this is what the VM reads directly.
 */
#ifndef INGOT_VM_VIEW_H_
#define INGOT_VM_VIEW_H_

#include "hal/hal.h"

struct ingot_buffer_view_t {
  ingot_reference_count_t references;
  /* Exactly the tensor's bytes: the layout's buffer or a subspan of it. Kernels are given
   * this one, so that they cannot reach the caller's neighbouring bytes. */
  ingot_buffer_t *span;
  ingot_buffer_view_layout_t layout;
  ingot_device_t *device; /* of a list, which has no buffer to keep it; else NULL */
  ingot_buffer_view_t **elements; /* of a list, behind the struct; else NULL */
  uint32_t count; /* of elements; 1 of a tensor */
  int64_t dims[]; /* layout.rank of them */
};

#endif /* INGOT_VM_VIEW_H_ */
