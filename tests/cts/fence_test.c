/* The conformance suite, part four: work that threads of the device queue, in the order of fences.
 */
#include "hal/fence.h"
#include "suite.h"

enum { TURNS = 24, COUNT = 1000 };

/* One turn on a queue of its own: adds a buffer to another, in place, when `begin` is reached. */
typedef struct turn_t {
  ingot_task_t task;
  ingot_fence_waiter_t waiter;
  ingot_executor_t *executor;
  ingot_hal_queue_t *queue;
  ingot_hal_binding_t bindings[3];
  ingot_fence_t *end; /* an owner's reference */
  uint64_t value;
  int64_t bound; /* of a gather instead */
  uint32_t entry;
} turn_t;

static void take_turn(ingot_task_t *task) {
  turn_t *turn = (turn_t *)task;
  const ingot_hal_dispatch_t operation = {
      .executable = suite.executable,
      .entry = turn->entry,
      .binding_count = kernel_descriptions[turn->entry].binding_count,
      .constant_count = kernel_descriptions[turn->entry].constant_count,
      .bindings = turn->bindings,
      .constants = &turn->bound,
      .workload = {turn->entry == KERNEL_GATHER ? 1 : COUNT, 1, 1},
      .cost_flops = LARGE,
  };
  ingot_status_t status = ingot_hal_queue_dispatch(turn->queue, &operation);
  ingot_status_t waited = ingot_hal_queue_wait(turn->queue);
  if (!status) status = waited;
  else ingot_status_free(waited);
  ingot_fence_settle(turn->end, turn->value, status);
}

static void post_turn(ingot_fence_waiter_t *waiter) {
  turn_t *turn = (turn_t *)((char *)waiter - offsetof(turn_t, waiter));
  ingot_executor_post(turn->executor, &turn->task);
}

/* A turn that is posted when `begin` reaches `first`. */
static void start_turn(turn_t *turn, ingot_fence_t *begin, uint64_t first) {
  ingot_status_t status = NULL;
  turn->task.run = take_turn;
  turn->waiter.reached = post_turn;
  EXPECT_OK(ingot_hal_device_executor(suite.device, &turn->executor));
  EXPECT_OK(ingot_hal_queue_create(suite.device, &turn->queue));
  ingot_fence_retain(turn->end);
  if (ingot_fence_await(begin, first, &turn->waiter, &status)) post_turn(&turn->waiter);
  EXPECT_OK(status);
}

static ingot_buffer_t *filled(float value) {
  static float values[COUNT];
  for (int i = 0; i < COUNT; i++) values[i] = value;
  return new_buffer(sizeof(values), values);
}

static float last_of(ingot_buffer_t *buffer) {
  float value = -1;
  EXPECT_OK(ingot_hal_buffer_read(buffer, (COUNT - 1) * 4, 4, &value));
  return value;
}

/* Queues take turns on one buffer: each sees what the one before it wrote. */
TEST(queues_keep_the_order_of_a_fence) {
  static turn_t turns[TURNS];
  ingot_buffer_t *sum = filled(0), *one = filled(1);
  ingot_fence_t *fence = NULL;
  REQUIRE_OK(ingot_fence_create(suite.instance, 0, &fence));
  for (uint32_t t = TURNS; t-- > 0;) { /* the last first */
    turns[t] = (turn_t){.bindings = {whole(sum), whole(one), whole(sum)},
                        .end = fence,
                        .value = t + 1,
                        .entry = KERNEL_ADD};
    start_turn(&turns[t], fence, t);
  }
  EXPECT_OK(ingot_fence_wait(fence, TURNS, INGOT_FOREVER));
  EXPECT(last_of(sum) == TURNS);
  for (uint32_t t = 0; t < TURNS; t++) ingot_hal_queue_destroy(turns[t].queue);
  ingot_fence_release(fence);
  ingot_hal_buffer_release(sum);
  ingot_hal_buffer_release(one);
}

/* Queues run side by side, each on buffers of its own, when one fence lets all of them begin. */
TEST(queues_begin_at_one_fence) {
  static turn_t turns[TURNS];
  static ingot_fence_t *ends[TURNS];
  ingot_buffer_t *sums[TURNS], *one = filled(1);
  ingot_fence_t *begin = NULL;
  REQUIRE_OK(ingot_fence_create(suite.instance, 0, &begin));
  for (uint32_t t = 0; t < TURNS; t++) {
    REQUIRE_OK(ingot_fence_create(suite.instance, 0, &ends[t]));
    sums[t] = filled((float)t);
    turns[t] = (turn_t){.bindings = {whole(sums[t]), whole(one), whole(sums[t])},
                        .end = ends[t],
                        .value = 1,
                        .entry = KERNEL_ADD};
    start_turn(&turns[t], begin, 1);
  }
  EXPECT_STATUS(ingot_fence_wait(ends[0], 1, 0), DEADLINE_EXCEEDED, "at 0");
  EXPECT_OK(ingot_fence_signal(begin, 1));
  for (uint32_t t = 0; t < TURNS; t++) {
    EXPECT_OK(ingot_fence_wait(ends[t], 1, INGOT_FOREVER));
    EXPECT(last_of(sums[t]) == (float)t + 1);
    ingot_hal_queue_destroy(turns[t].queue);
    ingot_fence_release(ends[t]);
    ingot_hal_buffer_release(sums[t]);
  }
  ingot_fence_release(begin);
  ingot_hal_buffer_release(one);
}

TEST(a_fault_fails_the_fence) {
  int32_t index = 9;
  ingot_buffer_t *buffer = filled(0), *indices = new_buffer(4, &index);
  ingot_fence_t *fence = NULL;
  REQUIRE_OK(ingot_fence_create(suite.instance, 0, &fence));
  turn_t turn = {.bindings = {whole(buffer), whole(indices), whole(buffer)},
                 .end = fence,
                 .value = 1,
                 .bound = 8,
                 .entry = KERNEL_GATHER};
  start_turn(&turn, fence, 0);
  EXPECT_STATUS(ingot_fence_wait(fence, 1, INGOT_FOREVER), OUT_OF_RANGE,
                "kernel 'gather' of layer 'layer/Gather' (operand 1): index 9 is out of range");
  ingot_hal_queue_destroy(turn.queue);
  ingot_fence_release(fence);
  ingot_hal_buffer_release(buffer);
  ingot_hal_buffer_release(indices);
}

int main(int count, char **arguments) { return suite_main(count, arguments); }
