/* The conformance suite, part two: dispatches, their checks and faults, executables.
 */
#include "suite.h"

/* A dispatch whose failure may show at the next wait only. */
static ingot_status_t dispatch_and_wait(uint32_t entry, const ingot_hal_binding_t *bindings,
                                        int64_t x, const int64_t *constants, int64_t cost) {
  uint8_t byte;
  INGOT_TRY(dispatch(entry, bindings, x, 1, 1, constants, cost));
  return ingot_hal_queue_read(suite.queue, bindings[0].buffer, 0, &byte, 1);
}

TEST(dispatch_computes_and_masks_its_tail) {
  enum { COUNT = 1000 };
  static float a[COUNT], b[COUNT], back[COUNT + 1];
  for (int i = 0; i < COUNT; i++) a[i] = (float)i, b[i] = (float)(2 * i);
  ingot_buffer_t *left = new_buffer(sizeof(a), a), *right = new_buffer(sizeof(b), b);
  ingot_buffer_t *target = new_buffer(sizeof(back), NULL);
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, target, 0, sizeof(back), 0xFF, 1));
  ingot_hal_binding_t bindings[3] = {whole(left), whole(right), {target, 0, sizeof(a)}};
  for (int shared = 0; shared < 2; shared++) {
    EXPECT_OK(dispatch(KERNEL_ADD, bindings, COUNT, 1, 1, NULL, shared ? LARGE : SMALL));
    EXPECT_OK(ingot_hal_queue_read(suite.queue, target, 0, back, sizeof(back)));
    for (int i = 0; i < COUNT; i++) EXPECT(back[i] == (float)(3 * i));
    uint32_t behind;
    memcpy(&behind, &back[COUNT], 4);
    EXPECT(behind == 0xFFFFFFFFu);
  }
  ingot_hal_buffer_release(left);
  ingot_hal_buffer_release(right);
  ingot_hal_buffer_release(target);
}

TEST(grid_covers_every_element_once) {
  static const int64_t sizes[][3] = {{1, 1, 1},     {2, 3, 1},     {3, 4, 2},   {5, 1, 7},
                                     {40, 9, 3},    {1, 100, 1},   {64, 60, 9}, {1, 1, 300},
                                     {1, 3, 70000}, {3, 200000, 1}};
  for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
    int64_t count = sizes[s][0] * sizes[s][1] * sizes[s][2];
    ingot_buffer_t *target = new_buffer(count * 4, NULL);
    ingot_hal_binding_t binding = whole(target);
    EXPECT_OK(ingot_hal_queue_fill(suite.queue, target, 0, count * 4, 0, 4));
    EXPECT_OK(dispatch(KERNEL_COUNT, &binding, sizes[s][0], sizes[s][1], sizes[s][2], NULL, LARGE));
    EXPECT_OK(dispatch(KERNEL_COUNT, &binding, sizes[s][0], sizes[s][1], sizes[s][2], NULL, SMALL));
    int32_t *back = malloc((size_t)count * 4);
    if (back) {
      EXPECT_OK(ingot_hal_queue_read(suite.queue, target, 0, back, count * 4));
      for (int64_t i = 0; i < count; i++) EXPECT_EQUAL(back[i], 2);
    }
    free(back);
    ingot_hal_buffer_release(target);
  }
}

TEST(empty_workload_is_skipped) {
  ingot_buffer_t *target = new_buffer(4, "abc");
  ingot_hal_binding_t binding = whole(target);
  char back[4];
  for (int axis = 0; axis < 3; axis++) {
    EXPECT_OK(dispatch(KERNEL_COUNT, &binding, axis != 0, axis != 1, axis != 2, NULL, SMALL));
    const int64_t size[3] = {axis ? INT64_MAX : 0, axis == 1 ? 0 : INT64_MAX,
                             axis == 2 ? 0 : INT64_MAX};
    EXPECT_OK(dispatch(KERNEL_COUNT, &binding, size[0], size[1], size[2], NULL, SMALL));
  }
  EXPECT_OK(ingot_hal_queue_read(suite.queue, target, 0, back, 4));
  EXPECT_TEXT(back, "abc");
  ingot_hal_buffer_release(target);
}

TEST(kernel_sees_lengths_constants_and_workload) {
  ingot_buffer_t *target = new_buffer(128, NULL);
  ingot_hal_binding_t bindings[2] = {{target, 8, 56}, {target, 100, 0}};
  int64_t constants[2] = {-7, INT64_C(1) << 40}, back[7];
  EXPECT_OK(dispatch(KERNEL_ECHO, bindings, 3, 2, 5, constants, SMALL));
  EXPECT_OK(ingot_hal_queue_read(suite.queue, target, 8, back, sizeof(back)));
  int64_t expected[7] = {3, 2, 5, -7, INT64_C(1) << 40, 56, 0};
  if (!suite.on_host) expected[5] = 8; /* not told: the width of its indices, for such constants */
  EXPECT(memcmp(back, expected, sizeof(back)) == 0);
  ingot_hal_buffer_release(target);
}

TEST(binding_of_a_subspan_starts_there) {
  ingot_buffer_t *parent = new_buffer(256, NULL), *part = NULL;
  EXPECT_OK(ingot_hal_buffer_subspan(parent, 64, 128, &part));
  ingot_hal_binding_t bindings[2] = {{part, 64, 56}, {part, 0, 8}};
  int64_t constants[2] = {1, 2}, back = 0;
  EXPECT_OK(dispatch(KERNEL_ECHO, bindings, 9, 1, 1, constants, SMALL));
  EXPECT_OK(ingot_hal_queue_read(suite.queue, parent, 128, &back, 8));
  EXPECT_EQUAL(back, 9);
  ingot_hal_buffer_release(part);
  ingot_hal_buffer_release(parent);
}

TEST(binding_outside_its_buffer_is_refused) {
  ingot_buffer_t *buffer = new_buffer(64, NULL);
  static const int64_t bad[][2] = {{0, 65},         {64, 1},        {-1, 4},
                                   {0, -1},         {INT64_MAX, 8}, {8, INT64_MAX},
                                   {INT64_MIN, 64}, {65, 0},        {INT64_MAX, INT64_MAX}};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    ingot_hal_binding_t bindings[3] = {
        whole(buffer), whole(buffer), {buffer, bad[i][0], bad[i][1]}};
    EXPECT_STATUS(dispatch(KERNEL_ADD, bindings, 4, 1, 1, NULL, SMALL), OUT_OF_RANGE,
                  "kernel 'add' of layer 'layer/Add', binding 2: ");
  }
  ingot_hal_binding_t bindings[3] = {whole(buffer), {NULL, 0, 0}, whole(buffer)};
  EXPECT_STATUS(dispatch(KERNEL_ADD, bindings, 4, 1, 1, NULL, SMALL), INVALID_ARGUMENT,
                "binding 1: the buffer is null");
  ingot_hal_buffer_release(buffer);
}

TEST(dispatch_that_does_not_fit_its_kernel_is_refused) {
  ingot_buffer_t *buffer = new_buffer(64, NULL);
  ingot_hal_binding_t bindings[3] = {whole(buffer), whole(buffer), whole(buffer)};
  ingot_hal_dispatch_t operation = {.executable = suite.executable,
                                    .entry = KERNEL_ADD,
                                    .binding_count = 2,
                                    .bindings = bindings,
                                    .workload = {1, 1, 1}};
  EXPECT_STATUS(ingot_hal_queue_dispatch(suite.queue, &operation), INVALID_ARGUMENT,
                "got 2 bindings and 0 constants, expected 3 and 0");
  operation.entry = KERNEL_DESCRIPTION_COUNT;
  EXPECT_STATUS(ingot_hal_queue_dispatch(suite.queue, &operation), INVALID_ARGUMENT,
                "kernel ordinal 6, expected less than 6");
  operation.executable = NULL;
  EXPECT_STATUS(ingot_hal_queue_dispatch(suite.queue, &operation), INVALID_ARGUMENT, "null");
  EXPECT_STATUS(dispatch(KERNEL_ADD, bindings, -1, 1, 1, NULL, SMALL), OUT_OF_RANGE,
                "workload [-1, 1, 1]");
  EXPECT_STATUS(dispatch(KERNEL_COUNT, bindings, INT64_MAX, INT64_MAX, 4, NULL, SMALL),
                OUT_OF_RANGE, "workgroups");
  EXPECT_STATUS(dispatch(KERNEL_COUNT, bindings, 0, 1, -1, NULL, SMALL), OUT_OF_RANGE,
                "workload [0, 1, -1]");
  ingot_hal_buffer_release(buffer);
}

TEST(numbers_that_do_not_fit_the_kernel_are_refused) {
  ingot_buffer_t *buffer = new_buffer(64, NULL);
  ingot_hal_binding_t bindings[3] = {whole(buffer), whole(buffer), whole(buffer)};
  EXPECT_OK(dispatch(KERNEL_ADD, bindings, 16, 1, 1, NULL, SMALL));
  for (int b = 0; b < 3; b++) {
    bindings[b].length = 60;
    EXPECT_STATUS(dispatch(KERNEL_ADD, bindings, 16, 1, 1, NULL, SMALL), DATA_LOSS,
                  "kernel 'add' of layer 'layer/Add': its sizes do not fit its kernel: the module "
                  "is damaged");
    bindings[b].length = 64;
  }
  EXPECT_STATUS(dispatch(KERNEL_ADD, bindings, INT64_C(1) << 61, 1, 1, NULL, SMALL), DATA_LOSS,
                "its sizes do not fit its kernel");
  ingot_hal_buffer_release(buffer);
}

/* Sizes that no byte bounds would keep a device busy for ever. */
TEST(work_that_writes_no_byte_is_skipped) {
  ingot_buffer_t *buffer = new_buffer(64, NULL);
  ingot_hal_binding_t binding = {buffer, 64, 0};
  EXPECT_OK(dispatch(KERNEL_COUNT, &binding, INT64_C(1) << 60, 1, 1, NULL, SMALL));
  EXPECT_OK(ingot_hal_queue_wait(suite.queue));
  ingot_hal_buffer_release(buffer);
}

static bool describe(void *user, const void *site, char *out_text, size_t capacity) {
  if (!site) return false;
  (void)snprintf(out_text, capacity, "%s '%s'", (const char *)user, (const char *)site);
  return true;
}

TEST(messages_call_a_dispatch_what_the_queues_owner_says) {
  char user[] = "Add";
  ingot_buffer_t *buffer = new_buffer(64, NULL);
  ingot_hal_binding_t bindings[3] = {whole(buffer), whole(buffer), {buffer, 60, 8}};
  ingot_hal_dispatch_t operation = {.executable = suite.executable,
                                    .entry = KERNEL_ADD,
                                    .binding_count = 3,
                                    .bindings = bindings,
                                    .workload = {1, 1, 1},
                                    .site = "net/sum"};
  suite.queue->describe = describe;
  suite.queue->describe_user = user;
  EXPECT_STATUS(ingot_hal_queue_dispatch(suite.queue, &operation), OUT_OF_RANGE,
                "Add 'net/sum', binding 2: ");
  operation.site = NULL;
  EXPECT_STATUS(ingot_hal_queue_dispatch(suite.queue, &operation), OUT_OF_RANGE,
                "kernel 'add' of layer 'layer/Add', binding 2: ");
  suite.queue->describe = NULL;
  ingot_hal_buffer_release(buffer);
}

TEST(dispatch_behind_its_deadline_is_ended) {
  ingot_buffer_t *buffer = new_buffer(64, NULL);
  ingot_hal_binding_t bindings[3] = {whole(buffer), whole(buffer), whole(buffer)};
  ingot_hal_dispatch_t operation = {.executable = suite.executable,
                                    .entry = KERNEL_ADD,
                                    .binding_count = 3,
                                    .bindings = bindings,
                                    .workload = {16, 1, 1}};
  ingot_stop_t stop = {.flags = INGOT_STOP_LIMITED, .deadline = 1};
  int32_t value = 0;
  suite.queue->stop = &stop;
  ingot_status_t status = ingot_hal_queue_dispatch(suite.queue, &operation);
  if (!status) status = ingot_hal_queue_read(suite.queue, buffer, 0, &value, sizeof(value));
  EXPECT_STATUS(status, DEADLINE_EXCEEDED, "longer than its timeout");
  stop.flags = INGOT_STOP_CANCELLED;
  EXPECT_STATUS(ingot_hal_queue_dispatch(suite.queue, &operation), CANCELLED, "was cancelled");
  EXPECT_STATUS(ingot_hal_queue_fill(suite.queue, buffer, 0, 64, 0, 1), CANCELLED, "cancelled");
  stop = (ingot_stop_t){.flags = INGOT_STOP_LIMITED, .deadline = INT64_MAX};
  EXPECT_OK(ingot_hal_queue_dispatch(suite.queue, &operation));
  suite.queue->stop = NULL;
  ingot_hal_buffer_release(buffer);
}

TEST(deadline_may_pass_while_work_runs) {
  ingot_buffer_t *target = new_buffer(64 * 8, NULL);
  ingot_hal_binding_t binding = whole(target);
  ingot_hal_dispatch_t operation = {.executable = suite.executable,
                                    .entry = KERNEL_SCRATCH,
                                    .binding_count = 1,
                                    .bindings = &binding,
                                    .workload = {64, 1, 1}};
  ingot_stop_t stop = {.flags = INGOT_STOP_LIMITED, .deadline = ingot_clock() + 2000000};
  ingot_status_t status = NULL;
  suite.queue->stop = &stop;
  for (int i = 0; i < 4000 && !status; i++) { /* far more than 2 ms of work */
    status = ingot_hal_queue_dispatch(suite.queue, &operation);
  }
  ingot_status_t waited = ingot_hal_queue_wait(suite.queue);
  EXPECT_STATUS(status ? status : waited, DEADLINE_EXCEEDED, "longer than its timeout");
  if (status) ingot_status_free(waited);
  suite.queue->stop = NULL;
  EXPECT_OK(ingot_hal_queue_dispatch(suite.queue, &operation));
  EXPECT_OK(ingot_hal_queue_wait(suite.queue));
  ingot_hal_buffer_release(target);
}

TEST(buffer_of_another_device_is_refused) {
  ingot_device_t *other = NULL;
  ingot_buffer_t *foreign = NULL, *own = new_buffer(64, NULL);
  REQUIRE_OK(ingot_hal_device_create(suite.instance, "cpu", NULL, &other));
  REQUIRE_OK(ingot_hal_buffer_create(other, 64, &foreign));
  ingot_hal_binding_t bindings[3] = {whole(own), whole(foreign), whole(own)};
  EXPECT_STATUS(dispatch(KERNEL_ADD, bindings, 4, 1, 1, NULL, SMALL), INVALID_ARGUMENT,
                "another device");
  EXPECT_STATUS(ingot_hal_queue_copy(suite.queue, foreign, 0, own, 0, 4), INVALID_ARGUMENT,
                "another device");
  ingot_hal_buffer_release(foreign);
  ingot_hal_buffer_release(own);
  ingot_hal_device_release(other);
}

TEST(a_fault_is_reported_and_the_queue_goes_on) {
  enum { COUNT = 3000 };
  static int32_t source[8] = {0, 10, 20, 30, 40, 50, 60, 70}, indices[COUNT], back[COUNT];
  ingot_buffer_t *from = new_buffer(sizeof(source), source);
  ingot_buffer_t *target = new_buffer(sizeof(back), NULL);
  ingot_buffer_t *index = new_buffer(sizeof(indices), NULL);
  ingot_hal_binding_t bindings[3] = {whole(from), whole(index), whole(target)};
  int64_t bound = 8;
  for (int round = 0; round < 100; round++) {
    for (int i = 0; i < COUNT; i++) indices[i] = i % 8;
    int lowest = 10 + round * 29;
    for (int i = lowest; i < COUNT; i += 3) indices[i] = 100 + i;
    EXPECT_OK(ingot_hal_buffer_write(index, 0, sizeof(indices), indices));
    char expected[200] = "kernel 'gather' of layer 'layer/Gather' (operand 1): index ";
    if (suite.on_host) {
      (void)snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected),
                     "%d is out of range [0, 8)", 100 + lowest);
    }
    EXPECT_STATUS(
        dispatch_and_wait(KERNEL_GATHER, bindings, COUNT, &bound, round % 2 ? LARGE : SMALL),
        OUT_OF_RANGE, expected);
  }
  for (int i = 0; i < COUNT; i++) indices[i] = 7 - i % 8;
  EXPECT_OK(ingot_hal_buffer_write(index, 0, sizeof(indices), indices));
  EXPECT_OK(dispatch_and_wait(KERNEL_GATHER, bindings, COUNT, &bound, LARGE));
  EXPECT_OK(ingot_hal_queue_read(suite.queue, target, 0, back, sizeof(back)));
  for (int i = 0; i < COUNT; i++) EXPECT_EQUAL(back[i], (7 - i % 8) * 10);
  ingot_hal_buffer_release(from);
  ingot_hal_buffer_release(target);
  ingot_hal_buffer_release(index);
}

TEST(scratch_is_private_to_a_workgroup) {
  enum { COUNT = 64 };
  int64_t back[COUNT];
  ingot_buffer_t *target = new_buffer(sizeof(back), NULL);
  ingot_hal_binding_t binding = whole(target);
  for (int round = 0; round < 4; round++) {
    EXPECT_OK(dispatch(KERNEL_SCRATCH, &binding, COUNT, 1, 1, NULL, round % 2 ? LARGE : SMALL));
    EXPECT_OK(ingot_hal_queue_read(suite.queue, target, 0, back, sizeof(back)));
    for (int i = 0; i < COUNT; i++) EXPECT_EQUAL(back[i], 8386560);
  }
  ingot_hal_buffer_release(target);
}

TEST(work_runs_in_queue_order) {
  float one = 1.0f, back = 0;
  ingot_buffer_t *a = new_buffer(4, &one), *b = new_buffer(4, &one);
  ingot_hal_binding_t bindings[3] = {whole(a), whole(b), whole(a)};
  for (int i = 0; i < 10; i++) {
    EXPECT_OK(dispatch(KERNEL_ADD, bindings, 1, 1, 1, NULL, SMALL));
    EXPECT_OK(ingot_hal_queue_copy(suite.queue, a, 0, b, 0, 4));
  }
  EXPECT_OK(ingot_hal_queue_read(suite.queue, a, 0, &back, 4));
  EXPECT(back == 1024.0f);
  ingot_hal_buffer_release(a);
  ingot_hal_buffer_release(b);
}

/* One session: an own queue and own buffers on the shared device. */
static void *run_session(void *argument) {
  enum { COUNT = 640 };
  float start = *(const float *)argument, values[COUNT];
  ingot_hal_queue_t *queue = NULL;
  ingot_buffer_t *sum = NULL, *step = NULL;
  EXPECT_OK(ingot_hal_queue_create(suite.device, &queue));
  EXPECT_OK(ingot_hal_buffer_create(suite.device, sizeof(values), &sum));
  EXPECT_OK(ingot_hal_buffer_create(suite.device, sizeof(values), &step));
  for (int i = 0; i < COUNT; i++) values[i] = start + (float)i;
  EXPECT_OK(ingot_hal_buffer_write(step, 0, sizeof(values), values));
  EXPECT_OK(ingot_hal_queue_fill(queue, sum, 0, sizeof(values), 0, 4));
  ingot_hal_binding_t bindings[3] = {whole(sum), whole(step), whole(sum)};
  for (int round = 0; round < 300; round++) {
    ingot_hal_dispatch_t operation = {.executable = suite.executable,
                                      .entry = KERNEL_ADD,
                                      .binding_count = 3,
                                      .bindings = bindings,
                                      .workload = {COUNT, 1, 1},
                                      .cost_flops = round % 3 ? LARGE : SMALL};
    EXPECT_OK(ingot_hal_queue_dispatch(queue, &operation));
  }
  EXPECT_OK(ingot_hal_queue_read(queue, sum, 0, values, sizeof(values)));
  for (int i = 0; i < COUNT; i++) EXPECT(values[i] == 300 * (start + (float)i));
  ingot_hal_buffer_release(step);
  ingot_hal_buffer_release(sum);
  ingot_hal_queue_destroy(queue);
  return NULL;
}

TEST(sessions_share_a_device) {
  pthread_t threads[4];
  float starts[4] = {1, 100, 1000, 10000};
  for (int t = 0; t < 4; t++) {
    REQUIRE(pthread_create(&threads[t], NULL, run_session, &starts[t]) == 0);
  }
  for (int t = 0; t < 4; t++) (void)pthread_join(threads[t], NULL);
}

/* -- executables --------------------------------------------------------------------------- */

TEST(executable_without_fitting_variant_is_unsupported) {
  ingot_hal_variant_t variants[2] = {{"alien", "object-of-mars", 0, "x", 1},
                                     {"future", "elf-x86_64", UINT64_C(1) << 63, "x", 1}};
  ingot_hal_executable_description_t description = {"kernels", kernel_descriptions,
                                                    KERNEL_DESCRIPTION_COUNT, 2, variants};
  ingot_hal_executable_t *executable = NULL;
  EXPECT_STATUS(ingot_hal_executable_create(suite.device, &description, &executable), UNSUPPORTED,
                "kernels 'kernels': ");
  description.variant_count = 0;
  EXPECT_STATUS(ingot_hal_executable_create(suite.device, &description, &executable), UNSUPPORTED,
                "no variant");
  EXPECT(executable == NULL);
}

TEST(objects_outlive_the_references_they_came_from) {
  ingot_instance_t *instance = NULL;
  ingot_device_t *device = NULL;
  ingot_buffer_t *buffer = NULL;
  ingot_hal_queue_t *queue = NULL;
  REQUIRE_OK(ingot_hal_instance_create(NULL, suite_drivers, SUITE_DRIVER_COUNT, &instance));
  REQUIRE_OK(ingot_hal_device_create(instance, suite.uri, NULL, &device));
  REQUIRE_OK(ingot_hal_buffer_create(device, 64, &buffer));
  REQUIRE_OK(ingot_hal_queue_create(device, &queue));
  ingot_hal_instance_release(instance);
  ingot_hal_device_release(device);
  EXPECT_OK(ingot_hal_queue_fill(queue, buffer, 0, 64, 7, 1));
  ingot_hal_queue_destroy(queue);
  uint8_t byte = 0;
  EXPECT_OK(ingot_hal_buffer_read(buffer, 63, 1, &byte));
  EXPECT_EQUAL(byte, 7);
  ingot_hal_buffer_release(buffer);
}

int main(int count, char **arguments) { return suite_main(count, arguments); }
