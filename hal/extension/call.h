/* What the Python extension adds to the C API: calls that cross from Python into C once, and
 * parameters from Python's memory. Part of the extension only; embedders use ingot/ingot.h.
 */
#ifndef INGOT_EXTENSION_CALL_H_
#define INGOT_EXTENSION_CALL_H_

#ifndef INGOT_CDEF
#include "ingot/ingot.h"
#endif /* INGOT_CDEF */

/* One argument or result slot: a view, or a dense row-major tensor in memory that Python
 * keeps for the length of the call, or neither (a result to be made). */
typedef struct ingot_python_tensor_t {
  ingot_buffer_view_t *view; /* borrowed */
  void *data;
  size_t length;
  ingot_dtype_t dtype;
  uint32_t rank;
  int64_t dims[32]; /* INGOT_MAX_RANK */
} ingot_python_tensor_t;

/* All that a call needs; Python fills it, and uses it for one call at a time. */
typedef struct ingot_python_frame_t {
  ingot_session_t *session;
  ingot_device_t *device;
  uint32_t function;
  uint32_t argument_count;
  uint32_t result_count;
  ingot_call_options_t options;
  ingot_python_tensor_t *tensors; /* the arguments, then the results */
  ingot_buffer_view_t **views;    /* one per tensor */
} ingot_python_frame_t;

/* Fills `views`, which hold a reference each. */
ingot_status_t ingot_python_wrap_tensors(ingot_python_frame_t *frame);

/* Lets them go; `keeps_new`: but for results that the call has made. */
void ingot_python_drop_wraps(ingot_python_frame_t *frame, bool keeps_new);

/* Wraps the tensors, calls, and lets the wrappers go. On success the view of each result
 * that was neither a view nor in memory stands in `views`, and is Python's to take. */
ingot_status_t ingot_python_call(ingot_python_frame_t *frame);

/* Lets go of the results that Python did not take: a signal handler raised before it could. */
void ingot_python_drop_results(ingot_python_frame_t *frame);

/* Asks Python whether a call is to end: should_stop of the calls from Python. */
bool ingot_python_should_stop(void *user);

/* Ends a mapping of `data`, and drops the reference to `view` that kept it. */
void ingot_python_unmap(ingot_buffer_view_t *view, void *data);

#endif /* INGOT_EXTENSION_CALL_H_ */
