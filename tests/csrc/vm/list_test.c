/* Lists: every instruction against a model of what it means, growth, and wrong positions.
 */
#include "vm/harness.h"

static harness_t harness;

enum { NUMBERS = 64 }; /* i64 constants 0, 1, 2, ... at the start of the constants */

static uint32_t wrong; /* string: what a failed check says */

/* Registers: reference 0 the constants; 30 an offset, 31 a length, 29 a dim. */
static builder_t start(void) {
  builder_t builder = builder_create();
  int64_t numbers[NUMBERS];
  for (int64_t k = 0; k < NUMBERS; ++k) numbers[k] = k;
  (void)builder_constants(&builder, numbers, sizeof(numbers));
  wrong = builder_string(&builder, "got {}, expected {}");
  builder_function(&builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_emit(&builder, INGOT_OP_CONSTANTS, (const int64_t[]){0}, 1);
  return builder;
}

/* The tensor [first, first + 1, ... first + count - 1] for the next instruction. */
static void name_tensor(builder_t *builder, int64_t first, int64_t count) {
  EMIT(CONST_I64, 30, 8 * first);
  EMIT(CONST_I64, 31, 8 * count);
  EMIT(CONST_I64, 29, count);
}

static void insert(builder_t *builder, int64_t list, int64_t index, int64_t first, int64_t count) {
  name_tensor(builder, first, count);
  EMIT(CONST_I64, 28, index);
  EMIT(LIST_INSERT, list, 28, 0, 30, 31, 1, 29);
}

static void set(builder_t *builder, int64_t list, int64_t first, int64_t count) {
  name_tensor(builder, first, count);
  EMIT(LIST_SET, list, 0, 30, 31, 1, 29);
}

static void extend(builder_t *builder, int64_t list, int64_t first, int64_t count) {
  name_tensor(builder, first, count);
  EMIT(LIST_EXTEND, list, 0, 30, 31, 29);
}

static void expect_register(builder_t *builder, int64_t number, int64_t expected) {
  EMIT(CONST_I64, 27, expected);
  EMIT(EQ_I64, 26, number, 27);
  EMIT(ASSERT, 26, INGOT_STATUS_INTERNAL, wrong, 2, number, 27);
}

static void expect_length(builder_t *builder, int64_t list, int64_t expected) {
  EMIT(LIST_LENGTH, 20, list);
  expect_register(builder, 20, expected);
}

/* That element `index` is `count` numbers, `first` and `last` at its ends. */
static void expect_element(builder_t *builder, int64_t list, int64_t index, int64_t first,
                           int64_t last, int64_t count) {
  EMIT(CONST_I64, 28, index);
  EMIT(LIST_DIM, 20, list, 28, 0);
  expect_register(builder, 20, count);
  EMIT(LIST_GET, 1, 21, list, 28);
  if (count == 0) return;
  EMIT(READ_I64, 20, 1, 21, INGOT_DTYPE_I64);
  expect_register(builder, 20, first);
  EMIT(CONST_I64, 22, 8 * (count - 1));
  EMIT(ADD_I64, 21, 21, 22);
  EMIT(READ_I64, 20, 1, 21, INGOT_DTYPE_I64);
  expect_register(builder, 20, last);
}

/* Loads and calls twice, as memory of the first call serves the second. */
static ingot_status_t run(const harness_t *with, builder_t *builder) {
  harness_program_t program;
  EMIT(RETURN, 0, 0, 0);
  ingot_status_t status = harness_load(with, builder_finish(builder), NULL, &program);
  for (int call = 0; !status && call < 2; ++call) {
    status = ingot_session_call(program.session, 0, NULL, 0, NULL, 0, NULL);
  }
  if (program.session && !status) status = ingot_session_trim(program.session);
  harness_unload(&program);
  return status;
}

TEST(elements_are_inserted_erased_and_read) {
  builder_t builder[1] = {start()};
  expect_length(builder, 0, 0);
  insert(builder, 0, 0, 5, 3);
  insert(builder, 0, 1, 9, 0);
  insert(builder, 0, 0, 20, 2);
  expect_length(builder, 0, 3);
  expect_element(builder, 0, 0, 20, 21, 2);
  expect_element(builder, 0, 1, 5, 7, 3);
  expect_element(builder, 0, 2, 0, 0, 0);
  EMIT(CONST_I64, 28, 0);
  EMIT(LIST_ERASE, 0, 28);
  expect_element(builder, 0, 0, 5, 7, 3);
  EMIT(LIST_COPY, 1, 0);
  EMIT(LIST_CLEAR, 0);
  expect_length(builder, 0, 0);
  expect_length(builder, 1, 2);
  insert(builder, 0, 0, 1, 1);
  EMIT(LIST_SWAP, 0, 1);
  expect_length(builder, 0, 2);
  expect_element(builder, 1, 0, 1, 1, 1);
  EXPECT_OK(run(&harness, builder));
}

TEST(one_element_is_set_and_grows) {
  builder_t builder[1] = {start()};
  set(builder, 3, 0, 2);
  for (int64_t k = 2; k < NUMBERS; ++k) extend(builder, 3, k, 1);
  expect_length(builder, 3, 1);
  expect_element(builder, 3, 0, 0, NUMBERS - 1, NUMBERS);
  /* What lies in the list itself becomes the element: its numbers 10 ... 49. */
  EMIT(CONST_I64, 28, 0);
  EMIT(LIST_GET, 2, 10, 3, 28);
  EMIT(CONST_I64, 11, 80);
  EMIT(ADD_I64, 10, 10, 11);
  EMIT(CONST_I64, 12, 320);
  EMIT(CONST_I64, 13, 40);
  EMIT(LIST_SET, 3, 2, 10, 12, 1, 13);
  expect_element(builder, 3, 0, 10, 49, 40);
  EMIT(LIST_GET, 2, 10, 3, 28);
  EMIT(LIST_EXTEND, 3, 2, 10, 12, 13);
  expect_element(builder, 3, 0, 10, 49, 80);
  EXPECT_OK(run(&harness, builder));
}

TEST(what_a_list_held_can_be_read_though_it_has_grown) {
  builder_t builder[1] = {start()};
  set(builder, 0, 7, 1);
  EMIT(CONST_I64, 28, 0);
  EMIT(LIST_GET, 5, 10, 0, 28);
  for (int64_t k = 0; k < 20; ++k) extend(builder, 0, 0, NUMBERS);
  EMIT(READ_I64, 20, 5, 10, INGOT_DTYPE_I64);
  expect_register(builder, 20, 7);
  EXPECT_OK(run(&harness, builder));
}

/* A model: elements are (first, count). */
typedef struct model_t {
  int64_t count;
  int64_t first[16], length[16];
} model_t;

static void model_insert(model_t *model, int64_t index, int64_t first, int64_t length) {
  for (int64_t k = model->count++; k > index; --k) {
    model->first[k] = model->first[k - 1];
    model->length[k] = model->length[k - 1];
  }
  model->first[index] = first;
  model->length[index] = length;
}

static void model_erase(model_t *model, int64_t index) {
  for (int64_t k = index; k + 1 < model->count; ++k) {
    model->first[k] = model->first[k + 1];
    model->length[k] = model->length[k + 1];
  }
  --model->count;
}

/* One drawn instruction on the lists 0 ... 2 and on the model. */
static void draw(builder_t *builder, model_t *models, uint64_t *random) {
  int64_t list = (int64_t)(test_random(random) % 3), other = (int64_t)(test_random(random) % 3);
  int64_t first = (int64_t)(test_random(random) % 32);
  int64_t length = (int64_t)(test_random(random) % 32);
  model_t *model = &models[list];
  uint64_t kind = test_random(random) % 8;
  int64_t index = (int64_t)(test_random(random) % (uint64_t)(model->count + 1));
  if (kind <= 3 && model->count < 16) {
    insert(builder, list, index, first, length);
    model_insert(model, index, first, length);
  } else if (kind <= 5 && index < model->count) {
    EMIT(CONST_I64, 28, index);
    EMIT(LIST_ERASE, list, 28);
    model_erase(model, index);
  } else if (kind == 6) {
    EMIT(LIST_COPY, list, other);
    models[list] = models[other];
  } else {
    model_t before = models[list];
    EMIT(LIST_SWAP, list, other);
    models[list] = models[other];
    models[other] = before;
  }
}

TEST(drawn_instructions_do_what_the_model_does) {
  uint64_t random = 88172645463325252u;
  for (int round = 0; round < 20; ++round) {
    builder_t builder[1] = {start()};
    model_t models[3] = {{0, {0}, {0}}, {0, {0}, {0}}, {0, {0}, {0}}};
    for (int step = 0; step < 200; ++step) draw(builder, models, &random);
    for (int64_t list = 0; list < 3; ++list) {
      expect_length(builder, list, models[list].count);
      for (int64_t k = 0; k < models[list].count; ++k) {
        int64_t first = models[list].first[k], length = models[list].length[k];
        expect_element(builder, list, k, first, first + length - 1, length);
      }
    }
    EXPECT_OK(run(&harness, builder));
  }
}

/* A queue of eight elements, of which 10000 pass: the memory of a list is bounded. */
TEST(what_is_erased_is_used_again) {
  test_allocator_t counter = {.fail_at = 0};
  const ingot_allocator_t allocator = test_allocator(&counter);
  harness_t counted;
  builder_t builder[1] = {start()};
  for (int64_t k = 0; k < 8; ++k) insert(builder, 0, k, 0, 16);
  EMIT(CONST_I64, 0, 0);
  EMIT(CONST_I64, 1, 1);
  EMIT(CONST_I64, 2, 10000);
  EMIT(CONST_I64, 3, 8);
  EMIT(CONST_I64, 4, 0);
  uint32_t loop = EMIT(LIST_INSERT, 0, 3, 0, 30, 31, 1, 29);
  EMIT(LIST_ERASE, 0, 4);
  EMIT(ADD_I64, 0, 0, 1);
  EMIT(LT_I64, 5, 0, 2);
  uint32_t branch = EMIT(BRANCH_IF, 5, loop, 0);
  builder_set_target(builder, branch + 4);
  expect_element(builder, 0, 7, 0, 15, 16);
  REQUIRE_OK(harness_create(&allocator, &counted));
  int64_t before = counter.allocations;
  EXPECT_OK(run(&counted, builder));
  EXPECT(counter.allocations - before < 100);
  harness_release(&counted);
  EXPECT_EQUAL(counter.live, 0);
}

TEST(wrong_positions_ranks_and_ranges_are_refused) {
  static const int64_t positions[4] = {-1, 2, INT64_MAX, INT64_MIN};
  for (int k = 0; k < 4 * 4; ++k) {
    builder_t builder[1] = {start()};
    insert(builder, 0, 0, 0, 1);
    EMIT(CONST_I64, 28, positions[k % 4]);
    if (k / 4 == 0) EMIT(LIST_GET, 1, 20, 0, 28);
    if (k / 4 == 1) EMIT(LIST_DIM, 20, 0, 28, 0);
    if (k / 4 == 2) EMIT(LIST_ERASE, 0, 28);
    if (k / 4 == 3) EMIT(LIST_INSERT, 0, 28, 0, 30, 31, 1, 29);
    EXPECT_STATUS(run(&harness, builder), OUT_OF_RANGE, "in a sequence of 1 elements");
  }
  for (int k = 0; k < 5; ++k) {
    builder_t builder[1] = {start()};
    insert(builder, 0, 0, 0, 1);
    if (k == 0) EMIT(LIST_INSERT, 0, 28, 0, 30, 31, 0);
    if (k == 1) EMIT(LIST_DIM, 20, 0, 28, 1);
    if (k == 2) insert(builder, 0, 0, NUMBERS, 1);
    if (k == 3) set(builder, 0, 0, NUMBERS + 1);
    if (k == 4) extend(builder, 1, 0, 1);
    static const char *const messages[5] = {"rank 0 for a sequence of rank 1",
                                            "dim 1 of an element", "bytes", "bytes",
                                            "rows for 0 tensors"};
    ingot_status_t status = run(&harness, builder);
    EXPECT(status && strstr(ingot_status_message(status), messages[k]));
    ingot_status_free(status);
  }
}

TEST(elements_cannot_be_written) {
  builder_t builder[1] = {start()};
  insert(builder, 0, 0, 0, 1);
  EMIT(CONST_I64, 28, 0);
  EMIT(LIST_GET, 1, 20, 0, 28);
  EMIT(WRITE_I64, 1, 20, 20, INGOT_DTYPE_I64);
  EXPECT_STATUS(run(&harness, builder), PERMISSION_DENIED, "");
}

TEST(an_absurd_length_is_refused) {
  builder_t builder[1] = {start()};
  insert(builder, 0, 0, 0, 1);
  name_tensor(builder, 0, 1);
  EMIT(CONST_I64, 31, INT64_MAX);
  EMIT(CONST_I64, 28, 0);
  EMIT(LIST_INSERT, 0, 28, 0, 30, 31, 1, 29);
  EXPECT_STATUS(run(&harness, builder), OUT_OF_MEMORY, "bytes of memory are asked for");
}

/* Any allocation may fail: an error, and nothing leaks. */
TEST(memory_that_runs_out_is_an_error) {
  int64_t last = 0;
  for (int64_t fail_at = 1; fail_at < 400; ++fail_at) {
    test_allocator_t counter = {.fail_at = fail_at};
    const ingot_allocator_t allocator = test_allocator(&counter);
    harness_t counted;
    builder_t builder[1] = {start()};
    for (int64_t k = 0; k < 12; ++k) insert(builder, 0, k, 0, 16);
    EMIT(LIST_COPY, 1, 0);
    EMIT(CONST_I64, 28, 0);
    for (int64_t k = 0; k < 10; ++k) EMIT(LIST_ERASE, 0, 28);
    for (int64_t k = 0; k < 12; ++k) insert(builder, 0, 0, 0, 16);
    set(builder, 2, 0, 8);
    EMIT(LIST_GET, 1, 20, 2, 28);
    EMIT(LIST_SET, 2, 1, 20, 31, 1, 29);
    for (int64_t k = 0; k < 8; ++k) extend(builder, 2, 0, 32);
    ingot_status_t status = harness_create(&allocator, &counted);
    if (!status) {
      status = run(&counted, builder);
    } else {
      free(builder_finish(builder).data);
    }
    if (!status) last = fail_at;
    ingot_status_free(status);
    harness_release(&counted);
    EXPECT_EQUAL(counter.live, 0);
    if (last) break;
  }
  EXPECT(last > 20);
}

int main(void) {
  if (harness_create(NULL, &harness)) return 1;
  RUN_TESTS();
  harness_release(&harness);
  return TEST_RESULT();
}
