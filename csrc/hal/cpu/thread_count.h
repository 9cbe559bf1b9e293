/* How many threads this process may keep busy.
 */
#ifndef INGOT_HAL_CPU_THREAD_COUNT_H_
#define INGOT_HAL_CPU_THREAD_COUNT_H_

#include <stdint.h>

/* The smaller of the scheduler's affinity mask and the cgroup's processor quota (rounded
 * up); at least 1. */
uint32_t ingot_hal_cpu_thread_count(void);

/* The quota alone, rounded up to whole processors; UINT32_MAX if there is none. `root` is
 * "" but in tests, where it is a folder with a "proc" and a "sys" of their own. */
uint32_t ingot_hal_cpu_quota(const char *root);

#endif /* INGOT_HAL_CPU_THREAD_COUNT_H_ */
