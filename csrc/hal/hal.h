/* The hardware abstraction layer: what the VM needs from a device, and what a driver must
 * provide.
 *
 * Four kinds of objects, each with a vtable of its driver: driver, device, buffer,
 * executable. Work goes through queues, one per session: a queue runs its operations in
 * order; queue_read, queue_wait and buffer_map are the only waits. The HAL core (the
 * functions ingot_hal_*) checks every argument in one place - binding ranges, ownership,
 * access, grid overflow - so drivers see valid operations only. Kernels that a device cannot
 * run are run by the core on the host, behind the same queue_dispatch (host.h).
 *
 * The structs are open to drivers and to the VM; fields are read-only after creation
 * unless a comment says otherwise. Offsets and lengths are bytes in int64_t, because they
 * come from VM registers: negative ones are refused, not undefined.
 *
 * Ownership: create gives one reference; an object keeps what it needs alive (buffer,
 * queue and executable their device, a device its instance), so references may be
 * released in any order. Release functions accept NULL. Threads: every object may be
 * used by several threads at once except a queue, which takes one caller at a time.
 * Out-parameters are written on success only.
 */
#ifndef INGOT_HAL_HAL_H_
#define INGOT_HAL_HAL_H_

#include "base/allocator.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/status.h"
#include "base/stop.h"
#include "base/thread.h"
#include "ingot/ingot.h"
#include "ingot/kernel_abi.h"

#define INGOT_HAL_MAX_BINDINGS 64 /* = INGOT_ENTRY_MAX_BINDINGS of the module layout */
#define INGOT_HAL_MAX_WRITE 65536 /* bytes of one queue_write */
#define INGOT_HAL_BUFFER_ALIGNMENT 64
#define INGOT_HAL_POOL_BUFFERS 16

/* Kinds of memory, as ingot_memory_statistics_t has them. */
enum {
  INGOT_MEMORY_CONSTANTS,
  INGOT_MEMORY_PARAMETERS,
  INGOT_MEMORY_WEIGHTS,
  INGOT_MEMORY_STATE,
  INGOT_MEMORY_SLABS,
  INGOT_MEMORY_LISTS,
  INGOT_MEMORY_RESULTS,
  INGOT_MEMORY_KINDS,
};

typedef struct ingot_driver_t ingot_hal_driver_t;
typedef struct ingot_hal_account_t ingot_hal_account_t; /* account.h */
typedef struct ingot_reference_t ingot_reference_t; /* vm/reference.h */
typedef struct ingot_hal_executable_t ingot_hal_executable_t;
typedef struct ingot_hal_queue_t ingot_hal_queue_t;
typedef struct ingot_hal_device_vtable_t ingot_hal_device_vtable_t;
typedef struct ingot_hal_buffer_vtable_t ingot_hal_buffer_vtable_t;
typedef struct ingot_hal_executable_vtable_t ingot_hal_executable_vtable_t;

/* -- instance ---------------------------------------------------------------------------- */

/* Kernels linked into the program instead of loaded from a module. */
typedef struct ingot_hal_static_library_t {
  struct ingot_hal_static_library_t *next;
  const char *name;
  ingot_kernel_query_t query;
} ingot_hal_static_library_t;

/* What embedders know as the instance. */
struct ingot_instance_t {
  ingot_allocator_t allocator; /* of every object below this instance */
  ingot_reference_count_t references;
  uint32_t driver_count;
  const ingot_hal_driver_t **drivers;
  void **driver_states; /* per driver: its own, NULL at first; guarded by its driver_mutex */
  ingot_mutex_t driver_mutex;
  ingot_mutex_t mutex; /* guards additions to static_libraries, every device's host and
                           * executor, and slabs */
  ingot_buffer_t *slabs; /* the application's that sessions have, not retained (pool.h) */
  ingot_hal_static_library_t *_Atomic static_libraries; /* newest first; only ever added to */
  /* Set by the creator before anybody else sees the instance. */
  ingot_log_t log;
  bool profiling; /* write the perf map when kernels are loaded */
};

/* `allocator` NULL means realloc and free of libc. The table `drivers` is copied. */
ingot_status_t ingot_hal_instance_create(const ingot_allocator_t *allocator,
                                         const ingot_hal_driver_t *const *drivers,
                                         uint32_t driver_count, ingot_instance_t **out_instance);
void ingot_hal_instance_retain(ingot_instance_t *instance);
void ingot_hal_instance_release(ingot_instance_t *instance);

/* The URI of device number `ordinal` over all drivers, NULL behind the last. Lives as long as
 * the instance. */
const char *ingot_hal_instance_device_uri(ingot_instance_t *instance, uint32_t ordinal);

/* Makes kernels that are linked into the program available: an executable of that name
 * uses them, whatever variants its module brings. `name` is copied. InvalidArgument if it
 * is taken. Before the program is created. */
ingot_status_t ingot_hal_cpu_register_static(ingot_instance_t *instance, const char *name,
                                             ingot_kernel_query_t query);

/* -- driver ------------------------------------------------------------------------------ */

/* "scheme://path?query" in three parts; path and query may be empty. */
typedef struct ingot_hal_uri_t {
  const char *text; /* the whole URI, for messages */
  const char *scheme;
  size_t scheme_length;
  const char *path;
  size_t path_length;
  const char *query; /* ends at NUL */
} ingot_hal_uri_t;

struct ingot_driver_t {
  const char *scheme;
  /* The URI of device `ordinal`, NULL behind the last: text that the instance keeps. `state`
   * is the driver's own in that instance; the driver_mutex is held. */
  const char *(*device_uri)(ingot_instance_t *instance, void **state, uint32_t ordinal);
  /* Frees a state that is not NULL; the instance's last use of the driver. May be NULL. */
  void (*state_destroy)(ingot_instance_t *instance, void *state);
  ingot_status_t (*device_create)(ingot_instance_t *instance, const ingot_hal_uri_t *uri,
                                  const ingot_device_options_t *options,
                                  ingot_device_t **out_device);
};

/* Where an instance keeps the driver's state; NULL if it has no such driver. */
void **ingot_hal_instance_driver_state(ingot_instance_t *instance,
                                       const ingot_hal_driver_t *driver);

/* csrc/hal/cpu: kernels run on this process's threads. */
extern const ingot_hal_driver_t ingot_hal_cpu_driver;

/* -- device ------------------------------------------------------------------------------ */

struct ingot_device_t {
  const ingot_hal_device_vtable_t *vtable;
  ingot_reference_count_t references;
  ingot_instance_t *instance;
  const char *target;      /* whose functions of a module it runs: "cpu", "opencl" */
  const char *description; /* for people: "x86-64-v4 avx512-vnni, 2 threads" */
  const char *format; /* of the code that it runs, as "elf-x86_64"; NULL: linked kernels only */
  uint64_t features; /* INGOT_CPU_* of module_layout.h that a kernel may use */
  uint64_t slow_features; /* those of them that take longer than doing without */
  uint32_t thread_count; /* that a dispatch may use at most; 1 where it means nothing */
  uint32_t call_count; /* submitted calls that it makes side by side, each on a thread */
  bool can_spin; /* these threads look for the next call for a while, awake */
  int64_t memory_length; /* bytes of all its memory; 0 if it is not known */
  ingot_device_t *host; /* runs what this one cannot; made when first needed, by the core */
  _Atomic uint32_t pool_users; /* sessions that leave their slabs to others (pool.h) */
  ingot_buffer_t *_Atomic pool[INGOT_HAL_POOL_BUFFERS];
  ingot_executor_t *_Atomic executor; /* the same of what makes submitted calls */
};

/* `uri`: "cpu", "cpu://", "cpu://?threads=4", "opencl://0". NotFound if no driver has that
 * scheme, InvalidArgument for an option that is unknown or has a bad value. `options` NULL means
 * none; drivers get them in any case. */
ingot_status_t ingot_hal_device_create(ingot_instance_t *instance, const char *uri,
                                       const ingot_device_options_t *options,
                                       ingot_device_t **out_device);
void ingot_hal_device_retain(ingot_device_t *device);
void ingot_hal_device_release(ingot_device_t *device);

static inline const ingot_allocator_t *ingot_hal_device_allocator(const ingot_device_t *device) {
  return &device->instance->allocator;
}

/* What makes the device's submitted calls, with a thread at least. */
ingot_status_t ingot_hal_device_executor(ingot_device_t *device, ingot_executor_t **out_executor);

/* Frees the memory of released buffers that is kept for others. */
void ingot_hal_device_trim(ingot_device_t *device);

/* OutOfMemory if the device could not hold that many bytes even if it had nothing else: no
 * allocation is tried for a size that is wrong. */
ingot_status_t ingot_hal_device_check_memory(const ingot_device_t *device, int64_t length);

/* -- buffer ------------------------------------------------------------------------------ */

#define INGOT_HAL_ACCESS_READ 1u /* = INGOT_MAP_READ */
#define INGOT_HAL_ACCESS_WRITE 2u /* = INGOT_MAP_WRITE */

/* A range of bytes on a device. A subspan has a `root`; drivers only ever make roots. */
struct ingot_buffer_t {
  const ingot_hal_buffer_vtable_t *vtable; /* of the root */
  ingot_reference_count_t references;
  uint32_t access; /* INGOT_HAL_ACCESS_*: what may be done to its bytes */
  ingot_device_t *device;
  ingot_buffer_t *root; /* the buffer that owns the bytes: itself, or retained by a subspan */
  int64_t root_offset; /* of the first byte in the root */
  int64_t length;
  uint8_t *host; /* first byte in this process; NULL where it must be mapped */
  /* Where the bytes lie, to tell overlaps: an address in a memory. Roots of one memory may
   * share bytes, as two wraps of one array do. NULL is this process's own memory. */
  const void *memory;
  uint64_t address;
  bool spare; /* a root whose memory may be kept for others when it is released */
  ingot_buffer_t *next_slab; /* in the instance's `slabs` */
  uint32_t kind; /* INGOT_MEMORY_* */
  ingot_hal_account_t *account; /* that counts the root; or NULL */
  const ingot_reference_t *reference; /* of a root that stands for one (vm/reference.h); or NULL */
};

/* `length` bytes of arbitrary content on a multiple of 64; from 2 MB on of 2 MB, on huge
 * pages where the system has them. One allocation. */
ingot_status_t ingot_hal_buffer_create(ingot_device_t *device, int64_t length,
                                       ingot_buffer_t **out_buffer);

/* The same, counted in `account` as `kind`, INGOT_MEMORY_*, until it is destroyed. OutOfMemory where
 * the account's limit does not allow it. */
ingot_status_t ingot_hal_buffer_create_counted(ingot_device_t *device, ingot_hal_account_t *account,
                                               uint32_t kind, int64_t length,
                                               ingot_buffer_t **out_buffer);

/* The caller's bytes, not copied where the device shares this process's memory; they must stay
 * until `release` (may be NULL) is called, which happens once, from any thread, never if
 * wrapping fails. `access` without WRITE for bytes that must not change: they may lie on
 * read-only pages. A device with memory of its own takes the bytes as they are now, and brings
 * back what it wrote when a queue_wait returns; change them by buffer_write or map. */
ingot_status_t ingot_hal_buffer_wrap(ingot_device_t *device, void *data, int64_t length,
                                     uint32_t access, ingot_release_function_t release, void *user,
                                     ingot_buffer_t **out_buffer);

/* A part of `parent`, which it keeps alive. OutOfRange outside of it. */
ingot_status_t ingot_hal_buffer_subspan(ingot_buffer_t *parent, int64_t offset, int64_t length,
                                        ingot_buffer_t **out_buffer);
void ingot_hal_buffer_retain(ingot_buffer_t *buffer);
void ingot_hal_buffer_release(ingot_buffer_t *buffer);

/* Waits for the work that touches the buffer, then copies. OutOfRange outside of it,
 * PermissionDenied without the access. */
ingot_status_t ingot_hal_buffer_read(ingot_buffer_t *buffer, int64_t offset, int64_t length,
                                     void *data);
ingot_status_t ingot_hal_buffer_write(ingot_buffer_t *buffer, int64_t offset, int64_t length,
                                      const void *data);

/* Frees what the device holds of a read-only wrap beside the bytes themselves; it is made anew
 * when it is used. No work on the buffer may be queued. */
void ingot_hal_buffer_trim(ingot_buffer_t *buffer);

/* Tells the driver once that the bytes are written, and will be read at every call: it may use time
 * that nobody needs, until the buffer is destroyed, to let them be read faster. */
void ingot_hal_buffer_settle(ingot_buffer_t *buffer);

/* The bytes in this process until unmap. `access`: INGOT_HAL_ACCESS_*. */
ingot_status_t ingot_hal_buffer_map(ingot_buffer_t *buffer, int64_t offset, int64_t length,
                                    uint32_t access, void **out_data);
void ingot_hal_buffer_unmap(ingot_buffer_t *buffer, void *data);

/* Whether two buffers share a byte in these ranges, which must fit their buffers. */
bool ingot_hal_ranges_overlap(const ingot_buffer_t *a, int64_t a_offset, int64_t a_length,
                              const ingot_buffer_t *b, int64_t b_offset, int64_t b_length);

/* -- executable -------------------------------------------------------------------------- */

/* What a module says about one kernel. The strings must outlive the executable. */
typedef struct ingot_hal_entry_description_t {
  const char *name;
  const char *layer; /* source layers for messages; "" if unknown */
  uint32_t binding_count;
  uint32_t constant_count;
  uint64_t written; /* bit b: binding b is written */
} ingot_hal_entry_description_t;

typedef struct ingot_hal_variant_t {
  const char *name; /* "x86-64-v3" */
  const char *format; /* "elf-x86_64", "elf-aarch64", "opencl-c"; behind INGOT_VARIANT_* */
  uint64_t features; /* that the device must have */
  const void *data; /* the object; needed during creation only */
  size_t length;
} ingot_hal_variant_t;

typedef struct ingot_hal_executable_description_t {
  const char *name; /* also that of statically linked kernels */
  const ingot_hal_entry_description_t *entries;
  uint32_t entry_count;
  uint32_t variant_count;
  const ingot_hal_variant_t *variants; /* best first */
} ingot_hal_executable_description_t;

#define INGOT_HAL_REASON_CAPACITY 96

/* One kernel as the core needs it; the driver fills `tile` and `host_reason`. */
typedef struct ingot_hal_entry_t {
  ingot_hal_entry_description_t description;
  int64_t tile[3]; /* workload of one workgroup, each at least 1 */
  /* Why the device cannot run it, as "the device has no f64": the core runs another variant
   * on the host instead. "" where the device runs it. */
  char host_reason[INGOT_HAL_REASON_CAPACITY];
} ingot_hal_entry_t;

struct ingot_hal_executable_t {
  const ingot_hal_executable_vtable_t *vtable;
  uint32_t entry_count;
  ingot_device_t *device;
  ingot_hal_entry_t *entries;
  const char *variant_name; /* which one was taken; constant or owned by the driver */
  ingot_hal_executable_t *host; /* on device->host, for entries with a host_reason; or NULL */
};

/* Loads the first variant that the device can run. Copies what it keeps, except for the
 * entries' strings. Unsupported if no variant fits, or if a kernel cannot run on the device
 * and there is no variant for the host either; DataLoss or Incompatible for a bad object,
 * PermissionDenied if the system refuses executable memory. */
ingot_status_t ingot_hal_executable_create(ingot_device_t *device,
                                           const ingot_hal_executable_description_t *description,
                                           ingot_hal_executable_t **out_executable);
void ingot_hal_executable_destroy(ingot_hal_executable_t *executable);

/* -- queue ------------------------------------------------------------------------------- */

/* Names a dispatch in messages, as "Gather 'embeddings/word'", by the `site` that it came
 * with. False if nothing is known of it. */
typedef bool (*ingot_hal_describe_function_t)(void *user, const void *site, char *out_text,
                                              size_t capacity);

/* One operation that has ended. */
typedef struct ingot_hal_trace_t {
  const void *site; /* the dispatch's, or of a copy or fill the queue's at that time */
  const char *kernel; /* "copy", "fill", "wait" for these */
  int64_t begin; /* of ingot_clock; as the device measured it, where it can */
  int64_t end;
  int64_t length; /* bytes: of kernels the dispatch's cost_bytes */
  int32_t kind; /* INGOT_TRACE_... */
} ingot_hal_trace_t;

/* Must not use the queue. */
typedef void (*ingot_hal_trace_function_t)(void *user, const ingot_hal_trace_t *trace);

struct ingot_hal_queue_t { /* drivers append their state */
  ingot_device_t *device;
  /* Set by the queue's owner, who knows more of a dispatch than its kernel's name; or NULL. */
  ingot_hal_describe_function_t describe;
  void *describe_user;
  /* Set by the owner between waits, or NULL: told of every dispatch, copy and fill once it has
   * ended, in order, by the next wait at the latest. */
  ingot_hal_trace_function_t trace;
  void *trace_user;
  const void *site; /* of the copies and fills to come */
  ingot_stop_t *stop; /* of the call that operations belong to; the owner sets it, or NULL */
  ingot_hal_queue_t *host; /* on device->host; made when first needed, by the core */
};

typedef struct ingot_hal_binding_t {
  ingot_buffer_t *buffer;
  int64_t offset;
  int64_t length;
} ingot_hal_binding_t;

typedef struct ingot_hal_dispatch_t {
  ingot_hal_executable_t *executable;
  uint32_t entry; /* ordinal in the executable */
  uint32_t binding_count; /* must be the entry's */
  uint32_t constant_count; /* must be the entry's */
  const ingot_hal_binding_t *bindings; /* like the constants, needed during the call only */
  const int64_t *constants;
  int64_t workload[3]; /* a zero skips the dispatch; negative is OutOfRange */
  int64_t cost_flops; /* estimates: whether it is worth sharing between threads */
  int64_t cost_bytes;
  const void *site; /* for the queue's describe function */
} ingot_hal_dispatch_t;

ingot_status_t ingot_hal_queue_create(ingot_device_t *device, ingot_hal_queue_t **out_queue);

/* Waits for the queue's work. There is one owner: queues are not counted. */
void ingot_hal_queue_destroy(ingot_hal_queue_t *queue);

/* Runs a kernel after everything queued before. Buffers and executable must live until the
 * queue has passed it: until the next wait, or right away on devices whose queue runs
 * operations at once (the CPU). A faulting workgroup gives OutOfRange with the dispatch's
 * description, operand, index and bound: from here where the device knows at once, else from
 * the next wait. Where queue->stop says so, this and copies and fills do nothing, and a device
 * may leave workgroups out: the status is Cancelled or DeadlineExceeded. */
ingot_status_t ingot_hal_queue_dispatch(ingot_hal_queue_t *queue,
                                        const ingot_hal_dispatch_t *dispatch);

/* A function of this process as an operation of a queue. */
typedef struct ingot_hal_call_t {
  const char *name;
  /* Gets the bindings as bytes of this process (`buffer->host`; NULL for none), or NULL on the
   * device. */
  ingot_status_t (*function)(void *user, const ingot_hal_binding_t *mapped);
  void *user;
  const ingot_hal_binding_t *bindings; /* at most INGOT_HAL_MAX_BINDINGS */
  uint32_t binding_count;
  bool on_device; /* the function queues work itself, behind what is queued */
  uint64_t written; /* bit b: binding b is written */
  int64_t length; /* bytes, for traces */
} ingot_hal_call_t;

/* Runs the function when everything queued before has ended, unless it is `on_device`; it has
 * returned when this does. */
ingot_status_t ingot_hal_queue_call(ingot_hal_queue_t *queue, const ingot_hal_call_t *call);

/* InvalidArgument if the ranges overlap. */
ingot_status_t ingot_hal_queue_copy(ingot_hal_queue_t *queue, ingot_buffer_t *source,
                                    int64_t source_offset, ingot_buffer_t *target,
                                    int64_t target_offset, int64_t length);

/* Repeats the low `pattern_length` (1, 2, 4, 8) bytes of `pattern` over the range, whose
 * length must be a multiple of it. */
ingot_status_t ingot_hal_queue_fill(ingot_hal_queue_t *queue, ingot_buffer_t *target,
                                    int64_t offset, int64_t length, uint64_t pattern,
                                    uint32_t pattern_length);

/* Stores up to INGOT_HAL_MAX_WRITE bytes; `data` is copied before it returns. */
ingot_status_t ingot_hal_queue_write(ingot_hal_queue_t *queue, ingot_buffer_t *target,
                                     int64_t offset, const void *data, int64_t length);

/* Waits for everything queued before. Then what was written to wrapped bytes is in them.
 * Fails with the first fault since the last wait, if there was one; DeviceLost if the device
 * has gone. Costs nothing if nothing was queued. */
ingot_status_t ingot_hal_queue_wait(ingot_hal_queue_t *queue);

/* Waits for everything queued before, then copies the bytes out. Fails as queue_wait. */
ingot_status_t ingot_hal_queue_read(ingot_hal_queue_t *queue, ingot_buffer_t *source,
                                    int64_t offset, void *data, int64_t length);

/* -- what a driver implements ------------------------------------------------------------ */

struct ingot_hal_device_vtable_t {
  void (*destroy)(ingot_device_t *device); /* releases the instance last */
  void (*thread_begin)(void *device); /* first on a thread for submitted calls; NULL: nothing */
  void (*trim)(ingot_device_t *device); /* NULL: there is nothing to free */
  /* Asks the system for what code with these features needs; NULL: never refused. */
  bool (*permit)(uint64_t features);
  ingot_status_t (*buffer_create)(ingot_device_t *device, int64_t length,
                                  ingot_buffer_t **out_buffer);
  ingot_status_t (*buffer_wrap)(ingot_device_t *device, void *data, int64_t length, uint32_t access,
                                ingot_release_function_t release, void *user,
                                ingot_buffer_t **out_buffer);
  ingot_status_t (*executable_create)(ingot_device_t *device,
                                      const ingot_hal_executable_description_t *description,
                                      ingot_hal_executable_t **out_executable);
  ingot_status_t (*queue_create)(ingot_device_t *device, ingot_hal_queue_t **out_queue);
  void (*queue_destroy)(ingot_hal_queue_t *queue);
  ingot_status_t (*queue_wait)(ingot_hal_queue_t *queue);
  /* Operations are checked; `grid` is positive and its product fits. */
  ingot_status_t (*queue_dispatch)(ingot_hal_queue_t *queue, const ingot_hal_dispatch_t *dispatch,
                                   const int64_t grid[3]);
  ingot_status_t (*queue_copy)(ingot_hal_queue_t *queue, ingot_buffer_t *source,
                               int64_t source_offset, ingot_buffer_t *target, int64_t target_offset,
                               int64_t length);
  ingot_status_t (*queue_fill)(ingot_hal_queue_t *queue, ingot_buffer_t *target, int64_t offset,
                               int64_t length, uint64_t pattern, uint32_t pattern_length);
  ingot_status_t (*queue_write)(ingot_hal_queue_t *queue, ingot_buffer_t *target, int64_t offset,
                                const void *data, int64_t length);
  ingot_status_t (*queue_read)(ingot_hal_queue_t *queue, ingot_buffer_t *source, int64_t offset,
                               void *data, int64_t length);
  bool traces; /* it calls queue->trace itself; else the core measures around the operations,
                * which must then have ended when the functions above return */
};

struct ingot_hal_buffer_vtable_t {
  void (*destroy)(ingot_buffer_t *root); /* releases the device last */
  /* Offsets are in the root. Waits for the work that touches it. */
  ingot_status_t (*map)(ingot_buffer_t *root, int64_t offset, int64_t length, uint32_t access,
                        void **out_data);
  void (*unmap)(ingot_buffer_t *root, void *data);
  /* Copy as buffer_read and buffer_write do; NULL: the core maps instead. */
  ingot_status_t (*read)(ingot_buffer_t *root, int64_t offset, int64_t length, void *data);
  ingot_status_t (*write)(ingot_buffer_t *root, int64_t offset, int64_t length, const void *data);
  void (*trim)(ingot_buffer_t *root); /* NULL: there is nothing to free */
  void (*settle)(ingot_buffer_t *root); /* NULL: there is nothing to be done */
};

struct ingot_hal_executable_vtable_t {
  void (*destroy)(ingot_hal_executable_t *executable); /* releases the device last */
};

/* -- helpers for drivers ------------------------------------------------------------------ */

/* Loads executable->host, if it is not loaded yet, on device->host. The core does it for
 * executables with a host_reason; a driver that needs it earlier may. */
ingot_status_t ingot_hal_executable_load_host(
    ingot_hal_executable_t *executable, const ingot_hal_executable_description_t *description);

/* The statically linked kernels of that name; NULL if there are none. */
ingot_kernel_query_t ingot_hal_instance_find_static(ingot_instance_t *instance, const char *name);

/* Whether the device runs code of that format that uses these features. */
bool ingot_hal_device_runs(const ingot_device_t *device, const char *format, uint64_t features);

/* Whether code without some of these features is faster there. */
bool ingot_hal_device_avoids(const ingot_device_t *device, uint64_t features);

/* The first variant that the device runs and does not avoid, else the first that it runs. One that
 * the system does not permit when it is asked counts as one that the device does not run.
 * Unsupported names those that there are, and `options`, with which to compile for the device. */
ingot_status_t ingot_hal_variant_select(ingot_device_t *device,
                                        const ingot_hal_executable_description_t *description,
                                        const char *options,
                                        const ingot_hal_variant_t **out_variant);

/* The bytes of the object of one of the variants, decompressed: memory that the caller releases.
 * DataLoss: it is damaged. */
ingot_status_t ingot_hal_variant_object(const ingot_allocator_t *allocator,
                                        const ingot_hal_executable_description_t *description,
                                        const ingot_hal_variant_t *variant, void **out_object,
                                        size_t *out_length);

#define INGOT_HAL_DESCRIPTION_CAPACITY 512

/* What messages call a dispatch: as the queue's owner says, else "kernel 'name'" with the
 * layer that its module names. Longer texts are cut. */
void ingot_hal_describe_dispatch(const ingot_hal_queue_t *queue,
                                 const ingot_hal_dispatch_t *dispatch,
                                 char out_text[INGOT_HAL_DESCRIPTION_CAPACITY]);

/* The status of a faulting workgroup. */
ingot_status_t ingot_hal_fault_status(const ingot_hal_queue_t *queue,
                                      const ingot_hal_dispatch_t *dispatch,
                                      const ingot_kernel_fault_t *fault);

/* The status of a dispatch whose numbers do not belong together. */
ingot_status_t ingot_hal_misfit_status(const ingot_hal_queue_t *queue,
                                       const ingot_hal_dispatch_t *dispatch);

/* Fails where a copy or fill is not to begin, or not to go on. */
ingot_status_t ingot_hal_check_stop(const ingot_hal_queue_t *queue);

/* The status of a dispatch that queue->stop has ended. */
ingot_status_t ingot_hal_stop_status(const ingot_hal_queue_t *queue,
                                     const ingot_hal_dispatch_t *dispatch);

#endif /* INGOT_HAL_HAL_H_ */
