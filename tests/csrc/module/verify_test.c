/* The bytecode verifier: every rule has code that breaks it and nothing else.
 */
#include "module/builder.h"
#include "test.h"

static ingot_instance_t *instance;

static ingot_status_t finish_and_load(builder_t *builder) {
  builder_bytes_t file = builder_finish(builder);
  ingot_module_t *module = NULL;
  ingot_status_t status =
      ingot_module_load_memory(instance, file.data, file.length, 0, NULL, NULL, &module);
  if (!status) ingot_module_release(module);
  free(file.data);
  return status;
}

/* An exported function "main" with two results that are not asked for. */
static builder_t start(void) {
  builder_t builder = builder_create();
  builder_function(&builder, "main", INGOT_FUNCTION_EXPORTED);
  return builder;
}

static builder_t *judge(builder_t *builder, const char *name, const char *expected) {
  ingot_status_t status = finish_and_load(builder);
  const char *message = ingot_status_message(status);
  bool right = !expected ? status == NULL
                         : ingot_status_code(status) == INGOT_STATUS_DATA_LOSS &&
                               strstr(message, expected) != NULL;
  if (!right) FAIL("%s: \"%s\"", name, message);
  ingot_status_free(status);
  return NULL;
}

/* The block behind it emits the body of a function by `builder`; the message of load then has the
 * text `expected`, or is none if that is NULL. */
#define RULE(name, expected)                                      \
  for (builder_t storage = start(), *builder = &storage; builder; \
       builder = judge(builder, name, expected))

static void end(builder_t *builder) { EMIT(RETURN, 0, 0, 0); }

static void raw(builder_t *builder, const uint16_t *words, size_t count) {
  /* const.i64 carries any four words, and is then cut down to its immediate. */
  for (size_t i = 0; i < count; ++i) {
    builder_bytes_t *code = &builder->sections[INGOT_SECTION_CODE];
    EMIT(CONST_I64, 0, 0);
    memcpy(code->data + code->length - 12, &words[i], 2);
    code->length -= 10;
  }
  builder_bytes_t *functions = &builder->sections[INGOT_SECTION_FUNCTIONS];
  ingot_layout_function_t *function =
      (ingot_layout_function_t *)(void *)(functions->data + functions->length) - 1;
  function->code_length = builder_word(builder);
}

static void grow_variable(builder_t *builder) {
  EMIT(CONST_I64, 1, 4);
  EMIT(VARIABLE_GROW, 0, 0, 0, 1);
  end(builder);
}

/* () -> (i8[k]), which lies in list 0. */
static const builder_tensor_t decided = {INGOT_DTYPE_I8, 1, {-2}};

/* Variables of the table; the code is right. */
static void variable_with(builder_t *builder, ingot_dtype_t dtype, int64_t dim, uint64_t offset,
                          uint64_t length) {
  const float values[4] = {1, 2, 3, 4};
  (void)builder_constants(builder, values, sizeof(values));
  builder_variable(builder, "v", dtype, 1, &dim, offset, length);
  end(builder);
}

TEST(variables_and_globals_are_checked) {
  RULE("a variable", NULL) { variable_with(builder, INGOT_DTYPE_F32, 3, 4, 12); }
  RULE("a variable too many", "variable 1 of 1") {
    builder_variable(builder, "v", INGOT_DTYPE_F32, 0, NULL, 0, 0);
    EMIT(VARIABLE_READ, 0, 0, 1);
    end(builder);
  }
  RULE("a written variable too many", "variable 0 of 0") {
    EMIT(VARIABLE_WRITE, 0, 0, 0);
    end(builder);
  }
  RULE("a grown variable too many", "variable 0 of 0") { grow_variable(builder); }
  RULE("growth of a fixed variable", "variable 0 cannot grow") {
    const int64_t dims[2] = {3, 4};
    builder_variable(builder, "v", INGOT_DTYPE_F32, 2, dims, 0, 0);
    grow_variable(builder);
  }
  RULE("a variable in init", "init may not run it") {
    builder_variable(builder, "v", INGOT_DTYPE_F32, 0, NULL, 0, 0);
    end(builder);
    builder_function(builder, "init", INGOT_FUNCTION_INIT);
    EMIT(VARIABLE_READ, 0, 0, 0);
    end(builder);
  }
  /* It would not run again when the parameter behind the global is swapped. */
  RULE("a global in init", "init may not run it") {
    builder->global_count = 1;
    end(builder);
    builder_function(builder, "init", INGOT_FUNCTION_INIT);
    EMIT(GLOBAL_LOAD, 0, 0);
    end(builder);
  }
  RULE("a variable's dtype", "variable 0 has bad dims") { variable_with(builder, 77, 4, 0, 0); }
  RULE("a variable's symbolic dim", "variable 0 has bad dims") {
    const int64_t dims[2] = {4, -1};
    builder_variable(builder, "v", INGOT_DTYPE_F32, 2, dims, 0, 0);
    end(builder);
  }
  RULE("a value of what grows", "variable 0 has bad dims") {
    variable_with(builder, INGOT_DTYPE_F32, -1, 0, 4);
  }
  RULE("a variable's size", "variable 0 has bad dims") {
    variable_with(builder, INGOT_DTYPE_F32, INT64_MAX, 0, 0);
  }
  RULE("a variable of equal elements", NULL) {
    variable_with(builder, INGOT_DTYPE_F32, INT64_C(1) << 40, 12, 4);
  }
  RULE("a variable's long element", "variable 0 has bad initial bytes") {
    variable_with(builder, INGOT_DTYPE_C128, 2, 0, 16);
  }
  RULE("a variable's short value", "variable 0 has bad initial bytes") {
    variable_with(builder, INGOT_DTYPE_F32, 4, 0, 12);
  }
  RULE("a variable's value outside", "variable 0 has bad initial bytes") {
    variable_with(builder, INGOT_DTYPE_F32, 4, 4, 16);
  }
  RULE("a variable's absurd value", "variable 0 has bad initial bytes") {
    variable_with(builder, INGOT_DTYPE_F32, 4, UINT64_MAX - 8, 16);
  }
  RULE("two variables of one name", "it has two variables 'v'") {
    builder_variable(builder, "v", INGOT_DTYPE_F32, 0, NULL, 0, 0);
    builder_variable(builder, "v", INGOT_DTYPE_I8, 0, NULL, 0, 0);
    end(builder);
  }
}

TEST(native_functions_are_checked) {
  RULE("a native call", NULL) {
    EMIT(CONST_I64, 0, -1);
    EMIT(NATIVE_CALL, 0, 0, 0, 1, 0, 0);
    end(builder);
    builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 1);
  }
  RULE("a native function too many", "native function 1 of 1") {
    EMIT(CONST_I64, 0, -1);
    EMIT(NATIVE_CALL, 1, 0, 0, 1, 0, 0);
    end(builder);
    builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 1);
  }
  RULE("a native call without its list", "1 dims and 2 bindings for native") {
    EMIT(CONST_I64, 0, 0);
    EMIT(CONSTANTS, 0);
    EMIT(NATIVE_CALL, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0);
    end(builder);
    builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 1);
  }
  RULE("a native call in init", "init may not run it") {
    end(builder);
    builder_function(builder, "init", INGOT_FUNCTION_INIT);
    EMIT(CONST_I64, 0, -1);
    EMIT(NATIVE_CALL, 0, 0, 0, 1, 0, 0);
    end(builder);
    builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 1);
  }
  RULE("a native function of a list", "native function 0 has bad values") {
    end(builder);
    builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 0);
    builder_kind(builder, INGOT_VALUE_SEQUENCE);
  }
  RULE("a signature of other tensors", "native function 0 has bad") {
    end(builder);
    builder_native(builder, "f", "() -> (u8[k])", &decided, 0, 1, 1);
  }
  RULE("dims that are decided, and are not", "native function 0 has bad") {
    end(builder);
    builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 0);
  }
  RULE("dims decided of no result", "native function 0 has bad values") {
    end(builder);
    builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 2);
  }
  RULE("two native functions of one name", "it has two native functions 'f'") {
    end(builder);
    builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 1);
    builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 1);
  }
}

TEST(code_is_checked) {
  RULE("right code", NULL) {
    EMIT(CONST_I64, 31, 1);
    EMIT(MOVE_I64, 0, 31);
    end(builder);
  }
  RULE("assigned on one way of a table", "register 1 of kind i may be read before") {
    EMIT(CONST_I64, 0, 1);
    uint32_t branch = EMIT(BRANCH_TABLE, 0, 3, 0, 0, 0);
    builder_set_target(builder, branch + 3);
    builder_set_target(builder, branch + 5);
    EMIT(CONST_I64, 1, 1);
    builder_set_target(builder, branch + 7);
    EMIT(MOVE_I64, 2, 1);
    end(builder);
  }
  RULE("a table without targets", "a branch without targets") {
    EMIT(CONST_I64, 0, 1);
    EMIT(BRANCH_TABLE, 0, 0);
    end(builder);
  }
  RULE("a table's target behind the end", "branch to word 1000") {
    EMIT(CONST_I64, 0, 1);
    EMIT(BRANCH_TABLE, 0, 2, 0, 1000);
    end(builder);
  }
  RULE("assigned on both paths", NULL) {
    EMIT(CONST_I64, 0, 1);
    uint32_t branch = EMIT(BRANCH_IF, 0, 0, 0);
    builder_set_target(builder, branch + 2);
    EMIT(CONST_I64, 1, 1);
    uint32_t skip = EMIT(BRANCH, 0);
    builder_set_target(builder, branch + 4);
    EMIT(CONST_I64, 1, 2);
    builder_set_target(builder, skip + 1);
    EMIT(MOVE_I64, 2, 1);
    end(builder);
  }
  RULE("a loop", NULL) {
    EMIT(CONST_I64, 0, 1);
    uint32_t loop = EMIT(SUB_I64, 0, 0, 0);
    uint32_t branch = EMIT(BRANCH_IF, 0, loop, 0);
    builder_set_target(builder, branch + 4);
    end(builder);
  }
  RULE("dead code", NULL) {
    end(builder);
    EMIT(MOVE_I64, 0, 1);
    end(builder);
  }
  RULE("an empty function", "function 0 has bad") {}
  RULE("a function that nobody calls", "function 1 has bad flags") {
    end(builder);
    builder_function(builder, "inner", 0);
    end(builder);
  }
  RULE("a fill, which an older version had", "unknown opcode 0x62") {
    const uint16_t words[8] = {0x62};
    raw(builder, words, 8);
    end(builder);
  }
  RULE("an unknown opcode", "unknown opcode 0xee") {
    const uint16_t words[1] = {0xEE};
    raw(builder, words, 1);
    end(builder);
  }
  RULE("an instruction that is cut", "leave the function") {
    const uint16_t words[3] = {INGOT_OP_CONST_I64, 0, 1};
    raw(builder, words, 3);
  }
  RULE("a list that is cut", "leave the function") {
    const uint16_t words[3] = {INGOT_OP_RETURN, 60000, 1};
    raw(builder, words, 3);
  }
  RULE("control falls off", "control leaves the end") { EMIT(CONST_I64, 0, 1); }
  RULE("a register too large", "register 32 of kind I, the function has 32") {
    EMIT(CONST_I64, 32, 1);
    end(builder);
  }
  RULE("a binding's register", "register 99 of kind i") {
    uint32_t kernel = builder_kernel(builder, "k", 1, 0, 0);
    EMIT(CONST_I64, 0, 1);
    EMIT(CONSTANTS, 0);
    EMIT(DISPATCH, kernel, 0, 0, 0, 0, 0, 0, 1, 0, 0, 99);
    end(builder);
  }
  RULE("an unassigned i64", "register 1 of kind i may be read before") {
    EMIT(MOVE_I64, 0, 1);
    end(builder);
  }
  RULE("an unassigned f64", "register 1 of kind f may be read before") {
    EMIT(MOVE_F64, 0, 1);
    end(builder);
  }
  RULE("a target as its own source", "register 3 of kind i may be read before") {
    EMIT(MOVE_I64, 3, 3);
    end(builder);
  }
  RULE("assigned on one path", "register 1 of kind i may be read before") {
    EMIT(CONST_I64, 0, 1);
    uint32_t branch = EMIT(BRANCH_IF, 0, 0, 0);
    builder_set_target(builder, branch + 2);
    EMIT(CONST_I64, 1, 1);
    builder_set_target(builder, branch + 4);
    EMIT(MOVE_I64, 2, 1);
    end(builder);
  }
  /* A branch from before the loop leads into it, past what is assigned in front of it. */
  RULE("assigned in front of a loop", "comes with fewer registers") {
    EMIT(CONST_I64, 0, 1);
    uint32_t skip = EMIT(BRANCH_IF, 0, 0, 0);
    builder_set_target(builder, skip + 2);
    EMIT(CONSTANTS, 0);
    uint32_t loop = EMIT(CONST_I64, 1, 0);
    builder_set_target(builder, skip + 4);
    uint32_t branch = EMIT(BRANCH_IF, 0, loop, 0);
    builder_set_target(builder, branch + 4);
    end(builder);
  }
  RULE("a target behind the end", "branch to word 1000") { EMIT(BRANCH, 1000); }
  RULE("a target inside", "middle of an instruction") {
    EMIT(CONST_I64, 0, 1);
    EMIT(BRANCH, 2);
  }
  RULE("a return of a register", "its lists have registers") {
    EMIT(CONST_I64, 0, 1);
    EMIT(RETURN, 1, 0, 0, 0);
  }
  RULE("an assert with no code", "99 is no status code") {
    EMIT(CONST_I64, 0, 1);
    EMIT(ASSERT, 0, 99, 0, 0);
    end(builder);
  }
  RULE("an assert with too few values", "has 2 places for 1 values") {
    EMIT(CONST_I64, 0, 1);
    EMIT(ASSERT, 0, 1, builder_string(builder, "{} and {}"), 1, 0);
    end(builder);
  }
  RULE("an assert with no string", "string offset 100000") {
    EMIT(CONST_I64, 0, 1);
    EMIT(ASSERT, 0, 1, 100000, 0);
    end(builder);
  }
  RULE("wrap to a float", "is not an integer's") {
    EMIT(CONST_I64, 0, 1);
    EMIT(WRAP_I64, 0, 0, INGOT_DTYPE_F32);
    end(builder);
  }
  RULE("round to an integer", "is not f16, bf16, f32 or f64") {
    EMIT(CONST_F64, 0, 1);
    EMIT(ROUND_F64, 0, 0, INGOT_DTYPE_I32);
    end(builder);
  }
  RULE("read of a complex", "is not f16, bf16, f32 or f64") {
    EMIT(CONST_I64, 0, 1);
    EMIT(CONSTANTS, 0);
    EMIT(READ_F64, 0, 0, 0, INGOT_DTYPE_C64);
    end(builder);
  }
  RULE("read of no dtype", "dtype 500 is not an integer's") {
    EMIT(CONST_I64, 0, 1);
    EMIT(CONSTANTS, 0);
    EMIT(READ_I64, 0, 0, 0, 500);
    end(builder);
  }
  RULE("an argument too many", "argument 0 of 0") {
    EMIT(ARGUMENT_BUFFER, 0, 0, 0);
    end(builder);
  }
  RULE("an argument's dim", "dim 1 of argument 0 of rank 1") {
    const int64_t dims[1] = {4};
    builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, dims);
    EMIT(ARGUMENT_DIM, 0, 0, 1);
    end(builder);
  }
  RULE("a result's rank", "0 dims for result 0 of rank 1") {
    const int64_t dims[1] = {4};
    builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, dims);
    EMIT(RESULT_BUFFER, 0, 0, 0, 0);
    end(builder);
  }
  RULE("a result not made", "result 0 may not have been made") {
    const int64_t dims[1] = {4};
    builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, dims);
    end(builder);
  }
  RULE("a result in init", "result 0 of 0") {
    end(builder);
    builder_function(builder, "init", INGOT_FUNCTION_INIT);
    EMIT(RESULT_BUFFER, 0, 0, 0, 0);
    end(builder);
  }
  RULE("a kernel too many", "kernel entry 0 of 0") {
    EMIT(CONST_I64, 0, 1);
    EMIT(DISPATCH, 0, 0, 0, 0, 0, 0, 0, 0);
    end(builder);
  }
  RULE("a kernel's counts", "which has 2 and 1") {
    uint32_t kernel = builder_kernel(builder, "k", 1, 2, 0);
    EMIT(CONST_I64, 0, 1);
    EMIT(DISPATCH, kernel, 0, 0, 0, 0, 0, 0, 0);
    end(builder);
  }
  RULE("a parameter outside init", "only init may run") {
    builder_parameter(builder, "w", INGOT_DTYPE_F32, 0, NULL);
    EMIT(PARAMETER, 0, 0, 0);
    end(builder);
  }
  RULE("an arena outside init", "only init may run") {
    EMIT(CONST_I64, 0, 1);
    EMIT(ARENA, 0, 0, 0);
    end(builder);
  }
  RULE("a global stored outside init", "only init may run") {
    builder->global_count = 1;
    EMIT(CONSTANTS, 0);
    EMIT(GLOBAL_STORE, 0, 0);
    end(builder);
  }
  RULE("a global too many", "global 0 of 0") {
    EMIT(GLOBAL_LOAD, 0, 0);
    end(builder);
  }
  RULE("a parameter too many", "parameter 0 of 0") {
    end(builder);
    builder_function(builder, "init", INGOT_FUNCTION_INIT);
    EMIT(PARAMETER, 0, 0, 0);
    end(builder);
  }
  RULE("an element's rank", "an element of rank 33") {
    const int64_t operands[5 + 33] = {0, 0, 0, 0, 33};
    EMIT(CONSTANTS, 0);
    EMIT(CONST_I64, 0, 0);
    builder_emit(builder, INGOT_OP_LIST_SET, operands, 5 + 33);
    end(builder);
  }
  RULE("an element's dim", "an element of rank 33") {
    EMIT(CONST_I64, 0, 0);
    EMIT(LIST_DIM, 1, 0, 0, 32);
    end(builder);
  }
  RULE("an element's position", "register 0 of kind i may be read before") {
    EMIT(LIST_ERASE, 60000, 0);
    end(builder);
  }
}

/* Time per word must not grow with the code. */
TEST(long_code_is_verified_in_one_pass) {
  builder_t builder[1] = {start()};
  EMIT(CONST_I64, 0, 1);
  for (int i = 0; i < 2000; ++i) {
    uint32_t branch = EMIT(BRANCH_IF, 0, 0, 0);
    builder_set_target(builder, branch + 2);
    EMIT(MOVE_I64, 1, 0);
    builder_set_target(builder, branch + 4);
  }
  end(builder);
  EXPECT_OK(finish_and_load(builder));
}

int main(void) {
  if (ingot_instance_create(NULL, &instance)) return 1;
  RUN_TESTS();
  ingot_instance_release(instance);
  return TEST_RESULT();
}
