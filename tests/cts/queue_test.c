/* The conformance suite, part three: what holds over several operations of a queue - waits,
 * wrapped bytes, traces, and more work than a queue can hold at once.
 */
#include "suite.h"

TEST(wait_without_work_is_fine) {
  EXPECT_OK(ingot_hal_queue_wait(suite.queue));
  EXPECT_OK(ingot_hal_queue_wait(suite.queue));
}

TEST(wrapped_bytes_are_current_after_a_wait) {
  enum { COUNT = 100 };
  static float a[COUNT], b[COUNT], sum[COUNT];
  static uint8_t filled[33], copied[33];
  for (int i = 0; i < COUNT; i++) a[i] = (float)i, b[i] = 0.5f, sum[i] = -1;
  ingot_buffer_t *buffers[5] = {NULL};
  void *const bytes[5] = {a, b, sum, filled, copied};
  const int64_t lengths[5] = {sizeof(a), sizeof(b), sizeof(sum), sizeof(filled), sizeof(copied)};
  for (int i = 0; i < 5; i++) {
    REQUIRE_OK(ingot_hal_buffer_wrap(suite.device, bytes[i], lengths[i],
                                     i < 2 ? INGOT_HAL_ACCESS_READ : 3u, NULL, NULL, &buffers[i]));
  }
  ingot_hal_binding_t bindings[3] = {whole(buffers[0]), whole(buffers[1]), whole(buffers[2])};
  EXPECT_OK(dispatch(KERNEL_ADD, bindings, COUNT, 1, 1, NULL, SMALL));
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffers[3], 1, 32, 0xAB, 1));
  EXPECT_OK(ingot_hal_queue_copy(suite.queue, buffers[3], 0, buffers[4], 1, 32));
  EXPECT_OK(ingot_hal_queue_wait(suite.queue));
  for (int i = 0; i < COUNT; i++) EXPECT(sum[i] == (float)i + 0.5f);
  EXPECT_EQUAL(filled[0], 0);
  for (int i = 1; i < 33; i++) EXPECT_EQUAL(filled[i], 0xAB);
  EXPECT_EQUAL(copied[1], 0);
  for (int i = 2; i < 33; i++) EXPECT_EQUAL(copied[i], 0xAB);
  for (int i = 0; i < 5; i++) ingot_hal_buffer_release(buffers[i]);
}

TEST(wrapped_bytes_follow_writes_and_maps) {
  static int32_t values[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  ingot_buffer_t *buffer = NULL;
  int32_t value = 70;
  void *data;
  REQUIRE_OK(ingot_hal_buffer_wrap(suite.device, values, sizeof(values), 3, NULL, NULL, &buffer));
  EXPECT_OK(ingot_hal_buffer_write(buffer, 4, 4, &value));
  EXPECT_EQUAL(values[1], 70);
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffer, 8, 4, 5, 4));
  REQUIRE_OK(ingot_hal_buffer_map(buffer, 4, 12, 3, &data));
  EXPECT_EQUAL(((int32_t *)data)[0], 70);
  EXPECT_EQUAL(((int32_t *)data)[1], 5);
  ((int32_t *)data)[2] = 33;
  ingot_hal_buffer_unmap(buffer, data);
  EXPECT_OK(ingot_hal_queue_read(suite.queue, buffer, 12, &value, 4));
  EXPECT_EQUAL(value, 33);
  EXPECT_EQUAL(values[3], 33);
  ingot_hal_buffer_release(buffer);
}

TEST(two_wraps_of_the_same_bytes_overlap) {
  static int32_t values[16];
  ingot_buffer_t *a = NULL, *b = NULL;
  REQUIRE_OK(ingot_hal_buffer_wrap(suite.device, values, 32, 3, NULL, NULL, &a));
  REQUIRE_OK(ingot_hal_buffer_wrap(suite.device, values + 4, 32, 3, NULL, NULL, &b));
  EXPECT(ingot_hal_ranges_overlap(a, 0, 32, b, 0, 32));
  EXPECT(!ingot_hal_ranges_overlap(a, 0, 16, b, 0, 32));
  EXPECT_STATUS(ingot_hal_queue_copy(suite.queue, a, 8, b, 0, 16), INVALID_ARGUMENT, "overlaps");
  ingot_hal_buffer_release(a);
  ingot_hal_buffer_release(b);
}

TEST(bindings_may_share_bytes) {
  enum { COUNT = 100 };
  float values[2 * COUNT], back[COUNT];
  for (int i = 0; i < 2 * COUNT; i++) values[i] = (float)i;
  ingot_buffer_t *buffer = new_buffer(sizeof(values), values), *part = NULL;
  EXPECT_OK(ingot_hal_buffer_subspan(buffer, 40, 500, &part));
  const ingot_hal_binding_t bindings[3] = {/* from element 0 on, from 10 on, into the first */
                                           {buffer, 0, 400},
                                           {part, 0, 400},
                                           {buffer, 0, 400}};
  EXPECT_OK(dispatch(KERNEL_ADD, bindings, 10, 1, 1, NULL, SMALL));
  EXPECT_OK(ingot_hal_queue_read(suite.queue, buffer, 0, back, sizeof(back)));
  for (int i = 0; i < COUNT; i++) EXPECT(back[i] == (float)(i < 10 ? 2 * i + 10 : i));
  ingot_hal_buffer_release(part);
  ingot_hal_buffer_release(buffer);
}

TEST(fills_may_begin_anywhere) {
  ingot_buffer_t *buffer = new_buffer(64, NULL);
  uint8_t back[64], expected[64];
  for (int64_t offset = 0; offset < 9; offset++) {
    for (uint32_t pattern_length = 1; pattern_length <= 8; pattern_length *= 2) {
      memset(expected, 0x77, sizeof(expected));
      for (int i = 0; i < 24; i++) expected[offset + i] = (uint8_t)(1 + i % (int)pattern_length);
      EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffer, 0, 64, 0x77, 1));
      EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffer, offset, 24, 0x0807060504030201,
                                     pattern_length));
      EXPECT_OK(ingot_hal_queue_read(suite.queue, buffer, 0, back, 64));
      EXPECT(memcmp(back, expected, 64) == 0);
    }
  }
  ingot_hal_buffer_release(buffer);
}

/* Longer than a device does without a look at whether it is to stop. */
TEST(long_copies_and_fills_are_whole) {
  enum { LENGTH = (2 << 24) + 24 };
  ingot_buffer_t *source = new_buffer(LENGTH, NULL), *target = new_buffer(LENGTH, NULL);
  const uint64_t pattern = 0x0807060504030201;
  for (uint32_t pattern_length = 1; pattern_length <= 8; pattern_length *= 8) {
    void *bytes = NULL;
    EXPECT_OK(ingot_hal_queue_fill(suite.queue, source, 0, LENGTH, pattern, pattern_length));
    EXPECT_OK(ingot_hal_queue_copy(suite.queue, source, 0, target, 0, LENGTH));
    EXPECT_OK(ingot_hal_queue_wait(suite.queue));
    REQUIRE_OK(ingot_hal_buffer_map(target, 0, LENGTH, INGOT_HAL_ACCESS_READ, &bytes));
    int64_t wrong = 0;
    for (int64_t i = 0; i < LENGTH; i++) {
      wrong += ((const uint8_t *)bytes)[i] != 1 + i % pattern_length;
    }
    EXPECT_EQUAL(wrong, 0);
    ingot_hal_buffer_unmap(target, bytes);
  }
  ingot_hal_buffer_release(source);
  ingot_hal_buffer_release(target);
}

TEST(more_work_than_fits_a_queue_is_done) {
  enum { COUNT = 2000 };
  float one = 1, zero = 0, sum = 0;
  ingot_buffer_t *a = new_buffer(4, &zero), *step = new_buffer(4, &one);
  ingot_hal_binding_t bindings[3] = {whole(a), whole(step), whole(a)};
  for (int i = 0; i < COUNT; i++) EXPECT_OK(dispatch(KERNEL_ADD, bindings, 1, 1, 1, NULL, SMALL));
  EXPECT_OK(ingot_hal_queue_read(suite.queue, a, 0, &sum, 4));
  EXPECT(sum == COUNT);
  ingot_hal_buffer_release(a);
  ingot_hal_buffer_release(step);
}

TEST(more_writes_than_fit_a_queue_are_done) {
  enum { COUNT = 9 };
  static uint8_t bytes[INGOT_HAL_MAX_WRITE];
  ingot_buffer_t *buffer = new_buffer(COUNT * INGOT_HAL_MAX_WRITE, NULL);
  for (int i = 0; i < COUNT; i++) {
    memset(bytes, i + 1, sizeof(bytes));
    EXPECT_OK(ingot_hal_queue_write(suite.queue, buffer, (int64_t)i * INGOT_HAL_MAX_WRITE, bytes,
                                    sizeof(bytes)));
  }
  for (int i = 0; i < COUNT; i++) {
    memset(bytes, 0, sizeof(bytes));
    EXPECT_OK(ingot_hal_queue_read(suite.queue, buffer, (int64_t)i * INGOT_HAL_MAX_WRITE, bytes,
                                   sizeof(bytes)));
    EXPECT(bytes[0] == i + 1 && bytes[INGOT_HAL_MAX_WRITE - 1] == i + 1);
  }
  ingot_hal_buffer_release(buffer);
}

TEST(more_written_wraps_than_a_queue_notes_are_current) {
  enum { COUNT = 300 };
  static int32_t values[COUNT][4];
  static ingot_buffer_t *buffers[COUNT];
  for (int i = 0; i < COUNT; i++) {
    REQUIRE_OK(ingot_hal_buffer_wrap(suite.device, values[i], 16, 3, NULL, NULL, &buffers[i]));
    EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffers[i], 0, 16, (uint64_t)i, 4));
  }
  EXPECT_OK(ingot_hal_queue_wait(suite.queue));
  for (int i = 0; i < COUNT; i++) {
    EXPECT_EQUAL(values[i][3], i);
    ingot_hal_buffer_release(buffers[i]);
  }
}

TEST(map_waits_for_queued_work) {
  enum { COUNT = 100000 };
  ingot_buffer_t *a = new_buffer(COUNT * 4, NULL), *b = new_buffer(COUNT * 4, NULL);
  ingot_hal_binding_t bindings[3] = {whole(a), whole(a), whole(b)};
  float pattern = 1;
  uint32_t bits;
  memcpy(&bits, &pattern, 4);
  void *data;
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, a, 0, COUNT * 4, bits, 4));
  EXPECT_OK(dispatch(KERNEL_ADD, bindings, COUNT, 1, 1, NULL, LARGE));
  REQUIRE_OK(ingot_hal_buffer_map(b, 0, COUNT * 4, INGOT_HAL_ACCESS_READ, &data));
  for (int i = 0; i < COUNT; i++) EXPECT(((const float *)data)[i] == 2);
  ingot_hal_buffer_unmap(b, data);
  ingot_hal_buffer_release(a);
  ingot_hal_buffer_release(b);
}

TEST(fault_is_told_once_by_the_next_wait) {
  int32_t index = 9;
  ingot_buffer_t *buffer = new_buffer(64, NULL), *indices = new_buffer(4, &index);
  ingot_hal_binding_t bindings[3] = {whole(buffer), whole(indices), whole(buffer)};
  int64_t bound = 8;
  ingot_status_t status = dispatch(KERNEL_GATHER, bindings, 1, 1, 1, &bound, SMALL);
  if (!status) status = ingot_hal_queue_wait(suite.queue);
  EXPECT_STATUS(status, OUT_OF_RANGE,
                "kernel 'gather' of layer 'layer/Gather' (operand 1): index 9 is out of range "
                "[0, 8)");
  EXPECT_OK(ingot_hal_queue_wait(suite.queue));
  ingot_hal_buffer_release(buffer);
  ingot_hal_buffer_release(indices);
}

/* -- traces ---------------------------------------------------------------------------------- */

typedef struct traced_t {
  uint32_t count;
  ingot_hal_trace_t events[16];
} traced_t;

/* All but waits, which only some devices need: those come behind what they wait for. */
static void note(void *user, const ingot_hal_trace_t *trace) {
  traced_t *traced = user;
  if (trace->kind == INGOT_TRACE_WAIT) {
    EXPECT_TEXT(trace->kernel, "wait");
    EXPECT(trace->site != NULL && traced->count > 0);
    EXPECT(traced->events[traced->count - 1].end <= trace->end);
    return;
  }
  if (traced->count < 16) traced->events[traced->count] = *trace;
  traced->count++;
}

TEST(trace_tells_every_operation_in_order) {
  static const char sites[3][8] = {"first", "second", "third"};
  traced_t traced = {.count = 0};
  ingot_buffer_t *buffer = new_buffer(4096, NULL);
  ingot_hal_binding_t bindings[3] = {{buffer, 0, 400}, {buffer, 0, 400}, {buffer, 400, 400}};
  ingot_hal_dispatch_t operation = {.executable = suite.executable,
                                    .entry = KERNEL_ADD,
                                    .binding_count = 3,
                                    .bindings = bindings,
                                    .workload = {100, 1, 1},
                                    .cost_bytes = 1200,
                                    .site = sites[1]};
  suite.queue->trace = note;
  suite.queue->trace_user = &traced;
  suite.queue->site = sites[0];
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffer, 0, 4096, 0, 4));
  EXPECT_OK(ingot_hal_queue_dispatch(suite.queue, &operation));
  suite.queue->site = sites[2];
  EXPECT_OK(ingot_hal_queue_copy(suite.queue, buffer, 0, buffer, 2048, 64));
  EXPECT_OK(ingot_hal_queue_wait(suite.queue));
  suite.queue->trace = NULL;
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffer, 0, 4096, 0, 4));
  EXPECT_OK(ingot_hal_queue_wait(suite.queue));
  REQUIRE(traced.count == 3);
  static const char *const kernels[3] = {"fill", "add", "copy"};
  static const int64_t lengths[3] = {4096, 1200, 64};
  for (int i = 0; i < 3; i++) {
    EXPECT_TEXT(traced.events[i].kernel, kernels[i]);
    EXPECT(traced.events[i].site == sites[i]);
    EXPECT_EQUAL(traced.events[i].length, lengths[i]);
    EXPECT(traced.events[i].begin <= traced.events[i].end);
  }
  ingot_hal_buffer_release(buffer);
}

int main(int count, char **arguments) { return suite_main(count, arguments); }
