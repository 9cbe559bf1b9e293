/* Forks of sessions and state as bytes: what is shared stays apart, what is damaged or of another
 * module changes nothing, and any allocation may fail.
 */
#include "vm/harness.h"

static harness_t harness;

enum { TOTAL, CACHE, EMPTY, ROWS }; /* the variables below */
#define CACHE_LENGTH (5 * 4096 + 3)

/* main(x: i64[]) -> (y: i64[]): total += x, y = total, read where it was read before it was
 * changed; cache u8[...], a variable without elements and rows i32[n,3] beside it. */
static builder_bytes_t sum_module(const char *cache, int64_t cache_length) {
  builder_t builder[1] = {builder_create()};
  const int64_t start = 100;
  const int64_t none = 0;
  const int64_t open[2] = {-1, 3};
  uint64_t at_start = builder_constants(builder, &start, sizeof(start));
  builder_variable(builder, "total", INGOT_DTYPE_I64, 0, NULL, at_start, sizeof(start));
  builder_variable(builder, cache, INGOT_DTYPE_U8, 1, &cache_length, 0, 0);
  builder_variable(builder, "empty", INGOT_DTYPE_F32, 1, &none, 0, 0);
  builder_variable(builder, "rows", INGOT_DTYPE_I32, 2, open, 0, 0);
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_I64, 0, NULL);
  builder_value(builder, true, "y", INGOT_DTYPE_I64, 0, NULL);
  EMIT(ARGUMENT_BUFFER, 0, 0, 0);
  EMIT(READ_I64, 1, 0, 0, INGOT_DTYPE_I64);
  EMIT(VARIABLE_READ, 1, 2, TOTAL);
  EMIT(READ_I64, 3, 1, 2, INGOT_DTYPE_I64);
  EMIT(ADD_I64, 3, 3, 1);
  EMIT(VARIABLE_WRITE, 2, 2, TOTAL);
  EMIT(WRITE_I64, 2, 2, 3, INGOT_DTYPE_I64);
  EMIT(READ_I64, 4, 1, 2, INGOT_DTYPE_I64);
  EMIT(RESULT_BUFFER, 4, 8, 0, 0);
  EMIT(WRITE_I64, 4, 8, 4, INGOT_DTYPE_I64);
  EMIT(RETURN, 0, 0, 0);
  return builder_finish(builder);
}

static ingot_status_t call(const harness_t *on, ingot_session_t *session, int64_t input,
                           int64_t *out_total) {
  int64_t *values[2] = {&input, out_total};
  ingot_buffer_view_t *views[2] = {NULL, NULL};
  ingot_status_t status = NULL;
  for (int i = 0; i < 2 && !status; ++i) {
    status = ingot_buffer_view_wrap(on->device, values[i], 8, INGOT_DTYPE_I64, 0, NULL, NULL, NULL,
                                    &views[i]);
  }
  if (!status) status = ingot_session_call(session, 0, &views[0], 1, &views[1], 1, NULL);
  for (int i = 0; i < 2; ++i) ingot_buffer_view_release(views[i]);
  return status;
}

static int64_t sum(ingot_session_t *session, int64_t input) {
  int64_t total = -1;
  EXPECT_OK(call(&harness, session, input, &total));
  return total;
}

static void set_cache(const harness_program_t *program, size_t place, uint8_t value) {
  uint8_t cache[CACHE_LENGTH] = {0};
  cache[place] = value;
  EXPECT_OK(
      ingot_session_write_variable(program->session, program->module, CACHE, cache, sizeof(cache)));
}

static uint8_t cache_at(const harness_program_t *program, ingot_session_t *session, size_t place) {
  uint8_t cache[CACHE_LENGTH];
  EXPECT_OK(ingot_session_read_variable(session, program->module, CACHE, cache, sizeof(cache)));
  return cache[place];
}

/* -- forks ------------------------------------------------------------------------------------- */

TEST(a_fork_goes_on_and_stays_apart) {
  harness_program_t program;
  ingot_session_t *fork = NULL;
  ingot_session_t *fork_of_fork = NULL;
  REQUIRE_OK(harness_load(&harness, sum_module("cache", CACHE_LENGTH), NULL, &program));
  EXPECT_EQUAL(sum(program.session, 5), 105);
  set_cache(&program, 9, 7);
  REQUIRE_OK(ingot_session_fork(program.session, &fork));
  REQUIRE_OK(ingot_session_fork(fork, &fork_of_fork));
  EXPECT_EQUAL(sum(fork, 1), 106);
  EXPECT_EQUAL(sum(fork, 1), 107);
  EXPECT_EQUAL(sum(program.session, 2), 107);
  EXPECT_OK(ingot_session_reset(program.session));
  EXPECT_EQUAL(cache_at(&program, program.session, 9), 0);
  set_cache(&program, 9, 8);
  ingot_session_release(program.session); /* the others keep what they have of it */
  program.session = NULL;
  EXPECT_EQUAL(sum(fork_of_fork, 10), 115);
  EXPECT_EQUAL(sum(fork, 1), 108);
  EXPECT_EQUAL(cache_at(&program, fork, 9), 7);
  EXPECT_EQUAL(cache_at(&program, fork_of_fork, 9), 7);
  ingot_session_release(fork_of_fork);
  ingot_session_release(fork);
  harness_unload(&program);
}

static bool fork_inside(void *user, const void *data, size_t length) {
  ingot_session_t *fork = NULL;
  (void)data;
  (void)length;
  EXPECT_STATUS(ingot_session_fork(user, &fork), FAILED_PRECONDITION, "the session is in a call");
  return false;
}

TEST(what_is_busy_cannot_be_forked_and_what_cannot_be_written_is_said) {
  harness_program_t program;
  REQUIRE_OK(harness_load(&harness, sum_module("cache", CACHE_LENGTH), NULL, &program));
  EXPECT_STATUS(ingot_session_save_state(program.session, fork_inside, program.session), CANCELLED,
                "the state could not be written");
  EXPECT_EQUAL(sum(program.session, 1), 101);
  harness_unload(&program);
}

/* -- bytes ------------------------------------------------------------------------------------- */

TEST(state_comes_back_from_bytes) {
  const size_t places[4] = {0, 4096, 3 * 4096 - 1, CACHE_LENGTH - 1};
  harness_program_t program;
  ingot_session_t *other = NULL;
  static harness_bytes_t bytes;
  REQUIRE_OK(harness_load(&harness, sum_module("cache", CACHE_LENGTH), NULL, &program));
  EXPECT_EQUAL(sum(program.session, 5), 105);
  for (int i = 0; i < 4; ++i) {
    bytes.length = 0;
    set_cache(&program, places[i], 7);
    REQUIRE_OK(ingot_session_save_state(program.session, harness_write, &bytes));
    EXPECT(bytes.length < 4096 + 256); /* the other pages are zeros */
    REQUIRE_OK(ingot_session_create(program.program, NULL, &other));
    EXPECT_OK(harness_load_state(other, &bytes));
    EXPECT_EQUAL(bytes.place, bytes.length);
    EXPECT_EQUAL(cache_at(&program, other, places[i]), 7);
    EXPECT_EQUAL(cache_at(&program, other, 4097), 0);
    EXPECT_EQUAL(sum(other, 1), 106);
    ingot_session_release(other);
  }
  harness_unload(&program);
}

TEST(state_of_another_module_is_refused) {
  const char *names[3] = {"cache", "cast", "cache"};
  const int64_t lengths[3] = {CACHE_LENGTH, CACHE_LENGTH, 17};
  const char *messages[3] = {"", "it has 'cache': u8[20483] where the session has 'cast'",
                             "it has 'cache': u8[20483] where the session has 'cache': u8[17]"};
  harness_program_t program;
  static harness_bytes_t bytes;
  REQUIRE_OK(harness_load(&harness, sum_module(names[0], lengths[0]), NULL, &program));
  REQUIRE_OK(ingot_session_save_state(program.session, harness_write, &bytes));
  for (int i = 1; i < 3; ++i) {
    harness_program_t other;
    REQUIRE_OK(harness_load(&harness, sum_module(names[i], lengths[i]), NULL, &other));
    EXPECT_STATUS(harness_load_state(other.session, &bytes), INVALID_ARGUMENT, messages[i]);
    EXPECT_EQUAL(sum(other.session, 1), 101);
    harness_unload(&other);
  }
  bytes.data[12] = 2;
  EXPECT_STATUS(harness_load_state(program.session, &bytes), INVALID_ARGUMENT,
                "2 variables, the session has 4");
  bytes.data[8] = 3;
  EXPECT_STATUS(harness_load_state(program.session, &bytes), INCOMPATIBLE, "version 3");
  harness_unload(&program);
}

/* No byte may be changed, and none be missing. */
TEST(damaged_state_changes_nothing) {
  harness_program_t program;
  static harness_bytes_t whole;
  static harness_bytes_t damaged;
  const int32_t rows[9] = {0, 1};
  int32_t back[12];
  REQUIRE_OK(harness_load(&harness, sum_module("cache", CACHE_LENGTH), NULL, &program));
  set_cache(&program, 5000, 7);
  EXPECT_OK(ingot_session_write_variable(program.session, program.module, ROWS, rows, 36));
  REQUIRE_OK(ingot_session_save_state(program.session, harness_write, &whole));
  EXPECT_EQUAL(sum(program.session, 1), 101);
  for (size_t place = 0; place < whole.length; place += place < 256 ? 1 : 97) {
    for (int change = 0; change < 3; ++change) {
      damaged = whole;
      if (change == 0) damaged.length = place;
      if (change == 1) damaged.data[place] ^= 1;
      if (change == 2) damaged.data[place] ^= 0x80;
      ingot_status_t status = harness_load_state(program.session, &damaged);
      EXPECT(status != NULL);
      ingot_status_free(status);
    }
  }
  EXPECT_EQUAL(sum(program.session, 1), 102);
  EXPECT_OK(harness_load_state(program.session, &whole));
  EXPECT_EQUAL(sum(program.session, 1), 101);
  EXPECT_OK(ingot_session_read_variable(program.session, program.module, ROWS, back, 36));
  EXPECT(back[1] == 1 && back[8] == 0);
  EXPECT_STATUS(ingot_session_read_variable(program.session, program.module, ROWS, back, 48),
                OUT_OF_RANGE, "");
  EXPECT_STATUS(ingot_session_write_variable(program.session, program.module, ROWS, back, 32),
                INVALID_ARGUMENT, "variable 'rows' has 12 bytes in each row, not 32");
  harness_unload(&program);
}

/* -- any failing allocation -------------------------------------------------------------------- */

/* Fork, save, load, and change what is shared. A failure leaves both sessions as they were. */
static ingot_status_t use_state(const ingot_allocator_t *allocator) {
  harness_t small;
  harness_program_t made = {.file = {NULL, 0}};
  ingot_session_t *fork = NULL;
  static harness_bytes_t bytes;
  const int32_t rows[9] = {1, 2, 3};
  int64_t total = 0;
  bytes.length = 0;
  ingot_status_t status = harness_create(allocator, &small);
  if (!status) status = harness_load(&small, sum_module("cache", CACHE_LENGTH), NULL, &made);
  if (!status) status = call(&small, made.session, 1, &total);
  if (!status) status = ingot_session_write_variable(made.session, made.module, ROWS, rows, 36);
  if (!status) status = ingot_session_save_state(made.session, harness_write, &bytes);
  if (!status) status = ingot_session_fork(made.session, &fork);
  if (!status) status = call(&small, fork, 1, &total);
  if (!status) EXPECT_EQUAL(total, 102);
  if (!status) status = ingot_session_reset(made.session);
  if (!status) status = harness_load_state(made.session, &bytes);
  if (!status) status = call(&small, made.session, 2, &total);
  if (!status) EXPECT_EQUAL(total, 103);
  ingot_session_release(fork);
  harness_unload(&made);
  harness_release(&small);
  return status;
}

TEST(every_allocation_may_fail) { test_fail_each_allocation(use_state, 20); }

int main(void) {
  if (harness_create(NULL, &harness)) return 1;
  RUN_TESTS();
  harness_release(&harness);
  return TEST_RESULT();
}
