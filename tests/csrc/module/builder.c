/* The module builder of the C tests; see builder.h.
 */
#include "module/builder.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32.h"

static void append(builder_bytes_t *bytes, const void *data, size_t length) {
  bytes->data = realloc(bytes->data, bytes->length + length + 1);
  if (!bytes->data) abort();
  if (length > 0) memcpy(bytes->data + bytes->length, data, length);
  bytes->length += length;
}

static uint32_t append_row(builder_t *builder, uint32_t kind, const void *row, size_t length) {
  builder_bytes_t *section = &builder->sections[kind];
  uint32_t ordinal = (uint32_t)(section->length / length);
  append(section, row, length);
  return ordinal;
}

builder_t builder_create(void) {
  builder_t builder = {.global_count = 0};
  append(&builder.sections[INGOT_SECTION_STRINGS], "", 1);
  return builder;
}

uint32_t builder_string(builder_t *builder, const char *text) {
  builder_bytes_t *strings = &builder->sections[INGOT_SECTION_STRINGS];
  if (text[0] == 0) return 0;
  for (size_t at = 1; at < strings->length; at += strlen((char *)strings->data + at) + 1) {
    if (strcmp((char *)strings->data + at, text) == 0) return (uint32_t)at;
  }
  append(strings, text, strlen(text) + 1);
  return (uint32_t)(strings->length - strlen(text) - 1);
}

static ingot_layout_function_t *current_function(const builder_t *builder) {
  const builder_bytes_t *section = &builder->sections[INGOT_SECTION_FUNCTIONS];
  return (ingot_layout_function_t *)(void *)(section->data + section->length) - 1;
}

ingot_layout_function_t *builder_function(builder_t *builder, const char *name, uint32_t flags) {
  ingot_layout_function_t row = {
      .name = builder_string(builder, name),
      .target = builder_string(builder, "cpu"),
      .flags = flags,
      .first_value =
          (uint32_t)(builder->sections[INGOT_SECTION_VALUES].length / sizeof(ingot_layout_value_t)),
      .i64_count = 32,
      .f64_count = 32,
      .ref_count = 32,
      .code_offset = builder->sections[INGOT_SECTION_CODE].length / 2,
  };
  append_row(builder, INGOT_SECTION_FUNCTIONS, &row, sizeof(row));
  return current_function(builder);
}

static uint32_t append_dims(builder_t *builder, uint32_t rank, const int64_t *dims) {
  uint32_t first =
      (uint32_t)(builder->sections[INGOT_SECTION_DIMS].length / sizeof(ingot_layout_dim_t));
  for (uint32_t d = 0; d < rank; ++d) {
    const char *text = dims[d] >= 0 ? "4" : dims[d] == -1 ? "n" : "k";
    ingot_layout_dim_t row = {dims[d] < 0 ? -1 : dims[d], builder_string(builder, text), 0};
    append_row(builder, INGOT_SECTION_DIMS, &row, sizeof(row));
  }
  return first;
}

void builder_value(builder_t *builder, bool result, const char *name, ingot_dtype_t dtype,
                   uint32_t rank, const int64_t *dims) {
  ingot_layout_value_t row = {
      .name = builder_string(builder, name),
      .first_dim = append_dims(builder, rank, dims),
      .rank = (uint8_t)rank,
      .dtype = (uint16_t)dtype,
  };
  append_row(builder, INGOT_SECTION_VALUES, &row, sizeof(row));
  ingot_layout_function_t *function = current_function(builder);
  if (result) ++function->result_count;
  else ++function->argument_count;
}

void builder_kind(builder_t *builder, uint32_t kind) {
  const builder_bytes_t *values = &builder->sections[INGOT_SECTION_VALUES];
  ((ingot_layout_value_t *)(void *)(values->data + values->length))[-1].kind = (uint8_t)kind;
}

uint32_t builder_parameter(builder_t *builder, const char *key, ingot_dtype_t dtype, uint32_t rank,
                           const int64_t *dims) {
  ingot_layout_parameter_t row = {
      .key = builder_string(builder, key),
      .first_dim = append_dims(builder, rank, dims),
      .rank = (uint16_t)rank,
      .dtype = (uint16_t)dtype,
  };
  return append_row(builder, INGOT_SECTION_PARAMETERS, &row, sizeof(row));
}

uint32_t builder_variable(builder_t *builder, const char *name, ingot_dtype_t dtype, uint32_t rank,
                          const int64_t *dims, uint64_t offset, uint64_t length) {
  ingot_layout_variable_t row = {
      .name = builder_string(builder, name),
      .first_dim = append_dims(builder, rank, dims),
      .rank = (uint16_t)rank,
      .dtype = (uint16_t)dtype,
      .offset = offset,
      .length = length,
  };
  return append_row(builder, INGOT_SECTION_VARIABLES, &row, sizeof(row));
}

void builder_reference(builder_t *builder, uint32_t behind, const char *type) {
  const builder_bytes_t *values = &builder->sections[INGOT_SECTION_VALUES];
  ingot_layout_value_t *value =
      (ingot_layout_value_t *)(void *)(values->data + values->length) - 1 - behind;
  const ingot_layout_dim_t row = {-1, builder_string(builder, type), 0};
  value->kind = INGOT_VALUE_REFERENCE;
  value->first_dim = append_row(builder, INGOT_SECTION_DIMS, &row, sizeof(row));
}

uint32_t builder_native(builder_t *builder, const char *name, const char *signature,
                        const builder_tensor_t *tensors, uint32_t argument_count,
                        uint32_t result_count, uint64_t decided) {
  const builder_bytes_t *values = &builder->sections[INGOT_SECTION_VALUES];
  ingot_layout_native_t row = {
      .name = builder_string(builder, name),
      .signature = builder_string(builder, signature),
      .first_value = (uint32_t)(values->length / sizeof(ingot_layout_value_t)),
      .argument_count = argument_count,
      .result_count = result_count,
      .decided = decided,
  };
  for (uint32_t k = 0; k < argument_count + result_count; ++k) {
    ingot_layout_value_t value = {
        .first_dim = append_dims(builder, tensors[k].rank, tensors[k].dims),
        .rank = (uint8_t)tensors[k].rank,
        .dtype = (uint16_t)tensors[k].dtype,
    };
    append_row(builder, INGOT_SECTION_VALUES, &value, sizeof(value));
  }
  return append_row(builder, INGOT_SECTION_NATIVES, &row, sizeof(row));
}

void builder_optional(builder_t *builder) {
  builder_bytes_t *natives = &builder->sections[INGOT_SECTION_NATIVES];
  ((ingot_layout_native_t *)(void *)(natives->data + natives->length))[-1].flags =
      INGOT_NATIVE_OPTIONAL;
}

void builder_version(builder_t *builder, const char *name, uint32_t number) {
  const ingot_layout_version_t row = {builder_string(builder, name), number};
  append_row(builder, INGOT_SECTION_VERSIONS, &row, sizeof(row));
}

uint64_t builder_constants(builder_t *builder, const void *data, size_t length) {
  uint64_t offset = builder->sections[INGOT_SECTION_CONSTANTS].length;
  append(&builder->sections[INGOT_SECTION_CONSTANTS], data, length);
  return offset;
}

uint32_t builder_kernel(builder_t *builder, const char *name, uint32_t binding_count,
                        uint32_t constant_count, uint64_t written) {
  ingot_layout_entry_t entry = {
      .name = builder_string(builder, name),
      .layer = builder_string(builder, "net/first"), /* where it is used first */
      .binding_count = binding_count,
      .constant_count = constant_count,
      .written = written,
  };
  uint32_t ordinal = append_row(builder, INGOT_SECTION_ENTRIES, &entry, sizeof(entry));
  ingot_layout_executable_t executable = {
      .name = builder_string(builder, name),
      .target = builder_string(builder, "cpu"),
      .first_entry = ordinal,
      .entry_count = 1,
  };
  append_row(builder, INGOT_SECTION_EXECUTABLES, &executable, sizeof(executable));
  return ordinal;
}

void builder_variant(builder_t *builder, const char *format, uint64_t features, const void *data,
                     size_t length) {
  static const uint8_t zero[INGOT_MODULE_ALIGNMENT] = {0};
  builder_bytes_t *objects = &builder->sections[INGOT_SECTION_OBJECTS];
  append(objects, zero, (0 - objects->length) % INGOT_MODULE_ALIGNMENT);
  ingot_layout_variant_t row = {
      .format = builder_string(builder, format),
      .name = builder_string(builder, "test"),
      .features = features,
      .offset = objects->length,
      .length = length,
  };
  append(objects, data, length);
  builder_bytes_t *section = &builder->sections[INGOT_SECTION_EXECUTABLES];
  ingot_layout_executable_t *executable =
      (ingot_layout_executable_t *)(void *)(section->data + section->length) - 1;
  executable->first_variant = append_row(builder, INGOT_SECTION_VARIANTS, &row, sizeof(row));
  executable->variant_count = 1;
}

void builder_location(builder_t *builder, const char *op, const char *layer) {
  ingot_layout_location_t row = {
      .word = builder->sections[INGOT_SECTION_CODE].length / 2,
      .layer = builder_string(builder, layer),
      .op = builder_string(builder, op),
  };
  append_row(builder, INGOT_SECTION_LOCATIONS, &row, sizeof(row));
}

/* -- instructions ------------------------------------------------------------------------------ */

uint32_t builder_word(const builder_t *builder) {
  return (uint32_t)(builder->sections[INGOT_SECTION_CODE].length / 2 -
                    current_function(builder)->code_offset);
}

static void append_words(builder_t *builder, int64_t value, size_t count) {
  append(&builder->sections[INGOT_SECTION_CODE], &value, 2 * count);
}

uint32_t builder_emit(builder_t *builder, uint32_t code, const int64_t *operands, size_t count) {
  uint32_t start = builder_word(builder);
  const char *letters = ingot_instruction_operands(code);
  size_t at = 0;
  append_words(builder, code, 1);
  while (letters && *letters) {
    char letter = *letters++;
    bool list = *letters == '*';
    size_t items = 1;
    letters += list;
    if (list || letter == 'b') {
      if (at >= count) abort();
      items = (size_t)operands[at++] * (letter == 'b' ? 3 : 1);
      append_words(builder, operands[at - 1], 1);
    }
    size_t width = letter == 'k' || letter == 'x' ? 4 : letter == 's' || letter == 't' ? 2 : 1;
    for (; items > 0; --items) {
      if (at >= count) abort();
      append_words(builder, operands[at++], width);
    }
  }
  if (at != count) abort();
  current_function(builder)->code_length = builder_word(builder);
  return start;
}

void builder_set_target(builder_t *builder, uint32_t word) {
  uint32_t target = builder_word(builder);
  size_t at = (size_t)(current_function(builder)->code_offset + word) * 2;
  memcpy(builder->sections[INGOT_SECTION_CODE].data + at, &target, sizeof(target));
}

int64_t builder_f64(double value) {
  int64_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/* -- the file ---------------------------------------------------------------------------------- */

void builder_seal(uint8_t *data, size_t length) {
  ingot_layout_header_t *header = (ingot_layout_header_t *)(void *)data;
  ingot_layout_section_t *sections = (ingot_layout_section_t *)(void *)(header + 1);
  if (length < sizeof(*header)) return;
  if (header->section_count > (length - sizeof(*header)) / sizeof(*sections)) return;
  for (uint32_t i = 0; i < header->section_count; ++i) {
    if (sections[i].offset > length || sections[i].length > length - sections[i].offset) continue;
    sections[i].crc = ingot_crc32(0, data + sections[i].offset, (size_t)sections[i].length);
  }
  header->crc = 0;
  header->crc = ingot_crc32(0, data, sizeof(*header) + header->section_count * sizeof(*sections));
}

builder_bytes_t builder_finish(builder_t *builder) {
  builder_bytes_t file = {NULL, 0};
  static const uint8_t zero[INGOT_MODULE_ALIGNMENT] = {0};
  ingot_layout_section_t table[BUILDER_SECTIONS];
  uint32_t count = 0;
  for (uint32_t kind = 1; kind < BUILDER_SECTIONS; ++kind) {
    if (builder->sections[kind].length > 0) table[count++].kind = kind;
  }
  ingot_layout_header_t header = {
      .magic = INGOT_MODULE_MAGIC,
      .version_major = INGOT_MODULE_VERSION_MAJOR,
      .section_count = count,
      .global_count = builder->global_count,
  };
  append(&file, &header, sizeof(header));
  append(&file, table, count * sizeof(*table));
  for (uint32_t i = 0; i < count; ++i) {
    builder_bytes_t *section = &builder->sections[table[i].kind];
    append(&file, zero, (0 - file.length) % INGOT_MODULE_ALIGNMENT);
    table[i].offset = file.length;
    table[i].length = section->length;
    append(&file, section->data, section->length);
  }
  header.file_length = file.length;
  memcpy(file.data, &header, sizeof(header));
  memcpy(file.data + sizeof(header), table, count * sizeof(*table));
  builder_seal(file.data, file.length);
  for (uint32_t kind = 0; kind < BUILDER_SECTIONS; ++kind) free(builder->sections[kind].data);
  return file;
}

/* -- whole modules ----------------------------------------------------------------------------- */

/* bindings: x, y; y = x + 1; a workgroup is 64 elements. It trusts no workload, unlike
 * generated kernels, because tests change the code around it at random. */
static uint32_t INGOT_KERNEL_CALL add_one(const ingot_kernel_dispatch_t *dispatch, int64_t x,
                                          int64_t y, int64_t z, void *scratch,
                                          ingot_kernel_fault_t *fault) {
  const float *from = dispatch->bindings[0];
  float *to = dispatch->bindings[1];
  bool aligned = (uintptr_t)from % sizeof(*from) == 0 && (uintptr_t)to % sizeof(*to) == 0;
  (void)scratch;
  int64_t end = dispatch->workload[0];
  for (int b = 0; b < 2; ++b) end = dispatch->lengths[b] / 4 < end ? dispatch->lengths[b] / 4 : end;
  if (x >= end || y > 1000 || z > 1000 || !aligned) {
    *fault = (ingot_kernel_fault_t){INGOT_FAULT_INDEX_OUT_OF_RANGE, 0, x, end};
    return x == 0 && y == 0 && z == 0 && aligned ? INGOT_FAULT_NONE : fault->code;
  }
  for (int64_t i = 64 * x; i < 64 * x + 64 && i < end; ++i) {
    if (from[i] == 666.0f) {
      *fault = (ingot_kernel_fault_t){INGOT_FAULT_INDEX_OUT_OF_RANGE, 1, 30523, 30522};
      return fault->code;
    }
    to[i] = from[i] + 1.0f;
  }
  return INGOT_FAULT_NONE;
}

static uint32_t INGOT_KERNEL_CALL any_fits(const ingot_kernel_dispatch_t *dispatch) {
  (void)dispatch;
  return 0;
}

const ingot_kernel_library_t *INGOT_KERNEL_CALL builder_add_one_query(uint32_t abi_version) {
  static const ingot_kernel_entry_t entry = {add_one, {64, 1, 1}, 0, any_fits, 2, 2, 0};
  static const ingot_kernel_library_t library = {INGOT_KERNEL_ABI_VERSION, 1, &entry};
  return abi_version == INGOT_KERNEL_ABI_VERSION ? &library : NULL;
}

builder_bytes_t builder_add_one_module(void) {
  builder_t builder = builder_create();
  uint32_t kernel = builder_kernel(&builder, "add_one", 2, 0, 2);
  builder_add_one_main(&builder, kernel);
  return builder_finish(&builder);
}

void builder_add_one_main(builder_t *builder, uint32_t kernel) {
  const int64_t dims[1] = {4};
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, dims);
  builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, dims);
  EMIT(CONST_I64, 0, 4);
  EMIT(CONST_I64, 1, 1);
  EMIT(CONST_I64, 2, 16);
  EMIT(ARGUMENT_BUFFER, 0, 3, 0);
  EMIT(RESULT_BUFFER, 1, 4, 0, 1, 0);
  builder_location(builder, "Add", "net/add");
  EMIT(DISPATCH, kernel, 0, 1, 1, 0, 2, 0, 2, 0, 3, 2, 1, 4, 2);
  EMIT(RETURN, 0, 0, 0);
}

builder_bytes_t builder_slab_module(void) {
  builder_t builder[1] = {builder_create()};
  const int64_t symbolic[1] = {-1};
  uint32_t kernel = builder_kernel(builder, "add_one", 2, 0, 2);
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, symbolic);
  builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, symbolic);
  builder_location(builder, "", "");
  EMIT(ARGUMENT_DIM, 0, 0, 0);
  EMIT(CONST_I64, 1, 1);
  EMIT(CONST_I64, 2, 4);
  EMIT(MUL_SIZE, 3, 0, 2);
  EMIT(CONST_I64, 4, 64);
  EMIT(ADD_SIZE, 5, 3, 4);
  EMIT(SLAB, 0, 6, 5);
  EMIT(ARGUMENT_BUFFER, 1, 7, 0);
  builder_location(builder, "Add", "net/narrow");
  EMIT(DISPATCH, kernel, 0, 1, 1, 0, 3, 0, 2, 1, 7, 3, 0, 6, 3);
  EMIT(RESULT_BUFFER, 2, 8, 0, 1, 0);
  builder_location(builder, "Add", "net/wide");
  EMIT(DISPATCH, kernel, 0, 1, 1, 0, 3, 0, 2, 0, 6, 5, 2, 8, 3);
  EMIT(RETURN, 0, 0, 0);
  return builder_finish(builder);
}

builder_bytes_t builder_sum_module(void) {
  builder_t builder[1] = {builder_create()};
  const int64_t dims[1] = {1};
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_I64, 1, dims);
  builder_value(builder, true, "y", INGOT_DTYPE_I64, 1, dims);
  EMIT(ARGUMENT_BUFFER, 0, 30, 0);
  EMIT(READ_I64, 0, 0, 30, INGOT_DTYPE_I64);
  EMIT(CONST_I64, 1, 0);
  EMIT(CONST_I64, 2, 0);
  EMIT(CONST_I64, 3, 1);
  uint32_t head = EMIT(LT_I64, 4, 1, 0);
  uint32_t branch = EMIT(BRANCH_IF, 4, 0, 0);
  builder_set_target(builder, branch + 2);
  EMIT(ADD_I64, 1, 1, 3);
  EMIT(ADD_I64, 2, 2, 1);
  EMIT(BRANCH, head);
  builder_set_target(builder, branch + 4);
  EMIT(RESULT_BUFFER, 1, 30, 0, 1, 3);
  EMIT(WRITE_I64, 1, 30, 2, INGOT_DTYPE_I64);
  EMIT(RETURN, 0, 0, 0);
  return builder_finish(builder);
}

/* Loads the parameter, adds one into an arena, keeps that as global 0. */
static void build_init(builder_t *builder, uint32_t kernel, uint32_t parameter) {
  builder_function(builder, "init", INGOT_FUNCTION_INIT);
  EMIT(CONST_I64, 0, 4);
  EMIT(CONST_I64, 1, 1);
  EMIT(CONST_I64, 2, 16);
  EMIT(PARAMETER, 0, 3, parameter);
  EMIT(ARENA, 1, 4, 2);
  EMIT(DISPATCH, kernel, 0, 1, 1, 0, 2, 0, 2, 0, 3, 2, 1, 4, 2);
  EMIT(GLOBAL_STORE, 1, 0);
  EMIT(RETURN, 0, 0, 0);
}

/* Every instruction on lists, with elements of 16 bytes from reference 5; register 1 is 1. */
static void emit_lists(builder_t *builder) {
  EMIT(LIST_CLEAR, 0);
  EMIT(CONST_I64, 18, 0);
  for (int element = 0; element < 3; ++element) EMIT(LIST_INSERT, 0, 18, 5, 18, 13, 1, 12);
  EMIT(LIST_COPY, 1, 0);
  EMIT(LIST_ERASE, 1, 1);
  EMIT(LIST_SWAP, 1, 0);
  EMIT(LIST_LENGTH, 19, 1);
  EMIT(LIST_DIM, 20, 0, 1, 0);
  EMIT(LIST_GET, 9, 21, 1, 18);
  EMIT(LIST_SET, 1, 9, 21, 13, 1, 12);
  EMIT(LIST_EXTEND, 1, 5, 18, 13, 12);
  EMIT(LIST_SWAP, 0, 1); /* back: the next call finds each list's memory where it was */
}

builder_bytes_t builder_full_module(void) {
  builder_t builder[1] = {builder_create()};
  const int64_t symbolic[1] = {-1};
  const int64_t four[1] = {4};
  uint32_t kernel = builder_kernel(builder, "add_one", 2, 0, 2);
  uint32_t parameter = builder_parameter(builder, "bias", INGOT_DTYPE_F32, 1, four);
  uint32_t message = builder_string(builder, "dim 0 is {}, expected at most {}");
  const float constants[4] = {1, 2, 3, 4};
  builder->global_count = 1;
  (void)builder_constants(builder, constants, sizeof(constants));
  uint32_t history = builder_variable(builder, "history", INGOT_DTYPE_F32, 1, four, 0, 16);
  uint32_t calls = builder_variable(builder, "count", INGOT_DTYPE_I64, 0, NULL, 0, 0);
  append(&builder->sections[INGOT_SECTION_METADATA], "{\"a\":1}", 7);
  build_init(builder, kernel, parameter);
  builder_function(builder, "main", INGOT_FUNCTION_EXPORTED);
  builder_value(builder, false, "x", INGOT_DTYPE_F32, 1, symbolic);
  builder_value(builder, true, "y", INGOT_DTYPE_F32, 1, symbolic);
  builder_value(builder, true, "z", INGOT_DTYPE_F32, 1, four);
  EMIT(ARGUMENT_DIM, 0, 0, 0);
  EMIT(CONST_I64, 1, 1);
  EMIT(CONST_I64, 2, 1000);
  EMIT(LE_I64, 3, 0, 2);
  EMIT(ASSERT, 3, INGOT_STATUS_INVALID_ARGUMENT, message, 2, 0, 2);
  EMIT(ADD_I64, 4, 0, 0);
  EMIT(ADD_I64, 5, 4, 4); /* 4 n = bytes */
  EMIT(SLAB, 0, 6, 5);
  EMIT(ARGUMENT_BUFFER, 1, 7, 0);
  EMIT(DISPATCH, kernel, 0, 1, 1, 0, 5, 0, 2, 1, 7, 5, 0, 6, 5); /* slab = x + 1 */
  EMIT(RESULT_BUFFER, 2, 8, 0, 1, 0);
  EMIT(CONST_I64, 9, 0);
  uint32_t loop = EMIT(DISPATCH, kernel, 0, 1, 1, 0, 5, 0, 2, 0, 6, 5, 2, 8, 5);
  EMIT(ADD_I64, 9, 9, 1);
  EMIT(CONST_I64, 10, 3);
  EMIT(LT_I64, 11, 9, 10);
  uint32_t branch = EMIT(BRANCH_IF, 11, loop, 0);
  builder_set_target(builder, branch + 4);
  EMIT(CONST_I64, 12, 4);
  EMIT(CONST_I64, 13, 16);
  EMIT(RESULT_BUFFER, 3, 14, 1, 1, 12);
  EMIT(GLOBAL_LOAD, 4, 0);
  EMIT(CONSTANTS, 5);
  EMIT(COPY, 5, 9, 3, 14, 9); /* three bytes, soon overwritten; offset 3 is fine for bytes */
  EMIT(CONST_I64, 15, 0);
  EMIT(COPY, 4, 15, 3, 14, 13);
  emit_lists(builder);
  EMIT(VARIABLE_READ, 6, 16, calls);
  EMIT(READ_I64, 17, 6, 16, INGOT_DTYPE_I64);
  EMIT(ADD_I64, 17, 17, 1);
  EMIT(VARIABLE_WRITE, 7, 16, calls);
  EMIT(WRITE_I64, 7, 16, 17, INGOT_DTYPE_I64);
  EMIT(VARIABLE_WRITE, 8, 16, history);
  EMIT(DISPATCH, kernel, 0, 1, 1, 0, 5, 0, 2, 5, 15, 13, 8, 16, 13);
  EMIT(RETURN, 0, 0, 0);
  return builder_finish(builder);
}
