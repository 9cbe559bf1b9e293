/* Buffer views: a dense tensor in a buffer. The public functions ingot_buffer_view_* are
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
  int64_t dims[]; /* layout.rank of them */
};

#endif /* INGOT_VM_VIEW_H_ */
