/* The device's worker threads. They share the workgroups of one dispatch at a time with the
 * caller; results do not depend on how many there are or who takes what.
 */
#ifndef INGOT_HAL_CPU_THREAD_POOL_H_
#define INGOT_HAL_CPU_THREAD_POOL_H_

#include "base/allocator.h"
#include "base/log.h"
#include "base/status.h"
#include "base/stop.h"
#include "hal/cpu/device_options.h"
#include "ingot/kernel_abi.h"

typedef struct ingot_hal_cpu_pool_t ingot_hal_cpu_pool_t;

/* A dispatch as its workgroups need it; `dispatch` is the first member, for they ask with it. */
typedef struct ingot_hal_cpu_work_t {
  ingot_kernel_dispatch_t dispatch;
  ingot_kernel_function_t function;
  uint64_t scratch_length;
  ingot_stop_t *stop; /* of the call, or NULL; when it is due, no more workgroups are started */
  bool is_shared;     /* this is the workers' copy, which does not ask the caller */
  int64_t grid[3]; /* positive */
  int64_t total;   /* their product, below 2^62 */
} ingot_hal_cpu_work_t;

/* `poll` of all dispatches: whether the work that the dispatch is a part of has to end. */
uint32_t INGOT_KERNEL_CALL ingot_hal_cpu_poll(const ingot_kernel_dispatch_t *dispatch);

/* A pool of options->thread_count - 1 threads besides the caller's; they start with the
 * first dispatch that is worth it. `can_spin`: there is a processor for each, so waiting
 * workers may spin for a while before they sleep. `log` is copied; it hears what the system does
 * not give. With `lent` (or NULL), which is copied, as many of the application's threads instead. */
ingot_status_t ingot_hal_cpu_pool_create(const ingot_allocator_t *allocator, const ingot_log_t *log,
                                         const ingot_hal_cpu_options_t *options, bool can_spin,
                                         const ingot_thread_pool_t *lent,
                                         ingot_hal_cpu_pool_t **out_pool);

/* Waits for the workers to end. No dispatch may be running. Accepts NULL. */
void ingot_hal_cpu_pool_destroy(ingot_hal_cpu_pool_t *pool);

/* Gives every worker at least `length` bytes of scratch, now if the pool is idle, else with
 * the first dispatch that needs it. */
ingot_status_t ingot_hal_cpu_pool_reserve_scratch(ingot_hal_cpu_pool_t *pool, uint64_t length);

/* Runs all workgroups on caller and workers and returns true. False, with nothing done, if
 * the pool is busy with another session's dispatch or has no thread or memory: the caller
 * runs the work alone. `scratch` is the caller's. out_fault->code is 0, or that of the
 * lowest workgroup that failed. */
bool ingot_hal_cpu_pool_run(ingot_hal_cpu_pool_t *pool, const ingot_hal_cpu_work_t *work,
                            void *scratch, ingot_kernel_fault_t *out_fault);

/* Runs all workgroups in order on this thread, up to the first that fails. */
void ingot_hal_cpu_run_inline(const ingot_hal_cpu_work_t *work, void *scratch,
                              ingot_kernel_fault_t *out_fault);

#endif /* INGOT_HAL_CPU_THREAD_POOL_H_ */
