/* What the runtime asks of the operating system, all of it. Nothing else of csrc/ includes a
 * system's header; one file per kind of system answers: posix.c, windows.c, wasm.c, bare.c.
 *
 * Left out by a definition for the whole build, and where the system has none:
 *   INGOT_NO_THREADS  a mutex is nothing, work runs on the threads that call; they must take turns
 *   INGOT_NO_FILES    modules come from memory, weights from ingot_parameters_t
 *   INGOT_NO_LOADER   kernels are linked into the program (ingot_static_kernels_t)
 *   INGOT_NO_MALLOC   the allocator is the program's (ingot_instance_options_t)
 *   INGOT_BARE        all four, and nothing is asked of the system that there may be
 *
 * A function that fails for reasons of the system's gives a code of ingot.h, and the reason as
 * text.
 */
#ifndef INGOT_PLATFORM_PLATFORM_H_
#define INGOT_PLATFORM_PLATFORM_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ingot/ingot.h"

#if defined(INGOT_BARE)
#define INGOT_PLATFORM_BARE 1
#elif defined(_WIN32)
#define INGOT_PLATFORM_WINDOWS 1
#elif defined(__wasm__)
#define INGOT_PLATFORM_WASM 1
#elif defined(__unix__) || defined(__APPLE__)
#define INGOT_PLATFORM_POSIX 1
#else
#define INGOT_PLATFORM_BARE 1
#endif

#if defined(INGOT_PLATFORM_WASM) || defined(INGOT_PLATFORM_BARE)
#if !defined(INGOT_NO_THREADS) && (!defined(__wasm_atomics__) || defined(__wasi__))
#define INGOT_NO_THREADS 1
#endif
#if !defined(INGOT_NO_FILES) && !defined(__wasi__)
#define INGOT_NO_FILES 1
#endif
#if !defined(INGOT_NO_LOADER) && (defined(INGOT_PLATFORM_BARE) || defined(__wasi__))
#define INGOT_NO_LOADER 1
#endif
#if !defined(INGOT_NO_MALLOC) && !defined(__wasi__)
#define INGOT_NO_MALLOC 1
#endif
#endif

/* Code is ELF, which is put into pages; that of a page or of node is the host's to load. */
#if !defined(INGOT_NO_LOADER) && !defined(INGOT_PLATFORM_WASM)
#define INGOT_LOADS_ELF 1
#endif

#if defined(INGOT_PLATFORM_POSIX) && !defined(INGOT_NO_THREADS)
#include <pthread.h>
#endif

/* Why something failed, in the system's words. */
typedef struct ingot_reason_t {
  char text[200];
} ingot_reason_t;

/* Processors by the system's numbers: bit n % 64 of word n / 64. */
typedef struct ingot_processor_set_t {
  uint64_t words[16];
} ingot_processor_set_t;

static inline bool ingot_processor_set_has(const ingot_processor_set_t *set, uint32_t processor) {
  return processor < 1024 && (set->words[processor / 64] >> processor % 64 & 1);
}

/* -- mutex and condition: they do not nest, and nothing here allocates --------------------------- */

#if defined(INGOT_NO_THREADS)

typedef struct ingot_mutex_t {
  char unused;
} ingot_mutex_t;

static inline void ingot_mutex_initialize(ingot_mutex_t *mutex) { (void)mutex; }
static inline void ingot_mutex_deinitialize(ingot_mutex_t *mutex) { (void)mutex; }
static inline void ingot_mutex_lock(ingot_mutex_t *mutex) { (void)mutex; }
static inline void ingot_mutex_unlock(ingot_mutex_t *mutex) { (void)mutex; }

typedef struct ingot_condition_t { /* nobody else could signal it: there are no waits */
  char unused;
} ingot_condition_t;

static inline void ingot_condition_initialize(ingot_condition_t *condition) { (void)condition; }
static inline void ingot_condition_deinitialize(ingot_condition_t *condition) { (void)condition; }
static inline void ingot_condition_broadcast(ingot_condition_t *condition) { (void)condition; }

#else

#if defined(INGOT_PLATFORM_POSIX)

typedef pthread_mutex_t ingot_mutex_t;
typedef pthread_cond_t ingot_condition_t;

static inline void ingot_mutex_initialize(ingot_mutex_t *mutex) {
  (void)pthread_mutex_init(mutex, NULL); /* cannot fail with default attributes */
}

static inline void ingot_mutex_deinitialize(ingot_mutex_t *mutex) {
  (void)pthread_mutex_destroy(mutex);
}

static inline void ingot_mutex_lock(ingot_mutex_t *mutex) { (void)pthread_mutex_lock(mutex); }

static inline void ingot_mutex_unlock(ingot_mutex_t *mutex) { (void)pthread_mutex_unlock(mutex); }

static inline void ingot_condition_initialize(ingot_condition_t *condition) {
  (void)pthread_cond_init(condition, NULL);
}

static inline void ingot_condition_deinitialize(ingot_condition_t *condition) {
  (void)pthread_cond_destroy(condition);
}

/* Callers test their predicate in a loop: a wait may end without a signal. */
static inline void ingot_condition_wait(ingot_condition_t *condition, ingot_mutex_t *mutex) {
  (void)pthread_cond_wait(condition, mutex);
}

static inline void ingot_condition_signal(ingot_condition_t *condition) {
  (void)pthread_cond_signal(condition);
}

static inline void ingot_condition_broadcast(ingot_condition_t *condition) {
  (void)pthread_cond_broadcast(condition);
}

#else

typedef struct ingot_mutex_t {
  void *state;
} ingot_mutex_t;

typedef struct ingot_condition_t {
  void *state;
} ingot_condition_t;

void ingot_mutex_initialize(ingot_mutex_t *mutex);
void ingot_mutex_deinitialize(ingot_mutex_t *mutex);
void ingot_mutex_lock(ingot_mutex_t *mutex);
void ingot_mutex_unlock(ingot_mutex_t *mutex);
void ingot_condition_initialize(ingot_condition_t *condition);
void ingot_condition_deinitialize(ingot_condition_t *condition);
void ingot_condition_wait(ingot_condition_t *condition, ingot_mutex_t *mutex);
void ingot_condition_signal(ingot_condition_t *condition);
void ingot_condition_broadcast(ingot_condition_t *condition);

#endif

/* As ingot_condition_wait, for about `nanoseconds` at most. */
void ingot_condition_wait_for(ingot_condition_t *condition, ingot_mutex_t *mutex,
                              int64_t nanoseconds);

/* -- threads ------------------------------------------------------------------------------------- */

/* One thread. The object stays where it is until the thread was joined or detached. */
typedef struct ingot_thread_t {
#if defined(INGOT_PLATFORM_POSIX)
  pthread_t handle;
#else
  void *handle;
#endif
  void (*function)(void *argument);
  void *argument;
} ingot_thread_t;

/* Runs thread->function on a new thread, which hears no signals of the process. False if the
 * system gives none. */
bool ingot_thread_start(ingot_thread_t *thread, size_t stack_length);
void ingot_thread_join(ingot_thread_t *thread);

/* Instead of a join, by the thread itself: its object may go at once. */
void ingot_thread_detach(ingot_thread_t *thread);

/* Binds the calling thread to processors. False if the system refuses. */
bool ingot_thread_bind(const ingot_processor_set_t *processors);

/* Gives way to other threads (-1) or goes before them (1). False if the system refuses. */
bool ingot_thread_prioritize(int32_t priority);

/* Lets another thread have this one's processor. */
void ingot_thread_yield(void);

/* A number that the calling thread has alone among those that run. */
uintptr_t ingot_thread_self(void);

/* It changes where a process is copied (fork), without its threads. */
int64_t ingot_process_id(void);

#endif /* INGOT_NO_THREADS */

/* -- clock: monotonic, for deadlines, spinning and traces ---------------------------------------- */

/* Nanoseconds since some time in the past. */
int64_t ingot_clock(void);

/* The same as it was at the last tick, some milliseconds ago at most: for a third of the cost,
 * where the system has such a clock. */
int64_t ingot_clock_tick(void);

/* -- files: paths are UTF-8 ---------------------------------------------------------------------- */

typedef struct ingot_file_t {
  const uint8_t *data; /* never NULL once opened, page or malloc aligned */
  size_t length;
} ingot_file_t;

/* Names bytes [*begin, *end) of a file, both 0 before, by the file's first bytes: all, or
 * INGOT_FILE_HEAD of them. Nothing is checked yet, and a range outside of the file is none. */
#define INGOT_FILE_HEAD 8192
typedef void (*ingot_file_choose_t)(const uint8_t *head, size_t length, uint64_t *begin,
                                    uint64_t *end);

#if !defined(INGOT_NO_FILES)

/* A regular file's bytes in private memory, but for a range that may stay the file's own: the
 * whole pages, behind the head, of what `choose` (may be NULL) names. Where files cannot be mapped
 * the memory is the allocator's. NotFound, PermissionDenied, OutOfMemory, Internal;
 * InvalidArgument for what is no regular file, DataLoss for one that is cut meanwhile. */
ingot_status_code_t ingot_file_load(const ingot_allocator_t *allocator, const char *path,
                                    ingot_file_choose_t choose, ingot_file_t *out_file,
                                    ingot_reason_t *out_reason);
void ingot_file_unload(const ingot_allocator_t *allocator, ingot_file_t *file);

typedef struct ingot_file_part_t {
  const void *data;
  size_t length;
} ingot_file_part_t;

/* Makes or replaces the file at `path`: at no time is half of it there. Only this user may read
 * it. */
bool ingot_file_write(const char *path, const ingot_file_part_t *parts, size_t count);

/* Makes a folder and those above it. Whether it is there, and this user's alone to write to. */
bool ingot_folder_make(const char *path);

/* Where this user's programs keep what can be made again. False if there is no such place. */
bool ingot_folder_of_caches(char *out_path, size_t capacity);

#endif /* INGOT_NO_FILES */

/* -- memory -------------------------------------------------------------------------------------- */

/* Bytes of memory and swap space; 0 if the system does not say. */
int64_t ingot_memory_length(void);

/* Asks for large pages. A byte of each that the first `written` bytes lie in, of one at least,
 * becomes zero; where these come slowly, small pages are asked for from there on. False: that was
 * so, or there are no large ones. For speed only. */
bool ingot_memory_prefer_large_pages(void *data, size_t length, size_t written);
#define INGOT_LARGE_PAGE (2 * 1024 * 1024)

/* Moves what lies in memory to large pages, also while others read and write it; begin and length
 * are multiples of these. False: the system does not, or has none left. For speed only. */
bool ingot_memory_move_to_large_pages(void *data, size_t length);

/* Takes what a process has read of a file that it maps, and never writes there, out of its memory,
 * in multiples of INGOT_MEMORY_UNIT: it comes back where it is read again. */
void ingot_memory_leave(const void *data, size_t length);

/* Gives memory that malloc gave back to the system, in multiples of INGOT_MEMORY_UNIT: it reads as
 * zeros, and takes room where it is written again. False: it is as it was. */
bool ingot_memory_give_back(void *data, size_t length);
#define INGOT_MEMORY_UNIT 65536 /* a multiple of every system's pages */

/* -- loading code -------------------------------------------------------------------------------- */

#if defined(INGOT_LOADS_ELF)

#define INGOT_PAGES_EXECUTE 1u /* as PF_X, PF_W and PF_R of ELF */
#define INGOT_PAGES_WRITE 2u
#define INGOT_PAGES_READ 4u

/* The unit of ingot_pages_protect, a power of two. */
size_t ingot_pages_unit(void);

/* Zeros in whole pages, to be filled by the calling thread and then protected. NULL if there is no
 * memory. */
void *ingot_pages_create(size_t length);

/* Sets what whole pages are for: writing and executing exclude each other. OutOfMemory;
 * PermissionDenied if the system refuses. */
ingot_status_code_t ingot_pages_protect(void *pages, size_t length, uint32_t access,
                                        ingot_reason_t *out_reason);
void ingot_pages_free(void *pages, size_t length);

/* Tells the system's profiler (perf) the name of loaded code. Best effort. */
void ingot_profiler_name_code(const void *code, size_t length, const char *name);

#endif /* INGOT_LOADS_ELF */

/* Lets kernels, which were not compiled for the system, use 16 KB of the calling thread's stack
 * without touching its pages one by one. */
#if defined(INGOT_PLATFORM_WINDOWS)
void ingot_stack_prepare(void);
#else
static inline void ingot_stack_prepare(void) {}
#endif

/* A library that the system loaded. */
typedef struct ingot_dynamic_library_t {
  void *handle; /* NULL: none */
  int file; /* what it was loaded from, if that has to stay open; else -1 */
} ingot_dynamic_library_t;

bool ingot_dynamic_library_open(const char *path, ingot_dynamic_library_t *out_library,
                                ingot_reason_t *out_reason);

/* From memory. False where the system loads files only, or refuses. */
bool ingot_dynamic_library_open_bytes(const void *data, size_t length,
                                      ingot_dynamic_library_t *out_library);

/* NULL if the library has no such name. */
void *ingot_dynamic_library_symbol(const ingot_dynamic_library_t *library, const char *name);
void ingot_dynamic_library_close(ingot_dynamic_library_t *library);

/* -- processors ---------------------------------------------------------------------------------- */

/* How many this process may keep busy: what the scheduler gives it, and no more than its group's
 * quota, rounded up; at least 1. */
uint32_t ingot_processor_count(void);

/* Those that threads of this process can be bound to. False where the system binds none. */
bool ingot_processors_usable(ingot_processor_set_t *out_set);

/* What the processor has beyond its architecture's base, where a program cannot ask it itself: the
 * words AT_HWCAP and AT_HWCAP2 of Linux for the architecture, on other systems too. */
typedef struct ingot_processor_capabilities_t {
  uint64_t words[2];
} ingot_processor_capabilities_t;
ingot_processor_capabilities_t ingot_processor_capabilities(void);

/* Whether the system lets processes use the tiles of AMX when they ask for it, and asking, for this
 * process and what it starts: frames of its signals are 8 KB longer from then on. False where it is
 * refused, as where a thread has a stack for signals that is too short. */
bool ingot_processor_has_tiles(void);
bool ingot_processor_request_tiles(void);

#endif /* INGOT_PLATFORM_PLATFORM_H_ */
