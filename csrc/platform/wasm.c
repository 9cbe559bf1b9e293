/* WebAssembly: WASI, and hosts of one's own (pages, node). */
#include "platform/platform.h"

#if defined(INGOT_PLATFORM_WASM)

#if defined(__wasi__)

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int64_t ingot_clock(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint32_t ingot_processor_count(void) { return 1; }

ingot_processor_capabilities_t ingot_processor_capabilities(void) {
  return (ingot_processor_capabilities_t){{0, 0}};
}

#else

/* What the host gives: web/src/host.js. */
#define INGOT_WASM_IMPORT(name) __attribute__((import_module("ingot"), import_name(name)))

/* Milliseconds, as performance.now(). */
INGOT_WASM_IMPORT("now") double ingot_wasm_now(void);

int64_t ingot_clock(void) { return (int64_t)(ingot_wasm_now() * 1e6); }

INGOT_WASM_IMPORT("processors") uint32_t ingot_wasm_processors(void);

uint32_t ingot_processor_count(void) { return ingot_wasm_processors(); }

/* Bit 0: simd128, bit 1: relaxed SIMD. */
INGOT_WASM_IMPORT("features") uint32_t ingot_wasm_features(void);

ingot_processor_capabilities_t ingot_processor_capabilities(void) {
  return (ingot_processor_capabilities_t){{ingot_wasm_features(), 0}};
}

#if !defined(INGOT_NO_LOADER)

/* Instantiates a side module on this memory and table: its number, 0 if that failed. */
INGOT_WASM_IMPORT("open") uint32_t ingot_wasm_open(const void *data, size_t length);
/* Puts what it exports under the name into the table; NULL if there is none. */
INGOT_WASM_IMPORT("symbol") void *ingot_wasm_symbol(uint32_t library, const char *name);
INGOT_WASM_IMPORT("close") void ingot_wasm_close(uint32_t library);

bool ingot_dynamic_library_open_bytes(const void *data, size_t length,
                                      ingot_dynamic_library_t *out_library) {
  *out_library = (ingot_dynamic_library_t){(void *)(uintptr_t)ingot_wasm_open(data, length), -1};
  return out_library->handle;
}

void *ingot_dynamic_library_symbol(const ingot_dynamic_library_t *library, const char *name) {
  return ingot_wasm_symbol((uint32_t)(uintptr_t)library->handle, name);
}

void ingot_dynamic_library_close(ingot_dynamic_library_t *library) {
  if (library->handle) ingot_wasm_close((uint32_t)(uintptr_t)library->handle);
}

#endif /* INGOT_NO_LOADER */

#endif

/* -- threads: the host's, on the same memory ------------------------------------------------------- */

#if !defined(INGOT_NO_THREADS)

#define INGOT_WASM_EXPORT(name) __attribute__((export_name(name)))
#define INGOT_WASM_STACK_LENGTH 262144u /* of each thread, and aligned to it: it tells them apart */

/* A mutex is 0, 1 when it is locked, 2 when somebody may wait for it; a condition counts. */
static uint32_t *ingot_wasm_word(void **state) { return (uint32_t *)(void *)state; }

static void ingot_wasm_wait(uint32_t *word, uint32_t value, int64_t nanoseconds) {
  (void)__builtin_wasm_memory_atomic_wait32((int *)word, (int)value, nanoseconds);
}

static void ingot_wasm_notify(uint32_t *word, uint32_t count) {
  (void)__builtin_wasm_memory_atomic_notify((int *)word, count);
}

void ingot_mutex_initialize(ingot_mutex_t *mutex) { mutex->state = NULL; }
void ingot_mutex_deinitialize(ingot_mutex_t *mutex) { (void)mutex; }

void ingot_mutex_lock(ingot_mutex_t *mutex) {
  uint32_t *word = ingot_wasm_word(&mutex->state);
  uint32_t before = 0;
  if (__atomic_compare_exchange_n(word, &before, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
    return;
  }
  while (__atomic_exchange_n(word, 2, __ATOMIC_ACQUIRE) != 0) ingot_wasm_wait(word, 2, -1);
}

void ingot_mutex_unlock(ingot_mutex_t *mutex) {
  uint32_t *word = ingot_wasm_word(&mutex->state);
  if (__atomic_exchange_n(word, 0, __ATOMIC_RELEASE) == 2) ingot_wasm_notify(word, 1);
}

void ingot_condition_initialize(ingot_condition_t *condition) { condition->state = NULL; }
void ingot_condition_deinitialize(ingot_condition_t *condition) { (void)condition; }

void ingot_condition_wait_for(ingot_condition_t *condition, ingot_mutex_t *mutex,
                              int64_t nanoseconds) {
  uint32_t *word = ingot_wasm_word(&condition->state);
  uint32_t seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  ingot_mutex_unlock(mutex);
  ingot_wasm_wait(word, seen, nanoseconds);
  ingot_mutex_lock(mutex);
}

void ingot_condition_wait(ingot_condition_t *condition, ingot_mutex_t *mutex) {
  ingot_condition_wait_for(condition, mutex, -1);
}

static void ingot_wasm_wake(ingot_condition_t *condition, uint32_t count) {
  uint32_t *word = ingot_wasm_word(&condition->state);
  (void)__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
  ingot_wasm_notify(word, count);
}

void ingot_condition_signal(ingot_condition_t *condition) { ingot_wasm_wake(condition, 1); }

void ingot_condition_broadcast(ingot_condition_t *condition) {
  ingot_wasm_wake(condition, UINT32_MAX);
}

static ingot_mutex_t ingot_wasm_mutex; /* guards what follows, and `handle` of all threads */
static ingot_condition_t ingot_wasm_changed;
static uint32_t ingot_wasm_idle; /* threads of the host that have nothing to run */
static ingot_thread_t *ingot_wasm_started; /* not begun yet; linked by `handle` */

/* For the host: the calling thread is one that will call ingot_wasm_run. */
INGOT_WASM_EXPORT("ingot_wasm_offer") void ingot_wasm_offer(void) {
  ingot_mutex_lock(&ingot_wasm_mutex);
  ingot_wasm_idle++;
  ingot_mutex_unlock(&ingot_wasm_mutex);
}

/* For the host: runs threads of the runtime one after another, and never returns. */
INGOT_WASM_EXPORT("ingot_wasm_run") void ingot_wasm_run(void) {
  ingot_mutex_lock(&ingot_wasm_mutex);
  for (;;) {
    while (!ingot_wasm_started) ingot_condition_wait(&ingot_wasm_changed, &ingot_wasm_mutex);
    ingot_thread_t *thread = ingot_wasm_started; /* NULL once it is detached */
    ingot_wasm_started = thread->handle;
    thread->handle = &thread;
    ingot_mutex_unlock(&ingot_wasm_mutex);
    thread->function(thread->argument);
    ingot_mutex_lock(&ingot_wasm_mutex);
    if (thread) thread->handle = NULL;
    ingot_wasm_idle++;
    ingot_condition_broadcast(&ingot_wasm_changed);
  }
}

bool ingot_thread_start(ingot_thread_t *thread, size_t stack_length) {
  (void)stack_length;
  ingot_mutex_lock(&ingot_wasm_mutex);
  bool is_free = ingot_wasm_idle > 0;
  if (is_free) {
    ingot_wasm_idle--;
    thread->handle = ingot_wasm_started;
    ingot_wasm_started = thread;
    ingot_condition_broadcast(&ingot_wasm_changed);
  }
  ingot_mutex_unlock(&ingot_wasm_mutex);
  return is_free;
}

static bool ingot_wasm_is_started(const ingot_thread_t *thread) {
  for (const ingot_thread_t *each = ingot_wasm_started; each; each = each->handle) {
    if (each == thread) return true;
  }
  return false;
}

void ingot_thread_join(ingot_thread_t *thread) {
  ingot_mutex_lock(&ingot_wasm_mutex);
  while (ingot_wasm_is_started(thread) || thread->handle) {
    ingot_condition_wait(&ingot_wasm_changed, &ingot_wasm_mutex);
  }
  ingot_mutex_unlock(&ingot_wasm_mutex);
}

void ingot_thread_detach(ingot_thread_t *thread) {
  ingot_mutex_lock(&ingot_wasm_mutex);
  *(ingot_thread_t **)thread->handle = NULL;
  ingot_mutex_unlock(&ingot_wasm_mutex);
}

bool ingot_thread_bind(const ingot_processor_set_t *processors) {
  (void)processors;
  return false;
}

bool ingot_thread_prioritize(int32_t priority) {
  (void)priority;
  return false;
}

void ingot_thread_yield(void) {}

uintptr_t ingot_thread_self(void) {
  char on_stack;
  return (uintptr_t)&on_stack / INGOT_WASM_STACK_LENGTH + 1;
}

int64_t ingot_process_id(void) { return 1; }

#endif /* INGOT_NO_THREADS */

/* -- files --------------------------------------------------------------------------------------- */

#if !defined(INGOT_NO_FILES)

static ingot_status_code_t ingot_wasm_failed(int error, ingot_reason_t *out_reason) {
  (void)snprintf(out_reason->text, sizeof(out_reason->text), "%s", strerror(error));
  if (error == ENOENT || error == ENOTDIR) return INGOT_STATUS_NOT_FOUND;
  if (error == EACCES || error == EPERM || error == ENOTCAPABLE) {
    return INGOT_STATUS_PERMISSION_DENIED;
  }
  return error == ENOMEM ? INGOT_STATUS_OUT_OF_MEMORY : INGOT_STATUS_INTERNAL;
}

static ingot_status_code_t ingot_wasm_load(const ingot_allocator_t *allocator, int descriptor,
                                           ingot_file_t *out_file, ingot_reason_t *out_reason) {
  struct stat facts;
  if (fstat(descriptor, &facts) != 0) return ingot_wasm_failed(errno, out_reason);
  if (!S_ISREG(facts.st_mode)) {
    (void)snprintf(out_reason->text, sizeof(out_reason->text), "it is no regular file");
    return INGOT_STATUS_INVALID_ARGUMENT;
  }
  if ((uint64_t)facts.st_size >= SIZE_MAX) return ingot_wasm_failed(ENOMEM, out_reason);
  size_t length = (size_t)facts.st_size;
  uint8_t *data = allocator->resize(allocator->user, NULL, length + 1);
  if (!data) return ingot_wasm_failed(ENOMEM, out_reason);
  ingot_status_code_t code = INGOT_STATUS_OK;
  for (size_t at = 0; at < length && !code;) {
    ssize_t count = read(descriptor, data + at, length - at);
    if (count < 0) code = ingot_wasm_failed(errno, out_reason);
    if (count == 0) code = INGOT_STATUS_DATA_LOSS;
    at += count > 0 ? (size_t)count : 0;
  }
  if (code == INGOT_STATUS_DATA_LOSS) {
    (void)snprintf(out_reason->text, sizeof(out_reason->text), "it was cut while it was read");
  }
  *out_file = (ingot_file_t){data, length};
  if (code) ingot_file_unload(allocator, out_file);
  return code;
}

ingot_status_code_t ingot_file_load(const ingot_allocator_t *allocator, const char *path,
                                    ingot_file_choose_t choose, ingot_file_t *out_file,
                                    ingot_reason_t *out_reason) {
  (void)choose;
  int descriptor = open(path, O_RDONLY | O_NONBLOCK);
  if (descriptor < 0) return ingot_wasm_failed(errno, out_reason);
  ingot_status_code_t code = ingot_wasm_load(allocator, descriptor, out_file, out_reason);
  (void)close(descriptor);
  return code;
}

void ingot_file_unload(const ingot_allocator_t *allocator, ingot_file_t *file) {
  (void)allocator->resize(allocator->user, (void *)(uintptr_t)file->data, 0);
  *file = (ingot_file_t){NULL, 0};
}

#endif /* INGOT_NO_FILES */

#endif /* INGOT_PLATFORM_WASM */
