/* The CPU driver's objects, shared by its files only.
 */
#ifndef INGOT_HAL_CPU_CPU_H_
#define INGOT_HAL_CPU_CPU_H_

#include "hal/cpu/device_options.h"
#include "hal/cpu/library.h"
#include "hal/cpu/thread_pool.h"
#include "hal/hal.h"

#define INGOT_HAL_CPU_SPARES 128

/* A block that a released result has left for the next one. */
typedef struct ingot_hal_cpu_spare_t {
  _Atomic size_t length; /* 0: none; 1: someone is at it */
  void *block;
} ingot_hal_cpu_spare_t;

typedef struct ingot_hal_cpu_device_t {
  ingot_device_t base;
  ingot_hal_cpu_options_t options;
  ingot_hal_cpu_spare_t spares[INGOT_HAL_CPU_SPARES];
  _Atomic size_t spare_length; /* of all of them */
  _Atomic uint32_t next_spare;
  _Atomic bool has_slow_pages; /* the last large buffer got no large pages, or not quickly */
  ingot_hal_cpu_pool_t *pool;        /* NULL with one thread */
  bool has_lent_threads;             /* of the application: it starts none itself */
  _Atomic size_t scratch_length;   /* the most that a loaded kernel needs */
  char description[96];
} ingot_hal_cpu_device_t;

typedef struct ingot_hal_cpu_kernel_t {
  ingot_kernel_function_t function;
  ingot_kernel_misfit_t misfit;
  uint64_t scratch_length;
} ingot_hal_cpu_kernel_t;

typedef struct ingot_hal_cpu_executable_t {
  ingot_hal_executable_t base;
  ingot_hal_cpu_kernel_t *kernels; /* like base.entries */
  ingot_hal_cpu_library_t library;
} ingot_hal_cpu_executable_t;

typedef struct ingot_hal_cpu_queue_t {
  ingot_hal_queue_t base;
  void *scratch; /* of the caller's thread */
  uint64_t scratch_length;
} ingot_hal_cpu_queue_t;

ingot_status_t ingot_hal_cpu_buffer_create(ingot_device_t *device, int64_t length,
                                           ingot_buffer_t **out_buffer);
/* Like ingot_memory_prefer_large_pages; memory of a few pages has them if larger ones had. */
bool ingot_hal_cpu_prefer_large_pages(ingot_hal_cpu_device_t *device, void *data, size_t length,
                                      size_t written);
/* Frees the spare blocks. */
void ingot_hal_cpu_device_trim(ingot_device_t *device);
ingot_status_t ingot_hal_cpu_buffer_wrap(ingot_device_t *device, void *data, int64_t length,
                                         uint32_t access, ingot_release_function_t release,
                                         void *user, ingot_buffer_t **out_buffer);
ingot_status_t ingot_hal_cpu_executable_create(
    ingot_device_t *device, const ingot_hal_executable_description_t *description,
    ingot_hal_executable_t **out_executable);
ingot_status_t ingot_hal_cpu_queue_create(ingot_device_t *device, ingot_hal_queue_t **out_queue);
void ingot_hal_cpu_queue_destroy(ingot_hal_queue_t *queue);
ingot_status_t ingot_hal_cpu_queue_wait(ingot_hal_queue_t *queue);
ingot_status_t ingot_hal_cpu_queue_dispatch(ingot_hal_queue_t *queue,
                                            const ingot_hal_dispatch_t *dispatch,
                                            const int64_t grid[3]);
ingot_status_t ingot_hal_cpu_queue_copy(ingot_hal_queue_t *queue, ingot_buffer_t *source,
                                        int64_t source_offset, ingot_buffer_t *target,
                                        int64_t target_offset, int64_t length);
ingot_status_t ingot_hal_cpu_queue_fill(ingot_hal_queue_t *queue, ingot_buffer_t *target,
                                        int64_t offset, int64_t length, uint64_t pattern,
                                        uint32_t pattern_length);
ingot_status_t ingot_hal_cpu_queue_write(ingot_hal_queue_t *queue, ingot_buffer_t *target,
                                         int64_t offset, const void *data, int64_t length);
ingot_status_t ingot_hal_cpu_queue_read(ingot_hal_queue_t *queue, ingot_buffer_t *source,
                                        int64_t offset, void *data, int64_t length);

#endif /* INGOT_HAL_CPU_CPU_H_ */
