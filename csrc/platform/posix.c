/* Linux, Android, macOS, iOS and the BSDs. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* under -std=c11 */
#endif
#include "platform/platform.h"

#if defined(INGOT_PLATFORM_POSIX)

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

#include "platform/cgroup.h"
#endif
#if defined(__APPLE__)
#include <TargetConditionals.h>
#include <libkern/OSCacheControl.h>
#include <pthread/qos.h>
#include <sys/sysctl.h>
#endif

static void ingot_posix_reason(ingot_reason_t *out_reason, const char *text) {
  (void)snprintf(out_reason->text, sizeof(out_reason->text), "%s", text);
}

/* -- threads ------------------------------------------------------------------------------------- */

#if !defined(INGOT_NO_THREADS)

void ingot_condition_wait_for(ingot_condition_t *condition, ingot_mutex_t *mutex,
                              int64_t nanoseconds) {
  struct timespec end;
  (void)clock_gettime(CLOCK_REALTIME, &end); /* which waits go by */
  int64_t seconds = nanoseconds / 1000000000;
  end.tv_sec += (time_t)seconds;
  end.tv_nsec += (long)(nanoseconds - seconds * 1000000000);
  if (end.tv_nsec >= 1000000000) {
    end.tv_nsec -= 1000000000;
    ++end.tv_sec;
  }
  (void)pthread_cond_timedwait(condition, mutex, &end);
}

static void *ingot_posix_thread_main(void *argument) {
  ingot_thread_t *thread = argument;
  thread->function(thread->argument);
  return NULL;
}

bool ingot_thread_start(ingot_thread_t *thread, size_t stack_length) {
  sigset_t all, saved;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  (void)pthread_attr_setstacksize(&attributes, stack_length);
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &saved);
  int error = pthread_create(&thread->handle, &attributes, ingot_posix_thread_main, thread);
  (void)pthread_sigmask(SIG_SETMASK, &saved, NULL);
  (void)pthread_attr_destroy(&attributes);
  return error == 0;
}

void ingot_thread_join(ingot_thread_t *thread) { (void)pthread_join(thread->handle, NULL); }

void ingot_thread_detach(ingot_thread_t *thread) { (void)pthread_detach(thread->handle); }

bool ingot_thread_bind(const ingot_processor_set_t *processors) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  for (uint32_t p = 0; p < CPU_SETSIZE; ++p) {
    if (ingot_processor_set_has(processors, p)) CPU_SET(p, &set);
  }
  return sched_setaffinity(0, sizeof(set), &set) == 0;
#else
  (void)processors;
  return false;
#endif
}

bool ingot_thread_prioritize(int32_t priority) {
#if defined(__linux__)
  return setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), -10 * priority) == 0;
#elif defined(__APPLE__)
  return pthread_set_qos_class_self_np(
             priority < 0 ? QOS_CLASS_UTILITY : QOS_CLASS_USER_INTERACTIVE, 0) == 0;
#else
  (void)priority;
  return false;
#endif
}

void ingot_thread_yield(void) { (void)sched_yield(); }

uintptr_t ingot_thread_self(void) { return (uintptr_t)&errno; } /* every thread has its own */

int64_t ingot_process_id(void) { return (int64_t)getpid(); }

#endif

/* -- clock --------------------------------------------------------------------------------------- */

static int64_t ingot_posix_clock(clockid_t clock) {
  struct timespec now;
  (void)clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t ingot_clock(void) { return ingot_posix_clock(CLOCK_MONOTONIC); }

int64_t ingot_clock_tick(void) {
#if defined(CLOCK_MONOTONIC_COARSE)
  return ingot_posix_clock(CLOCK_MONOTONIC_COARSE);
#else
  return ingot_posix_clock(CLOCK_MONOTONIC);
#endif
}

/* -- reading files ------------------------------------------------------------------------------- */

#if !defined(INGOT_NO_FILES)

static ingot_status_code_t ingot_posix_failed(int error, ingot_reason_t *out_reason) {
  ingot_posix_reason(out_reason, strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR: return INGOT_STATUS_NOT_FOUND;
    case EACCES:
    case EPERM: return INGOT_STATUS_PERMISSION_DENIED;
    case ENOMEM: return INGOT_STATUS_OUT_OF_MEMORY;
    case EISDIR:
    case ENXIO:
    case ELOOP:
    case ENAMETOOLONG: return INGOT_STATUS_INVALID_ARGUMENT;
    default: return INGOT_STATUS_INTERNAL;
  }
}

static uint64_t ingot_posix_page(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

static const uint64_t ingot_posix_empty_file[1] = {0}; /* aligned as any file is */

/* Puts bytes [begin, end) of the file at their place in `data`, which only there takes memory. */
static ingot_status_code_t ingot_posix_read(int descriptor, uint8_t *data, uint64_t begin,
                                            uint64_t end, ingot_reason_t *out_reason) {
  uint64_t first = begin / ingot_posix_page() * ingot_posix_page();
  if (begin < end && mprotect(data + first, (size_t)(end - first), PROT_READ | PROT_WRITE) != 0) {
    return ingot_posix_failed(errno, out_reason);
  }
  while (begin < end) {
    ssize_t count = pread(descriptor, data + begin, (size_t)(end - begin), (off_t)begin);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ingot_posix_failed(errno, out_reason);
    if (count == 0) {
      ingot_posix_reason(out_reason, "it was cut while it was read");
      return INGOT_STATUS_DATA_LOSS;
    }
    begin += (uint64_t)count;
  }
  return INGOT_STATUS_OK;
}

/* Fills private memory with the file; whole pages of what `choose` names, but for the head, are
 * the file's own. */
static ingot_status_code_t ingot_posix_fill(int descriptor, ingot_file_choose_t choose,
                                            uint8_t *data, uint64_t length,
                                            ingot_reason_t *out_reason) {
  uint64_t page = ingot_posix_page();
  uint64_t head = length < INGOT_FILE_HEAD ? length : INGOT_FILE_HEAD;
  uint64_t begin = 0;
  uint64_t end = 0;
  ingot_status_code_t code = ingot_posix_read(descriptor, data, 0, head, out_reason);
  if (code) return code;
  if (choose) choose(data, (size_t)head, &begin, &end);
  if (end > length) end = 0;
  if (begin < head) begin = head; /* what is checked must not change */
  begin = begin < end ? (begin + page - 1) / page * page : 0;
  end = end / page * page;
  if (begin >= end) return ingot_posix_read(descriptor, data, head, length, out_reason);
  if (mmap(data + begin, (size_t)(end - begin), PROT_READ, MAP_PRIVATE | MAP_FIXED, descriptor,
           (off_t)begin) == MAP_FAILED) {
    return ingot_posix_failed(errno, out_reason);
  }
  code = ingot_posix_read(descriptor, data, head, begin, out_reason);
  return code ? code : ingot_posix_read(descriptor, data, end, length, out_reason);
}

static ingot_status_code_t ingot_posix_load(int descriptor, ingot_file_choose_t choose,
                                            ingot_file_t *out_file, ingot_reason_t *out_reason) {
  struct stat facts;
  if (descriptor < 0 || fstat(descriptor, &facts) != 0) {
    return ingot_posix_failed(errno, out_reason);
  }
  if (S_ISDIR(facts.st_mode)) return ingot_posix_failed(EISDIR, out_reason);
  if (!S_ISREG(facts.st_mode)) {
    ingot_posix_reason(out_reason, "it is no regular file");
    return INGOT_STATUS_INVALID_ARGUMENT;
  }
  *out_file = (ingot_file_t){(const uint8_t *)ingot_posix_empty_file, 0}; /* it cannot be mapped */
  if (facts.st_size == 0) return INGOT_STATUS_OK;
  if ((uint64_t)facts.st_size > SIZE_MAX / 2) return ingot_posix_failed(ENOMEM, out_reason);
  size_t length = (size_t)facts.st_size;
  void *data = mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return ingot_posix_failed(errno, out_reason);
  *out_file = (ingot_file_t){data, length};
  ingot_status_code_t code = ingot_posix_fill(descriptor, choose, data, length, out_reason);
  if (code) ingot_file_unload(NULL, out_file);
  return code;
}

ingot_status_code_t ingot_file_load(const ingot_allocator_t *allocator, const char *path,
                                    ingot_file_choose_t choose, ingot_file_t *out_file,
                                    ingot_reason_t *out_reason) {
  (void)allocator;
  /* A pipe must not wait for its writer. */
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  ingot_status_code_t code = ingot_posix_load(descriptor, choose, out_file, out_reason);
  if (descriptor >= 0) (void)close(descriptor);
  return code;
}

void ingot_file_unload(const ingot_allocator_t *allocator, ingot_file_t *file) {
  (void)allocator;
  if (file->length > 0) (void)munmap((void *)(uintptr_t)file->data, file->length);
  *file = (ingot_file_t){NULL, 0};
}

#endif /* INGOT_NO_FILES */

/* -- writing files ------------------------------------------------------------------------------- */

#if !defined(INGOT_NO_FILES) || !defined(INGOT_NO_LOADER)

static bool ingot_posix_write(int descriptor, const void *data, size_t length) {
  const char *bytes = data;
  while (length > 0) {
    ssize_t count = write(descriptor, bytes, length);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes += count;
    length -= (size_t)count;
  }
  return true;
}

#endif

#if !defined(INGOT_NO_FILES)

#define INGOT_POSIX_PATH_CAPACITY 4096

bool ingot_file_write(const char *path, const ingot_file_part_t *parts, size_t count) {
  char fresh[INGOT_POSIX_PATH_CAPACITY];
  int length = snprintf(fresh, sizeof(fresh), "%s.XXXXXX", path);
  if (length <= 0 || (size_t)length >= sizeof(fresh)) return false;
  int descriptor = mkstemp(fresh);
  if (descriptor < 0) return false;
  bool is_written = true;
  for (size_t i = 0; i < count && is_written; i++) {
    is_written = ingot_posix_write(descriptor, parts[i].data, parts[i].length);
  }
  is_written = close(descriptor) == 0 && is_written && rename(fresh, path) == 0;
  if (!is_written) (void)unlink(fresh);
  return is_written;
}

bool ingot_folder_make(const char *path) {
  char part[INGOT_POSIX_PATH_CAPACITY];
  size_t length = strlen(path);
  if (length == 0 || length >= sizeof(part)) return false;
  memcpy(part, path, length + 1);
  for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    (void)mkdir(part, 0700);
    *slash = '/';
  }
  struct stat facts;
  if (mkdir(path, 0700) != 0 && errno != EEXIST) return false;
  return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == geteuid() &&
         !(facts.st_mode & (S_IWGRP | S_IWOTH)) && access(path, W_OK) == 0;
}

bool ingot_folder_of_caches(char *out_path, size_t capacity) {
  const char *base = getenv("XDG_CACHE_HOME");
  const char *home = getenv("HOME");
  int length = -1;
  if (base && *base) length = snprintf(out_path, capacity, "%s", base);
  else if (home && *home) length = snprintf(out_path, capacity, "%s/.cache", home);
  return length > 0 && (size_t)length < capacity;
}

#endif /* INGOT_NO_FILES */

/* -- memory -------------------------------------------------------------------------------------- */

int64_t ingot_memory_length(void) {
#if defined(__linux__)
  struct sysinfo facts;
  if (sysinfo(&facts) != 0) return 0;
  uint64_t length = ((uint64_t)facts.totalram + facts.totalswap) * facts.mem_unit;
  return length < INT64_MAX ? (int64_t)length : INT64_MAX;
#elif defined(_SC_PHYS_PAGES)
  return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
#else
  return 0;
#endif
}

#if defined(__linux__)

#define INGOT_POSIX_COLLAPSE 25 /* MADV_COLLAPSE, of Linux 6.1 */
#define INGOT_POSIX_SLOW_NANOSECONDS 1000000 /* to clear a large page takes 50 to 400 us */

static bool ingot_posix_is_slow(uint8_t *page) {
  int64_t begin = ingot_clock();
  *(volatile uint8_t *)page = 0;
  return ingot_clock() - begin > INGOT_POSIX_SLOW_NANOSECONDS;
}

/* A virtual machine that has used up what it was given asks its host for each further large page,
 * which takes 5 to 10 ms: then small pages are faster, which it has. */
bool ingot_memory_prefer_large_pages(void *data, size_t length, size_t written) {
  const size_t page = INGOT_LARGE_PAGE;
  if (madvise(data, length, MADV_HUGEPAGE) != 0) return false;
  for (size_t at = 0; at + 2 * page <= length; at += page) {
    uint8_t *begin = (uint8_t *)data + at;
    if (ingot_posix_is_slow(begin) && ingot_posix_is_slow(begin + page)) {
      (void)madvise(begin, length - at, MADV_NOHUGEPAGE);
      return false;
    }
    if (at + page >= written) break;
  }
  return true;
}

bool ingot_memory_move_to_large_pages(void *data, size_t length) {
  if (madvise(data, length, MADV_HUGEPAGE) != 0) return false;
  if (madvise(data, length, INGOT_POSIX_COLLAPSE) == 0) return true;
  return errno == EAGAIN || errno == EBUSY; /* as where a device reads a part of it */
}

#endif

void ingot_memory_leave(const void *data, size_t length) {
#if defined(__linux__) && defined(MADV_DONTNEED)
  const uintptr_t unit = INGOT_MEMORY_UNIT;
  uintptr_t begin = ((uintptr_t)data + unit - 1) & ~(unit - 1);
  uintptr_t end = ((uintptr_t)data + length) & ~(unit - 1);
  if (begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
#else
  (void)data;
  (void)length;
#endif
}

bool ingot_memory_give_back(void *data, size_t length) {
#if defined(__linux__) && defined(MADV_DONTNEED) && !defined(INGOT_NO_MALLOC)
  return madvise(data, length, MADV_DONTNEED) == 0; /* elsewhere it is a hint */
#else
  (void)data;
  (void)length;
  return false;
#endif
}

/* -- loading code -------------------------------------------------------------------------------- */

#if !defined(INGOT_NO_LOADER)

/* Apple silicon executes only what its compiler signed, or what stands in memory that was mapped
 * with MAP_JIT, which a thread can either write or execute. */
#if defined(__APPLE__) && defined(__aarch64__) && TARGET_OS_OSX
#define INGOT_POSIX_JIT 1
#else
#define INGOT_POSIX_JIT 0
#endif

size_t ingot_pages_unit(void) { return (size_t)sysconf(_SC_PAGESIZE); }

void *ingot_pages_create(size_t length) {
#if INGOT_POSIX_JIT
  void *pages = mmap(NULL, length, PROT_READ | PROT_WRITE | PROT_EXEC,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_JIT, -1, 0);
  if (pages != MAP_FAILED) pthread_jit_write_protect_np(0);
#else
  void *pages = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#endif
  return pages == MAP_FAILED ? NULL : pages;
}

#if INGOT_POSIX_JIT

/* Puts ordinary memory of the same content in place of pages that are not to be executed. */
static bool ingot_posix_leave_jit(void *pages, size_t length) {
  void *copy = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return false;
  memcpy(copy, pages, length);
  void *plain =
      mmap(pages, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (plain != MAP_FAILED) memcpy(pages, copy, length);
  (void)munmap(copy, length);
  return plain != MAP_FAILED;
}

#endif

ingot_status_code_t ingot_pages_protect(void *pages, size_t length, uint32_t access,
                                        ingot_reason_t *out_reason) {
  if (access & INGOT_PAGES_EXECUTE) {
#if defined(__APPLE__)
    sys_icache_invalidate(pages, length);
#else
    __builtin___clear_cache((char *)pages, (char *)pages + length);
#endif
#if INGOT_POSIX_JIT
    pthread_jit_write_protect_np(1);
    return INGOT_STATUS_OK;
#endif
  }
#if INGOT_POSIX_JIT
  bool is_plain = ingot_posix_leave_jit(pages, length);
#else
  bool is_plain = true;
#endif
  int protection = (access & INGOT_PAGES_READ ? PROT_READ : 0) |
                   (access & INGOT_PAGES_WRITE ? PROT_WRITE : 0) |
                   (access & INGOT_PAGES_EXECUTE ? PROT_EXEC : 0);
  if (is_plain && mprotect(pages, length, protection) == 0) return INGOT_STATUS_OK;
  int error = errno;
  ingot_posix_reason(out_reason, strerror(error));
  return error == ENOMEM ? INGOT_STATUS_OUT_OF_MEMORY : INGOT_STATUS_PERMISSION_DENIED;
}

void ingot_pages_free(void *pages, size_t length) {
#if INGOT_POSIX_JIT
  pthread_jit_write_protect_np(1);
#endif
  (void)munmap(pages, length);
}

void ingot_profiler_name_code(const void *code, size_t length, const char *name) {
  char line[256];
  (void)snprintf(line, sizeof(line), "/tmp/perf-%d.map", (int)getpid());
  int file = open(line, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return;
  int count =
      snprintf(line, sizeof(line), "%zx %zx %.180s\n", (size_t)(uintptr_t)code, length, name);
  if (count > 0) (void)ingot_posix_write(file, line, (size_t)count);
  (void)close(file);
}

#endif /* INGOT_NO_LOADER */

bool ingot_dynamic_library_open(const char *path, ingot_dynamic_library_t *out_library,
                                ingot_reason_t *out_reason) {
  *out_library = (ingot_dynamic_library_t){dlopen(path, RTLD_NOW | RTLD_LOCAL), -1};
  if (out_library->handle) return true;
  const char *text = dlerror();
  ingot_posix_reason(out_reason, text ? text : "no reason given");
  return false;
}

/* An anonymous file. It stays open as long as the handle: dlopen takes two objects of one path for
 * the same. */
bool ingot_dynamic_library_open_bytes(const void *data, size_t length,
                                      ingot_dynamic_library_t *out_library) {
#if defined(SYS_memfd_create) && !defined(INGOT_NO_LOADER)
  char path[64];
  ingot_reason_t reason;
  int file = (int)syscall(SYS_memfd_create, "ingot-kernels", 1u /* MFD_CLOEXEC */);
  if (file < 0) return false;
  (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
  if (ingot_posix_write(file, data, length) &&
      ingot_dynamic_library_open(path, out_library, &reason)) {
    out_library->file = file;
    return true;
  }
  (void)close(file);
#else
  (void)data;
  (void)length;
#endif
  *out_library = (ingot_dynamic_library_t){NULL, -1};
  return false;
}

void *ingot_dynamic_library_symbol(const ingot_dynamic_library_t *library, const char *name) {
  return dlsym(library->handle, name);
}

void ingot_dynamic_library_close(ingot_dynamic_library_t *library) {
  if (library->handle) (void)dlclose(library->handle);
  if (library->handle && library->file >= 0) (void)close(library->file);
  library->handle = NULL;
}

/* -- processors ---------------------------------------------------------------------------------- */

uint32_t ingot_processor_count(void) {
  long count = sysconf(_SC_NPROCESSORS_ONLN); /* also: more processors than cpu_set_t has */
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) count = CPU_COUNT(&set);
#endif
#if defined(__linux__) && !defined(INGOT_NO_FILES)
  uint32_t quota = ingot_cgroup_quota("");
  if (count > 0 && quota < (uint32_t)count) count = (long)quota;
#endif
  return count > 0 ? (uint32_t)count : 1;
}

bool ingot_processors_usable(ingot_processor_set_t *out_set) {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return false;
  memset(out_set, 0, sizeof(*out_set));
  for (uint32_t p = 0; p < CPU_SETSIZE; ++p) {
    if (CPU_ISSET(p, &set)) out_set->words[p / 64] |= UINT64_C(1) << p % 64;
  }
  return true;
#else
  (void)out_set;
  return false;
#endif
}

#if defined(__APPLE__) && defined(__aarch64__)

static uint64_t ingot_posix_has(const char *name, uint32_t bit) {
  int value = 0;
  size_t length = sizeof(value);
  return sysctlbyname(name, &value, &length, NULL, 0) == 0 && value ? UINT64_C(1) << bit : 0;
}

#endif

ingot_processor_capabilities_t ingot_processor_capabilities(void) {
  ingot_processor_capabilities_t capabilities = {{0, 0}};
#if defined(__linux__)
  capabilities.words[0] = getauxval(AT_HWCAP);
  capabilities.words[1] = getauxval(AT_HWCAP2);
#if defined(__riscv)
  /* The letter V may mean vectors before 1.0; riscv_hwprobe, where there is one, means 1.0. */
  struct {
    int64_t key;
    uint64_t value;
  } probe = {4, 0}; /* RISCV_HWPROBE_KEY_IMA_EXT_0 */
  if (syscall(258, &probe, 1, 0, NULL, 0) == 0 && !(probe.value & 4)) {
    capabilities.words[0] &= ~(UINT64_C(1) << 21);
  }
#endif
#elif defined(__APPLE__) && defined(__aarch64__)
  capabilities.words[0] = ingot_posix_has("hw.optional.arm.FEAT_FP16", 9) |
                          ingot_posix_has("hw.optional.arm.FEAT_FP16", 10) |
                          ingot_posix_has("hw.optional.arm.FEAT_DotProd", 20);
  capabilities.words[1] = ingot_posix_has("hw.optional.arm.FEAT_I8MM", 13) |
                          ingot_posix_has("hw.optional.arm.FEAT_BF16", 14);
#endif
  return capabilities;
}

#if defined(__linux__) && defined(__x86_64__) && !defined(INGOT_NO_LOADER)

enum { INGOT_GET_STATES = 0x1021, INGOT_REQUEST_STATE = 0x1023, INGOT_TILES = 18 };

bool ingot_processor_has_tiles(void) {
  uint64_t states = 0;
  return syscall(SYS_arch_prctl, INGOT_GET_STATES, &states) == 0 && states >> INGOT_TILES & 1;
}

bool ingot_processor_request_tiles(void) {
  return syscall(SYS_arch_prctl, INGOT_REQUEST_STATE, INGOT_TILES) == 0;
}

#else

bool ingot_processor_has_tiles(void) { return false; }
bool ingot_processor_request_tiles(void) { return false; }

#endif

#endif /* INGOT_PLATFORM_POSIX */
