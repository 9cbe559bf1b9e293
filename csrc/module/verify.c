/* The bytecode verifier, first part: every instruction by itself. Operand letters say what
 * is a register, a string or a target; a table of rules says what the numbers of each
 * opcode must refer to. See verifier.h for the other parts.
 */
#include "module/verifier.h"

#include <string.h>

#include "base/dtype.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "modules are little-endian and used in place"
#endif

#define REFUSE_UNLESS(condition, ...)                                            \
  do {                                                                           \
    if (!(condition)) return ingot_verifier_refuse(verifier, word, __VA_ARGS__); \
  } while (0)

static uint32_t register_count(const ingot_layout_function_t *function, char letter) {
  switch (letter) {
    case 'i':
    case 'I': return function->i64_count;
    case 'f':
    case 'F': return function->f64_count;
    default: return function->ref_count;
  }
}

static ingot_status_t check_registers(const ingot_verifier_t *verifier, uint32_t word,
                                      const ingot_operand_t *operand) {
  static const char binding_letters[3] = {'o', 'i', 'i'};
  bool binding = operand->letter == 'b';
  uint32_t count = operand->count * (binding ? 3 : 1);
  for (uint32_t k = 0; k < count; ++k) {
    char letter = binding ? binding_letters[k % 3] : operand->letter;
    uint32_t number = verifier->words[operand->position + k];
    uint32_t limit = register_count(verifier->function, letter);
    REFUSE_UNLESS(number < limit, "register %u of kind %c, the function has %u", number, letter,
                  limit);
  }
  return NULL;
}

static ingot_status_t check_targets(ingot_verifier_t *verifier, uint32_t word,
                                    const ingot_operand_t *operand) {
  REFUSE_UNLESS(operand->count > 0, "a branch without targets");
  for (uint32_t k = 0; k < operand->count; ++k) {
    uint32_t target = ingot_code_u32(verifier->words + operand->position + 2 * k);
    REFUSE_UNLESS(target < verifier->length, "branch to word %u, the function has %u", target,
                  verifier->length);
    uint32_t mark = INGOT_WORD_TARGET | (target <= word ? INGOT_WORD_BACKWARD : 0);
    verifier->marks[target] = (uint8_t)(verifier->marks[target] | mark);
  }
  verifier->flow_count += operand->count;
  return NULL;
}

static ingot_status_t check_operand(ingot_verifier_t *verifier, uint32_t word,
                                    const ingot_operand_t *operand) {
  switch (operand->letter) {
    case 'k':
    case 'x':
    case 'n': return NULL;
    case 's':
      REFUSE_UNLESS(operand->value < verifier->module->strings_length,
                    "string offset %u, the strings have %u bytes", operand->value,
                    verifier->module->strings_length);
      return NULL;
    case 't': return check_targets(verifier, word, operand);
    default: return check_registers(verifier, word, operand);
  }
}

static ingot_status_t check_number(const ingot_verifier_t *verifier, uint32_t word,
                                   const char *kind, uint32_t ordinal, uint32_t count) {
  REFUSE_UNLESS(ordinal < count, "%s %u of %u", kind, ordinal, count);
  return NULL;
}

/* Of what i64 or f64 registers are read from, written to and rounded to. */
static ingot_status_t check_dtype(const ingot_verifier_t *verifier, uint32_t word, uint32_t dtype,
                                  bool is_float) {
  bool fits = is_float ? dtype == INGOT_DTYPE_F16 || dtype == INGOT_DTYPE_BF16 ||
                             dtype == INGOT_DTYPE_F32 || dtype == INGOT_DTYPE_F64
                       : ingot_dtype_is_integer((ingot_dtype_t)dtype);
  REFUSE_UNLESS(fits, "dtype %u is not %s", dtype,
                is_float ? "f16, bf16, f32 or f64" : "an integer's");
  return NULL;
}

static ingot_status_t check_return_operands(const ingot_verifier_t *verifier, uint32_t word,
                                            const ingot_operand_t *operands) {
  REFUSE_UNLESS(operands[0].count + operands[1].count + operands[2].count == 0,
                "its lists have registers, but results are made, not returned");
  return NULL;
}

static ingot_status_t check_assert_operands(const ingot_verifier_t *verifier, uint32_t word,
                                            const ingot_operand_t *operands) {
  REFUSE_UNLESS(operands[1].value != INGOT_STATUS_OK &&
                    ingot_status_code_name((ingot_status_code_t)operands[1].value),
                "%u is no status code", operands[1].value);
  REFUSE_UNLESS(ingot_module_name_fits(verifier->module, operands[2].value),
                "the message is too long");
  uint32_t holes = 0;
  const char *text = ingot_module_string(verifier->module, operands[2].value);
  while ((text = strstr(text, "{}")) != NULL) {
    ++holes;
    text += 2;
  }
  REFUSE_UNLESS(holes == operands[3].count, "the message has %u places for %u values", holes,
                operands[3].count);
  return NULL;
}

/* Arguments and results: only in exported functions. */
static ingot_status_t check_value_operands(const ingot_verifier_t *verifier, uint32_t word,
                                           const ingot_decoded_t *decoded) {
  const ingot_layout_function_t *function = verifier->function;
  uint32_t code = decoded->code;
  bool list = code == INGOT_OP_LIST_ARGUMENT || code == INGOT_OP_LIST_RESULT;
  bool result = code == INGOT_OP_RESULT_BUFFER || code == INGOT_OP_LIST_RESULT;
  uint32_t first = code == INGOT_OP_LIST_RESULT ? 0 : code == INGOT_OP_ARGUMENT_DIM ? 1 : 2;
  const ingot_operand_t *numbers = &decoded->operands[first];
  uint32_t number = numbers[0].value;
  uint32_t count = result ? function->result_count : function->argument_count;
  const char *kind = result ? "result" : "argument";
  INGOT_TRY(check_number(verifier, word, kind, number, count));
  const ingot_layout_value_t *value = &verifier->module->values[function->first_value + number];
  if (result) value += function->argument_count;
  uint32_t rank = value->rank;
  REFUSE_UNLESS(list == ((value->kind & ~INGOT_VALUE_REFERENCE) != 0), "%s %u is %s", kind, number,
                list ? "a tensor" : "no tensor");
  if (list) return NULL;
  if (result) {
    REFUSE_UNLESS(numbers[1].count == rank, "%u dims for result %u of rank %u", numbers[1].count,
                  number, rank);
  } else if (code == INGOT_OP_ARGUMENT_DIM) {
    REFUSE_UNLESS(numbers[1].value < rank, "dim %u of argument %u of rank %u", numbers[1].value,
                  number, rank);
  }
  return NULL;
}

static ingot_status_t check_dispatch_operands(const ingot_verifier_t *verifier, uint32_t word,
                                              const ingot_operand_t *operands) {
  const ingot_module_t *module = verifier->module;
  uint32_t number = operands[0].value;
  INGOT_TRY(check_number(verifier, word, "kernel entry", number, module->entry_count));
  const ingot_layout_entry_t *entry = &module->entries[number];
  REFUSE_UNLESS(
      operands[6].count == entry->constant_count && operands[7].count == entry->binding_count,
      "%u constants and %u bindings for kernel entry %u, which has %u and %u", operands[6].count,
      operands[7].count, number, entry->constant_count, entry->binding_count);
  const ingot_layout_executable_t *executable =
      &module->executables[module->entry_executables[number]];
  REFUSE_UNLESS(strcmp(ingot_module_string(module, executable->target),
                       ingot_module_string(module, verifier->function->target)) == 0,
                "kernel entry %u is for another target", number);
  return NULL;
}

/* As many dims as the function's tensors have; the bindings are those that are no lists. */
static ingot_status_t check_native_operands(ingot_verifier_t *verifier, uint32_t word,
                                            const ingot_operand_t *operands) {
  const ingot_module_t *module = verifier->module;
  uint32_t number = operands[0].value;
  INGOT_TRY(check_number(verifier, word, "native function", number, module->native_count));
  const ingot_layout_native_t *native = &module->natives[number];
  uint32_t tensors = native->argument_count + native->result_count;
  uint32_t dims = 0;
  for (uint32_t k = 0; k < tensors; ++k) dims += module->values[native->first_value + k].rank;
  uint32_t lists = ingot_module_decided_count(native);
  REFUSE_UNLESS(operands[3].count == dims && operands[4].count == tensors - lists,
                "%u dims and %u bindings for native function %u, which has %u and %u",
                operands[3].count, operands[4].count, number, dims, tensors - lists);
  uint32_t last = operands[1].value + lists;
  if (lists > 0 && verifier->list_count < last) verifier->list_count = last;
  return NULL;
}

/* Lists exist by being named; an element has the rank of a tensor at most. */
static ingot_status_t check_list_operands(ingot_verifier_t *verifier, uint32_t word,
                                          const ingot_decoded_t *decoded) {
  if (decoded->code >= INGOT_OP_LIST_ARGUMENT) {
    if (verifier->list_count <= decoded->operands[1].value) {
      verifier->list_count = decoded->operands[1].value + 1;
    }
    return check_value_operands(verifier, word, decoded);
  }
  for (uint32_t k = 0; k < decoded->operand_count; ++k) {
    const ingot_operand_t *operand = &decoded->operands[k];
    bool axis = decoded->code == INGOT_OP_LIST_DIM && k == 3;
    if (operand->list || axis) {
      uint32_t rank = axis ? operand->value + 1 : operand->count;
      REFUSE_UNLESS(rank <= INGOT_MAX_RANK, "an element of rank %u, at most %d is possible", rank,
                    INGOT_MAX_RANK);
    } else if (operand->letter == 'n' && operand->value >= verifier->list_count) {
      verifier->list_count = operand->value + 1;
    }
  }
  return NULL;
}

/* Only init may run the instruction, or all but init: only sessions have variables and call what
 * the application gives. */
static ingot_status_t check_init(const ingot_verifier_t *verifier, uint32_t word, bool init) {
  bool is_init = verifier->function->flags & INGOT_FUNCTION_INIT;
  REFUSE_UNLESS(is_init == init, init ? "only init may run it" : "init may not run it");
  return NULL;
}

/* Variables whose first dim is not open have the length that their initial bytes and saved ones are
 * taken for. */
static ingot_status_t check_variable(const ingot_verifier_t *verifier, uint32_t word, uint32_t code,
                                     uint32_t number) {
  const ingot_module_t *module = verifier->module;
  INGOT_TRY(check_number(verifier, word, "variable", number, module->variable_count));
  const ingot_layout_variable_t *variable = &module->variables[number];
  bool grows = variable->rank > 0 && module->dims[variable->first_dim].size < 0;
  REFUSE_UNLESS(code != INGOT_OP_VARIABLE_GROW || grows, "variable %u cannot grow", number);
  return NULL;
}

/* What the numbers of an instruction refer to. */
static ingot_status_t check_numbers(ingot_verifier_t *verifier, uint32_t word,
                                    const ingot_decoded_t *decoded) {
  const ingot_operand_t *operands = decoded->operands;
  const ingot_module_t *module = verifier->module;
  switch (decoded->code) {
    case INGOT_OP_RETURN:
      ++verifier->flow_count;
      return check_return_operands(verifier, word, operands);
    case INGOT_OP_ASSERT: return check_assert_operands(verifier, word, operands);
    case INGOT_OP_ARGUMENT_BUFFER:
    case INGOT_OP_ARGUMENT_DIM:
    case INGOT_OP_RESULT_BUFFER: return check_value_operands(verifier, word, decoded);
    case INGOT_OP_DISPATCH: return check_dispatch_operands(verifier, word, operands);
    case INGOT_OP_WRAP_I64: return check_dtype(verifier, word, operands[2].value, false);
    case INGOT_OP_ROUND_F64: return check_dtype(verifier, word, operands[2].value, true);
    case INGOT_OP_READ_I64:
    case INGOT_OP_WRITE_I64: return check_dtype(verifier, word, operands[3].value, false);
    case INGOT_OP_READ_F64:
    case INGOT_OP_WRITE_F64: return check_dtype(verifier, word, operands[3].value, true);
    case INGOT_OP_NATIVE_CALL:
      INGOT_TRY(check_init(verifier, word, false));
      return check_native_operands(verifier, word, operands);
    case INGOT_OP_ARENA: return check_init(verifier, word, true);
    case INGOT_OP_PARAMETER:
      INGOT_TRY(check_init(verifier, word, true));
      return check_number(verifier, word, "parameter", operands[2].value, module->parameter_count);
    case INGOT_OP_VARIABLE_READ:
    case INGOT_OP_VARIABLE_WRITE:
    case INGOT_OP_VARIABLE_GROW:
      INGOT_TRY(check_init(verifier, word, false));
      return check_variable(verifier, word, decoded->code, operands[2].value);
    case INGOT_OP_GLOBAL_LOAD:
    case INGOT_OP_GLOBAL_STORE:
      INGOT_TRY(check_init(verifier, word, decoded->code == INGOT_OP_GLOBAL_STORE));
      return check_number(verifier, word, "global", operands[1].value, module->global_count);
    default: /* of others registers and immediates only */
      if (decoded->code < INGOT_OP_LIST_CLEAR) return NULL;
      return check_list_operands(verifier, word, decoded);
  }
}

static bool is_terminator(uint32_t code) {
  return code == INGOT_OP_BRANCH || code == INGOT_OP_BRANCH_IF || code == INGOT_OP_BRANCH_TABLE ||
         code == INGOT_OP_RETURN;
}

static ingot_status_t check_instructions(ingot_verifier_t *verifier) {
  uint32_t word = 0;
  uint32_t last = 0;
  while (word < verifier->length) {
    ingot_decoded_t decoded;
    REFUSE_UNLESS(ingot_instruction_decode(verifier->words, verifier->length, word, &decoded),
                  "unknown opcode 0x%02x or operands that leave the function",
                  verifier->words[word]);
    verifier->marks[word] |= INGOT_WORD_START;
    for (uint32_t k = 0; k < decoded.operand_count; ++k) {
      INGOT_TRY(check_operand(verifier, word, &decoded.operands[k]));
    }
    INGOT_TRY(check_numbers(verifier, word, &decoded));
    last = word;
    word = decoded.next;
  }
  word = last;
  REFUSE_UNLESS(is_terminator(verifier->words[last]), "control leaves the end of the function");
  return NULL;
}

/* Numbers the branch targets in code order; they must be instruction starts. */
static ingot_status_t number_labels(ingot_verifier_t *verifier) {
  verifier->label_count = 0;
  for (uint32_t word = 0; word < verifier->length; ++word) {
    uint8_t mark = verifier->marks[word];
    if (!(mark & INGOT_WORD_TARGET)) continue;
    REFUSE_UNLESS(mark & INGOT_WORD_START, "a branch leads into the middle of an instruction");
    verifier->labels[word] = verifier->label_count++;
  }
  return NULL;
}

static ingot_status_t verify_function(ingot_verifier_t *verifier, uint32_t ordinal) {
  const ingot_module_t *module = verifier->module;
  verifier->function = &module->functions[ordinal];
  verifier->ordinal = ordinal;
  verifier->flow_count = 0;
  verifier->length = (uint32_t)verifier->function->code_length;
  verifier->words = module->code + verifier->function->code_offset;
  memset(verifier->marks, 0, verifier->length);
  INGOT_TRY(check_instructions(verifier));
  INGOT_TRY(number_labels(verifier));
  return ingot_verify_assignment(verifier);
}

ingot_status_t ingot_module_verify_code(ingot_module_t *module) {
  const ingot_allocator_t *allocator = &module->instance->allocator;
  ingot_verifier_t verifier = {.module = module};
  void *marks = NULL;
  void *labels = NULL;
  size_t longest = 0;
  for (uint32_t i = 0; i < module->function_count; ++i) {
    size_t length = (size_t)module->functions[i].code_length;
    if (length > longest) longest = length;
  }
  ingot_status_t status = ingot_allocate_array(allocator, longest, sizeof(uint8_t), &marks);
  if (!status) status = ingot_allocate_array(allocator, longest, sizeof(uint32_t), &labels);
  verifier.marks = marks;
  verifier.labels = labels;
  for (uint32_t i = 0; !status && i < module->function_count; ++i) {
    status = verify_function(&verifier, i);
  }
  ingot_release_memory(allocator, labels);
  ingot_release_memory(allocator, marks);
  module->list_count = verifier.list_count;
  return status;
}
