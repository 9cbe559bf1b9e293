/* What a URI says of a CPU device: "cpu://?threads=4&affinity=0-3,6&priority=low&spin=off".
 */
#ifndef INGOT_HAL_CPU_DEVICE_OPTIONS_H_
#define INGOT_HAL_CPU_DEVICE_OPTIONS_H_

#include "hal/hal.h"
#include "platform/platform.h"

#define INGOT_HAL_CPU_MAX_THREADS 1024

typedef struct ingot_hal_cpu_options_t {
  uint32_t thread_count; /* with the caller's; 0: as many as processors */
  int32_t priority;      /* of the device's threads beside others: -1 lower, 1 higher */
  bool is_calm;          /* threads that wait sleep at once */
  bool is_bound;         /* to `processors` */
  ingot_processor_set_t processors;
} ingot_hal_cpu_options_t;

/* InvalidArgument for an option that is unknown, has a bad value, or names a processor that this
 * process may not use; Unsupported where threads cannot be bound. */
ingot_status_t ingot_hal_cpu_read_options(const ingot_allocator_t *allocator,
                                          const ingot_hal_uri_t *uri,
                                          ingot_hal_cpu_options_t *out_options);

#if !defined(INGOT_NO_THREADS)
/* Gives the calling thread, one of the device's own, its processors and priority. */
void ingot_hal_cpu_place_thread(const ingot_hal_cpu_options_t *options, const ingot_log_t *log);
#endif

#endif /* INGOT_HAL_CPU_DEVICE_OPTIONS_H_ */
