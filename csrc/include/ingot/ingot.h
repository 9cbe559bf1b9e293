/* Ingot's C API: load a compiled module, call its functions.
 *
 *   instance -> device -> program (module + parameters on a device) -> session (calls)
 *
 * Rules that hold everywhere:
 * - A function that can fail returns ingot_status_t: NULL is success, anything else is
 *   owned by the caller and carries a code and a message. Out-parameters come last and
 *   are written on success only.
 * - Objects are counted: create gives one reference, retain adds one, release drops one
 *   and accepts NULL. Counting is thread-safe. An object keeps what it needs alive, so
 *   references may be released in any order.
 * - Threads: every object may be used from several threads at once, but for a session,
 *   which takes one call at a time, and for the bytes of a buffer, which are the
 *   caller's to guard.
 * - Strings are UTF-8 and end in NUL; those that a getter returns live as long as the
 *   object. `length` and `offset` are bytes, `count` is items, times are nanoseconds.
 *
 * The declarations outside INGOT_CDEF are also read by Python's cffi.
 */
#ifndef INGOT_INGOT_H_
#define INGOT_INGOT_H_

#ifndef INGOT_CDEF
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ingot/kernel_abi.h"

#if !defined(INGOT_API) && defined(__GNUC__)
#define INGOT_API __attribute__((visibility("default")))
#elif !defined(INGOT_API)
#define INGOT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { /* ingot_status_code_t */
       INGOT_STATUS_OK = 0,
#define STATUS(code, ENUM, name) INGOT_STATUS_##ENUM = (code),
#include "ingot/spec/status.def"
#undef STATUS
};

enum { /* ingot_dtype_t */
#define DTYPE(code, ENUM, name, bits, bytes, kind, dlpack) INGOT_DTYPE_##ENUM = (code),
#include "ingot/spec/dtype.def"
#undef DTYPE
};

/* The one place of the version; pyproject.toml and CMakeLists.txt read it here. */
#define INGOT_VERSION "0.1.0"

#define INGOT_MAX_RANK 32
#define INGOT_MAX_DRIVERS 8

/* Flags of ingot_module_load_*: check the crc of the constants too, which reads them all. */
#define INGOT_MODULE_VERIFY_CONSTANTS 1u

/* Severities of log lines: what the runtime chose; what works, but not as asked for. */
#define INGOT_LOG_INFO 1
#define INGOT_LOG_WARNING 2

/* What an argument or result is, as flags; 0 is a tensor, and a reference is nothing else. */
#define INGOT_VALUE_SEQUENCE 1u /* a list of tensors of one dtype */
#define INGOT_VALUE_OPTIONAL 2u /* a tensor or a sequence, or NULL */
#define INGOT_VALUE_ANY_RANK 4u /* of these two: elements of any one rank; `rank` is 0 */
#define INGOT_VALUE_REFERENCE 8u /* a reference; its type is the text of dim `first_dim` */

/* Access of ingot_buffer_map. */
#define INGOT_MAP_READ 1u
#define INGOT_MAP_WRITE 2u

/* Kinds of trace events: work on the thread of the call (and its workers), work on the device
 * with the device's own times, a wait of the thread for the device, a whole call. */
#define INGOT_TRACE_HOST 0
#define INGOT_TRACE_DEVICE 1
#define INGOT_TRACE_WAIT 2
#define INGOT_TRACE_CALL 3

/* The timeout of ingot_fence_wait that never ends. */
#define INGOT_FOREVER (-1)

/* What ingot_session_cancel ends, beside the number of a submission. */
#define INGOT_RUNNING_CALL 0u
#define INGOT_ALL_CALLS UINT64_MAX
#endif /* INGOT_CDEF */

typedef int32_t ingot_status_code_t;
typedef int32_t ingot_dtype_t;

typedef struct ingot_status_object_t *ingot_status_t;
typedef struct ingot_driver_t ingot_driver_t;
typedef struct ingot_instance_t ingot_instance_t;
typedef struct ingot_device_t ingot_device_t;
typedef struct ingot_buffer_t ingot_buffer_t;
typedef struct ingot_buffer_view_t ingot_buffer_view_t;
typedef struct ingot_module_t ingot_module_t;
typedef struct ingot_safetensors_t ingot_safetensors_t;
typedef struct ingot_program_t ingot_program_t;
typedef struct ingot_session_t ingot_session_t;
typedef struct ingot_fence_t ingot_fence_t;

/* INGOT_VERSION of the library, which may differ from that of this header. */
INGOT_API const char *ingot_version(void);

/* -- status ---------------------------------------------------------------------------- */

/* 0 for NULL. */
INGOT_API ingot_status_code_t ingot_status_code(ingot_status_t status);

/* What was wrong, one line; "" for NULL. Lives as long as the status. */
INGOT_API const char *ingot_status_message(ingot_status_t status);

/* A status of functions that the application gives to the runtime, which takes it over. `message`
 * is copied. Where there is no memory, or for a number that is no code, it is another failure. */
INGOT_API ingot_status_t ingot_status_make(ingot_status_code_t code, const char *message);

/* Accepts NULL. */
INGOT_API void ingot_status_free(ingot_status_t status);

/* "InvalidArgument"; "OK" for 0; NULL for a number that is no code. */
INGOT_API const char *ingot_status_code_name(ingot_status_code_t code);

/* -- dtype ------------------------------------------------------------------------------ */

/* "f32"; NULL for a number that is no dtype. */
INGOT_API const char *ingot_dtype_name(ingot_dtype_t dtype);

/* Bytes of one element in a buffer; 0 for a number that is no dtype. */
INGOT_API size_t ingot_dtype_length(ingot_dtype_t dtype);

/* -- instance: allocator, log, drivers -------------------------------------------------- */

/* Resizes like realloc: `pointer` NULL allocates, `length` 0 frees and returns NULL. Must
 * be thread-safe and align like malloc. */
typedef struct ingot_allocator_t {
  void *user;
  void *(*resize)(void *user, void *pointer, size_t length);
} ingot_allocator_t;

/* `message` is one line and lives for the length of the call, which may come from any thread
 * that uses the instance. It must not use the runtime. */
typedef void (*ingot_log_function_t)(void *user, int32_t severity, const char *message);

/* Kernels that are linked into the program: an executable of that name in a module uses
 * them, whatever variants it brings. */
typedef struct ingot_static_kernels_t {
  const char *name;
  ingot_kernel_query_t query;
} ingot_static_kernels_t;

typedef struct ingot_instance_options_t {
  const ingot_allocator_t *allocator; /* NULL means malloc and free */
  ingot_log_function_t log;           /* may be NULL */
  void *log_user;
  const ingot_static_kernels_t *kernels;
  uint32_t kernel_count;
  bool profiling; /* tell the system's profiler (perf) the names of the kernels */
  const ingot_driver_t *const *drivers; /* beside the CPU's: ingot_opencl_driver() of opencl.h */
  uint32_t driver_count;
} ingot_instance_options_t;

/* `options` are copied; NULL means none. InvalidArgument if two kernels have one name, or for
 * more than INGOT_MAX_DRIVERS drivers. */
INGOT_API ingot_status_t ingot_instance_create(const ingot_instance_options_t *options,
                                               ingot_instance_t **out_instance);
INGOT_API void ingot_instance_retain(ingot_instance_t *instance);
INGOT_API void ingot_instance_release(ingot_instance_t *instance);

/* The devices of this machine that the drivers find: the URI of number `ordinal`, NULL behind
 * the last. Lives as long as the instance. */
INGOT_API const char *ingot_instance_device_uri(ingot_instance_t *instance, uint32_t ordinal);

/* -- fence: a counter that one waits for -------------------------------------------------- */

/* Called once, from any thread: `status` is NULL, or why not, which is then the function's to
 * free. It should be short, may use everything, and must not wait for what comes after it. */
typedef void (*ingot_done_function_t)(void *user, ingot_status_t status);

/* A fence has a value, which only grows: it orders work of sessions, of threads and of devices. It
 * may fail instead of reaching a value; what it had reached by then stays reached. When the last
 * reference to it is released, those that still wait get Cancelled. */
INGOT_API ingot_status_t ingot_fence_create(ingot_instance_t *instance, uint64_t value,
                                            ingot_fence_t **out_fence);
INGOT_API void ingot_fence_retain(ingot_fence_t *fence);
INGOT_API void ingot_fence_release(ingot_fence_t *fence);

/* Sets a larger value, else InvalidArgument; the failure of a fence that has failed. */
INGOT_API ingot_status_t ingot_fence_signal(ingot_fence_t *fence, uint64_t value);

/* Takes `status` over: everyone who waits for a value that was not reached gets it, now and later.
 * The first failure counts; NULL does nothing. */
INGOT_API void ingot_fence_fail(ingot_fence_t *fence, ingot_status_t status);

/* Waits until the fence has reached `value`: for `timeout` nanoseconds, then DeadlineExceeded; 0
 * only looks, INGOT_FOREVER is no limit. The failure of a fence that fails before. */
INGOT_API ingot_status_t ingot_fence_wait(ingot_fence_t *fence, uint64_t value, int64_t timeout);

/* The value at present; the failure of a fence that has failed. */
INGOT_API ingot_status_t ingot_fence_query(ingot_fence_t *fence, uint64_t *out_value);

/* Calls `function` when the fence reaches `value` or fails, on the thread that signals; now, if it
 * has already. */
INGOT_API ingot_status_t ingot_fence_notify(ingot_fence_t *fence, uint64_t value,
                                            ingot_done_function_t function, void *user);

/* -- device ----------------------------------------------------------------------------- */

/* Threads of the application, for a device of the CPU in place of its own. Its functions come from
 * the threads of calls. */
typedef struct ingot_thread_pool_t {
  void *user;
  uint32_t (*count)(void *user); /* of threads that may help the calling one; asked once */
  /* Has one of them run function(argument), soon, and returns at once; false if none will. A call
   * waits for those that have begun only, so that it may itself run on one of the threads. */
  bool (*schedule)(void *user, void (*function)(void *argument), void *argument);
  void (*release)(void *user); /* all has run, and the device is gone; may be NULL */
} ingot_thread_pool_t;

typedef struct ingot_device_options_t {
  const ingot_thread_pool_t *thread_pool; /* copied; NULL: threads of the device's own */
} ingot_device_options_t;

/* `uri`: "cpu", or with options behind a "?" and a "&" between, "cpu://?threads=4&spin=off"; of
 * other drivers as their headers say:
 *
 *   threads=COUNT   that work for one call, with the calling one; else one for each processor
 *   affinity=0-3,6  the processors of the device's threads; the calling thread stays where it is
 *   priority=low    or high: of the device's threads, beside others of the system
 *   spin=off        threads that wait sleep at once: less power, later answers
 *
 * One device has one set of threads for all of its programs and sessions. `options` may be NULL.
 * NotFound if there is no such device, InvalidArgument for options that it does not have. */
INGOT_API ingot_status_t ingot_device_create(ingot_instance_t *instance, const char *uri,
                                             const ingot_device_options_t *options,
                                             ingot_device_t **out_device);
INGOT_API void ingot_device_retain(ingot_device_t *device);
INGOT_API void ingot_device_release(ingot_device_t *device);

/* What the device is and can do, for people: "x86-64-v4, avx512-vnni, 2 threads". */
INGOT_API const char *ingot_device_description(ingot_device_t *device);

/* Whether the device runs code of a module's variant: its format, as "elf-aarch64", with these
 * INGOT_CPU_* features of module_layout.h. */
INGOT_API bool ingot_device_runs(ingot_device_t *device, const char *format, uint64_t features);
/* Whether code without some of these features is faster there, and chosen if there is any. */
INGOT_API bool ingot_device_avoids(ingot_device_t *device, uint64_t features);

/* -- buffer: bytes on a device ---------------------------------------------------------- */

/* Called once when the last user of `data` has let go, from any thread. */
typedef void (*ingot_release_function_t)(void *user, void *data);

/* New bytes of arbitrary content, aligned to 64. */
INGOT_API ingot_status_t ingot_buffer_create(ingot_device_t *device, size_t length,
                                             ingot_buffer_t **out_buffer);

/* The caller's bytes, not copied; they must stay until `release` (may be NULL) is called.
 * If wrapping fails, `release` is not called. */
INGOT_API ingot_status_t ingot_buffer_wrap(ingot_device_t *device, void *data, size_t length,
                                           ingot_release_function_t release, void *user,
                                           ingot_buffer_t **out_buffer);
INGOT_API size_t ingot_buffer_length(const ingot_buffer_t *buffer);
INGOT_API void ingot_buffer_retain(ingot_buffer_t *buffer);
INGOT_API void ingot_buffer_release(ingot_buffer_t *buffer);

/* Copy bytes out of and into a buffer. OutOfRange outside of it. */
INGOT_API ingot_status_t ingot_buffer_read(ingot_buffer_t *buffer, size_t offset, void *data,
                                           size_t length);
INGOT_API ingot_status_t ingot_buffer_write(ingot_buffer_t *buffer, size_t offset, const void *data,
                                            size_t length);

/* The bytes in the caller's address space until unmap; `access` is INGOT_MAP_READ and/or
 * INGOT_MAP_WRITE. */
INGOT_API ingot_status_t ingot_buffer_map(ingot_buffer_t *buffer, size_t offset, size_t length,
                                          uint32_t access, void **out_data);
INGOT_API void ingot_buffer_unmap(ingot_buffer_t *buffer, void *data);

/* -- buffer view: a dense tensor in a buffer, row-major ---------------------------------- */

typedef struct ingot_buffer_view_layout_t {
  ingot_buffer_t *buffer; /* kept by the view */
  size_t offset; /* of the first element; a multiple of the element's length */
  size_t length; /* of all elements */
  ingot_dtype_t dtype;
  uint32_t rank;
  const int64_t *dims; /* rank of them */
} ingot_buffer_view_layout_t;

/* Retains `buffer`, copies `dims`. OutOfRange if the tensor leaves the buffer. */
INGOT_API ingot_status_t ingot_buffer_view_create(ingot_buffer_t *buffer, size_t offset,
                                                  ingot_dtype_t dtype, uint32_t rank,
                                                  const int64_t *dims,
                                                  ingot_buffer_view_t **out_view);

/* A tensor in the caller's bytes: ingot_buffer_wrap and ingot_buffer_view_create in one. */
INGOT_API ingot_status_t ingot_buffer_view_wrap(ingot_device_t *device, void *data, size_t length,
                                                ingot_dtype_t dtype, uint32_t rank,
                                                const int64_t *dims,
                                                ingot_release_function_t release, void *user,
                                                ingot_buffer_view_t **out_view);
INGOT_API void ingot_buffer_view_retain(ingot_buffer_view_t *view);
INGOT_API void ingot_buffer_view_release(ingot_buffer_view_t *view);

/* Never changes; lives as long as the view. Of a list it is all zeros, `buffer` NULL; of a
 * reference `dtype` is 0. */
INGOT_API const ingot_buffer_view_layout_t *ingot_buffer_view_layout(
    const ingot_buffer_view_t *view);

/* A list: tensors as one view, which is passed and given where the signature has a sequence.
 * Retains `elements`, `count` of them; no list is an element of another. */
INGOT_API ingot_status_t ingot_buffer_view_create_list(ingot_device_t *device,
                                                       ingot_buffer_view_t *const *elements,
                                                       uint32_t count,
                                                       ingot_buffer_view_t **out_list);

/* The count of a list's elements, and one of them, which lives as long as the list; a tensor is
 * its only element. NULL for an ordinal behind the last. */
INGOT_API uint32_t ingot_buffer_view_count(const ingot_buffer_view_t *view);
INGOT_API ingot_buffer_view_t *ingot_buffer_view_element(ingot_buffer_view_t *view,
                                                         uint32_t element);

/* A reference: an object of the application, such as a tokenizer or a connection, as one view,
 * which programs pass on without looking inside, from arguments and native functions to others and
 * to results. `type` is its name in signatures, as "acme.tokenizer" of "&acme.tokenizer"; it is
 * copied. `release` (may be NULL) is called once, with `user` and `object`, from any thread, when
 * the last view is released and no call uses it any more: a call keeps what its native functions
 * give until it ends, however it ends. Not called on failure. */
INGOT_API ingot_status_t ingot_reference_create(ingot_device_t *device, const char *type,
                                                void *object, ingot_release_function_t release,
                                                void *user, ingot_buffer_view_t **out_view);

/* The object of a reference, which lives as long as that. InvalidArgument: `view`, which is not
 * NULL, is no reference of this type. */
INGOT_API ingot_status_t ingot_reference_object(const ingot_buffer_view_t *view, const char *type,
                                                void **out_object);

/* -- module: compiled code, checked once at load ----------------------------------------- */

/* Reads the file; constants of 1 MB and more are mapped, unless they are verified, and must not
 * change while the module lives. Incompatible for another major version, DataLoss for a damaged
 * file, InvalidArgument for what is no regular file. */
INGOT_API ingot_status_t ingot_module_load_file(ingot_instance_t *instance, const char *path,
                                                uint32_t flags, ingot_module_t **out_module);

/* Uses `data` in place, without a copy, until `release` (may be NULL) is called. If loading
 * fails, `release` is not called. Kernels read weights fastest where `data` is at a multiple of 64. */
INGOT_API ingot_status_t ingot_module_load_memory(ingot_instance_t *instance, const void *data,
                                                  size_t length, uint32_t flags,
                                                  ingot_release_function_t release, void *user,
                                                  ingot_module_t **out_module);
INGOT_API void ingot_module_retain(ingot_module_t *module);
INGOT_API void ingot_module_release(ingot_module_t *module);

typedef struct ingot_function_info_t {
  const char *name;
  const char *doc;
  const char *target; /* the kind of device it is for: "cpu" */
  bool exported; /* init functions cannot be called */
  uint32_t argument_count;
  uint32_t result_count;
} ingot_function_info_t;

typedef struct ingot_value_info_t {
  const char *name;
  const char *doc;
  ingot_dtype_t dtype;
  uint32_t kind; /* INGOT_VALUE_*; dtype and dims are those of the elements */
  uint32_t rank;
  uint32_t first_dim; /* dim d of the value is number first_dim + d of ingot_module_dim */
} ingot_value_info_t;

typedef struct ingot_dim_info_t {
  int64_t size; /* -1 if it is known at the call only */
  const char *text; /* as a signature shows it: "4", "batch", "2*batch" */
} ingot_dim_info_t;

typedef struct ingot_parameter_info_t {
  const char *scope; /* "" unless several files feed one program */
  const char *key; /* the tensor's name in the file */
  ingot_dtype_t dtype;
  uint32_t rank;
  uint32_t first_dim;
} ingot_parameter_info_t;

/* What there is in a module. `metadata` is a JSON object: version, producer, options; it does not
 * end in NUL, and is "" without any. */
typedef struct ingot_module_info_t {
  uint32_t function_count;
  uint32_t parameter_count;
  uint32_t variable_count;
  const char *metadata;
  size_t metadata_length;
} ingot_module_info_t;

INGOT_API ingot_module_info_t ingot_module_info(const ingot_module_t *module);

/* The getters below give OutOfRange for an ordinal behind the last. */
INGOT_API ingot_status_t ingot_module_function(const ingot_module_t *module, uint32_t function,
                                               ingot_function_info_t *out_info);

/* `value`: the arguments from 0, then the results. */
INGOT_API ingot_status_t ingot_module_value(const ingot_module_t *module, uint32_t function,
                                            uint32_t value, ingot_value_info_t *out_info);
INGOT_API ingot_status_t ingot_module_dim(const ingot_module_t *module, uint32_t dim,
                                          ingot_dim_info_t *out_info);
INGOT_API ingot_status_t ingot_module_parameter(const ingot_module_t *module, uint32_t parameter,
                                                ingot_parameter_info_t *out_info);

/* State that every session of a program has of its own. Its dims are static, but where the first is
 * open (-1): then it has no rows at first, and calls make more. */
INGOT_API ingot_status_t ingot_module_variable(const ingot_module_t *module, uint32_t variable,
                                               ingot_value_info_t *out_info);

/* -- parameters: weights that are not in the module --------------------------------------- */

typedef struct ingot_parameter_span_t {
  const void *data; /* row-major; must stay until the program is created */
  size_t length;
  ingot_dtype_t dtype;
  uint32_t rank;
  const int64_t *dims;
  bool is_mapped; /* pages of a file that nobody writes there: they leave memory behind init */
} ingot_parameter_span_t;

/* Where a program finds its parameters. `find` gives NotFound for a key it does not have;
 * the program then asks for the others too and names all that are missing. */
typedef struct ingot_parameters_t {
  void *user;
  ingot_status_t (*find)(void *user, const char *scope, const char *key,
                         ingot_parameter_span_t *out_span);
} ingot_parameters_t;

/* A safetensors file, or with a path that ends in ".json" an index (model.safetensors.index.json)
 * and the files beside it that it names; in memory until it is closed. DataLoss if a header or the
 * index is damaged, or a tensor is not where the index has it. */
INGOT_API ingot_status_t ingot_safetensors_open(ingot_instance_t *instance, const char *path,
                                                ingot_safetensors_t **out_file);
INGOT_API void ingot_safetensors_close(ingot_safetensors_t *file);

/* Answers every scope from `file`, which must stay open meanwhile. */
INGOT_API ingot_parameters_t ingot_safetensors_parameters(ingot_safetensors_t *file);

/* -- limits ---------------------------------------------------------------------------------- */

/* Zero and NULL mean no limit. Limits are looked at in every loop of the code, before every
 * kernel, copy and fill and, on the CPU, between the workgroups of a kernel and in long ones. */
typedef struct ingot_call_options_t {
  int64_t max_steps; /* VM instructions */
  int64_t timeout; /* nanoseconds from the start of the call */
  /* Asked every few milliseconds, on the thread of the call, with `user`: true ends the call with
   * Cancelled. It must not use the session. */
  bool (*should_stop)(void *user);
  void *user;
} ingot_call_options_t;

/* -- native functions: what compiled code calls of the application --------------------------- */

/* A tensor that a native function reads or fills; all of it lives until the function returns. */
typedef struct ingot_native_tensor_t {
  ingot_dtype_t dtype;
  uint32_t rank;
  int64_t *dims; /* -1 where the function decides: its `shape` writes those of results */
  size_t length; /* bytes of all elements; 0 while a dim is unknown */
  void *data; /* row-major; arguments are not to be written. NULL on the device, for no bytes, and
               * for a result whose dims nobody knows yet */
  ingot_buffer_t *buffer; /* where the bytes lie on the device, and from where on; NULL of functions
                           * that run on the host */
  size_t offset;
  /* Of a result, NULL at first: instead of filling `data` a function may give a view on the
   * program's device, whose reference the runtime takes over, and must for dims that it decides
   * without `shape`, and for a reference. It is copied. Of an argument that is a reference this is
   * the one; retain it to give it as a result. */
  ingot_buffer_view_t *view;
  const char *type; /* of a reference, whose object is `data`, and which has no dtype; else "" */
} ingot_native_tensor_t;

/* One call of a native function. */
typedef struct ingot_native_call_t {
  const char *name;
  const char *attributes; /* a JSON object of what the source program says beside tensors; or "" */
  ingot_device_t *device; /* of the program */
  uint32_t argument_count;
  uint32_t result_count;
  const ingot_native_tensor_t *arguments;
  ingot_native_tensor_t *results;
  void *runtime; /* the runtime's own */
} ingot_native_call_t;

/* A failure ends the call of the session with its code; its message comes behind the layer's and
 * the function's name. */
typedef ingot_status_t (*ingot_native_function_t)(void *user, const ingot_native_call_t *call);

/* A function of the application under the name by which modules call it. It runs on the thread of
 * the session's call, when all that comes before it in the program has ended, and for sessions on
 * several threads at the same time. It must not use the session that calls it: that fails with
 * FailedPrecondition. When that call is cancelled or its time is up, it ends as soon as the
 * function returns, with its failure or else with Cancelled or DeadlineExceeded. */
typedef struct ingot_native_t {
  const char *name;
  /* What it takes and gives, as "(f32[h,w,3]) -> (f32[224,224,3])", which must be what the module
   * says, whatever the names of symbols; NULL: it takes what comes. */
  const char *signature;
  ingot_native_function_t call;
  /* Called first where dims of results are -1: writes them, and memory comes for them. May be
   * NULL. */
  ingot_native_function_t shape;
  void *user;
  bool on_device; /* gets no `data`, but the `buffer`s, on which work may be queued: opencl.h */
} ingot_native_t;

/* Whether the call that the function belongs to is to end, for functions that take long; on the
 * function's thread. */
INGOT_API bool ingot_native_should_stop(const ingot_native_call_t *call);

/* -- memory: bytes of buffers, as they were asked for ----------------------------------------- */

typedef struct ingot_memory_usage_t {
  size_t current;
  size_t peak; /* the most at one time so far */
} ingot_memory_usage_t;

typedef struct ingot_memory_statistics_t {
  ingot_memory_usage_t total;
  ingot_memory_usage_t constants; /* of the modules */
  ingot_memory_usage_t parameters; /* weights as they were given, while a program makes its own */
  ingot_memory_usage_t weights; /* as calls use them, and what else init computes */
  ingot_memory_usage_t state;
  ingot_memory_usage_t slabs; /* working memory */
  ingot_memory_usage_t lists;
  ingot_memory_usage_t results; /* that the runtime made and nobody has released yet */
} ingot_memory_statistics_t;

/* -- program: modules made ready on a device ---------------------------------------------- */

typedef struct ingot_program_options_t {
  ingot_call_options_t limits; /* of making it; without max_steps init has 2^27 */
  bool zero_memory; /* what code sees before it has written it is zeros, not bytes freed before */
  size_t memory_limit; /* of its total in ingot_program_statistics; 0 means no limit */
  /* The names of the modules, copied; NULL, or NULL for one of them, where it has none. Code calls
   * a function of another module as native function NAME.FUNCTION, unless `natives` has that; so
   * does ingot_program_find_function. It runs with the same state and limits, of which max_steps
   * counts anew in each such call. */
  const char *const *names;
  const ingot_native_t *natives; /* those that the modules call, and perhaps others; copied */
  uint32_t native_count;
  /* Files that ingot_program_save_weights wrote for these modules. What they hold is mapped, by all
   * processes that do, instead of made by init; its parameters are not asked for. They must not
   * change while the program lives: replace them by renaming. */
  const char *const *packed;
  uint32_t packed_count;
  bool verify_packed; /* check the crc of their bytes too, which reads them all */
} ingot_program_options_t;

/* Loads the kernels, reads the parameters (`parameters` may be NULL if no module has any),
 * runs the modules' init functions. `options` may be NULL. Unsupported if a module has no code
 * for this device; NotFound names all missing parameters, or all missing native functions;
 * InvalidArgument for one of another signature, for modules that call each other in a circle or
 * have one name, or packed weights of another module;
 * DeadlineExceeded for an init that does not end; DataLoss for packed weights that are damaged. */
INGOT_API ingot_status_t ingot_program_create(ingot_device_t *device,
                                              ingot_module_t *const *modules, uint32_t module_count,
                                              const ingot_parameters_t *parameters,
                                              const ingot_program_options_t *options,
                                              ingot_program_t **out_program);
INGOT_API void ingot_program_retain(ingot_program_t *program);
INGOT_API void ingot_program_release(ingot_program_t *program);

/* Puts others in the place of the parameters of `scope` (NULL: of all), and runs the init functions
 * that read them. All that these functions read must be found; what others made stays. Calls that
 * run meanwhile end with the old ones, calls that begin later have the new ones, and the old ones
 * are freed when nobody uses them any more. State stays. `limits` (may be NULL) are those of init.
 * On failure nothing changes: NotFound names parameters that are missing, or no parameter has that
 * scope; InvalidArgument for a wrong dtype or shape; FailedPrecondition while another thread swaps
 * parameters of the program. */
INGOT_API ingot_status_t ingot_program_swap_parameters(ingot_program_t *program, const char *scope,
                                                       const ingot_parameters_t *parameters,
                                                       const ingot_call_options_t *limits);

/* Takes `length` bytes into a file, on the thread of the call; false if that is not possible. */
typedef bool (*ingot_write_function_t)(void *user, const void *data, size_t length);

/* Writes what init made of the parameters of `scope` (NULL: all that it made), as `packed` of
 * ingot_program_options_t reads it. The file belongs to this very module, one of the program's,
 * and to devices of this kind. Cancelled if `write` gives false; NotFound: no such scope. */
INGOT_API ingot_status_t ingot_program_save_weights(ingot_program_t *program,
                                                    const ingot_module_t *module, const char *scope,
                                                    ingot_write_function_t write, void *user);

/* The functions that can be called on this device, numbered from 0. */
INGOT_API uint32_t ingot_program_function_count(const ingot_program_t *program);

/* Which function of which module number `function` is; the module is not retained. */
INGOT_API ingot_status_t ingot_program_function(const ingot_program_t *program, uint32_t function,
                                                ingot_module_t **out_module,
                                                uint32_t *out_module_function);

/* `name` is FUNCTION, or MODULE.FUNCTION where modules have names. NotFound lists the names that
 * exist, and for a FUNCTION that several modules have these. */
INGOT_API ingot_status_t ingot_program_find_function(const ingot_program_t *program,
                                                     const char *name, uint32_t *out_function);

/* What the program and all its sessions hold. From any thread. */
INGOT_API ingot_memory_statistics_t ingot_program_statistics(const ingot_program_t *program);

/* A kernel that the host runs for the program's device; the texts live as long as the program. */
typedef struct ingot_host_kernel_t {
  const char *kernel;
  const char *layer; /* the source layers that it computes; "" if unknown */
  const char *reason; /* why the device does not run it */
} ingot_host_kernel_t;

/* Number `ordinal` of the kernels that the device cannot or must not run: the host runs them,
 * with a copy of their data each way. False behind the last. */
INGOT_API bool ingot_program_host_kernel(const ingot_program_t *program, uint32_t ordinal,
                                         ingot_host_kernel_t *out_kernel);

/* -- session: calls ------------------------------------------------------------------------ */

typedef struct ingot_session_options_t {
  size_t memory_limit; /* of its total in ingot_session_statistics; 0 means no limit */
  /* The application's memory for all calls, on the program's device: it does not grow, and what
   * needs more fails with OutOfMemory. On a multiple of 8 bytes. Retained; no other session has
   * any of it meanwhile, and no argument or result lies in it. NULL: the session makes and grows
   * its own. */
  ingot_buffer_t *slab;
  /* Between calls the session leaves its working memory to the other sessions of the device that
   * say so too: those that do not run at once have it once. */
  bool shares_slab;
} ingot_session_options_t;

/* Sessions of one program share its weights; each has its own state, which starts with the
 * variables' initial values. `options` are copied; NULL means none. */
INGOT_API ingot_status_t ingot_session_create(ingot_program_t *program,
                                              const ingot_session_options_t *options,
                                              ingot_session_t **out_session);
INGOT_API void ingot_session_retain(ingot_session_t *session);
INGOT_API void ingot_session_release(ingot_session_t *session);

/* What a call needs of memory. */
typedef struct ingot_measure_t {
  size_t slab_length; /* bytes of working memory */
  bool is_exact; /* false: at least that, as the code takes sizes from data */
} ingot_measure_t;

/* Asks what a call with arguments of these dims would need, without making it, and without what
 * functions of other modules need that it calls. `argument_dims` are the dims of all tensors among
 * the arguments, one after another; `out_result_dims` (may be NULL) has room for those of all
 * tensors among the results, and gets -1 for what data decides. Fails as the call would where the
 * dims do not fit the signature. */
INGOT_API ingot_status_t ingot_session_measure(ingot_session_t *session, uint32_t function,
                                               const int64_t *argument_dims, uint32_t dim_count,
                                               int64_t *out_result_dims,
                                               ingot_measure_t *out_measure);

/* Calls function number `function` of the program and waits for it. A result slot that holds
 * a view is written in place: it must have the result's dtype and shape and must not overlap
 * an argument or another result. A slot that holds NULL receives a new view that the caller
 * releases: a list for a sequence, and NULL again for an optional that has nothing. Slots of
 * sequences and optionals must hold NULL. `options` may be NULL. InvalidArgument for arguments that
 * do not fit the
 * signature, before any work; FailedPrecondition if the session is in a call; after a failed
 * call no slot was changed, the state is as before, and the session can be called again. But
 * if the call failed after it had begun to change a variable, further calls fail with
 * FailedPrecondition until ingot_session_reset, or until the variables that it was changing
 * have been written. */
INGOT_API ingot_status_t ingot_session_call(ingot_session_t *session, uint32_t function,
                                            ingot_buffer_view_t *const *arguments,
                                            uint32_t argument_count, ingot_buffer_view_t **results,
                                            uint32_t result_count,
                                            const ingot_call_options_t *options);

/* -- session: calls that do not wait ------------------------------------------------------- */

typedef struct ingot_fence_value_t {
  ingot_fence_t *fence;
  uint64_t value;
} ingot_fence_value_t;

/* A call to come; all of it is copied, but for the array `results`. */
typedef struct ingot_submission_t {
  uint32_t function;
  uint32_t argument_count;
  ingot_buffer_view_t *const *arguments; /* retained until the call has ended */
  uint32_t result_count;
  /* As in ingot_session_call. The array stays where it is until the call has ended, which writes
   * it; views that it holds are retained. */
  ingot_buffer_view_t **results;
  ingot_call_options_t options; /* `timeout` is from the submission on, waits and all */
  const ingot_fence_value_t *waits; /* the call begins when all of them are reached */
  uint32_t wait_count;
  uint32_t signal_count;
  const ingot_fence_value_t *signals; /* reached when the call has succeeded, else they fail */
  ingot_done_function_t done; /* called when the call has ended, before the signals; may be NULL */
  void *user;
} ingot_submission_t;

/* Has a thread of the device make the call, after all that were submitted to this session before;
 * other sessions run side by side, as many as the device has threads. The queue has no bound: it
 * holds some 300 bytes for each call, and its views. What ingot_session_call says of arguments and
 * results holds; what can be is checked at once. Also InvalidArgument for a signal that its fence
 * has passed, OutOfMemory if there is no thread.
 *
 * A call fails, without having begun, with the failure of a fence that it waits for or signals,
 * or with DeadlineExceeded. Calls behind it are made nevertheless. While there are submitted calls
 * that have not ended, other uses of the session fail with FailedPrecondition; they may be
 * submitted during a call of ingot_session_call. A session that was released ends them first.
 * `out_number` (may be NULL) is for ingot_session_cancel: 1, 2, ... */
INGOT_API ingot_status_t ingot_session_submit(ingot_session_t *session,
                                              const ingot_submission_t *submission,
                                              uint64_t *out_number);

/* Ends the call with that number, INGOT_RUNNING_CALL or INGOT_ALL_CALLS, from any thread. A call
 * that is running ends with Cancelled; what holds for a failed call holds for it. A submitted call
 * that waits never begins; its signals fail with Cancelled before this returns. False, and nothing
 * happens, if there is no such call: the next one is not touched. After true a running call may
 * still succeed, if it was at its end. */
INGOT_API bool ingot_session_cancel(ingot_session_t *session, uint64_t number);

/* -- session: state and working memory ------------------------------------------------------ */

/* All variables get their initial values back. */
INGOT_API ingot_status_t ingot_session_reset(ingot_session_t *session);

/* Copy a variable's elements out and in. `module` is one that the program was made from,
 * `length` the whole variable's, else InvalidArgument; of one that grows, that of its first rows:
 * OutOfRange if it has fewer, and a write makes it have so many. FailedPrecondition during a call,
 * and for a variable that a failed call was changing, unless it is written. */
INGOT_API ingot_status_t ingot_session_read_variable(ingot_session_t *session,
                                                     const ingot_module_t *module,
                                                     uint32_t variable, void *data, size_t length);
INGOT_API ingot_status_t ingot_session_write_variable(ingot_session_t *session,
                                                      const ingot_module_t *module,
                                                      uint32_t variable, const void *data,
                                                      size_t length);

/* Another session of the program that goes on from this one's state and has its memory_limit. The
 * variables are not copied here: a session copies one when it first changes it, while another
 * still has it. FailedPrecondition during a call, and for a variable that a failed call was
 * changing. */
INGOT_API ingot_status_t ingot_session_fork(ingot_session_t *session,
                                            ingot_session_t **out_session);

/* Gives `length` bytes of a file, on the thread of the call; false if that is not possible. */
typedef bool (*ingot_read_function_t)(void *user, void *data, size_t length);

/* Writes all variables, piece by piece, for ingot_session_load_state on any device. Pages of zeros
 * take no room, but in variables that grow. Cancelled if `write` gives false; else as
 * ingot_session_read_variable. Neither `write` nor `read` may use the session. */
INGOT_API ingot_status_t ingot_session_save_state(ingot_session_t *session,
                                                  ingot_write_function_t write, void *user);

/* Sets all variables, if all can be read, else none. DataLoss for what is damaged or no state,
 * Incompatible for another version, InvalidArgument for the state of another module, which names
 * the first variable that differs. Variables that grow take memory in proportion to what is
 * read of them. */
INGOT_API ingot_status_t ingot_session_load_state(ingot_session_t *session,
                                                  ingot_read_function_t read, void *user);

/* Frees the working memory, and what the device keeps of released results for the next ones (64
 * MB at most); the next call allocates it anew. State stays. */
INGOT_API ingot_status_t ingot_session_trim(ingot_session_t *session);

/* What the session's calls hold, without what sessions share, the application's memory and idle
 * shared slabs. From any thread. */
INGOT_API ingot_memory_statistics_t ingot_session_statistics(const ingot_session_t *session);

typedef struct ingot_trace_event_t {
  const char *kernel; /* its name in the module; "copy", "fill", "wait"; of a call the function's */
  const char *layer; /* the source layers it computes, "" if unknown */
  int64_t begin; /* of the monotonic clock */
  int64_t end;
  int64_t length; /* bytes that it writes; of kernels an estimate of those it touches; of calls
                       * the session's working memory */
  int64_t resident; /* of calls: bytes of the program's weights and other constants, else 0 */
  int32_t kind; /* INGOT_TRACE_... */
} ingot_trace_event_t;

typedef void (*ingot_trace_function_t)(void *user, const ingot_trace_event_t *event);

/* Calls `trace` after every kernel, copy, fill, wait and call, on the thread of the call; NULL ends
 * it. The texts of an event live as long as the session. The function must not use the session;
 * that of timeline.h writes a file. */
INGOT_API ingot_status_t ingot_session_set_trace(ingot_session_t *session,
                                                 ingot_trace_function_t trace, void *user);

/* Where a call is: before the instruction at a word of its function. Registers that no instruction
 * has written yet are 0 or NULL. All of it lives until the function that gets it returns. */
typedef struct ingot_debug_stop_t {
  const ingot_module_t *module;
  uint32_t function; /* of the module */
  uint32_t word; /* from the start of the function */
  const char *layer; /* the source layer of the instruction, "" if unknown */
  const char *operations; /* of that layer, as "Conv, Relu" */
  uint32_t i64_count; /* registers of each kind */
  uint32_t f64_count;
  uint32_t buffer_count;
  const int64_t *i64;
  const double *f64;
  ingot_buffer_t *const *buffers;
} ingot_debug_stop_t;

/* False ends the call with Cancelled. */
typedef bool (*ingot_debug_function_t)(void *user, const ingot_debug_stop_t *stop);

/* Asks `debug` before every instruction of the calls to come, on the thread of the call; NULL ends
 * it. The function must not use the session. It may read the buffers (ingot_buffer_read), which
 * waits for the work that was queued before. Other sessions pay nothing. */
INGOT_API ingot_status_t ingot_session_set_debug(ingot_session_t *session,
                                                 ingot_debug_function_t debug, void *user);

#ifndef INGOT_CDEF
#ifdef __cplusplus
}
#endif
#endif /* INGOT_CDEF */

#endif /* INGOT_INGOT_H_ */
