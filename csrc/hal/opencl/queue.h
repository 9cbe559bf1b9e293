/* The OpenCL queue's state, shared by the files that fill it (dispatch.c), move bytes
 * (transfer.c) and wait for it (queue.c).
 */
#ifndef INGOT_HAL_OPENCL_QUEUE_H_
#define INGOT_HAL_OPENCL_QUEUE_H_

#include "hal/opencl/opencl.h"

#define INGOT_OPENCL_MAX_RECORDS 512 /* dispatches between two waits */
#define INGOT_OPENCL_MAX_WRITTEN 128 /* wrapped buffers written between two waits */
#define INGOT_OPENCL_FLUSH_STEP 16   /* operations that are handed to the device together */

/* The queue's pinned bytes: the fault record, what is read, what is written. */
#define INGOT_OPENCL_STAGING_READ 64
#define INGOT_OPENCL_READ_CAPACITY 4096
#define INGOT_OPENCL_STAGING_WRITE (INGOT_OPENCL_STAGING_READ + INGOT_OPENCL_READ_CAPACITY)
#define INGOT_OPENCL_STAGING_LENGTH (INGOT_OPENCL_STAGING_WRITE + 2 * INGOT_HAL_MAX_WRITE)

/* An operation since the last wait: for the message of a fault and for the trace. The ticket
 * of a dispatch is its record's ordinal plus 1. */
typedef struct ingot_opencl_record_t {
  ingot_hal_executable_t *executable; /* NULL: a copy or fill */
  uint32_t entry;
  bool is_traced;
  bool is_device; /* its times are those of the device */
  const void *site;
  const char *kernel;
  ingot_cl_event_t event; /* NULL: begin and end are known */
  int64_t begin;
  int64_t end;
  int64_t length;
} ingot_opencl_record_t;

struct ingot_opencl_queue_t {
  ingot_hal_queue_t base;
  ingot_opencl_queue_t *next; /* of the device */
  uint64_t bit;               /* among a buffer's users; shared with every 64th queue */
  ingot_cl_queue_t queue;
  bool is_profiling;          /* events have times */
  _Atomic bool is_busy;       /* something was queued since the last wait */
  uint32_t unflushed_count;
  ingot_cl_memory_t fault;    /* ingot_opencl_fault_t */
  ingot_cl_memory_t scratch;  /* NULL until a kernel needs it */
  uint64_t scratch_length;
  ingot_cl_memory_t staging_memory;
  uint8_t *staging; /* its map */
  int64_t staging_used; /* bytes of the part for writes */
  uint32_t record_count;
  ingot_opencl_record_t *records;
  uint32_t written_count;
  ingot_opencl_buffer_t *written[INGOT_OPENCL_MAX_WRITTEN]; /* retained */
};

static inline ingot_opencl_device_t *ingot_opencl_queue_device(const ingot_opencl_queue_t *queue) {
  return (ingot_opencl_device_t *)queue->base.device;
}

/* Notes that the queue is about to be given work on the buffer. */
static inline void ingot_opencl_will_use(const ingot_opencl_queue_t *queue,
                                         const ingot_buffer_t *buffer) {
  ingot_opencl_buffer_t *root = ingot_opencl_root(buffer);
  if (atomic_load_explicit(&root->users, memory_order_relaxed) & queue->bit) return;
  (void)atomic_fetch_or(&root->users, queue->bit);
}

/* Prepares an operation: makes room for its record and sees to the clock of traces. */
ingot_status_t ingot_opencl_begin(ingot_opencl_queue_t *queue, ingot_opencl_record_t *record);

/* Where the operation's event goes; NULL if none is needed. */
static inline ingot_cl_event_t *ingot_opencl_event(const ingot_opencl_queue_t *queue,
                                                   ingot_opencl_record_t *record) {
  return record->is_traced && queue->is_profiling ? &record->event : NULL;
}

/* Keeps the record of an operation that was queued. */
ingot_status_t ingot_opencl_end(ingot_opencl_queue_t *queue, ingot_opencl_record_t *record);

/* Makes room to note `count` buffers, at most INGOT_HAL_MAX_BINDINGS. */
ingot_status_t ingot_opencl_reserve_written(ingot_opencl_queue_t *queue, uint32_t count);

/* As ingot_opencl_will_use, for work that writes: wrapped bytes are brought back at the wait. */
void ingot_opencl_will_write(ingot_opencl_queue_t *queue, ingot_buffer_t *buffer);

/* Bytes to read with a wait, at most INGOT_OPENCL_READ_CAPACITY. */
typedef struct ingot_opencl_read_t {
  ingot_cl_memory_t memory;
  size_t offset;
  size_t length;
  void *data;
} ingot_opencl_read_t;

/* Waits, reads (`read` may be NULL), tells the trace, and gives the first fault since the last
 * time. */
ingot_status_t ingot_opencl_settle(ingot_opencl_queue_t *queue, const ingot_opencl_read_t *read);

#endif /* INGOT_HAL_OPENCL_QUEUE_H_ */
