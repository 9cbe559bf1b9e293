/* Calls from Python: see call.h. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* syscall */
#endif
#include "call.h"

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

void ingot_python_drop_results(ingot_python_frame_t *frame) {
  for (uint32_t i = 0; i < frame->result_count; ++i) {
    ingot_buffer_view_t **view = &frame->views[frame->argument_count + i];
    ingot_buffer_view_release(*view);
    *view = NULL;
  }
}

ingot_status_t ingot_python_wrap_tensors(ingot_python_frame_t *frame) {
  uint32_t count = frame->argument_count + frame->result_count;
  ingot_python_drop_results(frame);
  for (uint32_t i = 0; i < count; ++i) {
    ingot_python_tensor_t *tensor = &frame->tensors[i];
    if (tensor->view) {
      ingot_buffer_view_retain(tensor->view);
      frame->views[i] = tensor->view;
    } else if (tensor->data) {
      ingot_status_t status =
          ingot_buffer_view_wrap(frame->device, tensor->data, tensor->length, tensor->dtype,
                                 tensor->rank, tensor->dims, NULL, NULL, &frame->views[i]);
      if (status) return status;
    }
  }
  return NULL;
}

void ingot_python_drop_wraps(ingot_python_frame_t *frame, bool keeps_new) {
  uint32_t count = frame->argument_count + frame->result_count;
  for (uint32_t i = 0; i < count; ++i) {
    bool is_new = i >= frame->argument_count && !frame->tensors[i].view && !frame->tensors[i].data;
    if (is_new && keeps_new) continue;
    ingot_buffer_view_release(frame->views[i]);
    frame->views[i] = NULL;
  }
}

ingot_status_t ingot_python_call(ingot_python_frame_t *frame) {
  ingot_status_t status = ingot_python_wrap_tensors(frame);
  if (!status) {
    status = ingot_session_call(frame->session, frame->function, frame->views,
                                frame->argument_count, frame->views + frame->argument_count,
                                frame->result_count, &frame->options);
  }
  ingot_python_drop_wraps(frame, !status);
  return status;
}

/* Defined in Python: limits.py. */
bool ingot_python_handle_signals(void);

bool ingot_python_should_stop(void *user) {
  (void)user;
#if defined(__linux__)
  /* Handlers run on the main thread only: the others need not wait for the interpreter. */
  if (syscall(SYS_gettid) != getpid()) return false;
#endif
  return ingot_python_handle_signals();
}

void ingot_python_unmap(ingot_buffer_view_t *view, void *data) {
  ingot_buffer_unmap(ingot_buffer_view_layout(view)->buffer, data);
  ingot_buffer_view_release(view);
}
