/* Traces as a file that Perfetto (ui.perfetto.dev) and chrome://tracing open.
 *
 *   ingot_timeline_t *timeline = ingot_timeline_open(getenv("INGOT_TRACE"));
 *   if (timeline) status = ingot_session_set_trace(session, ingot_timeline_add, timeline);
 *   ... calls ...
 *   if (!ingot_timeline_close(timeline)) fprintf(stderr, "the trace is not whole\n");
 *
 * Everything is in this header, and compiled into the file that includes it: the library, and
 * programs without a timeline, have nothing of it. Include it in one file of a program.
 *
 * Every thread that calls is a row, with its calls, and in them kernels (named after their
 * layers), copies, fills and waits; what a device did is a row of its own, with the device's
 * times; working memory and weights are counters. Sessions may share a timeline, on any
 * threads. The file is Chrome's JSON, in ASCII, one event a line; one that was never closed
 * opens too.
 */
#ifndef INGOT_TIMELINE_H_
#define INGOT_TIMELINE_H_

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/stat.h>
#endif

#include "ingot/ingot.h"

#define INGOT_TIMELINE_LONGEST_NAME 1000 /* bytes of a name that are shown */
#define INGOT_TIMELINE_DEVICE 1000 /* what the row of a thread's device is above the thread's */

typedef struct ingot_timeline_t {
  FILE *file;
  atomic_uint thread_count; /* the highest number of a thread in it */
  atomic_bool has_device;
} ingot_timeline_t;

/* -- text, into a buffer that is large enough for one event -------------------------------------- */

typedef struct ingot_timeline_text_t {
  size_t length;
  char data[4 * 6 * INGOT_TIMELINE_LONGEST_NAME];
} ingot_timeline_text_t;

static inline void ingot_timeline_put(ingot_timeline_text_t *text, const char *plain) {
  while (*plain) text->data[text->length++] = *plain++;
}

static inline void ingot_timeline_put_number(ingot_timeline_text_t *text, int64_t number) {
  char digits[20];
  size_t count = 0;
  uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
  if (number < 0) text->data[text->length++] = '-';
  do digits[count++] = (char)('0' + rest % 10);
  while ((rest /= 10) > 0);
  while (count > 0) text->data[text->length++] = digits[--count];
}

/* Nanoseconds as microseconds with three decimals. */
static inline void ingot_timeline_put_time(ingot_timeline_text_t *text, int64_t nanoseconds) {
  ingot_timeline_put_number(text, nanoseconds / 1000);
  text->data[text->length++] = '.';
  text->data[text->length++] = (char)('0' + nanoseconds / 100 % 10);
  text->data[text->length++] = (char)('0' + nanoseconds / 10 % 10);
  text->data[text->length++] = (char)('0' + nanoseconds % 10);
}

static inline void ingot_timeline_put_escape(ingot_timeline_text_t *text, uint32_t unit) {
  ingot_timeline_put(text, "\\u");
  for (int shift = 12; shift >= 0; shift -= 4) {
    text->data[text->length++] = "0123456789abcdef"[unit >> shift & 15];
  }
}

/* The code point at `*at`, which moves behind it; U+FFFD for what is no UTF-8. */
static inline uint32_t ingot_timeline_decode(const unsigned char **at) {
  static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
  uint32_t point = *(*at)++;
  if (point < 0x80) return point;
  int rest = point >= 0xf0 && point < 0xf8   ? 3
             : point >= 0xe0 && point < 0xf0 ? 2
             : point >= 0xc0 && point < 0xe0 ? 1
                                             : 0;
  if (rest == 0) return 0xfffd;
  point &= 0x3fu >> rest;
  for (int i = 0; i < rest; i++) {
    if ((**at & 0xc0) != 0x80) return 0xfffd;
    point = point << 6 | (*(*at)++ & 0x3fu);
  }
  bool is_point = point >= least[rest] && point < 0x110000 && (point & ~0x7ffu) != 0xd800;
  return is_point ? point : 0xfffd;
}

/* `name` as a string of JSON, in ASCII. */
static inline void ingot_timeline_put_name(ingot_timeline_text_t *text, const char *name) {
  const unsigned char *at = (const unsigned char *)name;
  text->data[text->length++] = '"';
  while (*at && at - (const unsigned char *)name < INGOT_TIMELINE_LONGEST_NAME) {
    uint32_t point = ingot_timeline_decode(&at);
    if (point >= 0x10000) {
      ingot_timeline_put_escape(text, 0xd800 + ((point - 0x10000) >> 10));
      ingot_timeline_put_escape(text, 0xdc00 + ((point - 0x10000) & 0x3ff));
    } else if (point < 0x20 || point > 0x7e || point == '"' || point == '\\') {
      ingot_timeline_put_escape(text, point);
    } else {
      text->data[text->length++] = (char)point;
    }
  }
  if (*at) ingot_timeline_put(text, "...");
  text->data[text->length++] = '"';
}

/* -- events -------------------------------------------------------------------------------------- */

/* The number of the calling thread: 1, 2, ... in the order in which threads ask. */
static inline uint32_t ingot_timeline_thread(void) {
  static atomic_uint count;
  static _Thread_local uint32_t thread;
  if (thread == 0) thread = atomic_fetch_add(&count, 1) + 1;
  return thread;
}

static inline void ingot_timeline_put_row(ingot_timeline_text_t *text, uint32_t row,
                                          const char *name) {
  ingot_timeline_put(text, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":");
  ingot_timeline_put_number(text, row);
  ingot_timeline_put(text, ",\"args\":{\"name\":\"");
  ingot_timeline_put(text, name);
  ingot_timeline_put(text, "\"}},\n");
}

static inline void ingot_timeline_put_counters(ingot_timeline_text_t *text,
                                               const ingot_trace_event_t *event) {
  ingot_timeline_put(text, "{\"ph\":\"C\",\"name\":\"memory\",\"pid\":1,\"ts\":");
  ingot_timeline_put_time(text, event->end);
  ingot_timeline_put(text, ",\"args\":{\"slab\":");
  ingot_timeline_put_number(text, event->length);
  ingot_timeline_put(text, ",\"weights\":");
  ingot_timeline_put_number(text, event->resident);
  ingot_timeline_put(text, "}},\n");
}

static inline void ingot_timeline_put_slice(ingot_timeline_text_t *text,
                                            const ingot_trace_event_t *event, uint32_t row) {
  static const char *const kinds[] = {"host", "device", "wait", "call"};
  ingot_timeline_put(text, "{\"ph\":\"X\",\"pid\":1,\"tid\":");
  ingot_timeline_put_number(text, row);
  ingot_timeline_put(text, ",\"ts\":");
  ingot_timeline_put_time(text, event->begin);
  ingot_timeline_put(text, ",\"dur\":");
  ingot_timeline_put_time(text, event->end - event->begin);
  ingot_timeline_put(text, ",\"cat\":\"");
  ingot_timeline_put(text, kinds[event->kind & 3]);
  ingot_timeline_put(text, "\",\"name\":");
  bool is_work = event->kind == INGOT_TRACE_HOST || event->kind == INGOT_TRACE_DEVICE;
  ingot_timeline_put_name(text, is_work && event->layer[0] ? event->layer : event->kernel);
  ingot_timeline_put(text, ",\"args\":{\"kernel\":");
  ingot_timeline_put_name(text, event->kernel);
  ingot_timeline_put(text, ",\"bytes\":");
  ingot_timeline_put_number(text, event->length);
  ingot_timeline_put(text, "}},\n");
}

/* Writes an event of thread number `thread`. */
static inline void ingot_timeline_write(ingot_timeline_t *timeline,
                                        const ingot_trace_event_t *event, uint32_t thread) {
  ingot_timeline_text_t text;
  text.length = 0;
  bool is_device = event->kind == INGOT_TRACE_DEVICE;
  unsigned count = atomic_load(&timeline->thread_count);
  while (count < thread && !atomic_compare_exchange_weak(&timeline->thread_count, &count, thread)) {
  }
  if (is_device) atomic_store(&timeline->has_device, true);
  ingot_timeline_put_slice(&text, event, is_device ? thread + INGOT_TIMELINE_DEVICE : thread);
  if (event->kind == INGOT_TRACE_CALL) ingot_timeline_put_counters(&text, event);
  (void)fwrite(text.data, 1, text.length, timeline->file);
}

/* -- the interface ------------------------------------------------------------------------------- */

/* Whether it is a named pipe: to open one waits until somebody reads it. */
static inline bool ingot_timeline_is_pipe(const char *path) {
#ifdef S_ISFIFO
  struct stat found;
  return stat(path, &found) == 0 && S_ISFIFO(found.st_mode);
#else
  (void)path;
  return false;
#endif
}

/* A new file at `path`. NULL if that is NULL or empty, or if the file cannot be written: errno says
 * why, EINVAL that it is a pipe. */
static inline ingot_timeline_t *ingot_timeline_open(const char *path) {
  if (!path || !path[0]) return NULL;
  if (ingot_timeline_is_pipe(path)) {
    errno = EINVAL;
    return NULL;
  }
  ingot_timeline_t *timeline = malloc(sizeof(ingot_timeline_t));
  if (!timeline) return NULL;
  timeline->file = fopen(path, "w");
  if (!timeline->file) {
    free(timeline);
    return NULL;
  }
  atomic_init(&timeline->thread_count, 0);
  atomic_init(&timeline->has_device, false);
  (void)fputs("[\n", timeline->file);
  return timeline;
}

/* For ingot_session_set_trace, with the timeline as `user`. */
static inline void ingot_timeline_add(void *user, const ingot_trace_event_t *event) {
  ingot_timeline_write(user, event, ingot_timeline_thread());
}

/* Writes the names of the rows and the end of the file, which is whole then. False if something
 * could not be written: the disk is full. */
static inline bool ingot_timeline_finish(ingot_timeline_t *timeline) {
  ingot_timeline_text_t text;
  for (uint32_t row = 1; row <= atomic_load(&timeline->thread_count); row++) {
    text.length = 0;
    ingot_timeline_put_row(&text, row, "calls");
    if (atomic_load(&timeline->has_device)) {
      ingot_timeline_put_row(&text, row + INGOT_TIMELINE_DEVICE, "device");
    }
    (void)fwrite(text.data, 1, text.length, timeline->file);
  }
  (void)fputs(
      "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"ingot\"}}\n]\n",
      timeline->file);
  return fflush(timeline->file) == 0 && !ferror(timeline->file);
}

/* Finishes and frees it; no session may trace into it any more. Accepts NULL. */
static inline bool ingot_timeline_close(ingot_timeline_t *timeline) {
  if (!timeline) return true;
  bool is_whole = ingot_timeline_finish(timeline);
  is_whole &= fclose(timeline->file) == 0;
  free(timeline);
  return is_whole;
}

#endif /* INGOT_TIMELINE_H_ */
