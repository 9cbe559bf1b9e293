/* References: objects of the application that compiled code passes on without looking inside.
 *
 * To code a reference is eight bytes, its handle, which it copies like those of any tensor. What
 * they mean only the runtime knows: a handle counts while its reference is an argument of the call
 * or was given by a native function in it, so no bytes that code makes up lead anywhere else.
 * ingot_reference_create and ingot_reference_object are reference.c.
 */
#ifndef INGOT_VM_REFERENCE_H_
#define INGOT_VM_REFERENCE_H_

#include "vm/context.h"

/* Belongs to a root of eight bytes, which has its address as their value; the last who lets go of
 * that root releases the object. */
struct ingot_reference_t {
  const ingot_allocator_t *allocator;
  ingot_release_function_t release; /* may be NULL */
  void *user;
  void *object;
  uint64_t handle;
  char type[];
};

/* The reference that a view is; NULL: it is NULL or something else. */
static inline const ingot_reference_t *ingot_reference_of(const ingot_buffer_view_t *view) {
  return view && view->span ? view->span->root->reference : NULL;
}

/* InvalidArgument unless `view`, which may be NULL, is a reference of that type on the device. */
ingot_status_t ingot_reference_check(const ingot_device_t *device, const ingot_buffer_view_t *view,
                                     const char *type);

/* A new view of the reference whose handle lies at `offset` of `buffer`, which waits for the work
 * there. InvalidArgument: the call has none of that handle and type. */
ingot_status_t ingot_vm_reference_find(const ingot_vm_context_t *context, ingot_buffer_t *buffer,
                                       int64_t offset, const char *type,
                                       ingot_buffer_view_t **out_view);

#endif /* INGOT_VM_REFERENCE_H_ */
