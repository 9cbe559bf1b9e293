/* Calls from Python that do not wait. Threads of the runtime that make them do not wait for the
 * interpreter, unless a call fails: they leave what has ended in a list, which a thread of Python's
 * empties. Part of the extension only.
 */
#ifndef INGOT_EXTENSION_SUBMIT_H_
#define INGOT_EXTENSION_SUBMIT_H_

#ifndef INGOT_CDEF
#include "call.h"
#endif /* INGOT_CDEF */

typedef struct ingot_python_ended_t ingot_python_ended_t;

/* A frame whose call is submitted; both stay as they are until the call is taken as ended. */
typedef struct ingot_python_submission_t {
  ingot_python_frame_t *frame;
  ingot_python_ended_t *ended; /* where it goes */
  struct ingot_python_submission_t *next;
  uint64_t number;       /* for ingot_session_cancel */
  ingot_status_t status; /* of the call that has ended; Python's to free */
} ingot_python_submission_t;

/* What has ended, the newest first. A thread that waits for a result leads: it takes what has ended
 * before the reader, which waits for the rest. */
struct ingot_python_ended_t {
  ingot_fence_t
      *fences[2]; /* of the reader, of leaders: grow when the list is not empty any more */
  ingot_python_submission_t *newest; /* atomic, as all that follows */
  uint64_t counts[2];
  uint32_t leader_count;
};

/* Wraps the tensors and submits the call. On success, and when the call has succeeded, the view of
 * each result that was neither a view nor in memory stands in `views`, and is Python's to take. */
ingot_status_t ingot_python_submit(ingot_python_submission_t *submission,
                                   const ingot_fence_value_t *waits, uint32_t wait_count,
                                   const ingot_fence_value_t *signals, uint32_t signal_count);

/* Waits until something has ended, for `timeout` nanoseconds or INGOT_FOREVER, and takes all of it,
 * the newest first; NULL for nothing. */
ingot_python_submission_t *ingot_python_take_ended(ingot_python_ended_t *ended, bool leads,
                                                   int64_t timeout);

#endif /* INGOT_EXTENSION_SUBMIT_H_ */
