/* Every scalar opcode against expected values, and that every opcode of op.def is run by a
 * test: the scalar ones from the tables here, the others by the tests named in `elsewhere`.
 */
#include <math.h>

#include "module/builder.h"
#include "test.h"

/* One instruction on up to three inputs of its own kind; the result is written as i64 or
 * f64 bits. */
typedef struct case_t {
  uint32_t code;
  int64_t inputs[3]; /* i64, or the bits of f64 */
  int64_t number;    /* operand n, k or x */
  int64_t expected;
} case_t;

#define MIN INT64_MIN
#define MAX INT64_MAX
#define OP(name) INGOT_OP_##name

static const case_t i64_cases[] = {
    {OP(CONST_I64), {0}, MIN + 5, MIN + 5},
    {OP(CONST_I64), {0}, 0x123456789ABCDEF, 0x123456789ABCDEF},
    {OP(MOVE_I64), {-7}, 0, -7},
    {OP(ADD_I64), {MAX, 1}, 0, MIN},
    {OP(SUB_I64), {MIN, 1}, 0, MAX},
    {OP(MUL_I64), {MAX, 2}, 0, -2},
    {OP(DIV_I64), {-7, 2}, 0, -3},
    {OP(DIV_I64), {5, 0}, 0, -1},
    {OP(DIV_I64), {MIN, -1}, 0, MIN},
    {OP(REM_I64), {-7, 2}, 0, -1},
    {OP(REM_I64), {5, 0}, 0, 5},
    {OP(REM_I64), {MIN, -1}, 0, 0},
    {OP(AND_I64), {12, 10}, 0, 8},
    {OP(OR_I64), {12, 10}, 0, 14},
    {OP(XOR_I64), {12, 10}, 0, 6},
    {OP(SHL_I64), {3, 62}, 0, MIN + (INT64_C(1) << 62)},
    {OP(SHL_I64), {3, 64}, 0, 0},
    {OP(SHL_I64), {3, -1}, 0, 0},
    {OP(SHR_I64), {-8, 1}, 0, -4},
    {OP(SHR_I64), {-8, 64}, 0, -1},
    {OP(SHR_I64), {8, -1}, 0, 0},
    {OP(SHR_I64), {MAX, 62}, 0, 1},
    {OP(MIN_I64), {-1, 1}, 0, -1},
    {OP(MAX_I64), {-1, 1}, 0, 1},
    {OP(EQ_I64), {4, 4}, 0, 1},
    {OP(NE_I64), {4, 4}, 0, 0},
    {OP(LT_I64), {MIN, MAX}, 0, 1},
    {OP(LE_I64), {4, 4}, 0, 1},
    {OP(LE_I64), {5, 4}, 0, 0},
    {OP(SELECT_I64), {2, 10, 20}, 0, 10},
    {OP(SELECT_I64), {0, 10, 20}, 0, 20},
    {OP(WRAP_I64), {200}, INGOT_DTYPE_I8, -56},
    {OP(WRAP_I64), {-1}, INGOT_DTYPE_U8, 255},
    {OP(WRAP_I64), {9}, INGOT_DTYPE_I4, -7},
    {OP(WRAP_I64), {9}, INGOT_DTYPE_U2, 1},
    {OP(WRAP_I64), {2}, INGOT_DTYPE_I1, 0},
    {OP(WRAP_I64), {INT64_C(1) << 31}, INGOT_DTYPE_I32, INT32_MIN},
    {OP(WRAP_I64), {-1}, INGOT_DTYPE_U64, -1},
    {OP(ADD_SIZE), {40, 2}, 0, 42},
    {OP(SUB_SIZE), {40, 42}, 0, -2},
    {OP(MUL_SIZE), {-6, 7}, 0, -42},
    {OP(FLOORDIV_SIZE), {-7, 2}, 0, -4},
    {OP(FLOORDIV_SIZE), {7, -2}, 0, -4},
    {OP(FLOORDIV_SIZE), {-6, 2}, 0, -3},
    {OP(MOD_SIZE), {-7, 2}, 0, 1},
    {OP(MOD_SIZE), {7, -2}, 0, -1},
    {OP(MOD_SIZE), {MIN, -1}, 0, 0},
    {OP(BROADCAST_SIZE), {1, 5}, 0, 5},
    {OP(BROADCAST_SIZE), {5, 1}, 0, 5},
    {OP(BROADCAST_SIZE), {5, 5}, 0, 5},
    {OP(BROADCAST_SIZE), {1, 0}, 0, 0},
};

typedef struct f64_case_t {
  uint32_t code;
  int64_t condition; /* of select.f64 */
  double inputs[2];
  int64_t number;
  double expected; /* of comparisons: 0 or 1 */
} f64_case_t;

static const f64_case_t f64_cases[] = {
    {OP(MOVE_F64), 0, {-0.0}, 0, -0.0},
    {OP(ADD_F64), 0, {1.5, 2.25}, 0, 3.75},
    {OP(SUB_F64), 0, {1.5, 2.25}, 0, -0.75},
    {OP(MUL_F64), 0, {1.5, -2.0}, 0, -3.0},
    {OP(DIV_F64), 0, {1.0, 0.0}, 0, INFINITY},
    {OP(EQ_F64), 0, {0.0, -0.0}, 0, 1},
    {OP(EQ_F64), 0, {NAN, NAN}, 0, 0},
    {OP(LT_F64), 0, {1.0, 2.0}, 0, 1},
    {OP(LT_F64), 0, {NAN, 2.0}, 0, 0},
    {OP(LE_F64), 0, {2.0, 2.0}, 0, 1},
    {OP(SELECT_F64), 1, {1.0, 2.0}, 0, 1.0},
    {OP(SELECT_F64), 0, {1.0, 2.0}, 0, 2.0},
    {OP(ROUND_F64), 0, {1.0 + 0x1p-30}, INGOT_DTYPE_F32, 1.0},
    {OP(ROUND_F64), 0, {1.0 + 0x1p-30}, INGOT_DTYPE_F64, 1.0 + 0x1p-30},
    {OP(ROUND_F64), 0, {2049.0}, INGOT_DTYPE_F16, 2048.0},
    {OP(ROUND_F64), 0, {-2051.0}, INGOT_DTYPE_F16, -2052.0},
    {OP(ROUND_F64), 0, {65519.0}, INGOT_DTYPE_F16, 65504.0},
    {OP(ROUND_F64), 0, {65520.0}, INGOT_DTYPE_F16, INFINITY},
    {OP(ROUND_F64), 0, {-1e300}, INGOT_DTYPE_F16, -INFINITY},
    {OP(ROUND_F64), 0, {0x1p-25}, INGOT_DTYPE_F16, 0.0},
    {OP(ROUND_F64), 0, {0x1.8p-25}, INGOT_DTYPE_F16, 0x1p-24},
    {OP(ROUND_F64), 0, {-0x1p-30}, INGOT_DTYPE_F16, -0.0},
    {OP(ROUND_F64), 0, {0x1.01p0}, INGOT_DTYPE_BF16, 1.0},
    {OP(ROUND_F64), 0, {0x1.0101p0}, INGOT_DTYPE_BF16, 0x1.02p0},
    {OP(ROUND_F64), 0, {0x1.FFp127}, INGOT_DTYPE_BF16, INFINITY},
    {OP(ROUND_F64), 0, {NAN}, INGOT_DTYPE_BF16, NAN},
    {OP(ROUND_F64), 0, {0x1p-133}, INGOT_DTYPE_BF16, 0x1p-133},
};

/* -- running ----------------------------------------------------------------------------------- */

static ingot_instance_t *instance;
static ingot_device_t *device;
static bool covered[256];

/* Calls "main" of a module without arguments, with one result "r" of these dims. */
static ingot_status_t run_module(builder_t *builder, ingot_dtype_t dtype, int64_t count,
                                 void *out_data) {
  builder_bytes_t file = builder_finish(builder);
  ingot_module_t *module = NULL;
  ingot_program_t *program = NULL;
  ingot_session_t *session = NULL;
  ingot_buffer_view_t *result = NULL;
  ingot_status_t status =
      ingot_module_load_memory(instance, file.data, file.length, 1, NULL, NULL, &module);
  if (!status) status = ingot_program_create(device, &module, 1, NULL, NULL, &program);
  if (!status) status = ingot_session_create(program, NULL, &session);
  if (!status) status = ingot_session_call(session, 0, NULL, 0, &result, 1, NULL);
  if (!status) {
    const ingot_buffer_view_layout_t *layout = ingot_buffer_view_layout(result);
    EXPECT_EQUAL(layout->length, (size_t)count * ingot_dtype_length(dtype));
    status = ingot_buffer_read(layout->buffer, 0, out_data, layout->length);
  }
  ingot_buffer_view_release(result);
  ingot_session_release(session);
  ingot_program_release(program);
  ingot_module_release(module);
  free(file.data);
  return status;
}

static builder_t start(ingot_dtype_t dtype, int64_t count) {
  builder_t builder = builder_create();
  builder_function(&builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(&builder, true, "r", dtype, 1, &count);
  return builder;
}

/* Result into reference 0, its offset into i64 20; 21 is scratch. */
static void emit_result(builder_t *builder, int64_t count) {
  EMIT(CONST_I64, 21, count);
  EMIT(RESULT_BUFFER, 0, 20, 0, 1, 21);
}

/* Emits the case on registers 1, 2, 3 and the target 0, by its operand letters. */
static void emit_case(builder_t *builder, uint32_t code, int64_t number) {
  int64_t operands[8];
  size_t count = 0;
  int64_t next_i64 = 1;
  int64_t next_f64 = 1;
  for (const char *letter = ingot_instruction_operands(code); *letter; ++letter) {
    int64_t value = 0; /* the target */
    if (*letter == 'i') value = next_i64++;
    if (*letter == 'f') value = next_f64++;
    if (*letter == 'k' || *letter == 'x' || *letter == 'n') value = number;
    operands[count++] = value;
  }
  builder_emit(builder, code, operands, count);
  covered[code] = true;
}

TEST(integer_instructions_compute_their_values) {
  for (size_t i = 0; i < sizeof(i64_cases) / sizeof(i64_cases[0]); ++i) {
    const case_t *test = &i64_cases[i];
    builder_t builder[1] = {start(INGOT_DTYPE_I64, 1)};
    for (int64_t k = 0; k < 3; ++k) EMIT(CONST_I64, 1 + k, test->inputs[k]);
    emit_case(builder, test->code, test->number);
    emit_result(builder, 1);
    EMIT(WRITE_I64, 0, 20, 0, INGOT_DTYPE_I64);
    EMIT(RETURN, 0, 0, 0);
    int64_t got = 0;
    EXPECT_OK(run_module(builder, INGOT_DTYPE_I64, 1, &got));
    if (got != test->expected) {
      FAIL("case %zu, %s: %" PRId64 ", expected %" PRId64, i, ingot_instruction_name(test->code),
           got, test->expected);
    }
  }
}

TEST(float_instructions_compute_their_values) {
  for (size_t i = 0; i < sizeof(f64_cases) / sizeof(f64_cases[0]); ++i) {
    const f64_case_t *test = &f64_cases[i];
    builder_t builder[1] = {start(INGOT_DTYPE_F64, 1)};
    EMIT(CONST_I64, 1, test->condition);
    EMIT(CONST_F64, 1, builder_f64(test->inputs[0]));
    EMIT(CONST_F64, 2, builder_f64(test->inputs[1]));
    emit_case(builder, test->code, test->number);
    if (ingot_instruction_operands(test->code)[0] == 'I') EMIT(I64_TO_F64, 0, 0);
    emit_result(builder, 1);
    EMIT(WRITE_F64, 0, 20, 0, INGOT_DTYPE_F64);
    EMIT(RETURN, 0, 0, 0);
    double got = 0;
    EXPECT_OK(run_module(builder, INGOT_DTYPE_F64, 1, &got));
    bool same = isnan(test->expected)
                    ? isnan(got)
                    : got == test->expected && signbit(got) == signbit(test->expected);
    if (!same) {
      FAIL("case %zu, %s: %g, expected %g", i, ingot_instruction_name(test->code), got,
           test->expected);
    }
  }
  covered[OP(CONST_F64)] = covered[OP(I64_TO_F64)] = true;
}

TEST(floats_become_integers_toward_zero_and_saturate) {
  static const double inputs[7] = {1.9, -1.9, 1e300, -1e300, NAN, 0x1p63, -0x1p63};
  static const int64_t expected[7] = {1, -1, MAX, MIN, 0, MAX, MIN};
  builder_t builder[1] = {start(INGOT_DTYPE_I64, 7)};
  int64_t got[7];
  emit_result(builder, 7);
  for (int64_t i = 0; i < 7; ++i) {
    EMIT(CONST_F64, 0, builder_f64(inputs[i]));
    EMIT(F64_TO_I64, 1, 0);
    EMIT(CONST_I64, 2, 8 * i);
    EMIT(WRITE_I64, 0, 2, 1, INGOT_DTYPE_I64);
  }
  EMIT(RETURN, 0, 0, 0);
  covered[OP(F64_TO_I64)] = covered[OP(WRITE_I64)] = covered[OP(RESULT_BUFFER)] = true;
  EXPECT_OK(run_module(builder, INGOT_DTYPE_I64, 7, got));
  for (int i = 0; i < 7; ++i) EXPECT_EQUAL(got[i], expected[i]);
}

/* Writes value as `dtype`, reads it back. */
TEST(elements_are_written_and_read_in_every_register_dtype) {
  for (ingot_dtype_t dtype = INGOT_DTYPE_I1; dtype <= INGOT_DTYPE_F64; ++dtype) {
    bool real = dtype >= INGOT_DTYPE_F16;
    builder_t builder[1] = {start(INGOT_DTYPE_F64, 2)};
    emit_result(builder, 2);
    EMIT(CONST_I64, 1, 8);
    EMIT(CONST_I64, 2, -3);
    EMIT(CONST_F64, 2, builder_f64(-2.5));
    if (real) {
      EMIT(WRITE_F64, 0, 20, 2, dtype);
      EMIT(READ_F64, 3, 0, 20, dtype);
    } else {
      EMIT(WRITE_I64, 0, 20, 2, dtype);
      EMIT(READ_I64, 3, 0, 20, dtype);
      EMIT(I64_TO_F64, 3, 3);
    }
    EMIT(WRITE_F64, 0, 1, 3, INGOT_DTYPE_F64);
    EMIT(RETURN, 0, 0, 0);
    double got[2] = {0, 0};
    EXPECT_OK(run_module(builder, INGOT_DTYPE_F64, 2, got));
    static const double unsigned_values[4] = {1, 13, 253, 65533};
    double expected = -3.0;
    if (real) expected = -2.5;
    if (dtype == INGOT_DTYPE_I1) expected = 1;
    if (dtype == INGOT_DTYPE_I2) expected = 1;
    if (dtype >= INGOT_DTYPE_U2 && dtype <= INGOT_DTYPE_U16) {
      expected = unsigned_values[dtype - INGOT_DTYPE_U2];
    }
    if (dtype == INGOT_DTYPE_U32) expected = 4294967293.0;
    if (got[1] != expected) FAIL("%s: %g, expected %g", ingot_dtype_name(dtype), got[1], expected);
  }
  covered[OP(READ_I64)] = covered[OP(READ_F64)] = covered[OP(WRITE_F64)] = true;
}

static ingot_status_t run_size(uint32_t code, int64_t a, int64_t b) {
  builder_t builder[1] = {start(INGOT_DTYPE_I64, 1)};
  int64_t got;
  EMIT(CONST_I64, 1, a);
  EMIT(CONST_I64, 2, b);
  builder_location(builder, "Reshape", "net/flat");
  emit_case(builder, code, 0);
  emit_result(builder, 1);
  EMIT(RETURN, 0, 0, 0);
  return run_module(builder, INGOT_DTYPE_I64, 1, &got);
}

TEST(size_arithmetic_fails_where_it_overflows) {
  EXPECT_STATUS(run_size(OP(ADD_SIZE), MAX, 1), INVALID_ARGUMENT,
                "Reshape 'net/flat': a size does not fit 64 bits: add.size of "
                "9223372036854775807 and 1");
  EXPECT_STATUS(run_size(OP(SUB_SIZE), MIN, 1), INVALID_ARGUMENT, "sub.size");
  EXPECT_STATUS(run_size(OP(MUL_SIZE), MAX, 2), INVALID_ARGUMENT, "mul.size");
  EXPECT_STATUS(run_size(OP(FLOORDIV_SIZE), 1, 0), INVALID_ARGUMENT, "floordiv.size of 1 and 0");
  EXPECT_STATUS(run_size(OP(FLOORDIV_SIZE), MIN, -1), INVALID_ARGUMENT, "floordiv.size");
  EXPECT_STATUS(run_size(OP(MOD_SIZE), 1, 0), INVALID_ARGUMENT, "mod.size");
  EXPECT_STATUS(run_size(OP(BROADCAST_SIZE), 2, 3), INVALID_ARGUMENT,
                "dims 2 and 3 do not broadcast");
}

TEST(every_opcode_is_run_by_some_test) {
  static const uint32_t elsewhere[] = {
      /* vm/control_test.c */
      OP(BRANCH),
      OP(BRANCH_IF),
      OP(BRANCH_TABLE),
      OP(RETURN),
      OP(ASSERT),
      /* vm/device_test.c */
      OP(ARGUMENT_BUFFER),
      OP(ARGUMENT_DIM),
      OP(SLAB),
      OP(CONSTANTS),
      OP(PARAMETER),
      OP(ARENA),
      OP(GLOBAL_LOAD),
      OP(GLOBAL_STORE),
      OP(DISPATCH),
      OP(COPY),
      /* vm/state_test.c */
      OP(VARIABLE_READ),
      OP(VARIABLE_WRITE),
      OP(VARIABLE_GROW),
      /* vm/list_test.c */
      OP(LIST_CLEAR),
      OP(LIST_COPY),
      OP(LIST_SWAP),
      OP(LIST_INSERT),
      OP(LIST_ERASE),
      OP(LIST_SET),
      OP(LIST_EXTEND),
      OP(LIST_LENGTH),
      OP(LIST_DIM),
      OP(LIST_GET),
      /* vm/edge_test.c */
      OP(LIST_ARGUMENT),
      OP(LIST_RESULT),
      /* api/native_test.c */
      OP(NATIVE_CALL),
  };
  size_t count = sizeof(elsewhere) / sizeof(elsewhere[0]);
  for (size_t i = 0; i < count; ++i) covered[elsewhere[i]] = true;
  for (uint32_t code = 0; code < 256; ++code) {
    const char *name = ingot_instruction_name(code);
    if (name[0] && !covered[code]) FAIL("no test runs %s", name);
  }
}

int main(void) {
  if (ingot_instance_create(NULL, &instance)) return 1;
  if (ingot_device_create(instance, "cpu://?threads=1", NULL, &device)) return 1;
  RUN_TESTS();
  ingot_device_release(device);
  ingot_instance_release(instance);
  return TEST_RESULT();
}
