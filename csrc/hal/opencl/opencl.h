/* The OpenCL driver's objects, shared by its files only.
 *
 * OpenCL's own objects are counted and its functions thread-safe, except for the arguments of
 * a kernel; so there are locks around these, the device's list of queues and its maps, and
 * nowhere else.
 */
#ifndef INGOT_HAL_OPENCL_OPENCL_H_
#define INGOT_HAL_OPENCL_OPENCL_H_

#include "hal/hal.h"
#include "hal/opencl/find.h"
#include "hal/opencl/library.h"
#include "ingot/opencl_object.h"

/* -- device ---------------------------------------------------------------------------------- */

#define INGOT_OPENCL_CALLS 8 /* submitted calls side by side: their threads wait most of the time */

typedef struct ingot_opencl_queue_t ingot_opencl_queue_t;
typedef struct ingot_opencl_map_t ingot_opencl_map_t;

typedef struct ingot_opencl_device_t {
  ingot_device_t base;
  const ingot_cl_functions_t *cl; /* of the instance's state */
  ingot_cl_device_t device;
  ingot_cl_context_t context; /* retained */
  ingot_cl_queue_t queue; /* for maps; retained */
  bool is_queue_shared; /* the application's: sessions use it too */
  bool zero_copy; /* wrapped bytes are used in place */
  bool self_test;
  bool has_dot_products; /* of words of bytes, by functions of OpenCL C 3.0 */
  bool has_exact_division; /* f32 division and sqrt can be rounded correctly */
  uint64_t features; /* INGOT_OPENCL_FP64... */
  uint64_t type; /* INGOT_CL_DEVICE_TYPE_* */
  uint64_t max_allocation; /* bytes of one buffer */
  uint64_t max_parameter_length; /* bytes of all arguments of a kernel */
  uint64_t local_length; /* bytes of local memory of a group */
  size_t group_size; /* work items of a group */
  size_t group_sizes[3]; /* the same per axis */
  ingot_mutex_t map_mutex; /* drivers mix up maps of one range that come and go side by side */
  ingot_mutex_t staging_mutex; /* guards the staging memory */
  ingot_cl_memory_t staging_memory; /* NULL until a transfer needs it */
  uint8_t *staging; /* its map: pinned bytes */
  ingot_mutex_t mutex; /* guards the lists */
  ingot_opencl_queue_t *queues; /* of this device */
  uint32_t queue_count; /* that were ever made */
  ingot_opencl_map_t *maps; /* of wrapped bytes that the device has a copy of */
  char *cache_folder; /* NULL: nothing is cached */
  char identity[768]; /* what a binary depends on: device, driver, platform */
  char description[512];
} ingot_opencl_device_t;

/* Opens the device that `uri` says, or the application's: `context` and `queue` (either may be
 * NULL) are retained. The library that `uri` says is opened once. */
ingot_status_t ingot_opencl_open(ingot_instance_t *instance, const ingot_hal_uri_t *uri,
                                 ingot_cl_context_t context, ingot_cl_queue_t queue,
                                 ingot_device_t **out_device);

/* The same with the library open: `cl` lives as long as the instance. */
ingot_status_t ingot_opencl_device_open(ingot_instance_t *instance, const ingot_cl_functions_t *cl,
                                        const ingot_hal_uri_t *uri,
                                        const ingot_opencl_options_t *options,
                                        ingot_cl_context_t context, ingot_cl_queue_t queue,
                                        ingot_device_t **out_device);

extern const ingot_hal_driver_t ingot_hal_opencl_driver;
extern const ingot_hal_device_vtable_t ingot_opencl_device_vtable;

/* Whether the list, words with spaces between, has the word. */
bool ingot_opencl_has_word(const char *list, const char *word);

/* InvalidArgument for a device of another driver. */
ingot_status_t ingot_opencl_check_device(const ingot_device_t *device);

/* Waits for everything that the device's queues with a bit in `users` have been given. */
ingot_status_t ingot_opencl_device_finish(ingot_opencl_device_t *device, uint64_t users);

/* -- buffer ---------------------------------------------------------------------------------- */

#define INGOT_OPENCL_ALL_USERS UINT64_MAX

/* A range of read-only wrapped bytes that the device has a copy of. */
typedef struct ingot_opencl_part_t {
  int64_t begin;
  int64_t end;
  ingot_cl_memory_t memory;
} ingot_opencl_part_t;

typedef struct ingot_opencl_buffer_t {
  ingot_buffer_t base;
  ingot_cl_memory_t memory; /* NULL: it has parts */
  /* The queues that were ever given work on it, by their bits. All of them for bytes that other
   * buffers may share. */
  _Atomic uint64_t users;
  int64_t memory_offset; /* of the buffer's first byte in `memory` */
  ingot_release_function_t release; /* of wrapped bytes or memory; may be NULL */
  void *user;
  uint8_t *wrapped; /* the caller's bytes; NULL if there are none */
  bool is_external; /* `memory` is another API's, imported */
  bool is_copy; /* of the wrapped bytes: the device does not use them in place */
  /* Read-only bytes are copied range by range when work first uses them: of a module's
   * constants often few are needed after init, and all of them may be more than one memory
   * object can hold. Sorted by `begin`; guarded by the device's mutex. */
  uint32_t part_count;
  ingot_opencl_part_t *parts;
} ingot_opencl_buffer_t;

/* Where bytes lie on the device. */
typedef struct ingot_opencl_place_t {
  ingot_cl_memory_t memory;
  int64_t offset;
} ingot_opencl_place_t;

/* Finds `length` bytes of a buffer from `offset` on; copies them to the device if they are not
 * there. */
ingot_status_t ingot_opencl_locate(const ingot_buffer_t *buffer, int64_t offset, int64_t length,
                                   ingot_opencl_place_t *out_place);

/* Drops the parts. */
void ingot_opencl_buffer_trim(ingot_buffer_t *root);

ingot_status_t ingot_opencl_buffer_create(ingot_device_t *device, int64_t length,
                                          ingot_buffer_t **out_buffer);
ingot_status_t ingot_opencl_buffer_wrap(ingot_device_t *device, void *data, int64_t length,
                                        uint32_t access, ingot_release_function_t release,
                                        void *user, ingot_buffer_t **out_buffer);

/* A range of the application's memory object, which is retained. */
ingot_status_t ingot_opencl_buffer_from_memory(ingot_device_t *device, ingot_cl_memory_t memory,
                                               int64_t offset, int64_t length,
                                               ingot_release_function_t release, void *user,
                                               ingot_buffer_t **out_buffer);

/* OutOfMemory if the device has no buffer that large. */
ingot_status_t ingot_opencl_check_allocation(const ingot_opencl_device_t *device, int64_t length);

/* A range of a memory object on which no work runs in this process's memory, and its end; both
 * have ended when they return. */
ingot_status_t ingot_opencl_map(ingot_opencl_device_t *device, ingot_cl_memory_t memory,
                                uint64_t flags, int64_t offset, int64_t length, void **out_data);
ingot_status_t ingot_opencl_unmap(ingot_opencl_device_t *device, ingot_cl_memory_t memory,
                                  void *data);

/* Copies between host bytes and a memory object on which no work runs, and waits for it. */
ingot_status_t ingot_opencl_transfer(ingot_opencl_device_t *device, ingot_cl_memory_t memory,
                                     int64_t offset, int64_t length, bool to_device, uint8_t *host);

/* Frees the staging memory, if there is any. */
void ingot_opencl_staging_free(ingot_opencl_device_t *device);

/* The root's driver object. */
static inline ingot_opencl_buffer_t *ingot_opencl_root(const ingot_buffer_t *buffer) {
  return (ingot_opencl_buffer_t *)buffer->root;
}

/* -- executable ------------------------------------------------------------------------------ */

enum { INGOT_OPENCL_NARROW, INGOT_OPENCL_WIDE, INGOT_OPENCL_WIDTH_COUNT }; /* of INGOT_INDEX */

typedef struct ingot_opencl_kernel_t {
  ingot_cl_kernel_t kernels[INGOT_OPENCL_WIDTH_COUNT]; /* NULL: not built, or not for here */
  const ingot_opencl_entry_t *entry;
  const ingot_opencl_binding_t *bindings; /* entry->binding_count of them */
  const ingot_opencl_step_t *steps; /* entry->step_count of them */
} ingot_opencl_kernel_t;

typedef struct ingot_opencl_executable_t {
  ingot_hal_executable_t base;
  ingot_mutex_t mutex; /* guards the kernels' arguments and the wide build */
  ingot_opencl_kernel_t *kernels; /* like base.entries */
  uint8_t *object; /* a copy: tables and source */
  size_t object_length;
} ingot_opencl_executable_t;

ingot_status_t ingot_opencl_executable_create(ingot_device_t *device,
                                              const ingot_hal_executable_description_t *description,
                                              ingot_hal_executable_t **out_executable);

/* The kernel with indices of that width, built when it is first asked for; under the mutex. */
ingot_status_t ingot_opencl_executable_kernel(ingot_opencl_executable_t *executable, uint32_t entry,
                                              uint32_t width, ingot_cl_kernel_t *out_kernel);

/* Whether a kernel's steps can be computed; `count` is that of the values before the first one. */
bool ingot_opencl_steps_are_sound(const ingot_opencl_step_t *steps, uint32_t step_count,
                                  uint64_t count);

/* Whether a dispatch's numbers do not belong together; the kernel's steps are sound. */
bool ingot_opencl_is_misfit(const ingot_opencl_kernel_t *kernel,
                            const ingot_hal_dispatch_t *dispatch);

/* Checks an object's tables; DataLoss says what is wrong. */
ingot_status_t ingot_opencl_object_check(const ingot_allocator_t *allocator, const void *data,
                                         size_t length,
                                         const ingot_hal_executable_description_t *description);

/* -- queue ----------------------------------------------------------------------------------- */

ingot_status_t ingot_opencl_queue_create(ingot_device_t *device, ingot_hal_queue_t **out_queue);
void ingot_opencl_queue_destroy(ingot_hal_queue_t *queue);
ingot_status_t ingot_opencl_queue_wait(ingot_hal_queue_t *queue);
ingot_status_t ingot_opencl_queue_dispatch(ingot_hal_queue_t *queue,
                                           const ingot_hal_dispatch_t *dispatch,
                                           const int64_t grid[3]);
ingot_status_t ingot_opencl_queue_copy(ingot_hal_queue_t *queue, ingot_buffer_t *source,
                                       int64_t source_offset, ingot_buffer_t *target,
                                       int64_t target_offset, int64_t length);
ingot_status_t ingot_opencl_queue_fill(ingot_hal_queue_t *queue, ingot_buffer_t *target,
                                       int64_t offset, int64_t length, uint64_t pattern,
                                       uint32_t pattern_length);
ingot_status_t ingot_opencl_queue_write(ingot_hal_queue_t *queue, ingot_buffer_t *target,
                                        int64_t offset, const void *data, int64_t length);
ingot_status_t ingot_opencl_queue_read(ingot_hal_queue_t *queue, ingot_buffer_t *source,
                                       int64_t offset, void *data, int64_t length);

#endif /* INGOT_HAL_OPENCL_OPENCL_H_ */
