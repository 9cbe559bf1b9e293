/* Quotas of processors in cgroup v1 or v2. A container's limit may sit on any ancestor of the
 * process's group, so all of them are read. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* under -std=c11 */
#endif
#include "platform/cgroup.h"

#if defined(__linux__) && !defined(INGOT_NO_FILES)

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INGOT_CGROUP_PATH_CAPACITY 512

/* The start of a small file as a string. False if it cannot be read. */
static bool ingot_cgroup_read(const char *path, char *out_text, size_t capacity) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  size_t length = 0;
  ssize_t got = 1;
  while (got > 0 && length < capacity - 1) {
    got = pread(file, out_text + length, capacity - 1 - length, (off_t)length);
    if (got > 0) length += (size_t)got;
  }
  (void)close(file);
  out_text[length] = 0;
  return length > 0;
}

static uint32_t ingot_cgroup_round_up(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return UINT32_MAX; /* -1 means no limit */
  long long count = quota / period + (quota % period != 0);
  return count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
}

/* The limit of one group: `folder` is its path below the controller's mount. */
static uint32_t ingot_cgroup_group(const char *root, const char *mount, const char *folder,
                                   bool is_v2) {
  char path[INGOT_CGROUP_PATH_CAPACITY + 64], text[64];
  const char *file = is_v2 ? "cpu.max" : "cpu.cfs_quota_us";
  (void)snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%s/%s", root, mount, folder, file);
  if (!ingot_cgroup_read(path, text, sizeof(text))) return UINT32_MAX;
  char *end;
  long long quota = strtoll(text, &end, 10); /* "max 100000" gives 0: no limit */
  if (is_v2) return ingot_cgroup_round_up(quota, strtoll(end, NULL, 10));
  (void)snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%s/cpu.cfs_period_us", root, mount, folder);
  if (!ingot_cgroup_read(path, text, sizeof(text))) return UINT32_MAX;
  return ingot_cgroup_round_up(quota, strtoll(text, NULL, 10));
}

/* The smallest limit of a group and its ancestors; eats `folder`. */
static uint32_t ingot_cgroup_smallest(const char *root, const char *mount, char *folder,
                                      bool is_v2) {
  uint32_t smallest = UINT32_MAX;
  for (;;) {
    uint32_t quota = ingot_cgroup_group(root, mount, folder, is_v2);
    if (quota < smallest) smallest = quota;
    char *slash = strrchr(folder, '/');
    if (!slash) return smallest;
    *slash = 0;
  }
}

/* Whether a v1 line's controllers ("cpu,cpuacct") have "cpu". */
static bool ingot_cgroup_has_cpu(const char *controllers) {
  for (const char *name = controllers; *name;) {
    size_t length = strcspn(name, ",");
    if (length == 3 && memcmp(name, "cpu", 3) == 0) return true;
    name += length + (name[length] == ',');
  }
  return false;
}

uint32_t ingot_cgroup_quota(const char *root) {
  char path[INGOT_CGROUP_PATH_CAPACITY], text[4096];
  (void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
  if (!ingot_cgroup_read(path, text, sizeof(text))) return UINT32_MAX;
  uint32_t smallest = UINT32_MAX;
  for (char *line = text, *next; line && *line; line = next) { /* "4:cpu,cpuacct:/a/b" */
    next = strchr(line, '\n');
    if (next) *next++ = 0;
    char *controllers = strchr(line, ':');
    char *folder = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!folder || strlen(folder) >= INGOT_CGROUP_PATH_CAPACITY / 2) continue;
    *folder++ = 0;
    controllers++;
    bool is_v2 = *controllers == 0;
    if (!is_v2 && !ingot_cgroup_has_cpu(controllers)) continue;
    if (strcmp(folder, "/") == 0) folder++;
    uint32_t quota = ingot_cgroup_smallest(root, is_v2 ? "" : "/cpu", folder, is_v2);
    if (quota < smallest) smallest = quota;
  }
  return smallest;
}

#endif
