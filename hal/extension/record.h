/* Traces of sessions that Python uses: what happened is kept in C, without the interpreter, and
 * read afterwards. Part of the extension only.
 */
#ifndef INGOT_EXTENSION_RECORD_H_
#define INGOT_EXTENSION_RECORD_H_

#ifndef INGOT_CDEF
#include "ingot/ingot.h"
#endif /* INGOT_CDEF */

typedef struct ingot_python_record_t {
  ingot_trace_event_t event;
  uint32_t thread; /* of the call: 1, 2, ... in the order in which threads came */
} ingot_python_record_t;

/* What a session's trace tells. All zeros is one that keeps nothing. */
typedef struct ingot_python_recorder_t {
  ingot_python_record_t *records;
  size_t count;
  size_t capacity;
  bool keeps;   /* into `records` */
  bool is_full; /* memory ran out: later events are lost */
  void *timeline; /* the file of INGOT_TRACE, which gets everything, or NULL */
} ingot_python_recorder_t;

/* For ingot_session_set_trace, with a recorder as `user`. */
void ingot_python_record(void *user, const ingot_trace_event_t *event);

/* Frees what it has kept. */
void ingot_python_recorder_free(ingot_python_recorder_t *recorder);

/* Writes records [first, end) to the file: 0, or the errno of what went wrong. */
int ingot_python_recorder_save(const ingot_python_recorder_t *recorder, size_t first, size_t end,
                               const char *path);

/* A file for the calls of the whole process; NULL with *out_error set to an errno. */
void *ingot_python_timeline_open(const char *path, int *out_error);

/* Writes what waits to be written, and the end of the file if this is the end: false if it
 * could not. The file stays open, for threads that still call. */
bool ingot_python_timeline_flush(void *timeline, bool is_end);

#endif /* INGOT_EXTENSION_RECORD_H_ */
