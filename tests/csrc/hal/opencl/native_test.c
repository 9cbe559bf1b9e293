/* Native functions of OpenCL programs: one that queues work of its own on cl_mem, one that the host
 * runs behind it over mapped bytes.
 */
#include "hal/opencl/queue.h"
#include "opencl_device.h"
#include "vm/harness.h"

#define SIGNATURE "(f32[n]) -> (f32[n])"

/* y = x, by a copy in the session's command queue. */
static ingot_status_t copy_on_device(void *user, const ingot_native_call_t *call) {
  const ingot_native_tensor_t *x = &call->arguments[0];
  const ingot_native_tensor_t *y = &call->results[0];
  void *queue = NULL, *from = NULL, *to = NULL;
  size_t from_offset = 0, to_offset = 0;
  (void)user;
  EXPECT(!x->data && !y->data && x->buffer && y->buffer);
  INGOT_TRY(ingot_opencl_native_queue(call, &queue));
  INGOT_TRY(ingot_opencl_buffer_handle(x->buffer, &from, &from_offset));
  INGOT_TRY(ingot_opencl_buffer_handle(y->buffer, &to, &to_offset));
  const ingot_opencl_device_t *device = (const ingot_opencl_device_t *)call->device;
  int32_t result = device->cl->EnqueueCopyBuffer(queue, from, to, from_offset + x->offset,
                                                 to_offset + y->offset, y->length, 0, NULL, NULL);
  return result ? ingot_status_make(INGOT_STATUS_DEVICE_LOST, "the copy was refused") : NULL;
}

static ingot_status_t scale(void *user, const ingot_native_call_t *call) {
  float factor = *(const float *)user;
  for (int64_t i = 0; i < call->results[0].dims[0]; ++i) {
    ((float *)call->results[0].data)[i] = factor * ((const float *)call->arguments[0].data)[i];
  }
  return NULL;
}

/* main(x: f32[n]) -> (y: f32[n]): copies x into the slab, scales it into y. */
static builder_bytes_t copy_and_scale(void) {
  static const int64_t any[1] = {-1};
  builder_t parts = builder_create();
  builder_t *builder = &parts;
  uint32_t target = builder_string(builder, "opencl");
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED)->target = target;
  builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, any);
  builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, any);
  EMIT(ARGUMENT_BUFFER, 0, 0, 0);
  EMIT(ARGUMENT_DIM, 1, 0, 0);
  EMIT(CONST_I64, 2, 4);
  EMIT(MUL_SIZE, 3, 1, 2);
  EMIT(SLAB, 1, 4, 3);
  EMIT(RESULT_BUFFER, 2, 5, 0, 1, 1);
  EMIT(NATIVE_CALL, 0, 0, 0, 2, 1, 1, 2, 0, 0, 3, 1, 4, 3);
  EMIT(NATIVE_CALL, 1, 0, 0, 2, 1, 1, 2, 1, 4, 3, 2, 5, 3);
  EMIT(RETURN, 0, 0, 0);
  const builder_tensor_t tensors[2] = {{INGOT_DTYPE_F32, 1, {-1}}, {INGOT_DTYPE_F32, 1, {-1}}};
  builder_native(builder, "acme.copy", SIGNATURE, tensors, 1, 1, 0);
  builder_native(builder, "acme.scale", SIGNATURE, tensors, 1, 1, 0);
  return builder_finish(builder);
}

TEST(queued_work_and_host_functions_follow_each_other) {
  const ingot_driver_t *const drivers[] = {ingot_opencl_driver()};
  const ingot_instance_options_t instance_options = {.drivers = drivers, .driver_count = 1};
  float factor = 3;
  const ingot_native_t natives[2] = {
      {.name = "acme.copy", .signature = SIGNATURE, .call = copy_on_device, .on_device = true},
      {.name = "acme.scale", .call = scale, .user = &factor},
  };
  const ingot_program_options_t options = {.natives = natives, .native_count = 2};
  harness_t harness;
  harness_program_t program;
  REQUIRE_OK(ingot_instance_create(&instance_options, &harness.instance));
  REQUIRE_OK(ingot_device_create(harness.instance, "opencl://0?cache=off", NULL, &harness.device));
  REQUIRE_OK(harness_load_with(&harness, copy_and_scale(), NULL, &options, &program));
  float data[1000];
  float result[1000];
  for (int i = 0; i < 1000; ++i) data[i] = (float)i;
  for (int64_t count = 1000; count > 0; count /= 3) {
    ingot_buffer_view_t *x = harness_view(&harness, data, INGOT_DTYPE_F32, count);
    ingot_buffer_view_t *y = harness_view(&harness, result, INGOT_DTYPE_F32, count);
    memset(result, 0, sizeof(result));
    EXPECT_OK(ingot_session_call(program.session, 0, &x, 1, &y, 1, NULL));
    for (int64_t i = 0; i < count; ++i) EXPECT(result[i] == 3 * data[i]);
    ingot_buffer_view_release(x);
    ingot_buffer_view_release(y);
  }
  harness_unload(&program);
  harness_release(&harness);
}

int main(void) {
  if (!test_has_opencl()) return TEST_SKIPPED();
  RUN_TESTS();
  return TEST_RESULT();
}
