/* What the files of csrc/api know of a session.
 */
#ifndef INGOT_API_SESSION_H_
#define INGOT_API_SESSION_H_

#include "api/call_queue.h"
#include "api/program.h"
#include "vm/context.h"

struct ingot_session_t {
  ingot_reference_count_t references; /* of the application */
  ingot_reference_count_t users;      /* all of those are one; a queue that is not idle is one */
  ingot_program_t *program;
  ingot_session_t *next; /* of the program's, and what points here; guarded by its mutex */
  ingot_session_t **previous;
  ingot_vm_weights_t *_Atomic weights; /* that calls use; changed by whoever holds the session */
  ingot_session_t *root;   /* of an inner session (inner.c): the one that the application calls */
  ingot_session_t **inner; /* by image; NULL until a link has been called */
  ingot_vm_context_t context;
  ingot_call_queue_t queue;
};

/* A call as ingot_session_call gets it. */
typedef struct ingot_call_t {
  uint32_t function; /* of the program */
  uint32_t argument_count;
  uint32_t result_count;
  ingot_buffer_view_t *const *arguments;
  ingot_buffer_view_t **results;
  const ingot_call_options_t *options; /* may be NULL */
  int64_t begin;                       /* from when on its time counts; 0: when it runs */
} ingot_call_t;

static inline const ingot_allocator_t *ingot_session_allocator(const ingot_session_t *session) {
  return ingot_hal_device_allocator(session->program->device);
}

/* A session without state. */
ingot_status_t ingot_session_allocate(ingot_program_t *program,
                                      const ingot_session_options_t *options,
                                      ingot_session_t **out_session);

/* inner.c: the native function that calls a function of another module; `user` is the link. */
ingot_status_t ingot_session_call_link(void *user, const ingot_native_call_t *call);

/* One caller at a time: FailedPrecondition if there is one. `flags`: INGOT_STOP_BUSY and what else
 * it is to start with. */
ingot_status_t ingot_session_enter(ingot_session_t *session, uint32_t flags);

/* The same for a call of one of the program's functions, which the context then names. */
ingot_status_t ingot_session_enter_function(ingot_session_t *session, uint32_t function);
void ingot_session_leave(ingot_session_t *session);

/* One of `users` goes; the last one takes the session with it. */
void ingot_session_drop(ingot_session_t *session);

/* When nobody has the session any more: takes weights that were swapped meanwhile. */
void ingot_session_settle(ingot_session_t *session);

/* Everything that depends on the signature only. */
ingot_status_t ingot_session_check(ingot_session_t *session, const ingot_call_t *call);

/* Makes a call, for who has set stop.flags to BUSY and CALL. */
ingot_status_t ingot_session_run(ingot_session_t *session, const ingot_call_t *call);

#endif /* INGOT_API_SESSION_H_ */
