/* What a container may use of the processors, on Linux. */
#ifndef INGOT_PLATFORM_CGROUP_H_
#define INGOT_PLATFORM_CGROUP_H_

#include <stdint.h>

/* The quota of this process's groups, rounded up to whole processors; UINT32_MAX if there is
 * none. `root` is "" but in tests, where it is a folder with a "proc" and a "sys" of their own. */
uint32_t ingot_cgroup_quota(const char *root);

#endif /* INGOT_PLATFORM_CGROUP_H_ */
