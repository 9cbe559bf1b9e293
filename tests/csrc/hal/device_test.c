/* Devices: URIs and their options, thread counts from cgroups, statically linked kernels.
 */
#define _GNU_SOURCE /* mkdtemp */
#include <sys/stat.h>
#include <unistd.h>

#include "../../cts/kernels.h"
#include "hal/cpu/features.h"
#include "platform/cgroup.h"
#include "platform/platform.h"
#include "ingot/module_layout.h"
#include "object.h"
#include "test.h"

static const ingot_hal_driver_t *const drivers[] = {&ingot_hal_cpu_driver};
static ingot_instance_t *instance;

static uint32_t threads_of(const char *uri) {
  ingot_device_t *device = NULL;
  EXPECT_OK(ingot_hal_device_create(instance, uri, NULL, &device));
  uint32_t count = device ? device->thread_count : 0;
  ingot_hal_device_release(device);
  return count;
}

static ingot_status_t create_and_release(const char *uri) {
  ingot_device_t *device = NULL;
  ingot_status_t status = ingot_hal_device_create(instance, uri, NULL, &device);
  ingot_hal_device_release(device);
  return status;
}

TEST(uri_sets_the_thread_count) {
  uint32_t all = ingot_processor_count();
  EXPECT(all >= 1);
  EXPECT_EQUAL(threads_of("cpu"), all);
  EXPECT_EQUAL(threads_of("cpu://"), all);
  EXPECT_EQUAL(threads_of("cpu://?"), all);
  EXPECT_EQUAL(threads_of("cpu://?threads=1"), 1);
  EXPECT_EQUAL(threads_of("cpu://?threads=4"), 4);
  EXPECT_EQUAL(threads_of("cpu://?threads=1024"), 1024);
}

TEST(bad_uris_say_what_is_wrong) {
  EXPECT_STATUS(create_and_release("gpu://0"), NOT_FOUND,
                "no driver for device 'gpu://0': expected a URI like 'cpu', "
                "'cpu://?threads=4' or 'opencl://0'; drivers in this build: cpu");
  EXPECT_STATUS(create_and_release(""), NOT_FOUND, "no driver");
  EXPECT_STATUS(create_and_release("cpu:"), NOT_FOUND, "no driver");
  EXPECT_STATUS(create_and_release("cpu://0"), INVALID_ARGUMENT,
                "bad option at '0', expected as in 'cpu://?threads=4");
  EXPECT_STATUS(create_and_release("cpu://?thread=4"), INVALID_ARGUMENT,
                "bad option at 'thread=4', expected as in");
  const char *const counts[] = {"cpu://?threads=",     "cpu://?threads=0",
                                "cpu://?threads=-1",   "cpu://?threads=4x",
                                "cpu://?threads=1025", "cpu://?threads=99999999999999999999",
                                "cpu://?threads= 4",   "cpu://?threads=4294967297"};
  for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
    EXPECT_STATUS(create_and_release(counts[i]), INVALID_ARGUMENT, "threads= from 1 to 1024");
  }
}

TEST(processors_and_priority_are_options) {
  ingot_processor_set_t usable;
  char uri[64];
  EXPECT_EQUAL(threads_of("cpu://?spin=off&threads=2"), 2);
  EXPECT_EQUAL(threads_of("cpu://?spin=on&priority=low&threads=3"), 3);
  EXPECT_STATUS(create_and_release("cpu://?spin=no"), INVALID_ARGUMENT,
                "bad option at 'spin=no', expected");
  EXPECT_STATUS(create_and_release("cpu://?priority=9"), INVALID_ARGUMENT,
                "bad option at 'priority=9'");
  if (!ingot_processors_usable(&usable)) {
    EXPECT_STATUS(create_and_release("cpu://?affinity=0"), UNSUPPORTED, "does not bind threads");
    return;
  }
  uint32_t first = 0, last = 0, count = 0;
  for (uint32_t p = 1024; p-- > 0;) {
    if (!ingot_processor_set_has(&usable, p)) continue;
    if (count++ == 0) last = p;
    first = p;
  }
  (void)snprintf(uri, sizeof(uri), "cpu://?affinity=%u", first);
  EXPECT_EQUAL(threads_of(uri), 1);
  (void)snprintf(uri, sizeof(uri), "cpu://?affinity=%u,%u&threads=3", first, last);
  EXPECT_EQUAL(threads_of(uri), 3);
  if (last - first + 1 == count) {
    (void)snprintf(uri, sizeof(uri), "cpu://?affinity=%u-%u", first, last);
    EXPECT_EQUAL(threads_of(uri), count);
  }
  const char *const bad[] = {"cpu://?affinity=", "cpu://?affinity=0,", "cpu://?affinity=x",
                             "cpu://?affinity=0-", "cpu://?affinity=3-1"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
    if (first == 0)
      EXPECT_STATUS(create_and_release(bad[i]), INVALID_ARGUMENT, "bad option at 'affinity=");
  }
  EXPECT_STATUS(create_and_release("cpu://?affinity=1023"), INVALID_ARGUMENT,
                "this process may not use processor 1023");
  EXPECT_STATUS(create_and_release("cpu://?affinity=0-9999"), INVALID_ARGUMENT, "bad option");
}

TEST(devices_are_listed) {
  EXPECT_TEXT(ingot_hal_instance_device_uri(instance, 0), "cpu");
  EXPECT(ingot_hal_instance_device_uri(instance, 1) == NULL);
}

TEST(description_tells_features_and_threads) {
  ingot_device_t *device = NULL;
  REQUIRE_OK(ingot_hal_device_create(instance, "cpu://?threads=3", NULL, &device));
  EXPECT(strstr(device->description, ", 3 threads") != NULL);
  EXPECT_TEXT(device->target, "cpu");
#if defined(__x86_64__)
  EXPECT(strncmp(device->description, "x86-64-v", 8) == 0);
  /* A level implies the ones below. */
  uint64_t features = ingot_hal_cpu_features();
  if (features & INGOT_CPU_X86_AVX512_VNNI) EXPECT(features & INGOT_CPU_X86_AVX512);
  if (features & INGOT_CPU_X86_AVX512) EXPECT(features & INGOT_CPU_X86_AVX2);
  if (features & INGOT_CPU_X86_AVX2) EXPECT(features & INGOT_CPU_X86_V2);
  if (features & INGOT_CPU_X86_AMX) EXPECT(features & INGOT_CPU_X86_AVX512_VNNI);
  EXPECT(ingot_hal_cpu_permits(INGOT_CPU_X86_AVX512));
  EXPECT_EQUAL(ingot_hal_cpu_slow_features(features) & ~features, 0);
  EXPECT_EQUAL(ingot_hal_cpu_slow_features(0), 0);
  EXPECT_EQUAL((features & INGOT_CPU_X86_AVX2) != 0, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQUAL((features & INGOT_CPU_X86_AVX512) != 0, __builtin_cpu_supports("avx512vl") != 0);
#endif
  ingot_hal_device_release(device);
}

/* -- cgroups ------------------------------------------------------------------------------- */

/* Writes a file below `root`, making its folders. */
static void write_file(const char *root, const char *name, const char *text) {
  char path[512];
  (void)snprintf(path, sizeof(path), "%s/%s", root, name);
  for (char *slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    (void)mkdir(path, 0700);
    *slash = '/';
  }
  FILE *file = fopen(path, "w");
  REQUIRE(file);
  (void)fputs(text, file);
  (void)fclose(file);
}

TEST(quota_is_the_smallest_on_the_way_up) {
  char root[] = "/tmp/ingot-cgroup-XXXXXX";
  REQUIRE(mkdtemp(root));
  EXPECT_EQUAL(ingot_cgroup_quota(root), UINT32_MAX);
  write_file(root, "proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQUAL(ingot_cgroup_quota(root), UINT32_MAX);
  write_file(root, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQUAL(ingot_cgroup_quota(root), UINT32_MAX);
  write_file(root, "sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  EXPECT_EQUAL(ingot_cgroup_quota(root), 3);
  write_file(root, "sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
  EXPECT_EQUAL(ingot_cgroup_quota(root), 2);
  write_file(root, "sys/fs/cgroup/cpu.max", "1000 100000\n");
  EXPECT_EQUAL(ingot_cgroup_quota(root), 1);

  write_file(root, "proc/self/cgroup", "9:memory:/m\n4:cpu,cpuacct:/job\n3:cpuset:/\n");
  EXPECT_EQUAL(ingot_cgroup_quota(root), UINT32_MAX);
  write_file(root, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  write_file(root, "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQUAL(ingot_cgroup_quota(root), UINT32_MAX);
  write_file(root, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQUAL(ingot_cgroup_quota(root), 4);
  write_file(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  write_file(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n");
  EXPECT_EQUAL(ingot_cgroup_quota(root), 2);

  write_file(root, "proc/self/cgroup", "garbage\n:\n0:");
  EXPECT_EQUAL(ingot_cgroup_quota(root), UINT32_MAX);
  char command[64];
  (void)snprintf(command, sizeof(command), "rm -r '%s'", root);
  EXPECT_EQUAL(system(command), 0);
}

/* -- statically linked kernels -------------------------------------------------------------- */

const ingot_kernel_library_t *INGOT_KERNEL_CALL ingot_executable_query(uint32_t version);

TEST(linked_kernels_serve_their_executable) {
  ingot_device_t *device = NULL;
  ingot_hal_executable_t *executable = NULL;
  ingot_hal_executable_description_t description = {"linked", kernel_descriptions,
                                                    KERNEL_DESCRIPTION_COUNT, 0, NULL};
  REQUIRE_OK(ingot_hal_device_create(instance, "cpu", NULL, &device));
  EXPECT_STATUS(ingot_hal_executable_create(device, &description, &executable), UNSUPPORTED, "");
  EXPECT_OK(ingot_hal_cpu_register_static(instance, "linked", ingot_executable_query));
  EXPECT_STATUS(ingot_hal_cpu_register_static(instance, "linked", ingot_executable_query),
                INVALID_ARGUMENT, "'linked' are registered already");
  EXPECT_OK(ingot_hal_executable_create(device, &description, &executable));
  if (executable) EXPECT_TEXT(executable->variant_name, "static");
  if (executable) EXPECT_EQUAL(executable->entries[KERNEL_COUNT].tile[1], 3);
  ingot_hal_executable_destroy(executable);
  executable = NULL;
  description.entry_count = 3;
  EXPECT_STATUS(ingot_hal_executable_create(device, &description, &executable), DATA_LOSS,
                "has 6 kernels, but the module says 3");
  ingot_hal_device_release(device);
}

/* What a kernel declares of itself holds, whatever a module says: of those above, too. */
TEST(kernel_that_is_not_the_modules_is_data_loss) {
  ingot_device_t *device = NULL;
  ingot_hal_executable_t *executable = NULL;
  ingot_hal_entry_description_t entries[KERNEL_DESCRIPTION_COUNT];
  memcpy(entries, kernel_descriptions, sizeof(entries));
  ingot_hal_executable_description_t description = {"linked", entries, KERNEL_DESCRIPTION_COUNT, 0,
                                                    NULL};
  REQUIRE_OK(ingot_hal_device_create(instance, "cpu", NULL, &device));
  const ingot_hal_entry_description_t wrong[] = {
      {"add", "", 3, 0, 0}, {"add", "", 3, 1, 4}, {"add", "", 4, 0, 4}, {"add", "", 2, 0, 4}};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    entries[KERNEL_ADD] = wrong[i];
    EXPECT_STATUS(ingot_hal_executable_create(device, &description, &executable), DATA_LOSS,
                  "kernel 'add' has other bindings or constants than the module says");
  }
  ingot_hal_device_release(device);
}

static bool permits_no_two(uint64_t features) { return !(features & 2); }

TEST(variant_that_the_device_avoids_is_chosen_where_there_is_no_other) {
  ingot_device_t *device = NULL;
  REQUIRE_OK(ingot_hal_device_create(instance, "cpu", NULL, &device));
  device->features = 7;
  device->slow_features = 4;
  const ingot_hal_variant_t *chosen;
  ingot_hal_variant_t variants[] = {{"more", device->format, 8, "", 0},
                                    {"slow", device->format, 6, "", 0},
                                    {"good", device->format, 2, "", 0},
                                    {"last", device->format, 0, "", 0}};
  ingot_hal_executable_description_t description = {"k", kernel_descriptions,
                                                    KERNEL_DESCRIPTION_COUNT, 4, variants};
  EXPECT_OK(ingot_hal_variant_select(device, &description, "", &chosen));
  EXPECT_TEXT(chosen->name, "good");
  description.variant_count = 2;
  EXPECT_OK(ingot_hal_variant_select(device, &description, "", &chosen));
  EXPECT_TEXT(chosen->name, "slow");
  description.variant_count = 1;
  EXPECT_STATUS(ingot_hal_variant_select(device, &description, "", &chosen), UNSUPPORTED, "more");
  EXPECT(ingot_device_avoids(device, 4) && !ingot_device_avoids(device, 3));
  /* One that the system refuses is as one that is not there. */
  ingot_hal_device_vtable_t refusing = *device->vtable;
  const ingot_hal_device_vtable_t *usual = device->vtable;
  refusing.permit = permits_no_two;
  device->vtable = &refusing;
  description.variant_count = 4;
  EXPECT_OK(ingot_hal_variant_select(device, &description, "", &chosen));
  EXPECT_TEXT(chosen->name, "last");
  device->vtable = usual;
  ingot_hal_device_release(device);
}

/* A block without matches behind the object's length. */
static size_t compressed(uint8_t *out, const test_object_t *object) {
  const uint64_t length = object->length;
  uint8_t *at = out + sizeof(length);
  size_t rest = object->length - 15;
  memcpy(out, &length, sizeof(length));
  *at++ = 15 << 4;
  for (; rest >= 255; rest -= 255) *at++ = 255;
  *at++ = (uint8_t)rest;
  memcpy(at, object->data, object->length);
  return (size_t)(at - out) + object->length;
}

TEST(compressed_objects_are_loaded_and_damaged_ones_refused) {
  ingot_device_t *device = NULL;
  ingot_hal_executable_t *executable = NULL;
  REQUIRE_OK(ingot_hal_device_create(instance, "cpu", NULL, &device));
  test_object_t object = test_object_build_kernels();
  uint8_t *data = malloc(object.length * 2);
  REQUIRE(data);
  ingot_hal_variant_t variant = {"v1", "lz4:elf-x86_64", 0, data, compressed(data, &object)};
#if defined(__aarch64__)
  variant.format = "lz4:elf-aarch64";
#endif
  ingot_hal_executable_description_t description = {"k", kernel_descriptions,
                                                    KERNEL_DESCRIPTION_COUNT, 1, &variant};
  EXPECT(ingot_hal_device_runs(device, variant.format, 0));
  EXPECT_OK(ingot_hal_executable_create(device, &description, &executable));
  ingot_hal_executable_destroy(executable);
  variant.length--;
  EXPECT_STATUS(ingot_hal_executable_create(device, &description, &executable), DATA_LOSS,
                "kernels 'k': variant 'v1': the object of ");
  variant.length = 7;
  EXPECT_STATUS(ingot_hal_executable_create(device, &description, &executable), DATA_LOSS,
                "the object of 7 bytes, or one that it continues, is damaged");
  variant.length = 100;
  memset(data, 255, sizeof(uint64_t));
  EXPECT_STATUS(ingot_hal_executable_create(device, &description, &executable), DATA_LOSS,
                "is no block of LZ4 of its length");
  free(data);
  test_object_free(&object);
  ingot_hal_device_release(device);
}

/* A block that repeats the object in front of it. */
static size_t repeated(uint8_t *out, const test_object_t *object) {
  const uint64_t length = object->length;
  size_t rest = object->length - 19;
  uint8_t *at = out + sizeof(length);
  memcpy(out, &length, sizeof(length));
  *at++ = 15;
  *at++ = (uint8_t)length;
  *at++ = (uint8_t)(length >> 8);
  for (; rest >= 255; rest -= 255) *at++ = 255;
  *at++ = (uint8_t)rest;
  *at++ = 0;
  return (size_t)(at - out);
}

TEST(objects_continue_those_of_variants_in_front_of_them) {
  ingot_device_t *device = NULL;
  ingot_hal_executable_t *executable = NULL;
  REQUIRE_OK(ingot_hal_device_create(instance, "cpu", NULL, &device));
  test_object_t object = test_object_build_kernels();
  uint8_t *data = malloc(object.length * 2), *short_data = malloc(object.length);
  REQUIRE(data && short_data && object.length < 65536);
  char formats[2][32];
  (void)snprintf(formats[0], sizeof(formats[0]), "lz4:%s", device->format);
  (void)snprintf(formats[1], sizeof(formats[1]), "lz4+:%s", device->format);
  const uint64_t missing = UINT64_C(1) << 63;
  const size_t length = repeated(short_data, &object);
  ingot_hal_variant_t variants[] = {
      {"none", formats[0], missing, data, compressed(data, &object)},
      {"more", formats[1], missing, short_data, length},
      {"some", formats[1], 0, short_data, length},
  };
  ingot_hal_executable_description_t description = {"k", kernel_descriptions,
                                                    KERNEL_DESCRIPTION_COUNT, 3, variants};
  EXPECT_OK(ingot_hal_executable_create(device, &description, &executable));
  EXPECT_TEXT(executable->variant_name, "some");
  ingot_hal_executable_destroy(executable);
  description.variant_count = 1; /* nothing to continue */
  description.variants = &variants[2];
  EXPECT_STATUS(ingot_hal_executable_create(device, &description, &executable), DATA_LOSS,
                "or one that it continues, is damaged");
  description.variant_count = 3;
  description.variants = variants;
  variants[0].length--;
  EXPECT_STATUS(ingot_hal_executable_create(device, &description, &executable), DATA_LOSS,
                "variant 'some': the object of");
  free(short_data);
  free(data);
  test_object_free(&object);
  ingot_hal_device_release(device);
}

/* -- profiling ------------------------------------------------------------------------------ */

#if defined(__x86_64__)
TEST(profiling_names_the_kernels) {
  ingot_device_t *device = NULL;
  ingot_hal_executable_t *executable = NULL;
  test_object_t object = test_object_build_kernels();
  ingot_hal_variant_t variant = {"v1", "elf-x86_64", 0, object.data, object.length};
  ingot_hal_executable_description_t description = {"profiled", kernel_descriptions,
                                                    KERNEL_DESCRIPTION_COUNT, 1, &variant};
  REQUIRE_OK(ingot_hal_device_create(instance, "cpu", NULL, &device));
  instance->profiling = true;
  EXPECT_OK(ingot_hal_executable_create(device, &description, &executable));
  instance->profiling = false;
  char path[64];
  (void)snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
  test_object_t map = test_object_read(path);
  REQUIRE(map.data);
  map.data[map.length] = 0;
  EXPECT(strstr((const char *)map.data, " ingot:gather\n") != NULL);
  unsigned long address = 0, length = 0;
  EXPECT_EQUAL(sscanf((const char *)map.data, "%lx %lx ingot:add\n", &address, &length), 2);
  EXPECT(address > 4096 && length > 0 && length < 65536);
  (void)unlink(path);
  test_object_free(&map);
  ingot_hal_executable_destroy(executable);
  ingot_hal_device_release(device);
  test_object_free(&object);
}
#endif

static ingot_buffer_t *new_result(ingot_device_t *device, int64_t length) {
  ingot_buffer_t *buffer = NULL;
  EXPECT_OK(ingot_hal_buffer_create(device, length, &buffer));
  if (buffer) buffer->spare = true;
  return buffer;
}

/* The bytes of released results serve the next ones, also somewhat larger ones, up to a limit;
 * trim frees them, and so does an allocation that finds no other memory. */
TEST(memory_of_released_results_is_used_again) {
  test_allocator_t counter = {0};
  ingot_allocator_t allocator = test_allocator(&counter);
  ingot_instance_t *own = NULL;
  ingot_device_t *device = NULL;
  REQUIRE_OK(ingot_hal_instance_create(&allocator, drivers, 1, &own));
  REQUIRE_OK(ingot_hal_device_create(own, "cpu://?threads=1", NULL, &device));
  int64_t before = counter.live;
  ingot_buffer_t *buffer = new_result(device, 1000000);
  const void *memory = buffer->host;
  ingot_hal_buffer_release(buffer);
  EXPECT_EQUAL(counter.live, before + 1);
  buffer = new_result(device, 1000400);
  EXPECT(buffer->host == memory);
  ingot_buffer_t *other = new_result(device, 1000000);
  EXPECT(other->host != memory);
  ingot_hal_buffer_release(buffer);
  ingot_hal_buffer_release(other);
  buffer = new_result(device, 500000); /* not in a block of twice its length */
  EXPECT_EQUAL(counter.live, before + 3);
  counter.fail_at = counter.allocations + 1;
  other = new_result(device, 5000000);
  EXPECT(other != NULL);
  EXPECT_EQUAL(counter.live, before + 2);
  ingot_hal_buffer_release(buffer);
  ingot_hal_buffer_release(other);
  ingot_hal_device_trim(device);
  EXPECT_EQUAL(counter.live, before);
  ingot_buffer_t *many[20];
  for (int i = 0; i < 20; i++) many[i] = new_result(device, 5 << 20);
  for (int i = 0; i < 20; i++) ingot_hal_buffer_release(many[i]);
  EXPECT(counter.live > before && counter.live <= before + 64 / 5);
  int64_t kept = counter.live;
  ingot_hal_buffer_release(new_result(device, 65 << 20)); /* which is kept nowhere */
  EXPECT_EQUAL(counter.live, kept);
  ingot_hal_device_release(device);
  ingot_hal_instance_release(own);
  EXPECT_EQUAL(counter.live, 0);
}

int main(void) {
  if (ingot_hal_instance_create(NULL, drivers, 1, &instance)) return 1;
  RUN_TESTS();
  ingot_hal_instance_release(instance);
  return TEST_RESULT();
}
