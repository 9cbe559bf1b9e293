/* Fences inside the runtime: who waits for one without a thread.
 *
 * The public header declares ingot_fence_create and its like, which fence.c defines. A fence dies
 * in two steps: when its last owner lets go it fails, for nobody can signal it any more; its
 * memory goes with the last of those who still look at it.
 */
#ifndef INGOT_HAL_FENCE_H_
#define INGOT_HAL_FENCE_H_

#include "base/status.h"
#include "base/thread.h"

typedef struct ingot_fence_waiter_t ingot_fence_waiter_t;

/* Must live until it was called or removed. Zeros at first. */
struct ingot_fence_waiter_t {
  ingot_fence_waiter_t *next;
  ingot_fence_waiter_t **link; /* what points to it; NULL: it waits for nothing */
  uint64_t value;
  /* Called once, when the value is reached or the fence has failed, under the fence's mutex: it
   * uses no fence. */
  void (*reached)(ingot_fence_waiter_t *waiter);
};

/* Keeps the memory of a fence, not its owners. */
void ingot_fence_keep(ingot_fence_t *fence);
void ingot_fence_let_go(ingot_fence_t *fence);

/* Whether the value was reached, or never will be: then *out_status says why. Else `waiter` will
 * be called. */
bool ingot_fence_await(ingot_fence_t *fence, uint64_t value, ingot_fence_waiter_t *waiter,
                       ingot_status_t *out_status);

/* When it returns, the waiter is not called any more. */
void ingot_fence_remove(ingot_fence_t *fence, ingot_fence_waiter_t *waiter);

/* InvalidArgument if the fence has passed `value`, and has not failed. */
ingot_status_t ingot_fence_check_signal(ingot_fence_t *fence, uint64_t value);

/* Signals, or fails with `status`, which is taken over, and drops the owner's reference. What has
 * waited may free everything as soon as it knows: the fence is not touched after that. */
void ingot_fence_settle(ingot_fence_t *fence, uint64_t value, ingot_status_t status);

#endif /* INGOT_HAL_FENCE_H_ */
