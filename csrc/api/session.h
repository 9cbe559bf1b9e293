/* What the files of csrc/api know of a session.
 */
#ifndef INGOT_API_SESSION_H_
#define INGOT_API_SESSION_H_

#include "api/program.h"
#include "vm/context.h"

struct ingot_session_t {
  ingot_reference_count_t references;
  ingot_program_t *program;
  ingot_session_t *next;     /* of the program's, and what points here; guarded by its mutex */
  ingot_session_t **previous;
  ingot_vm_weights_t *weights; /* that calls use; changed by whoever holds the session */
  ingot_vm_context_t context;
};

static inline const ingot_allocator_t *ingot_session_allocator(const ingot_session_t *session) {
  return ingot_hal_device_allocator(session->program->device);
}

/* A session without state. */
ingot_status_t ingot_session_allocate(ingot_program_t *program,
                                      const ingot_session_options_t *options,
                                      ingot_session_t **out_session);

/* One caller at a time: FailedPrecondition if there is one. `flags`: INGOT_STOP_BUSY and what else
 * it is to start with. */
ingot_status_t ingot_session_enter(ingot_session_t *session, uint32_t flags);

/* The same for a call of one of the program's functions, which the context then names. */
ingot_status_t ingot_session_enter_function(ingot_session_t *session, uint32_t function);
void ingot_session_leave(ingot_session_t *session);

#endif /* INGOT_API_SESSION_H_ */
