/* The memory of a call: new buffers, the slab that grows, and what is kept to the end.
 */
#include "vm/context.h"

#include <inttypes.h>

#include "hal/account.h"
#include "hal/pool.h"

#define LEAST_SLAB 64 /* bytes */

/* Where code is to see zeros in place of what others have written. */
static ingot_status_t clear_buffer(ingot_vm_context_t *context, ingot_buffer_t *buffer) {
  if (!context->zero_memory) return NULL;
  const void *site = context->queue->site;
  context->queue->site = NULL; /* traces tell of what the code asks for */
  ingot_status_t status = ingot_hal_queue_fill(context->queue, buffer, 0, buffer->length, 0, 1);
  context->queue->site = site;
  return status;
}

ingot_status_t ingot_vm_context_buffer(ingot_vm_context_t *context, uint32_t kind, int64_t length,
                                       ingot_buffer_t **out_buffer) {
  ingot_buffer_t *buffer = NULL;
  INGOT_TRY(
      ingot_hal_buffer_create_counted(context->device, context->account, kind, length, &buffer));
  ingot_status_t status = clear_buffer(context, buffer);
  if (status) {
    ingot_hal_buffer_release(buffer);
    return status;
  }
  *out_buffer = buffer;
  return NULL;
}

/* Room for `count` more in `retired`. */
static ingot_status_t reserve_retired(ingot_vm_context_t *context, uint32_t count) {
  void *retired = context->retired;
  INGOT_TRY(ingot_reallocate_array(ingot_hal_device_allocator(context->device),
                                   (size_t)context->retired_count + count,
                                   sizeof(*context->retired), &retired));
  context->retired = retired;
  return NULL;
}

ingot_status_t ingot_vm_context_retire(ingot_vm_context_t *context, ingot_buffer_t *buffer) {
  INGOT_TRY(reserve_retired(context, 1));
  context->retired[context->retired_count++] = buffer;
  return NULL;
}

ingot_status_t ingot_vm_context_part(ingot_vm_context_t *context, ingot_vm_variable_t *variable,
                                     int64_t length, ingot_buffer_t **references, uint32_t count) {
  ingot_vm_variable_t made;
  ingot_buffer_t *buffer = variable->buffer, *readable = variable->readable;
  int64_t kept = buffer->length;
  int64_t least = length > kept ? length : kept;
  int64_t room = length > kept && length < 2 * kept ? 2 * kept : least;
  ingot_status_t status = NULL;
  INGOT_TRY(reserve_retired(context, 2));
  for (;; room = least) {
    status = ingot_vm_variable_create(context->device, context->account, room, &made);
    if (!status || room == least) break;
    ingot_status_free(status);
  }
  INGOT_TRY(status);
  status = ingot_hal_queue_copy(context->queue, buffer, 0, made.buffer, 0, kept);
  if (!status) {
    status = ingot_hal_queue_fill(context->queue, made.buffer, kept, room - kept, 0, 1);
  }
  if (status) {
    ingot_vm_variable_release(&made);
    return status;
  }
  for (uint32_t i = 0; i < count; ++i) { /* some are arbitrary: those are written before a read */
    if (references[i] == readable) references[i] = made.readable;
    if (references[i] == buffer) references[i] = made.buffer;
  }
  variable->buffer = made.buffer;
  variable->readable = made.readable;
  /* Until queued work has read the bytes they stay shared: other forks do not write them. */
  context->retired[context->retired_count++] = readable;
  context->retired[context->retired_count++] = buffer;
  return NULL;
}

/* -- the slab ---------------------------------------------------------------------------------- */

/* A call that makes the slab grow twice will make it grow more, as a loop whose result grows
 * does: then by half at least, so that all outgrown slabs together stay a small multiple of
 * the last. Where that is too much, what was asked for. */
static ingot_status_t create_slab(ingot_vm_context_t *context, int64_t length,
                                  ingot_buffer_t **out_slab) {
  if (length < LEAST_SLAB) length = LEAST_SLAB;
  int64_t grown = context->slab ? context->slab->length + context->slab->length / 2 : 0;
  if (context->retired_count > 0 && grown > length) {
    ingot_status_t status = ingot_vm_context_buffer(context, INGOT_MEMORY_SLABS, grown, out_slab);
    if (!status) return NULL;
    ingot_status_free(status);
  }
  return ingot_vm_context_buffer(context, INGOT_MEMORY_SLABS, length, out_slab);
}

/* One that another session has left; none is no failure. */
static ingot_status_t take_shared(ingot_vm_context_t *context, int64_t length,
                                  ingot_buffer_t **out_slab) {
  ingot_buffer_t *slab = ingot_hal_pool_take(context->device, length);
  if (!slab) return NULL;
  ingot_status_t status = ingot_hal_account_add(context->account, INGOT_MEMORY_SLABS, slab);
  if (!status) status = clear_buffer(context, slab);
  if (status) ingot_hal_buffer_release(slab);
  else *out_slab = slab;
  return status;
}

static __attribute__((noinline)) ingot_status_t grow_slab(ingot_vm_context_t *context,
                                                          int64_t length) {
  if (context->is_slab_given) {
    return ingot_status_create(
        ingot_hal_device_allocator(context->device), INGOT_STATUS_OUT_OF_MEMORY,
        "the call needs a slab of %" PRId64 " bytes, the session was given one of %" PRId64
        ": measure calls first",
        length, context->slab->length);
  }
  if (!context->is_slab_seen) { /* by the code of this call */
    ingot_hal_buffer_release(context->slab);
    context->slab = NULL;
  }
  ingot_buffer_t *slab = NULL;
  if (context->slab) INGOT_TRY(reserve_retired(context, 1));
  if (context->shares_slab) INGOT_TRY(take_shared(context, length, &slab));
  if (!slab) INGOT_TRY(create_slab(context, length, &slab));
  if (context->slab) context->retired[context->retired_count++] = context->slab;
  context->slab = slab;
  context->slab_length = slab->length;
  return NULL;
}

ingot_status_t ingot_vm_context_slab(ingot_vm_context_t *context, int64_t length,
                                     ingot_buffer_t **out_buffer) {
  if (!context->slab || context->slab->length < length) {
    context->slab_missing = length;
    INGOT_TRY(grow_slab(context, length));
    context->slab_missing = 0;
  }
  context->is_slab_seen = true;
  *out_buffer = context->slab;
  return NULL;
}

ingot_status_t ingot_vm_context_give_slab(ingot_vm_context_t *context, ingot_buffer_t *slab) {
  ingot_hal_buffer_retain(slab);
  context->slab = slab;
  context->slab_length = slab->length;
  context->is_slab_given = true;
  return clear_buffer(context, slab);
}

void ingot_vm_context_release_slab(ingot_vm_context_t *context) {
  if (context->slab && context->shares_slab) {
    ingot_hal_account_remove(context->slab);
    ingot_hal_pool_give(context->device, context->slab);
  } else {
    ingot_hal_buffer_release(context->slab);
  }
  context->slab = NULL;
}
