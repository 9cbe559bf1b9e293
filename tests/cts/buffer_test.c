/* The conformance suite, part one: buffers, subspans, wrapped bytes, queued transfers.
 */
#include "suite.h"

TEST(buffer_gives_back_what_was_written) {
  uint8_t bytes[100], back[100] = {0};
  for (int i = 0; i < 100; i++) bytes[i] = (uint8_t)(i * 7);
  ingot_buffer_t *buffer = new_buffer(100, bytes);
  EXPECT_OK(ingot_hal_buffer_read(buffer, 0, 100, back));
  EXPECT(memcmp(bytes, back, 100) == 0);
  EXPECT_OK(ingot_hal_buffer_read(buffer, 99, 1, back));
  EXPECT_EQUAL(back[0], bytes[99]);
  EXPECT_OK(ingot_hal_buffer_read(buffer, 100, 0, back));
  ingot_hal_buffer_release(buffer);
}

TEST(buffer_of_no_bytes_works) {
  ingot_buffer_t *buffer = new_buffer(0, NULL);
  uint8_t byte = 5;
  EXPECT_OK(ingot_hal_buffer_read(buffer, 0, 0, &byte));
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffer, 0, 0, 1, 1));
  EXPECT_STATUS(ingot_hal_buffer_read(buffer, 0, 1, &byte), OUT_OF_RANGE, "1 bytes at offset 0");
  ingot_hal_buffer_release(buffer);
}

TEST(buffer_access_outside_is_refused) {
  ingot_buffer_t *buffer = new_buffer(16, NULL);
  uint8_t bytes[32] = {0};
  void *data;
  EXPECT_STATUS(ingot_hal_buffer_read(buffer, 8, 9, bytes), OUT_OF_RANGE, "a buffer of 16 bytes");
  EXPECT_STATUS(ingot_hal_buffer_read(buffer, -1, 1, bytes), OUT_OF_RANGE, "offset -1");
  EXPECT_STATUS(ingot_hal_buffer_read(buffer, 0, -1, bytes), OUT_OF_RANGE, "-1 bytes");
  EXPECT_STATUS(ingot_hal_buffer_read(buffer, INT64_MAX, INT64_MAX, bytes), OUT_OF_RANGE, "fit");
  EXPECT_STATUS(ingot_hal_buffer_write(buffer, 17, 0, bytes), OUT_OF_RANGE, "offset 17");
  EXPECT_STATUS(ingot_hal_buffer_map(buffer, 15, 2, 3, &data), OUT_OF_RANGE, "2 bytes");
  EXPECT_STATUS(ingot_hal_queue_read(suite.queue, buffer, 16, bytes, 1), OUT_OF_RANGE, "read: 1");
  EXPECT_STATUS(ingot_hal_queue_write(suite.queue, buffer, 16, bytes, 1), OUT_OF_RANGE, "write");
  EXPECT_STATUS(ingot_hal_queue_fill(suite.queue, buffer, 8, 16, 0, 1), OUT_OF_RANGE, "fill");
  ingot_hal_buffer_release(buffer);
}

TEST(negative_length_is_refused) {
  ingot_buffer_t *buffer = NULL;
  EXPECT_STATUS(ingot_hal_buffer_create(suite.device, -1, &buffer), INVALID_ARGUMENT, "-1");
  EXPECT(buffer == NULL);
}

TEST(impossible_length_is_out_of_memory) {
  ingot_buffer_t *buffer = NULL;
  EXPECT_STATUS(ingot_hal_buffer_create(suite.device, INT64_MAX, &buffer), OUT_OF_MEMORY, "memory");
  EXPECT(buffer == NULL);
}

TEST(subspan_is_a_window_and_keeps_its_parent) {
  ingot_buffer_t *parent = new_buffer(64, NULL), *part = NULL, *inner = NULL;
  uint8_t bytes[4] = {1, 2, 3, 4}, back[4] = {0};
  EXPECT_OK(ingot_hal_buffer_subspan(parent, 16, 32, &part));
  EXPECT_OK(ingot_hal_buffer_subspan(part, 8, 4, &inner));
  EXPECT_OK(ingot_hal_buffer_write(inner, 0, 4, bytes));
  EXPECT_OK(ingot_hal_buffer_read(parent, 24, 4, back));
  EXPECT(memcmp(bytes, back, 4) == 0);
  EXPECT_STATUS(ingot_hal_buffer_write(inner, 1, 4, bytes), OUT_OF_RANGE, "a buffer of 4 bytes");
  ingot_buffer_t *refused = NULL;
  EXPECT_STATUS(ingot_hal_buffer_subspan(part, 30, 3, &refused), OUT_OF_RANGE, "32 bytes");
  ingot_hal_buffer_release(parent);
  ingot_hal_buffer_release(part);
  memset(back, 0, 4);
  EXPECT_OK(ingot_hal_buffer_read(inner, 0, 4, back));
  EXPECT(memcmp(bytes, back, 4) == 0);
  ingot_hal_buffer_release(inner);
}

static int released;

static void count_release(void *user, void *data) {
  EXPECT(user == &released);
  EXPECT(data != NULL);
  released++;
}

TEST(wrapped_bytes_are_used_and_released_once) {
  static int32_t values[4] = {1, 2, 3, 4};
  ingot_buffer_t *buffer = NULL, *part = NULL;
  int32_t back = 0;
  released = 0;
  REQUIRE_OK(ingot_hal_buffer_wrap(suite.device, values, sizeof(values), 3, count_release,
                                   &released, &buffer));
  EXPECT_OK(ingot_hal_buffer_subspan(buffer, 8, 4, &part));
  EXPECT_OK(ingot_hal_buffer_read(part, 0, 4, &back));
  EXPECT_EQUAL(back, 3);
  ingot_hal_buffer_release(buffer);
  EXPECT_EQUAL(released, 0);
  ingot_hal_buffer_release(part);
  EXPECT_EQUAL(released, 1);
}

TEST(read_only_bytes_are_never_written) {
  static const int32_t values[16] = {1};
  ingot_buffer_t *buffer = NULL;
  REQUIRE_OK(ingot_hal_buffer_wrap(suite.device, (void *)(uintptr_t)values, sizeof(values),
                                   INGOT_HAL_ACCESS_READ, NULL, NULL, &buffer));
  int32_t value = 0;
  EXPECT_STATUS(ingot_hal_buffer_write(buffer, 0, 4, &value), PERMISSION_DENIED, "readable only");
  EXPECT_STATUS(ingot_hal_queue_fill(suite.queue, buffer, 0, 4, 0, 4), PERMISSION_DENIED, "");
  EXPECT_STATUS(ingot_hal_queue_write(suite.queue, buffer, 0, &value, 4), PERMISSION_DENIED, "");
  ingot_hal_binding_t bindings[3] = {whole(buffer), whole(buffer), whole(buffer)};
  EXPECT_STATUS(dispatch(KERNEL_ADD, bindings, 16, 1, 1, NULL, SMALL), PERMISSION_DENIED,
                "kernel 'add' of layer 'layer/Add', binding 2");
  ingot_hal_buffer_release(buffer);
}

TEST(bad_wraps_are_refused) {
  int32_t value = 0;
  ingot_buffer_t *buffer = NULL;
  EXPECT_STATUS(ingot_hal_buffer_wrap(suite.device, NULL, 4, 3, NULL, NULL, &buffer),
                INVALID_ARGUMENT, "NULL");
  EXPECT_STATUS(ingot_hal_buffer_wrap(suite.device, &value, 4, 0, NULL, NULL, &buffer),
                INVALID_ARGUMENT, "access 0");
  EXPECT_STATUS(ingot_hal_buffer_wrap(suite.device, &value, -4, 3, NULL, NULL, &buffer),
                INVALID_ARGUMENT, "-4");
}

TEST(map_shows_the_bytes) {
  ingot_buffer_t *buffer = new_buffer(8, "abcdefg");
  void *data = NULL;
  REQUIRE_OK(
      ingot_hal_buffer_map(buffer, 2, 4, INGOT_HAL_ACCESS_READ | INGOT_HAL_ACCESS_WRITE, &data));
  EXPECT(memcmp(data, "cdef", 4) == 0);
  memcpy(data, "CD", 2);
  ingot_hal_buffer_unmap(buffer, data);
  char back[8];
  EXPECT_OK(ingot_hal_buffer_read(buffer, 0, 8, back));
  EXPECT_TEXT(back, "abCDefg");
  ingot_hal_buffer_release(buffer);
}

TEST(large_buffer_works_to_its_last_byte) {
  const int64_t length = (INT64_C(2) << 20) + 12345;
  ingot_buffer_t *buffer = new_buffer(length, NULL);
  uint8_t byte = 0;
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffer, 0, length, 0x5A, 1));
  EXPECT_OK(ingot_hal_queue_read(suite.queue, buffer, length - 1, &byte, 1));
  EXPECT_EQUAL(byte, 0x5A);
  ingot_hal_buffer_release(buffer);
}

/* Longer than what a driver moves at once. */
TEST(long_reads_and_writes_are_whole) {
  const int64_t length = (INT64_C(13) << 20) + 13;
  uint32_t *bytes = malloc((size_t)length + 4), *back = malloc((size_t)length + 4);
  ingot_buffer_t *buffer = new_buffer(length + 7, NULL);
  if (bytes && back) {
    for (uint32_t i = 0; i <= (uint32_t)length / 4; i++) bytes[i] = i * 2654435761u;
    EXPECT_OK(ingot_hal_buffer_write(buffer, 3, length, bytes));
    EXPECT_OK(ingot_hal_buffer_read(buffer, 3, length, back));
    EXPECT(memcmp(bytes, back, (size_t)length) == 0);
    memset(back, 0, (size_t)length);
    EXPECT_OK(ingot_hal_queue_read(suite.queue, buffer, 3, back, length));
    EXPECT(memcmp(bytes, back, (size_t)length) == 0);
  }
  free(bytes);
  free(back);
  ingot_hal_buffer_release(buffer);
}

/* -- transfers ----------------------------------------------------------------------------- */

TEST(fill_repeats_its_pattern) {
  ingot_buffer_t *buffer = new_buffer(32, NULL);
  uint8_t back[32];
  const uint8_t expected[32] = {0, 0, 0x11, 0x22, 0x22, 0x22, 0,    0,    4,    3,   2,
                                1, 4, 3,    2,    1,    8,    7,    6,    5,    4,   3,
                                2, 1, 0xBB, 0xAA, 0xBB, 0xAA, 0xBB, 0xAA, 0xBB, 0xAA};
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffer, 0, 32, 0, 8));
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffer, 2, 1, 0x11, 1));
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffer, 3, 3, 0x22, 1));
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffer, 8, 8, 0x01020304, 4));
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffer, 16, 8, 0x0102030405060708, 8));
  EXPECT_OK(ingot_hal_queue_fill(suite.queue, buffer, 24, 8, 0xAABB, 2));
  EXPECT_OK(ingot_hal_queue_read(suite.queue, buffer, 0, back, 32));
  EXPECT(memcmp(back, expected, 32) == 0);
  EXPECT_STATUS(ingot_hal_queue_fill(suite.queue, buffer, 0, 6, 0, 4), INVALID_ARGUMENT,
                "6 bytes with a pattern of 4");
  EXPECT_STATUS(ingot_hal_queue_fill(suite.queue, buffer, 0, 6, 0, 3), INVALID_ARGUMENT, "3");
  EXPECT_STATUS(ingot_hal_queue_fill(suite.queue, buffer, 0, 6, 0, 0), INVALID_ARGUMENT, "0");
  ingot_hal_buffer_release(buffer);
}

TEST(copy_moves_bytes_between_and_within_buffers) {
  ingot_buffer_t *a = new_buffer(8, "0123456"), *b = new_buffer(8, "abcdefg"), *part = NULL;
  char back[8];
  EXPECT_OK(ingot_hal_queue_copy(suite.queue, a, 1, b, 4, 3));
  EXPECT_OK(ingot_hal_queue_copy(suite.queue, b, 0, b, 2, 2));
  EXPECT_OK(ingot_hal_queue_read(suite.queue, b, 0, back, 8));
  EXPECT_TEXT(back, "abab123");
  EXPECT_STATUS(ingot_hal_queue_copy(suite.queue, a, 0, a, 2, 3), INVALID_ARGUMENT, "overlaps");
  EXPECT_OK(ingot_hal_buffer_subspan(a, 2, 4, &part));
  EXPECT_STATUS(ingot_hal_queue_copy(suite.queue, part, 0, a, 1, 2), INVALID_ARGUMENT, "overlaps");
  EXPECT_OK(ingot_hal_queue_copy(suite.queue, part, 0, a, 0, 2));
  EXPECT_STATUS(ingot_hal_queue_copy(suite.queue, a, 6, b, 0, 3), OUT_OF_RANGE, "copy from");
  EXPECT_STATUS(ingot_hal_queue_copy(suite.queue, a, 0, b, 6, 3), OUT_OF_RANGE, "copy to");
  EXPECT_STATUS(ingot_hal_queue_copy(suite.queue, NULL, 0, b, 6, 3), INVALID_ARGUMENT, "null");
  ingot_hal_buffer_release(part);
  ingot_hal_buffer_release(a);
  ingot_hal_buffer_release(b);
}

TEST(queued_write_takes_its_data_at_once) {
  ingot_buffer_t *buffer = new_buffer(8, NULL);
  int64_t value = 42, back = 0;
  EXPECT_OK(ingot_hal_queue_write(suite.queue, buffer, 0, &value, 8));
  value = 43;
  EXPECT_OK(ingot_hal_queue_read(suite.queue, buffer, 0, &back, 8));
  EXPECT_EQUAL(back, 42);
  ingot_hal_buffer_release(buffer);
  buffer = new_buffer(INGOT_HAL_MAX_WRITE + 1, NULL);
  static uint8_t bytes[INGOT_HAL_MAX_WRITE + 1];
  EXPECT_STATUS(ingot_hal_queue_write(suite.queue, buffer, 0, bytes, sizeof(bytes)),
                INVALID_ARGUMENT, "65537 bytes");
  ingot_hal_buffer_release(buffer);
}

int main(int count, char **arguments) { return suite_main(count, arguments); }
