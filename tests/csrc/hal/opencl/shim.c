/* A libOpenCL for tests: it hands every call to the system's library, counts references, and
 * lets one call fail. What gives something back (a release, a finish, an unmap) is done even if
 * it fails, as nothing else could be done about it later.
 */
#include "shim.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "hal/opencl/api.h"

static shim_state_t state;
static ingot_cl_functions_t real;
static int32_t(INGOT_CL_CALL *system_device_info)(ingot_cl_device_t, uint32_t, size_t, void *,
                                                  size_t *);
static int32_t device_info(ingot_cl_device_t device, uint32_t question, size_t capacity, void *out,
                           size_t *out_length);

__attribute__((visibility("default"))) shim_state_t *shim_state(void);
shim_state_t *shim_state(void) { return &state; }

__attribute__((constructor)) static void open_library(void) {
  void *handle = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  void *symbol;
  if (!handle) return;
#define LOAD(result, name, types)     \
  symbol = dlsym(handle, "cl" #name); \
  memcpy(&real.name, &symbol, sizeof(symbol));
  INGOT_CL_FUNCTIONS(LOAD)
  system_device_info = real.GetDeviceInfo;
  if (system_device_info) real.GetDeviceInfo = device_info;
}

static bool begins(const char *name, const char *prefix) {
  return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Errors of the kinds that the standard documents for the function. */
static int32_t error_of(const char *name, int32_t choice) {
  static const int32_t queries[] = {-30, -33, -6}, creations[] = {-34, -6, -5};
  static const int32_t buffers[] = {-4, -61, -37}, builds[] = {-11, -3, -42};
  static const int32_t kernels[] = {-46, -45, -6}, arguments[] = {-51, -38, -6};
  static const int32_t launches[] = {-5, -54, -36}, transfers[] = {-4, -5, -36};
  if (begins(name, "Get")) return queries[choice];
  if (strcmp(name, "CreateBuffer") == 0) return buffers[choice];
  if (begins(name, "CreateProgram") || begins(name, "Build")) return builds[choice];
  if (strcmp(name, "CreateKernel") == 0) return kernels[choice];
  if (strcmp(name, "SetKernelArg") == 0) return arguments[choice];
  if (strcmp(name, "EnqueueNDRangeKernel") == 0) return launches[choice];
  if (begins(name, "Enqueue") || begins(name, "Fi") || begins(name, "Fl")) {
    return transfers[choice];
  }
  return creations[choice];
}

/* Whether the call that begins now is the one to fail. */
static bool fails(const char *name) {
  if (++state.calls != state.fail_at) return false;
  state.failed = name;
  state.error = error_of(name, state.choice);
  return true;
}

static bool gives_back(const char *name) {
  return begins(name, "Release") || begins(name, "EnqueueUnmap") || begins(name, "Finish") ||
         begins(name, "Flush");
}

/* Counts what a call that was made has taken or given back. */
static void count(const char *name, const void *event) {
  if (begins(name, "Create") || begins(name, "Retain")) state.live++;
  if (begins(name, "Release")) state.live--;
  if (begins(name, "Enqueue") && event) state.live++;
}

#define PARAMETERS_1(A) A a
#define PARAMETERS_2(A, B) A a, B b
#define PARAMETERS_3(A, B, C) A a, B b, C c
#define PARAMETERS_4(A, B, C, D) A a, B b, C c, D d
#define PARAMETERS_5(A, B, C, D, E) A a, B b, C c, D d, E e
#define PARAMETERS_6(A, B, C, D, E, F) A a, B b, C c, D d, E e, F f
#define PARAMETERS_7(A, B, C, D, E, F, G) A a, B b, C c, D d, E e, F f, G g
#define PARAMETERS_8(A, B, C, D, E, F, G, H) A a, B b, C c, D d, E e, F f, G g, H h
#define PARAMETERS_9(A, B, C, D, E, F, G, H, I) A a, B b, C c, D d, E e, F f, G g, H h, I i
#define PARAMETERS_10(A, B, C, D, E, F, G, H, I, J) A a, B b, C c, D d, E e, F f, G g, H h, I i, J j
#define ARGUMENTS_1 a
#define ARGUMENTS_2 a, b
#define ARGUMENTS_3 a, b, c
#define ARGUMENTS_4 a, b, c, d
#define ARGUMENTS_5 a, b, c, d, e
#define ARGUMENTS_6 a, b, c, d, e, f
#define ARGUMENTS_7 a, b, c, d, e, f, g
#define ARGUMENTS_8 a, b, c, d, e, f, g, h
#define ARGUMENTS_9 a, b, c, d, e, f, g, h, i
#define ARGUMENTS_10 a, b, c, d, e, f, g, h, i, j
#define LAST_1 a
#define LAST_2 b
#define LAST_3 c
#define LAST_4 d
#define LAST_5 e
#define LAST_6 f
#define LAST_7 g
#define LAST_8 h
#define LAST_9 i
#define LAST_10 j
#define PICK(a, b, c, d, e, f, g, h, i, j, which, ...) which
#define COUNT(...) PICK(__VA_ARGS__, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define COUNT_OF(types) COUNT types
#define POINTER(value) ((void *)(uintptr_t)(value))

/* Functions with a status give the error back; the others store it where their last argument
 * points to. The event of a call stands last, but for the map, whose error does. */
#define FORWARD(result, name, types)                                                        \
  __attribute__((visibility("default"))) result cl##name(JOIN(PARAMETERS_, COUNT_OF(types)) \
                                                             types);                        \
  result cl##name(JOIN(PARAMETERS_, COUNT_OF(types)) types) {                               \
    const bool has_status = _Generic((result)0, int32_t: true, default: false);             \
    void *last = POINTER(JOIN(LAST_, COUNT_OF(types)));                                     \
    bool is_failing = fails(#name);                                                         \
    if (is_failing && !gives_back(#name)) {                                                 \
      if (!has_status) *(int32_t *)last = state.error;                                      \
      return (result)(has_status ? (intptr_t)state.error : 0);                              \
    }                                                                                       \
    result value = real.name(JOIN(ARGUMENTS_, COUNT_OF(types)));                            \
    bool is_good = has_status ? (intptr_t)value == 0 : value != (result)0;                  \
    if (is_good) count(#name, has_status ? last : NULL);                                    \
    return is_failing ? (result)(intptr_t)state.error : value;                              \
  }

INGOT_CL_FUNCTIONS(FORWARD)

/* -- external memory: a stand-in for what the system's device lacks ------------------------------ */

static int32_t device_info(ingot_cl_device_t device, uint32_t question, size_t capacity, void *out,
                           size_t *out_length) {
  static const char more[] = " cl_khr_external_memory_dma_buf";
  size_t length = 0;
  if (!state.is_external || question != INGOT_CL_DEVICE_EXTENSIONS) {
    return system_device_info(device, question, capacity, out, out_length);
  }
  int32_t error = system_device_info(device, question, 0, NULL, &length);
  if (!error && out_length) *out_length = length + sizeof(more);
  if (error || !out) return error;
  error = system_device_info(device, question, capacity, out, NULL);
  char *text = out;
  if (!error) memcpy(text + strlen(text), more, sizeof(more));
  return error;
}

__attribute__((visibility("default"))) ingot_cl_memory_t
clCreateBufferWithProperties(ingot_cl_context_t context, const uint64_t *properties, uint64_t flags,
                             size_t length, void *data, int32_t *out_error);
ingot_cl_memory_t clCreateBufferWithProperties(ingot_cl_context_t context,
                                               const uint64_t *properties, uint64_t flags,
                                               size_t length, void *data, int32_t *out_error) {
  *out_error = -64; /* INVALID_PROPERTY */
  if (properties[0] != 0x2067 || properties[2] != 0) return NULL;
  data = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, (int)properties[1], 0);
  if (data == MAP_FAILED) return NULL;
  return clCreateBuffer(context, flags | INGOT_CL_MEM_USE_HOST_PTR, length, data, out_error);
}

static int32_t exchange(int64_t step, uint32_t count) {
  state.acquired += step * (int64_t)count;
  return 0;
}

static int32_t acquire(ingot_cl_queue_t queue, uint32_t count, const ingot_cl_memory_t *objects,
                       uint32_t event_count, const ingot_cl_event_t *events,
                       ingot_cl_event_t *event) {
  (void)queue, (void)objects, (void)event_count, (void)events, (void)event;
  return exchange(1, count);
}

static int32_t release(ingot_cl_queue_t queue, uint32_t count, const ingot_cl_memory_t *objects,
                       uint32_t event_count, const ingot_cl_event_t *events,
                       ingot_cl_event_t *event) {
  (void)queue, (void)objects, (void)event_count, (void)events, (void)event;
  return exchange(-1, count);
}

__attribute__((visibility("default"))) void *clGetExtensionFunctionAddressForPlatform(
    ingot_cl_platform_t platform, const char *name);
void *clGetExtensionFunctionAddressForPlatform(ingot_cl_platform_t platform, const char *name) {
  int32_t (*function)(ingot_cl_queue_t, uint32_t, const ingot_cl_memory_t *, uint32_t,
                      const ingot_cl_event_t *, ingot_cl_event_t *) = NULL;
  void *address;
  (void)platform;
  if (strcmp(name, "clEnqueueAcquireExternalMemObjectsKHR") == 0) function = acquire;
  if (strcmp(name, "clEnqueueReleaseExternalMemObjectsKHR") == 0) function = release;
  memcpy(&address, &function, sizeof(address));
  return address;
}
