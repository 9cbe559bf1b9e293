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

/* Emits one body; `expected` NULL if it is right. */
typedef struct rule_t {
  const char *name;
  void (*emit)(builder_t *builder);
  const char *expected; /* in the message */
} rule_t;

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

static void right_code(builder_t *builder) {
  EMIT(CONST_I64, 31, 1);
  EMIT(MOVE_I64, 0, 31);
  end(builder);
}

static void function_of_no_kind(builder_t *builder) {
  end(builder);
  builder_function(builder, "inner", 0);
  end(builder);
}

static void removed_instructions(builder_t *builder, uint16_t code) {
  const uint16_t words[8] = {code};
  raw(builder, words, 8);
  end(builder);
}

static void a_fill(builder_t *builder) { removed_instructions(builder, 0x62); }

static void empty_function(builder_t *builder) { (void)builder; }

static void unknown_opcode(builder_t *builder) {
  const uint16_t words[1] = {0xEE};
  raw(builder, words, 1);
  end(builder);
}

static void cut_instruction(builder_t *builder) {
  const uint16_t words[3] = {INGOT_OP_CONST_I64, 0, 1};
  raw(builder, words, 3);
}

static void cut_list(builder_t *builder) {
  const uint16_t words[3] = {INGOT_OP_RETURN, 60000, 1};
  raw(builder, words, 3);
}

static void falls_off(builder_t *builder) { EMIT(CONST_I64, 0, 1); }

static void register_bound(builder_t *builder) {
  EMIT(CONST_I64, 32, 1);
  end(builder);
}

static void binding_register_bound(builder_t *builder) {
  uint32_t kernel = builder_kernel(builder, "k", 1, 0, 0);
  EMIT(CONST_I64, 0, 1);
  EMIT(CONSTANTS, 0);
  EMIT(DISPATCH, kernel, 0, 0, 0, 0, 0, 0, 1, 0, 0, 99);
  end(builder);
}

static void unassigned_read(builder_t *builder) {
  EMIT(MOVE_I64, 0, 1);
  end(builder);
}

static void unassigned_float(builder_t *builder) {
  EMIT(MOVE_F64, 0, 1);
  end(builder);
}

static void own_target_read(builder_t *builder) {
  EMIT(MOVE_I64, 3, 3);
  end(builder);
}

static void assigned_on_one_path(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  uint32_t branch = EMIT(BRANCH_IF, 0, 0, 0);
  builder_set_target(builder, branch + 2);
  EMIT(CONST_I64, 1, 1);
  builder_set_target(builder, branch + 4);
  EMIT(MOVE_I64, 2, 1);
  end(builder);
}

static void assigned_on_one_way_of_a_table(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  uint32_t branch = EMIT(BRANCH_TABLE, 0, 3, 0, 0, 0);
  builder_set_target(builder, branch + 3);
  builder_set_target(builder, branch + 5);
  EMIT(CONST_I64, 1, 1);
  builder_set_target(builder, branch + 7);
  EMIT(MOVE_I64, 2, 1);
  end(builder);
}

static void table_without_targets(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  EMIT(BRANCH_TABLE, 0, 0);
  end(builder);
}

static void table_target_behind(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  EMIT(BRANCH_TABLE, 0, 2, 0, 1000);
  end(builder);
}

static void assigned_on_both_paths(builder_t *builder) {
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

static void loop_with_state(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  uint32_t loop = EMIT(SUB_I64, 0, 0, 0);
  uint32_t branch = EMIT(BRANCH_IF, 0, loop, 0);
  builder_set_target(builder, branch + 4);
  end(builder);
}

static void dead_code(builder_t *builder) {
  end(builder);
  EMIT(MOVE_I64, 0, 1);
  end(builder);
}

static void target_behind(builder_t *builder) { EMIT(BRANCH, 1000); }

static void target_inside(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  EMIT(BRANCH, 2);
}

static void returns_register(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  EMIT(RETURN, 1, 0, 0, 0);
}

/* A branch from before the loop leads into it, past what is assigned in front of it. */
static void assigned_in_front_of_loop(builder_t *builder) {
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

static void assert_code(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  EMIT(ASSERT, 0, 99, 0, 0);
  end(builder);
}

static void assert_values(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  EMIT(ASSERT, 0, 1, builder_string(builder, "{} and {}"), 1, 0);
  end(builder);
}

static void assert_string(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  EMIT(ASSERT, 0, 1, 100000, 0);
  end(builder);
}

static void wrap_to_float(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  EMIT(WRAP_I64, 0, 0, INGOT_DTYPE_F32);
  end(builder);
}

static void round_to_integer(builder_t *builder) {
  EMIT(CONST_F64, 0, 1);
  EMIT(ROUND_F64, 0, 0, INGOT_DTYPE_I32);
  end(builder);
}

static void read_of_complex(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  EMIT(CONSTANTS, 0);
  EMIT(READ_F64, 0, 0, 0, INGOT_DTYPE_C64);
  end(builder);
}

static void read_of_no_dtype(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  EMIT(CONSTANTS, 0);
  EMIT(READ_I64, 0, 0, 0, 500);
  end(builder);
}

static void argument_ordinal(builder_t *builder) {
  EMIT(ARGUMENT_BUFFER, 0, 0, 0);
  end(builder);
}

static void argument_dim(builder_t *builder) {
  const int64_t dims[1] = {4};
  builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, dims);
  EMIT(ARGUMENT_DIM, 0, 0, 1);
  end(builder);
}

static void result_rank(builder_t *builder) {
  const int64_t dims[1] = {4};
  builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, dims);
  EMIT(RESULT_BUFFER, 0, 0, 0, 0);
  end(builder);
}

static void result_not_made(builder_t *builder) {
  const int64_t dims[1] = {4};
  builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, dims);
  end(builder);
}

static void result_in_init(builder_t *builder) {
  end(builder);
  builder_function(builder, "init", INGOT_FUNCTION_INIT);
  EMIT(RESULT_BUFFER, 0, 0, 0, 0);
  end(builder);
}

static void kernel_ordinal(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  EMIT(DISPATCH, 0, 0, 0, 0, 0, 0, 0, 0);
  end(builder);
}

static void kernel_counts(builder_t *builder) {
  uint32_t kernel = builder_kernel(builder, "k", 1, 2, 0);
  EMIT(CONST_I64, 0, 1);
  EMIT(DISPATCH, kernel, 0, 0, 0, 0, 0, 0, 0);
  end(builder);
}

static void parameter_outside_init(builder_t *builder) {
  builder_parameter(builder, "w", INGOT_DTYPE_F32, 0, NULL);
  EMIT(PARAMETER, 0, 0, 0);
  end(builder);
}

static void arena_outside_init(builder_t *builder) {
  EMIT(CONST_I64, 0, 1);
  EMIT(ARENA, 0, 0, 0);
  end(builder);
}

static void global_store_outside_init(builder_t *builder) {
  builder->global_count = 1;
  EMIT(CONSTANTS, 0);
  EMIT(GLOBAL_STORE, 0, 0);
  end(builder);
}

static void global_ordinal(builder_t *builder) {
  EMIT(GLOBAL_LOAD, 0, 0);
  end(builder);
}

static void element_rank(builder_t *builder) {
  const int64_t operands[5 + 33] = {0, 0, 0, 0, 33};
  EMIT(CONSTANTS, 0);
  EMIT(CONST_I64, 0, 0);
  builder_emit(builder, INGOT_OP_LIST_SET, operands, 5 + 33);
  end(builder);
}

static void element_dim(builder_t *builder) {
  EMIT(CONST_I64, 0, 0);
  EMIT(LIST_DIM, 1, 0, 0, 32);
  end(builder);
}

static void element_not_named(builder_t *builder) {
  EMIT(LIST_ERASE, 60000, 0);
  end(builder);
}

static void parameter_ordinal(builder_t *builder) {
  end(builder);
  builder_function(builder, "init", INGOT_FUNCTION_INIT);
  EMIT(PARAMETER, 0, 0, 0);
  end(builder);
}

static void variable_ordinal(builder_t *builder) {
  builder_variable(builder, "v", INGOT_DTYPE_F32, 0, NULL, 0, 0);
  EMIT(VARIABLE_READ, 0, 0, 1);
  end(builder);
}

static void variable_written_ordinal(builder_t *builder) {
  EMIT(VARIABLE_WRITE, 0, 0, 0);
  end(builder);
}

static void variable_grown_ordinal(builder_t *builder) {
  EMIT(CONST_I64, 1, 4);
  EMIT(VARIABLE_GROW, 0, 0, 0, 1);
  end(builder);
}

static void fixed_variable_grown(builder_t *builder) {
  const int64_t dims[2] = {3, 4};
  builder_variable(builder, "v", INGOT_DTYPE_F32, 2, dims, 0, 0);
  variable_grown_ordinal(builder);
}

static void variable_in_init(builder_t *builder) {
  builder_variable(builder, "v", INGOT_DTYPE_F32, 0, NULL, 0, 0);
  end(builder);
  builder_function(builder, "init", INGOT_FUNCTION_INIT);
  EMIT(VARIABLE_READ, 0, 0, 0);
  end(builder);
}

/* It would not run again when the parameter behind the global is swapped. */
static void global_in_init(builder_t *builder) {
  builder->global_count = 1;
  end(builder);
  builder_function(builder, "init", INGOT_FUNCTION_INIT);
  EMIT(GLOBAL_LOAD, 0, 0);
  end(builder);
}

/* () -> (i8[k]), which lies in list 0. */
static const builder_tensor_t decided = {INGOT_DTYPE_I8, 1, {-2}};

static void native_call(builder_t *builder) {
  EMIT(CONST_I64, 0, -1);
  EMIT(NATIVE_CALL, 0, 0, 0, 1, 0, 0);
  end(builder);
  builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 1);
}

static void native_ordinal(builder_t *builder) {
  EMIT(CONST_I64, 0, -1);
  EMIT(NATIVE_CALL, 1, 0, 0, 1, 0, 0);
  end(builder);
  builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 1);
}

static void native_bindings(builder_t *builder) {
  EMIT(CONST_I64, 0, 0);
  EMIT(CONSTANTS, 0);
  EMIT(NATIVE_CALL, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0);
  end(builder);
  builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 1);
}

static void native_in_init(builder_t *builder) {
  end(builder);
  builder_function(builder, "init", INGOT_FUNCTION_INIT);
  EMIT(CONST_I64, 0, -1);
  EMIT(NATIVE_CALL, 0, 0, 0, 1, 0, 0);
  end(builder);
  builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 1);
}

static void native_of_list(builder_t *builder) {
  end(builder);
  builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 0);
  builder_kind(builder, INGOT_VALUE_SEQUENCE);
}

static void native_of_other_signature(builder_t *builder) {
  end(builder);
  builder_native(builder, "f", "() -> (u8[k])", &decided, 0, 1, 1);
}

static void native_decides_nothing(builder_t *builder) {
  end(builder);
  builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 0);
}

static void native_decides_too_much(builder_t *builder) {
  end(builder);
  builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 2);
}

static void native_twice(builder_t *builder) {
  end(builder);
  builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 1);
  builder_native(builder, "f", "() -> (i8[k])", &decided, 0, 1, 1);
}

/* Variables of the table; the code is right. */
static void variable_with(builder_t *builder, ingot_dtype_t dtype, int64_t dim, uint64_t offset,
                          uint64_t length) {
  const float values[4] = {1, 2, 3, 4};
  (void)builder_constants(builder, values, sizeof(values));
  builder_variable(builder, "v", dtype, 1, &dim, offset, length);
  end(builder);
}

static void right_variable(builder_t *builder) {
  variable_with(builder, INGOT_DTYPE_F32, 3, 4, 12);
}

static void variable_of_no_dtype(builder_t *builder) { variable_with(builder, 77, 4, 0, 0); }

static void variable_with_symbolic_dim(builder_t *builder) {
  const int64_t dims[2] = {4, -1};
  builder_variable(builder, "v", INGOT_DTYPE_F32, 2, dims, 0, 0);
  end(builder);
}

static void variable_that_grows_from_a_value(builder_t *builder) {
  variable_with(builder, INGOT_DTYPE_F32, -1, 0, 4);
}

static void variable_without_end(builder_t *builder) {
  variable_with(builder, INGOT_DTYPE_F32, INT64_MAX, 0, 0);
}

static void variable_value_too_short(builder_t *builder) {
  variable_with(builder, INGOT_DTYPE_F32, 4, 0, 12);
}

static void repeated_element(builder_t *builder) {
  variable_with(builder, INGOT_DTYPE_F32, INT64_C(1) << 40, 12, 4);
}

static void repeated_element_too_long(builder_t *builder) {
  variable_with(builder, INGOT_DTYPE_C128, 2, 0, 16);
}

static void variable_value_outside(builder_t *builder) {
  variable_with(builder, INGOT_DTYPE_F32, 4, 4, 16);
}

static void variable_value_overflows(builder_t *builder) {
  variable_with(builder, INGOT_DTYPE_F32, 4, UINT64_MAX - 8, 16);
}

static void variable_twice(builder_t *builder) {
  builder_variable(builder, "v", INGOT_DTYPE_F32, 0, NULL, 0, 0);
  builder_variable(builder, "v", INGOT_DTYPE_I8, 0, NULL, 0, 0);
  end(builder);
}

static const rule_t rules[] = {
    {"a variable", right_variable, NULL},
    {"a variable too many", variable_ordinal, "variable 1 of 1"},
    {"a written variable too many", variable_written_ordinal, "variable 0 of 0"},
    {"a grown variable too many", variable_grown_ordinal, "variable 0 of 0"},
    {"growth of a fixed variable", fixed_variable_grown, "variable 0 cannot grow"},
    {"a variable in init", variable_in_init, "init may not run it"},
    {"a global in init", global_in_init, "init may not run it"},
    {"a variable's dtype", variable_of_no_dtype, "variable 0 has bad dims"},
    {"a variable's symbolic dim", variable_with_symbolic_dim, "variable 0 has bad dims"},
    {"a value of what grows", variable_that_grows_from_a_value, "variable 0 has bad dims"},
    {"a variable's size", variable_without_end, "variable 0 has bad dims"},
    {"a variable of equal elements", repeated_element, NULL},
    {"a variable's long element", repeated_element_too_long, "variable 0 has bad initial bytes"},
    {"a variable's short value", variable_value_too_short, "variable 0 has bad initial bytes"},
    {"a variable's value outside", variable_value_outside, "variable 0 has bad initial bytes"},
    {"a variable's absurd value", variable_value_overflows, "variable 0 has bad initial bytes"},
    {"two variables of one name", variable_twice, "it has two variables 'v'"},

    {"a native call", native_call, NULL},
    {"a native function too many", native_ordinal, "native function 1 of 1"},
    {"a native call without its list", native_bindings, "1 dims and 2 bindings for native"},
    {"a native call in init", native_in_init, "init may not run it"},
    {"a native function of a list", native_of_list, "native function 0 has bad values"},
    {"a signature of other tensors", native_of_other_signature, "native function 0 has bad"},
    {"dims that are decided, and are not", native_decides_nothing, "native function 0 has bad"},
    {"dims decided of no result", native_decides_too_much, "native function 0 has bad values"},
    {"two native functions of one name", native_twice, "it has two native functions 'f'"},

    {"right code", right_code, NULL},
    {"assigned on one way of a table", assigned_on_one_way_of_a_table,
     "register 1 of kind i may be read before"},
    {"a table without targets", table_without_targets, "a branch without targets"},
    {"a table's target behind the end", table_target_behind, "branch to word 1000"},
    {"assigned on both paths", assigned_on_both_paths, NULL},
    {"a loop", loop_with_state, NULL},
    {"dead code", dead_code, NULL},
    {"an empty function", empty_function, "function 0 has bad"},
    {"a function that nobody calls", function_of_no_kind, "function 1 has bad flags"},
    {"a fill", a_fill, "unknown opcode 0x62"},
    {"an unknown opcode", unknown_opcode, "unknown opcode 0xee"},
    {"an instruction that is cut", cut_instruction, "leave the function"},
    {"a list that is cut", cut_list, "leave the function"},
    {"control falls off", falls_off, "control leaves the end"},
    {"a register too large", register_bound, "register 32 of kind I, the function has 32"},
    {"a binding's register", binding_register_bound, "register 99 of kind i"},
    {"an unassigned i64", unassigned_read, "register 1 of kind i may be read before"},
    {"an unassigned f64", unassigned_float, "register 1 of kind f may be read before"},
    {"a target as its own source", own_target_read, "register 3 of kind i may be read before"},
    {"assigned on one path", assigned_on_one_path, "register 1 of kind i may be read before"},
    {"assigned in front of a loop", assigned_in_front_of_loop, "comes with fewer registers"},
    {"a target behind the end", target_behind, "branch to word 1000"},
    {"a target inside", target_inside, "middle of an instruction"},
    {"a return of a register", returns_register, "its lists have registers"},
    {"an assert with no code", assert_code, "99 is no status code"},
    {"an assert with too few values", assert_values, "has 2 places for 1 values"},
    {"an assert with no string", assert_string, "string offset 100000"},
    {"wrap to a float", wrap_to_float, "is not an integer's"},
    {"round to an integer", round_to_integer, "is not f16, bf16, f32 or f64"},
    {"read of a complex", read_of_complex, "is not f16, bf16, f32 or f64"},
    {"read of no dtype", read_of_no_dtype, "dtype 500 is not an integer's"},
    {"an argument too many", argument_ordinal, "argument 0 of 0"},
    {"an argument's dim", argument_dim, "dim 1 of argument 0 of rank 1"},
    {"a result's rank", result_rank, "0 dims for result 0 of rank 1"},
    {"a result not made", result_not_made, "result 0 may not have been made"},
    {"a result in init", result_in_init, "result 0 of 0"},
    {"a kernel too many", kernel_ordinal, "kernel entry 0 of 0"},
    {"a kernel's counts", kernel_counts, "which has 2 and 1"},
    {"a parameter outside init", parameter_outside_init, "only init may run"},
    {"an arena outside init", arena_outside_init, "only init may run"},
    {"a global stored outside init", global_store_outside_init, "only init may run"},
    {"a global too many", global_ordinal, "global 0 of 0"},
    {"a parameter too many", parameter_ordinal, "parameter 0 of 0"},
    {"an element's rank", element_rank, "an element of rank 33"},
    {"an element's dim", element_dim, "an element of rank 33"},
    {"an element's position", element_not_named, "register 0 of kind i may be read before"},
};

static void every_rule_is_checked(void) {
  for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); ++i) {
    builder_t builder = start();
    rules[i].emit(&builder);
    ingot_status_t status = finish_and_load(&builder);
    const char *message = ingot_status_message(status);
    bool right = !rules[i].expected ? status == NULL
                                    : ingot_status_code(status) == INGOT_STATUS_DATA_LOSS &&
                                          strstr(message, rules[i].expected) != NULL;
    if (!right) FAIL("%s: \"%s\"", rules[i].name, message);
    ingot_status_free(status);
  }
}

/* Time per word must not grow with the code. */
static void long_code_is_verified_in_one_pass(void) {
  builder_t storage = start();
  builder_t *builder = &storage;
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
  RUN(every_rule_is_checked);
  RUN(long_code_is_verified_in_one_pass);
  ingot_instance_release(instance);
  return TEST_RESULT();
}
