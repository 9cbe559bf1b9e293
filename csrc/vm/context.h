/* A context: everything a call into the VM works on, allocated once per session, so that a
 * call with the caller's own result buffers allocates nothing.
 *
 * One thread at a time uses a context. References in registers are borrowed: every buffer
 * that code can see is kept by somebody for the length of the call - arguments and results
 * by the caller or the result table, constants by the image, globals by the weights, slabs by
 * the context.
 */
#ifndef INGOT_VM_CONTEXT_H_
#define INGOT_VM_CONTEXT_H_

#include "vm/init.h"
#include "vm/state.h"
#include "vm/view.h"

/* A result of the current call. */
typedef struct ingot_vm_result_t {
  ingot_buffer_view_t *view; /* the caller's own, else made by result.buffer */
  bool given;                /* the caller's own */
  bool made;                 /* result.buffer has run */
} ingot_vm_result_t;

/* Bytes of a list, and the reference that code gets to them. */
typedef struct ingot_vm_storage_t {
  ingot_buffer_t *buffer;   /* NULL until there is an element */
  ingot_buffer_t *readable; /* the same bytes, without the right to write */
} ingot_vm_storage_t;

/* A list of tensors (list.h). */
typedef struct ingot_vm_list_t {
  ingot_vm_storage_t storage; /* of the elements */
  ingot_vm_storage_t spare;   /* of the same length; empty until it is needed */
  int64_t *table;             /* per element: offset, length, dims */
  size_t table_words;         /* that the table has room for */
  int64_t count;              /* of elements */
  int64_t used;               /* bytes up to where the next element goes */
  int64_t live;               /* bytes of the elements, each with its padding */
  uint32_t rank;              /* of every element */
} ingot_vm_list_t;

typedef struct ingot_vm_measure_t ingot_vm_measure_t;
typedef struct ingot_vm_context_t ingot_vm_context_t;

/* Comes before a marked instruction (debug.h), or, if it moves *pc on, in its place. */
typedef ingot_status_t (*ingot_vm_trap_t)(ingot_vm_context_t *context, const uint16_t **pc,
                                          int64_t *i64, ingot_buffer_t **references);

struct ingot_vm_context_t {
  ingot_stop_t stop; /* says whether the context is in use, and when the call is to end */
  ingot_device_t *device;
  ingot_hal_queue_t *queue;
  bool zero_memory;   /* new buffers start as zeros */
  uint8_t *registers; /* those of the function that runs */
  int64_t *constants; /* of one dispatch; the dims of one native call */
  ingot_vm_result_t *results;
  ingot_hal_account_t *account; /* that counts its buffers; its owner's */
  ingot_buffer_t *slab;     /* NULL until code asks for it */
  int64_t slab_length;      /* of the last one */
  int64_t slab_missing;     /* that a call failed for, else 0 */
  bool is_slab_given;       /* the application's own; it does not grow */
  bool is_slab_seen;        /* registers of the current call may hold it */
  bool shares_slab;         /* between calls it is the device's pool's */
  ingot_buffer_t **retired; /* outgrown slabs and lists that the current call may still use */
  uint32_t retired_count;
  uint32_t list_count;
  ingot_vm_list_t *lists;
  ingot_vm_state_t state;       /* of sessions; nothing during init */
  const char *_Atomic native;   /* the native function that runs; NULL: none */
  ingot_native_function_t call_link; /* for native functions that are of other modules */
  ingot_trace_function_t trace; /* NULL: off; ingot_vm_context_set_trace sets it */
  void *trace_user;
  ingot_debug_function_t debug; /* NULL: off */
  void *debug_user;
  ingot_vm_measure_t *measure; /* NULL: code does its work (measure.h) */

  /* Of the current call. */
  const ingot_vm_image_t *image;
  ingot_vm_init_t *initializing;  /* of the same image; NULL in calls */
  ingot_buffer_t *const *globals; /* of the image; NULL where init has not set one */
  uint32_t function;              /* ordinal in its module */
  const uint16_t *code;           /* of the function: its module's, or `marked` */
  ingot_vm_trap_t trap;           /* of the marked copy */
  uint16_t *marked;               /* the debugger's copy (debug.h), else NULL */
  ingot_vm_variable_t *variables; /* of the image */
  ingot_buffer_view_t *const *arguments;
  uint64_t max_steps; /* UINT64_MAX: none */
  uint64_t look_step; /* from which step on the limits are worth a look; UINT64_MAX: never */
};

/* Sizes everything for the functions of `images` that are for `device`. On failure the
 * context is left for ingot_vm_context_deinitialize, which must be called in any case. */
ingot_status_t ingot_vm_context_initialize(ingot_vm_context_t *context, ingot_device_t *device,
                                           const ingot_vm_image_t *images, uint32_t image_count);
void ingot_vm_context_deinitialize(ingot_vm_context_t *context);

#define INGOT_VM_STEPS_BETWEEN_LOOKS 256

/* Takes the limits of a call that has set stop.flags and began at `begin`, 0 for now. `options`
 * may be NULL. */
void ingot_vm_context_limit(ingot_vm_context_t *context, const ingot_call_options_t *options,
                            int64_t begin);

/* A buffer that code may see before it has written it; `kind` is INGOT_MEMORY_*. */
ingot_status_t ingot_vm_context_buffer(ingot_vm_context_t *context, uint32_t kind, int64_t length,
                                       ingot_buffer_t **out_buffer);

/* Frees the slab, unless the application gave it, and the memory of lists. Not during a call. */
void ingot_vm_context_trim(ingot_vm_context_t *context);

/* Drops what only the current call needed: outgrown buffers, elements of lists. */
void ingot_vm_context_finish_call(ingot_vm_context_t *context);

/* Keeps `buffer`, whose reference is taken over, until the call ends. On failure it stays the
 * caller's. */
ingot_status_t ingot_vm_context_retire(ingot_vm_context_t *context, ingot_buffer_t *buffer);

/* The session's slab with at least `length` bytes. */
ingot_status_t ingot_vm_context_slab(ingot_vm_context_t *context, int64_t length,
                                     ingot_buffer_t **out_buffer);

/* The application's memory as the slab, which it is from then on. On failure it is too. */
ingot_status_t ingot_vm_context_give_slab(ingot_vm_context_t *context, ingot_buffer_t *slab);

/* Frees the slab, or leaves it to other sessions. */
void ingot_vm_context_release_slab(ingot_vm_context_t *context);

/* Gives a variable another buffer, with its bytes and, if they are fewer than `length`, zeros
 * behind them: up to twice as many as there were, if there is memory for them, so that all growth
 * together copies each byte about once. Those of the `count` references that are to the old one become
 * references to the new. */
ingot_status_t ingot_vm_context_part(ingot_vm_context_t *context, ingot_vm_variable_t *variable,
                                     int64_t length, ingot_buffer_t **references, uint32_t count);

/* The buffer of result `ordinal` with these dims: the caller's or a new one. */
ingot_status_t ingot_vm_context_result(ingot_vm_context_t *context, uint32_t ordinal,
                                       const int64_t *dims, ingot_buffer_t **out_buffer);

/* The failure of a result whose length does not fit 64 bits. */
ingot_status_t ingot_vm_result_too_large(const ingot_vm_context_t *context, uint32_t ordinal);

/* Makes result `ordinal`, a sequence or an optional, of a list; of an optional nothing if it is
 * not `given`, or a tensor that the list does not have. */
ingot_status_t ingot_vm_context_result_list(ingot_vm_context_t *context, uint32_t ordinal,
                                            const ingot_vm_list_t *list, bool given);

/* Where the code that contains `word` comes from; NULL if the module does not say. */
const ingot_layout_location_t *ingot_vm_location(const ingot_vm_context_t *context,
                                                 const uint16_t *word);

/* The same as messages say it, as "Gather 'embeddings/word'"; false if it is not known. It is
 * the queue's describe function. */
bool ingot_vm_describe(void *context, const void *word, char *out_text, size_t capacity);

/* Calls `trace` after every kernel, copy, fill and wait of a call; NULL ends it. Not during a call. */
void ingot_vm_context_set_trace(ingot_vm_context_t *context, ingot_trace_function_t trace,
                                void *user);

/* Runs context->function of context->image to its end (interpreter.c). */
ingot_status_t ingot_vm_run(ingot_vm_context_t *context);

#endif /* INGOT_VM_CONTEXT_H_ */
