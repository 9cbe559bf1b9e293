/* Statuses: codes, messages, prefixes, and no memory for any of it.
 */
#include "base/status.h"

#include "test.h"

static test_allocator_t counter;
static ingot_allocator_t allocator;

TEST(success_is_null) {
  EXPECT_EQUAL(ingot_status_code(NULL), INGOT_STATUS_OK);
  EXPECT_TEXT(ingot_status_message(NULL), "");
  ingot_status_free(NULL);
  EXPECT(ingot_status_prefix(NULL, "never") == NULL);
}

TEST(code_and_message_are_kept) {
  ingot_status_t status =
      ingot_status_create(&allocator, INGOT_STATUS_NOT_FOUND, "no %s of %d", "thing", 7);
  EXPECT_EQUAL(ingot_status_code(status), INGOT_STATUS_NOT_FOUND);
  EXPECT_TEXT(ingot_status_message(status), "no thing of 7");
  ingot_status_free(status);
  EXPECT_EQUAL(counter.live, 0);
}

TEST(message_may_be_long) {
  static char text[10000];
  memset(text, 'x', sizeof(text) - 1);
  ingot_status_t status = ingot_status_create(&allocator, INGOT_STATUS_INTERNAL, "%s!", text);
  EXPECT_EQUAL(strlen(ingot_status_message(status)), sizeof(text));
  ingot_status_free(status);
}

TEST(prefix_goes_in_front) {
  ingot_status_t status = ingot_status_create(&allocator, INGOT_STATUS_DATA_LOSS, "bad crc");
  status = ingot_status_prefix(status, "section %d", 3);
  status = ingot_status_prefix(status, "module");
  EXPECT_EQUAL(ingot_status_code(status), INGOT_STATUS_DATA_LOSS);
  EXPECT_TEXT(ingot_status_message(status), "module: section 3: bad crc");
  ingot_status_free(status);
  EXPECT_EQUAL(counter.live, 0);
}

TEST(without_memory_there_is_still_a_status) {
  for (int64_t fail_at = 1; fail_at < 4; fail_at++) {
    counter = (test_allocator_t){.fail_at = fail_at};
    ingot_status_t status = ingot_status_create(&allocator, INGOT_STATUS_DATA_LOSS, "bad crc");
    EXPECT_EQUAL(ingot_status_code(status),
                 fail_at == 1 ? INGOT_STATUS_OUT_OF_MEMORY : INGOT_STATUS_DATA_LOSS);
    status = ingot_status_prefix(status, "section");
    EXPECT(status != NULL && strlen(ingot_status_message(status)) > 0);
    ingot_status_free(status);
    EXPECT_EQUAL(counter.live, 0);
  }
  counter = (test_allocator_t){.fail_at = 0};
}

TEST(codes_have_names) {
  EXPECT_TEXT(ingot_status_code_name(INGOT_STATUS_OK), "OK");
  EXPECT_TEXT(ingot_status_code_name(INGOT_STATUS_OUT_OF_MEMORY), "OutOfMemory");
  EXPECT_TEXT(ingot_status_code_name(INGOT_STATUS_INTERNAL), "Internal");
  EXPECT(ingot_status_code_name(999) == NULL);
  EXPECT(ingot_status_code_name((ingot_status_code_t)-1) == NULL);
}

static ingot_status_t fail_second(int *reached) {
  INGOT_TRY(NULL);
  ++*reached;
  INGOT_TRY(ingot_status_create(&allocator, INGOT_STATUS_INTERNAL, "here"));
  ++*reached;
  return NULL;
}

TEST(try_leaves_at_the_first_failure) {
  int reached = 0;
  EXPECT_STATUS(fail_second(&reached), INTERNAL, "here");
  EXPECT_EQUAL(reached, 1);
}

int main(void) {
  allocator = test_allocator(&counter);
  RUN_TESTS();
  return TEST_RESULT();
}
