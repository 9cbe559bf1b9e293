/* Traces for Python: see record.h. */
#include "record.h"

#include <errno.h>
#include <stdlib.h>

#include "ingot/timeline.h"

#define LEAST_CAPACITY 256 /* records */

static bool ingot_python_reserve(ingot_python_recorder_t *recorder) {
  if (recorder->count < recorder->capacity) return true;
  size_t capacity = recorder->capacity ? recorder->capacity * 2 : LEAST_CAPACITY;
  void *records = NULL;
  if (capacity <= SIZE_MAX / sizeof(ingot_python_record_t)) {
    records = realloc(recorder->records, capacity * sizeof(ingot_python_record_t));
  }
  if (!records) {
    recorder->is_full = true;
    return false;
  }
  recorder->records = records;
  recorder->capacity = capacity;
  return true;
}

void ingot_python_record(void *user, const ingot_trace_event_t *event) {
  ingot_python_recorder_t *recorder = user;
  uint32_t thread = ingot_timeline_thread();
  if (recorder->timeline) ingot_timeline_write(recorder->timeline, event, thread);
  if (!recorder->keeps || recorder->is_full || !ingot_python_reserve(recorder)) return;
  recorder->records[recorder->count++] = (ingot_python_record_t){*event, thread};
}

void ingot_python_recorder_free(ingot_python_recorder_t *recorder) {
  free(recorder->records);
  *recorder = (ingot_python_recorder_t){0};
}

int ingot_python_recorder_save(const ingot_python_recorder_t *recorder, size_t first, size_t end,
                               const char *path) {
  ingot_timeline_t *timeline = ingot_timeline_open(path);
  if (!timeline) return errno ? errno : EINVAL;
  for (size_t i = first; i < end; ++i) {
    ingot_timeline_write(timeline, &recorder->records[i].event, recorder->records[i].thread);
  }
  errno = 0;
  if (ingot_timeline_close(timeline)) return 0;
  return errno ? errno : EIO;
}

void *ingot_python_timeline_open(const char *path, int *out_error) {
  ingot_timeline_t *timeline = ingot_timeline_open(path);
  *out_error = timeline ? 0 : errno;
  return timeline;
}

bool ingot_python_timeline_flush(void *timeline, bool is_end) {
  if (is_end) return ingot_timeline_finish(timeline);
  return fflush(((ingot_timeline_t *)timeline)->file) == 0;
}
