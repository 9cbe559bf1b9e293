/* State: the variables of one session, a private buffer each.
 *
 * What a call stores stays when it ends well. variable.write marks its variable as being
 * changed; if the call then fails, nobody knows what the bytes mean: the session refuses
 * calls until that variable is written from outside or the state is reset. A call that fails
 * before it has begun to change anything leaves the state as it was.
 *
 * A fork starts with the buffers of the state that it was made of. Who changes a variable first
 * takes a copy of its own, so what nobody changes is there once.
 *
 * Variables are numbered over all images of the program, in their order. One thread at a
 * time, like the context that holds the state.
 */
#ifndef INGOT_VM_STATE_H_
#define INGOT_VM_STATE_H_

#include "vm/image.h"

typedef struct ingot_vm_variable_t {
  ingot_buffer_t *buffer;
  ingot_buffer_t *readable; /* the same bytes; nothing is written through it */
  bool is_changing;         /* variable.write has run in a call that has not ended well */
  int64_t saved_length;     /* of one that grows, while a state is read: its bytes there */
} ingot_vm_variable_t;

typedef struct ingot_vm_state_t {
  ingot_vm_variable_t *variables;
  uint32_t count;
  bool is_changing; /* whether a variable is */
  ingot_hal_account_t *account; /* that counts them; its owner's */
} ingot_vm_state_t;

/* Allocates the variables of `images` and sets their initial values. OutOfMemory without a try
 * if the device could never hold them. On failure the state is left for
 * ingot_vm_state_deinitialize, which accepts a zeroed state too. */
ingot_status_t ingot_vm_state_initialize(ingot_vm_state_t *state, ingot_hal_queue_t *queue,
                                         const ingot_vm_image_t *images, uint32_t image_count);

/* As initialize, but the variables are still to be written. */
ingot_status_t ingot_vm_state_allocate(ingot_vm_state_t *state, ingot_device_t *device,
                                       const ingot_vm_image_t *images, uint32_t image_count);

/* As initialize, with the values of `source`, which nobody must be changing. Its queue has been
 * waited for. */
ingot_status_t ingot_vm_state_fork(ingot_vm_state_t *state, const ingot_vm_state_t *source,
                                   const ingot_allocator_t *allocator);
void ingot_vm_state_deinitialize(ingot_vm_state_t *state, const ingot_allocator_t *allocator);

/* Whether a fork has the buffer of a variable too. */
bool ingot_vm_variable_is_shared(const ingot_vm_variable_t *variable);

/* A buffer like the variable's that nobody has, of arbitrary content. */
ingot_status_t ingot_vm_variable_create(ingot_device_t *device, ingot_hal_account_t *account,
                                        int64_t length, ingot_vm_variable_t *out_variable);
void ingot_vm_variable_release(ingot_vm_variable_t *variable);

/* Back to the initial values. */
ingot_status_t ingot_vm_state_reset(ingot_vm_state_t *state, ingot_hal_queue_t *queue,
                                    const ingot_vm_image_t *images, uint32_t image_count);

/* What was changed by a call that ended well stays. */
void ingot_vm_state_keep(ingot_vm_state_t *state);

/* A buffer of `length` bytes and arbitrary content in place of one that forks have too, or that
 * has another length. */
ingot_status_t ingot_vm_variable_renew(const ingot_vm_state_t *state, ingot_vm_variable_t *variable,
                                       int64_t length);

/* The bytes of a variable, out and in. `length` is the variable's; of one that grows it is that of
 * some rows: get is OutOfRange where there are fewer, set makes it have so many.
 * FailedPrecondition if it is being changed; set makes it whole again. */
ingot_status_t ingot_vm_state_get(const ingot_vm_state_t *state, const ingot_vm_image_t *image,
                                  uint32_t variable, void *data, int64_t length);
ingot_status_t ingot_vm_state_set(ingot_vm_state_t *state, const ingot_vm_image_t *image,
                                  uint32_t variable, const void *data, int64_t length);

/* FailedPrecondition that names the first variable that is being changed; NULL without one. */
ingot_status_t ingot_vm_state_check(const ingot_vm_state_t *state, const ingot_vm_image_t *images,
                                    uint32_t image_count);

#endif /* INGOT_VM_STATE_H_ */
