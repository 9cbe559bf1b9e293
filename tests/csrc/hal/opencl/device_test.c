/* OpenCL devices: URIs and options, the application's contexts, queues and memory, limits.
 */
#include <ctype.h>

#include "../../../cts/kernels.h"
#include "hal/opencl/library.h"
#include "hal/opencl/opencl.h"
#include "opencl_device.h"
#include "opencl_object.h"

static const ingot_hal_driver_t *const drivers[] = {&ingot_hal_cpu_driver,
                                                    &ingot_hal_opencl_driver};
static ingot_instance_t *instance;
static ingot_cl_functions_t cl;

static ingot_status_t create_and_release(const char *uri) {
  ingot_device_t *device = NULL;
  ingot_status_t status = ingot_hal_device_create(instance, uri, NULL, &device);
  ingot_hal_device_release(device);
  return status;
}

TEST(uris_find_devices_by_number_name_and_type) {
  ingot_device_t *device = NULL;
  REQUIRE_OK(ingot_hal_device_create(instance, "opencl://0?cache=off", NULL, &device));
  EXPECT_TEXT(device->target, "opencl");
  EXPECT(device->memory_length > 0);
  char name[64], uri[160];
  (void)snprintf(name, sizeof(name), "%.12s", device->description);
  for (char *letter = name; *letter; letter++) *letter = (char)toupper(*letter);
  (void)snprintf(uri, sizeof(uri), "opencl://%s?cache=off", name);
  EXPECT_OK(create_and_release(uri));
  const ingot_opencl_device_t *opencl = (const ingot_opencl_device_t *)device;
  EXPECT_OK(create_and_release(opencl->type & INGOT_CL_DEVICE_TYPE_CPU ? "opencl://cpu?cache=off"
                                                                       : "opencl://gpu?cache=off"));
  EXPECT_OK(create_and_release("opencl"));
  EXPECT_OK(create_and_release("opencl://"));
  ingot_hal_device_release(device);
}

TEST(devices_are_listed_behind_the_cpu) {
  EXPECT_TEXT(ingot_hal_instance_device_uri(instance, 0), "cpu");
  EXPECT_TEXT(ingot_hal_instance_device_uri(instance, 1), "opencl://0");
  EXPECT(ingot_hal_instance_device_uri(instance, 1000) == NULL);
}

TEST(bad_uris_say_what_there_is) {
  EXPECT_STATUS(create_and_release("opencl://99"), NOT_FOUND, "there are: opencl://0 is '");
  EXPECT_STATUS(create_and_release("opencl://no such thing"), NOT_FOUND,
                "no OpenCL device is 'opencl://no such thing'; there are: opencl://0 is '");
  EXPECT_STATUS(create_and_release("opencl://accelerator"), NOT_FOUND, "there are: ");
  EXPECT_STATUS(create_and_release("opencl://00000000000000000000001"), NOT_FOUND, "there are");
  static const char *const options[] = {"zero_copy=maybe", "zero_copy",  "cache=",
                                        "library=",        "threads=4",  "&",
                                        "self_test=",      "cache=off&x"};
  for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
    char uri[64];
    (void)snprintf(uri, sizeof(uri), "opencl://0?%s", options[i]);
    EXPECT_STATUS(create_and_release(uri), INVALID_ARGUMENT, "expected library=PATH, cache=");
  }
}

TEST(missing_library_says_what_to_install) {
  EXPECT_STATUS(create_and_release("opencl://0?library=/no/libOpenCL.so"), NOT_FOUND,
                "the OpenCL library '/no/libOpenCL.so' cannot be opened");
  EXPECT_STATUS(create_and_release("opencl://0?library=/no/libOpenCL.so"), NOT_FOUND,
                "install a driver with its loader");
}

/* Another library, which is none of OpenCL's. */
TEST(library_without_the_functions_is_incompatible) {
  EXPECT_STATUS(create_and_release("opencl://0?library=libc.so.6"), INCOMPATIBLE,
                "has no function cl");
}

TEST(instance_without_a_library_lists_no_devices) {
  ingot_instance_t *other = NULL;
  ingot_device_t *device = NULL;
  REQUIRE_OK(ingot_hal_instance_create(NULL, drivers, 2, &other));
  EXPECT_OK(ingot_opencl_set_library(other, "/no/libOpenCL.so"));
  EXPECT_TEXT(ingot_hal_instance_device_uri(other, 0), "cpu");
  EXPECT(ingot_hal_instance_device_uri(other, 1) == NULL);
  EXPECT_STATUS(ingot_hal_device_create(other, "opencl://0", NULL, &device), NOT_FOUND, "/no/lib");
  EXPECT_STATUS(ingot_opencl_set_library(other, "libOpenCL.so.1"), FAILED_PRECONDITION,
                "listed already");
  ingot_hal_instance_release(other);
  REQUIRE_OK(ingot_hal_instance_create(NULL, drivers, 1, &other));
  EXPECT_STATUS(ingot_opencl_set_library(other, "libOpenCL.so.1"), FAILED_PRECONDITION,
                "ingot_opencl_driver()");
  ingot_hal_instance_release(other);
}

TEST(buffers_beyond_the_largest_are_out_of_memory) {
  ingot_device_t *device = NULL;
  ingot_buffer_t *buffer = NULL;
  REQUIRE_OK(ingot_hal_device_create(instance, "opencl://0?cache=off", NULL, &device));
  int64_t limit = (int64_t)((const ingot_opencl_device_t *)device)->max_allocation;
  device->memory_length = 0; /* only the limit of one buffer counts here */
  EXPECT_STATUS(ingot_hal_buffer_create(device, limit + 1, &buffer), OUT_OF_MEMORY,
                "buffers of at most");
  EXPECT_STATUS(ingot_hal_buffer_wrap(device, &limit, limit + 1, 3, NULL, NULL, &buffer),
                OUT_OF_MEMORY, "run on device 'cpu'");
  ingot_hal_device_release(device);
}

TEST(more_drivers_than_an_instance_takes_are_refused) {
  const ingot_driver_t *many[INGOT_MAX_DRIVERS + 1];
  for (int d = 0; d <= INGOT_MAX_DRIVERS; d++) many[d] = ingot_opencl_driver();
  ingot_instance_options_t options = {.drivers = many, .driver_count = INGOT_MAX_DRIVERS + 1};
  ingot_instance_t *created = NULL;
  EXPECT_STATUS(ingot_instance_create(&options, &created), INVALID_ARGUMENT,
                "9 drivers, expected at most 8");
  options.driver_count = 1;
  REQUIRE_OK(ingot_instance_create(&options, &created));
  EXPECT_TEXT(ingot_instance_device_uri(created, 1), "opencl://0");
  ingot_instance_release(created);
}

/* -- read-only bytes ------------------------------------------------------------------------- */

static uint32_t part_count(const ingot_buffer_t *buffer) {
  return ((const ingot_opencl_buffer_t *)buffer)->part_count;
}

TEST(read_only_bytes_are_copied_where_they_are_used) {
  static int32_t values[4096];
  for (int i = 0; i < 4096; i++) values[i] = i;
  ingot_device_t *device = NULL;
  ingot_hal_queue_t *queue = NULL;
  ingot_buffer_t *buffer = NULL, *part = NULL, *target = NULL;
  int32_t back = -1;
  REQUIRE_OK(
      ingot_hal_device_create(instance, "opencl://0?cache=off&zero_copy=off", NULL, &device));
  REQUIRE_OK(ingot_hal_queue_create(device, &queue));
  REQUIRE_OK(ingot_hal_buffer_wrap(device, values, sizeof(values), INGOT_HAL_ACCESS_READ, NULL,
                                   NULL, &buffer));
  REQUIRE_OK(ingot_hal_buffer_subspan(buffer, 4000, 400, &part));
  REQUIRE_OK(ingot_hal_buffer_create(device, 400, &target));
  EXPECT_EQUAL(part_count(buffer), 0);
  EXPECT_OK(ingot_hal_queue_copy(queue, part, 0, target, 0, 400));
  EXPECT_OK(ingot_hal_queue_copy(queue, buffer, 4100, target, 0, 4)); /* lies in that */
  EXPECT_EQUAL(part_count(buffer), 1);
  EXPECT_OK(ingot_hal_queue_read(queue, target, 0, &back, 4));
  EXPECT_EQUAL(back, 1025);
  static const int64_t offsets[] = {16380, 0, 8000, 4396, 60, 3900, 16380, 0};
  for (size_t o = 0; o < sizeof(offsets) / sizeof(offsets[0]); o++) {
    EXPECT_OK(ingot_hal_queue_read(queue, buffer, offsets[o], &back, 4));
    EXPECT_EQUAL(back, offsets[o] / 4);
  }
  EXPECT_EQUAL(part_count(buffer), 5);
  EXPECT_OK(ingot_hal_queue_read(queue, buffer, 0, values, 0));
  ingot_hal_buffer_trim(buffer);
  EXPECT_EQUAL(part_count(buffer), 0);
  EXPECT_OK(ingot_hal_queue_read(queue, part, 396, &back, 4));
  EXPECT_EQUAL(back, 1099);
  EXPECT_OK(ingot_hal_queue_copy(queue, part, 200, target, 0, 4));
  ingot_hal_buffer_release(part);
  ingot_hal_buffer_release(buffer);
  EXPECT_OK(ingot_hal_queue_read(queue, target, 0, &back, 4));
  EXPECT_EQUAL(back, 1050);
  ingot_hal_buffer_release(target);
  ingot_hal_queue_destroy(queue);
  ingot_hal_device_release(device);
}

/* Constants may be larger than any buffer of the device, as long as each one is not. */
TEST(read_only_bytes_may_be_more_than_one_buffer_holds) {
  static const char *const uris[] = {"opencl://0?cache=off", "opencl://0?cache=off&zero_copy=off"};
  static uint8_t bytes[65536];
  for (int u = 0; u < 2; u++) {
    ingot_device_t *device = NULL;
    ingot_buffer_t *buffer = NULL;
    ingot_hal_queue_t *queue = NULL;
    uint8_t back = 0;
    REQUIRE_OK(ingot_hal_device_create(instance, uris[u], NULL, &device));
    ((ingot_opencl_device_t *)device)->max_allocation = 10000;
    REQUIRE_OK(ingot_hal_queue_create(device, &queue));
    bytes[65535] = 7;
    REQUIRE_OK(ingot_hal_buffer_wrap(device, bytes, sizeof(bytes), INGOT_HAL_ACCESS_READ, NULL,
                                     NULL, &buffer));
    EXPECT_OK(ingot_hal_queue_read(queue, buffer, 65535, &back, 1));
    EXPECT_EQUAL(back, 7);
    EXPECT_STATUS(ingot_hal_queue_read(queue, buffer, 0, bytes, 10001), OUT_OF_MEMORY,
                  "buffers of at most 10000 bytes");
    ingot_hal_buffer_release(buffer);
    EXPECT_STATUS(ingot_hal_buffer_wrap(device, bytes, sizeof(bytes), 3, NULL, NULL, &buffer),
                  OUT_OF_MEMORY, "buffers of at most 10000 bytes");
    ingot_hal_queue_destroy(queue);
    ingot_hal_device_release(device);
  }
}

/* -- the application's objects --------------------------------------------------------------- */

typedef struct application_t {
  ingot_cl_device_t device;
  ingot_cl_context_t context;
  ingot_cl_queue_t queue;
  ingot_cl_memory_t memory;
} application_t;

static bool open_application(application_t *application, uint64_t queue_properties) {
  ingot_cl_platform_t platform = NULL;
  int32_t error = 0;
  if (cl.GetPlatformIDs(1, &platform, NULL) ||
      cl.GetDeviceIDs(platform, INGOT_CL_DEVICE_TYPE_ALL, 1, &application->device, NULL)) {
    return false;
  }
  const ingot_cl_property_t properties[] = {INGOT_CL_CONTEXT_PLATFORM,
                                            (ingot_cl_property_t)platform, 0};
  application->context = cl.CreateContext(properties, 1, &application->device, NULL, NULL, &error);
  if (error) return false;
  application->queue =
      cl.CreateCommandQueue(application->context, application->device, queue_properties, &error);
  if (error) return false;
  application->memory =
      cl.CreateBuffer(application->context, INGOT_CL_MEM_READ_WRITE, 1024, NULL, &error);
  return error == 0;
}

static void close_application(application_t *application) {
  (void)cl.ReleaseMemObject(application->memory);
  (void)cl.ReleaseCommandQueue(application->queue);
  (void)cl.ReleaseContext(application->context);
}

/* A device that lists the extension of dot products, of OpenCL 3.0 or before. */
static const char *version;

static int32_t INGOT_CL_CALL dot_product_info(ingot_cl_device_t device, uint32_t question,
                                              size_t capacity, void *out, size_t *out_length) {
  const char *answer = question == INGOT_CL_DEVICE_EXTENSIONS ? "cl_khr_integer_dot_product"
                       : question == INGOT_CL_DEVICE_VERSION  ? version
                                                              : NULL;
  if (!answer) return cl.GetDeviceInfo(device, question, capacity, out, out_length);
  if (out_length) *out_length = strlen(answer) + 1;
  if (out) memcpy(out, answer, strlen(answer) + 1);
  return 0;
}

TEST(functions_of_dot_products_need_opencl_3) {
  static const char *const versions[] = {NULL, "OpenCL 2.1 old", "OpenCL 3.0 new"};
  application_t application;
  ingot_cl_functions_t played = cl;
  REQUIRE(open_application(&application, 0));
  for (uint32_t i = 0; i < 3; i++) { /* NULL: the device as it is, without the extension */
    const ingot_opencl_options_t options = {.groups = INGOT_OPENCL_GROUPS_SMALL};
    ingot_device_t *device = NULL;
    version = versions[i];
    if (version) played.GetDeviceInfo = dot_product_info;
    REQUIRE_OK(ingot_opencl_device_open(instance, &played, NULL, &options, application.context,
                                        NULL, &device));
    EXPECT((strstr(device->description, ", dot products") != NULL) == (i == 2));
    ingot_hal_device_release(device);
  }
  close_application(&application);
}

static int released;

static void count_release(void *user, void *data) {
  EXPECT(user == &released && data != NULL);
  released++;
}

/* Fills the memory through Ingot's queue and reads it back. */
static void use_device(ingot_device_t *device, ingot_buffer_t *buffer) {
  ingot_hal_queue_t *queue = NULL;
  int32_t values[4] = {0};
  REQUIRE_OK(ingot_hal_queue_create(device, &queue));
  EXPECT_OK(ingot_hal_queue_fill(queue, buffer, 0, 16, 77, 4));
  EXPECT_OK(ingot_hal_queue_read(queue, buffer, 0, values, 16));
  EXPECT_EQUAL(values[3], 77);
  ingot_hal_queue_destroy(queue);
}

TEST(what_the_application_releases_first_stays_usable) {
  for (int with_queue = 0; with_queue < 2; with_queue++) {
    application_t application = {.device = NULL};
    ingot_device_t *device = NULL;
    ingot_buffer_t *buffer = NULL;
    REQUIRE(open_application(&application, 0));
    REQUIRE_OK(ingot_opencl_device_wrap(instance, "cache=off", application.context,
                                        with_queue ? application.queue : NULL, &device));
    released = 0;
    REQUIRE_OK(ingot_opencl_buffer_wrap_memory(device, application.memory, 512, 256, count_release,
                                               &released, &buffer));
    close_application(&application);
    use_device(device, buffer);
    EXPECT_EQUAL(released, 0);
    ingot_hal_buffer_release(buffer);
    EXPECT_EQUAL(released, 1);
    ingot_hal_device_release(device);
  }
}

TEST(calls_run_behind_the_applications_work_in_its_queue) {
  application_t application = {.device = NULL};
  ingot_device_t *device = NULL;
  ingot_hal_queue_t *queue = NULL;
  ingot_buffer_t *buffer = NULL;
  const int32_t nine = 9;
  int32_t back[2] = {0};
  REQUIRE(open_application(&application, 0));
  REQUIRE_OK(ingot_opencl_device_wrap(instance, "cache=off", NULL, application.queue, &device));
  REQUIRE_OK(
      ingot_opencl_buffer_wrap_memory(device, application.memory, 0, 1024, NULL, NULL, &buffer));
  REQUIRE_OK(ingot_hal_queue_create(device, &queue));
  EXPECT_EQUAL(
      cl.EnqueueFillBuffer(application.queue, application.memory, &nine, 4, 0, 1024, 0, NULL, NULL),
      0);
  EXPECT_OK(ingot_hal_queue_copy(queue, buffer, 0, buffer, 512, 4));
  EXPECT_OK(ingot_hal_queue_read(queue, buffer, 512, back, 4));
  EXPECT_EQUAL(back[0], 9);
  EXPECT_EQUAL(
      cl.EnqueueFillBuffer(application.queue, application.memory, &nine, 4, 0, 1024, 0, NULL, NULL),
      0);
  EXPECT_OK(ingot_hal_buffer_read(buffer, 1020, 4, back + 1));
  EXPECT_EQUAL(back[1], 9);
  ingot_hal_queue_destroy(queue);
  ingot_hal_buffer_release(buffer);
  ingot_hal_device_release(device);
  close_application(&application);
}

static void note(void *user, const ingot_hal_trace_t *trace) {
  EXPECT_TEXT(trace->kernel, "fill");
  EXPECT(trace->begin > 0 && trace->begin <= trace->end);
  ++*(int *)user;
}

TEST(traces_of_the_applications_queue_have_times) {
  int traced = 0;
  for (int profiles = 0; profiles < 2; profiles++) {
    application_t application = {.device = NULL};
    ingot_device_t *device = NULL;
    ingot_buffer_t *buffer = NULL;
    REQUIRE(open_application(&application, profiles ? INGOT_CL_QUEUE_PROFILING : 0));
    REQUIRE_OK(ingot_opencl_device_wrap(instance, "cache=off", NULL, application.queue, &device));
    ingot_hal_queue_t *queue = NULL;
    REQUIRE_OK(ingot_hal_buffer_create(device, 4096, &buffer));
    REQUIRE_OK(ingot_hal_queue_create(device, &queue));
    queue->trace = note;
    queue->trace_user = &traced;
    EXPECT_OK(ingot_hal_queue_fill(queue, buffer, 0, 4096, 1, 4));
    EXPECT_OK(ingot_hal_queue_wait(queue));
    EXPECT_EQUAL(traced, 1 + profiles);
    ingot_hal_queue_destroy(queue);
    ingot_hal_buffer_release(buffer);
    ingot_hal_device_release(device);
    close_application(&application);
  }
}

TEST(wraps_that_cannot_be_are_refused) {
  application_t application = {.device = NULL}, other = {.device = NULL};
  ingot_device_t *device = NULL, *cpu = NULL;
  ingot_buffer_t *buffer = NULL;
  void *memory = NULL;
  size_t offset = 0;
  REQUIRE(open_application(&application, INGOT_CL_QUEUE_OUT_OF_ORDER));
  REQUIRE(open_application(&other, 0));
  EXPECT_STATUS(ingot_opencl_device_wrap(instance, "", NULL, NULL, &device), INVALID_ARGUMENT,
                "both the context and the command queue are NULL");
  EXPECT_STATUS(ingot_opencl_device_wrap(instance, "", NULL, application.queue, &device),
                INVALID_ARGUMENT, "out of order");
  EXPECT_STATUS(ingot_opencl_device_wrap(instance, "x=1", application.context, NULL, &device),
                INVALID_ARGUMENT, "bad option");
  EXPECT_STATUS(
      ingot_opencl_device_wrap(instance, "groups=huge", application.context, NULL, &device),
      INVALID_ARGUMENT, "groups=large or groups=small");
  REQUIRE_OK(ingot_opencl_device_wrap(instance, "cache=off", application.context, NULL, &device));
  EXPECT_STATUS(ingot_opencl_buffer_wrap_memory(device, other.memory, 0, 4, NULL, NULL, &buffer),
                INVALID_ARGUMENT, "of another context");
  EXPECT_STATUS(ingot_opencl_buffer_wrap_memory(device, NULL, 0, 4, NULL, NULL, &buffer),
                INVALID_ARGUMENT, "NULL");
  EXPECT_STATUS(
      ingot_opencl_buffer_wrap_memory(device, application.memory, 1000, 25, NULL, NULL, &buffer),
      OUT_OF_RANGE, "a memory object of 1024 bytes");
  EXPECT_STATUS(
      ingot_opencl_buffer_wrap_memory(device, application.memory, SIZE_MAX, 1, NULL, NULL, &buffer),
      OUT_OF_RANGE, "1024 bytes");
  REQUIRE_OK(ingot_hal_device_create(instance, "cpu", NULL, &cpu));
  EXPECT_STATUS(ingot_opencl_device_handles(cpu, NULL, NULL, NULL), INVALID_ARGUMENT,
                "not one of OpenCL");
  REQUIRE_OK(ingot_hal_buffer_create(cpu, 4, &buffer));
  EXPECT_STATUS(ingot_opencl_buffer_handle(buffer, &memory, &offset), INVALID_ARGUMENT,
                "not one of OpenCL");
  ingot_hal_buffer_release(buffer);
  ingot_hal_device_release(cpu);
  ingot_hal_device_release(device);
  close_application(&other);
  close_application(&application);
}

TEST(handles_lead_back_to_the_same_bytes) {
  ingot_device_t *device = NULL;
  ingot_buffer_t *buffer = NULL, *part = NULL, *again = NULL;
  void *memory = NULL, *context = NULL;
  size_t offset = 0, size = 0;
  REQUIRE_OK(ingot_hal_device_create(instance, "opencl://0?cache=off", NULL, &device));
  REQUIRE_OK(ingot_hal_buffer_create(device, 256, &buffer));
  REQUIRE_OK(ingot_hal_buffer_subspan(buffer, 64, 64, &part));
  EXPECT_OK(ingot_opencl_buffer_handle(part, &memory, &offset));
  EXPECT_EQUAL(offset, 64);
  EXPECT_EQUAL(cl.GetMemObjectInfo(memory, INGOT_CL_MEM_SIZE, sizeof(size), &size, NULL), 0);
  EXPECT_EQUAL(size, 256);
  EXPECT_OK(ingot_opencl_device_handles(device, &context, NULL, NULL));
  EXPECT(context == ((const ingot_opencl_device_t *)device)->context);
  EXPECT_OK(ingot_opencl_buffer_wrap_memory(device, memory, offset, 64, NULL, NULL, &again));
  EXPECT_OK(ingot_hal_buffer_write(part, 0, 8, "abcdefg"));
  char back[8];
  EXPECT_OK(ingot_hal_buffer_read(again, 0, 8, back));
  EXPECT_TEXT(back, "abcdefg");
  EXPECT(ingot_hal_ranges_overlap(part, 0, 64, again, 0, 64));
  EXPECT(!ingot_hal_ranges_overlap(part, 0, 8, again, 8, 8));
  ingot_hal_buffer_release(again);
  ingot_hal_buffer_release(part);
  ingot_hal_buffer_release(buffer);
  ingot_hal_device_release(device);
}

int main(void) {
  if (!test_has_opencl()) return TEST_SKIPPED();
  const ingot_allocator_t allocator = {NULL, NULL};
  EXPECT_OK(ingot_opencl_library_open(&allocator, "", &cl));
  EXPECT_OK(ingot_hal_instance_create(NULL, drivers, 2, &instance));
  RUN_TESTS();
  ingot_hal_instance_release(instance);
  return TEST_RESULT();
}
