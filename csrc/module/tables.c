/* The tables of a module: every string offset, ordinal, count, dtype and range in them is
 * checked here once, so that nobody checks them again. Bytecode is verify.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/dtype.h"
#include "base/text.h"
#include "module/module.h"

#define MAX_REGISTERS 65536u /* operands are u16 */

static ingot_status_t row_damaged(const ingot_module_t *module, const char *kind, uint32_t row,
                                  const char *what) {
  return ingot_module_damaged(module, "%s %u has bad %s", kind, row, what);
}

/* Whether `length` bytes are UTF-8 without overlong forms and surrogates. */
static bool is_utf8(const uint8_t *text, uint64_t length) {
  for (uint64_t i = 0; i < length;) {
    uint8_t lead = text[i++];
    if (lead < 0x80) continue;
    uint32_t count = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || length - i < count) return false;
    uint32_t point = lead & (0x3Fu >> count);
    for (uint32_t k = 0; k < count; ++k, ++i) {
      if ((text[i] & 0xC0) != 0x80) return false;
      point = point << 6 | (text[i] & 0x3Fu);
    }
    static const uint32_t least[4] = {0, 0x80, 0x800, 0x10000};
    if (point < least[count] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
      return false;
    }
  }
  return true;
}

static ingot_status_t check_strings(const ingot_module_t *module) {
  const uint8_t *text = (const uint8_t *)module->strings;
  if (module->strings_length == 0 || text[0] != 0 || text[module->strings_length - 1] != 0 ||
      !is_utf8(text, module->strings_length)) {
    return ingot_module_damaged(module,
                                "its string section is not UTF-8 or does not start and "
                                "end with NUL");
  }
  if (!is_utf8((const uint8_t *)module->metadata, module->metadata_length)) {
    return ingot_module_damaged(module, "its metadata is not UTF-8");
  }
  return NULL;
}

static bool string_fits(const ingot_module_t *module, uint32_t offset) {
  return offset < module->strings_length;
}

bool ingot_module_name_fits(const ingot_module_t *module, uint32_t offset) {
  if (!string_fits(module, offset)) return false;
  size_t length = module->strings_length - offset; /* the last byte is NUL */
  if (length > INGOT_MODULE_MAX_NAME) length = INGOT_MODULE_MAX_NAME;
  return memchr(module->strings + offset, 0, length) != NULL;
}

/* rank, dtype and dims of a value or parameter. */
static bool tensor_fits(const ingot_module_t *module, uint32_t first_dim, uint32_t rank,
                        ingot_dtype_t dtype) {
  return rank <= INGOT_MAX_RANK && ingot_dtype_name(dtype) &&
         ingot_range_fits_u64(first_dim, rank, module->dim_count);
}

/* A reference is a handle, and a dim that has the type: a word of signatures. */
static bool reference_fits(const ingot_module_t *module, const ingot_layout_value_t *value) {
  if (value->first_dim >= module->dim_count || value->rank || value->dtype != INGOT_DTYPE_I64) {
    return false;
  }
  const char *type = ingot_module_reference_type(module, value);
  return ingot_module_name_fits(module, module->dims[value->first_dim].text) && *type &&
         !type[strcspn(type, " ,()[]->")];
}

static ingot_status_t check_values(const ingot_module_t *module) {
  for (uint32_t i = 0; i < module->dim_count; ++i) {
    const ingot_layout_dim_t *dim = &module->dims[i];
    if (dim->size < -1 || dim->reserved != 0 || !string_fits(module, dim->text)) {
      return row_damaged(module, "dim", i, "size, text or reserved field");
    }
  }
  for (uint32_t i = 0; i < module->value_count; ++i) {
    const ingot_layout_value_t *value = &module->values[i];
    /* Only of sequences and optionals the rank may be open, and is 0 then. */
    bool open = value->kind & INGOT_VALUE_ANY_RANK;
    bool kind_fits = value->kind < 2 * INGOT_VALUE_ANY_RANK &&
                     (!open || (value->kind > INGOT_VALUE_ANY_RANK && value->rank == 0));
    if (value->kind == INGOT_VALUE_REFERENCE) kind_fits = reference_fits(module, value);
    if (!kind_fits || !tensor_fits(module, value->first_dim, value->rank, value->dtype) ||
        !string_fits(module, value->name) || !string_fits(module, value->doc)) {
      return row_damaged(module, "value", i, "kind, dims, dtype or texts");
    }
  }
  for (uint32_t i = 0; i < module->parameter_count; ++i) {
    const ingot_layout_parameter_t *parameter = &module->parameters[i];
    bool fits = tensor_fits(module, parameter->first_dim, parameter->rank, parameter->dtype) &&
                ingot_module_name_fits(module, parameter->scope) &&
                ingot_module_name_fits(module, parameter->key);
    for (uint32_t d = 0; fits && d < parameter->rank; ++d) {
      fits = module->dims[parameter->first_dim + d].size >= 0;
    }
    if (!fits) return row_damaged(module, "parameter", i, "dims, dtype or texts");
  }
  return NULL;
}

/* Registers, tensors and code range of one function. Code and tensors belong to one function
 * each: what is checked per function stays linear in the file. */
static bool function_fits(const ingot_module_t *module, const ingot_layout_function_t *function) {
  bool fits =
      ingot_module_name_fits(module, function->name) && string_fits(module, function->doc) &&
      ingot_module_name_fits(module, function->target) && function->i64_count <= MAX_REGISTERS &&
      function->f64_count <= MAX_REGISTERS && function->ref_count <= MAX_REGISTERS &&
      ingot_range_fits_u64(function->code_offset, function->code_length, module->code_length) &&
      function->code_length > 0 && function->code_length <= UINT32_MAX;
  uint64_t tensors = (uint64_t)function->argument_count + function->result_count;
  fits = fits && ingot_range_fits_u64(function->first_value, tensors, module->value_count);
  for (uint32_t k = 0; k < 6; ++k) fits = fits && function->reserved[k] == 0;
  return fits && (function->flags == INGOT_FUNCTION_EXPORTED ||
                  (function->flags == INGOT_FUNCTION_INIT && tensors == 0));
}

/* Functions are told apart by target and name, variables and natives by name. */
typedef struct table_name_t {
  const char *target;
  const char *name;
} table_name_t;

static int compare_names(const void *a, const void *b) {
  const table_name_t *left = a;
  const table_name_t *right = b;
  int order = strcmp(left->target, right->target);
  return order ? order : strcmp(left->name, right->name);
}

/* Sorts `names`. `kind` is what messages call them. */
static ingot_status_t check_unique(const ingot_module_t *module, const char *kind,
                                   table_name_t *names, uint32_t count) {
  qsort(names, count, sizeof(*names), compare_names);
  for (uint32_t i = 1; i < count; ++i) {
    if (compare_names(&names[i - 1], &names[i]) != 0) continue;
    return ingot_module_damaged(module, "it has two %s '%s'%s%s", kind, names[i].name,
                                names[i].target[0] ? " for target " : "", names[i].target);
  }
  return NULL;
}

static ingot_status_t check_table_names(const ingot_module_t *module) {
  const ingot_allocator_t *allocator = &module->instance->allocator;
  void *memory = NULL;
  uint32_t function_count = module->function_count;
  INGOT_TRY(ingot_allocate_array(
      allocator, (size_t)function_count + module->variable_count + module->native_count,
      sizeof(table_name_t), &memory));
  table_name_t *names = memory;
  for (uint32_t i = 0; i < function_count; ++i) {
    names[i].target = ingot_module_string(module, module->functions[i].target);
    names[i].name = ingot_module_string(module, module->functions[i].name);
  }
  table_name_t *variable_names = names + function_count;
  for (uint32_t i = 0; i < module->variable_count; ++i) {
    variable_names[i].target = "";
    variable_names[i].name = ingot_module_string(module, module->variables[i].name);
  }
  table_name_t *native_names = variable_names + module->variable_count;
  for (uint32_t i = 0; i < module->native_count; ++i) {
    native_names[i].target = "";
    native_names[i].name = ingot_module_string(module, module->natives[i].name);
  }
  ingot_status_t status = check_unique(module, "functions", names, function_count);
  if (!status) {
    status = check_unique(module, "variables", variable_names, module->variable_count);
  }
  if (!status) {
    status = check_unique(module, "native functions", native_names, module->native_count);
  }
  ingot_release_memory(allocator, memory);
  return status;
}

static ingot_status_t check_functions(const ingot_module_t *module) {
  if ((module->code_length > 0) && (uintptr_t)module->code % sizeof(uint16_t) != 0) {
    return ingot_module_damaged(module, "its code is not aligned");
  }
  uint64_t code_end = 0;
  uint64_t value_end = 0;
  for (uint32_t i = 0; i < module->function_count; ++i) {
    const ingot_layout_function_t *function = &module->functions[i];
    uint64_t tensors = (uint64_t)function->argument_count + function->result_count;
    if (!function_fits(module, function) || function->code_offset < code_end ||
        (tensors && function->first_value < value_end)) {
      return row_damaged(module, "function", i, "flags, counts, ranges or texts");
    }
    code_end = function->code_offset + function->code_length;
    if (tensors) value_end = function->first_value + tensors;
  }
  return NULL;
}

/* The initial value is the tensor's bytes, an element's, or zeros. */
static ingot_status_t check_variables(const ingot_module_t *module) {
  for (uint32_t i = 0; i < module->variable_count; ++i) {
    const ingot_layout_variable_t *variable = &module->variables[i];
    int64_t dims[INGOT_MAX_RANK];
    int64_t length = 0;
    bool fits = tensor_fits(module, variable->first_dim, variable->rank, variable->dtype) &&
                ingot_module_name_fits(module, variable->name) &&
                string_fits(module, variable->doc);
    for (uint32_t d = 0; fits && d < variable->rank; ++d) {
      dims[d] = module->dims[variable->first_dim + d].size;
      if (d == 0 && variable->length == 0 && dims[d] < 0) dims[d] = 1;
      fits = dims[d] >= 0;
    }
    fits = fits && ingot_dtype_tensor_length(variable->dtype, variable->rank, dims, &length);
    if (!fits) return row_damaged(module, "variable", i, "dims, dtype or texts");
    if (variable->length == 0) continue;
    uint64_t element = ingot_dtype_length(variable->dtype);
    bool is_element = variable->length == element && element <= sizeof(uint64_t);
    if ((variable->length != (uint64_t)length && !is_element) ||
        !ingot_range_fits_u64(variable->offset, variable->length, module->constants_length)) {
      return row_damaged(module, "variable", i, "initial bytes");
    }
  }
  return NULL;
}

/* Whether a dim of a result is one that the function decides: a symbol that no argument has. */
static bool decides_dim(const ingot_module_t *module, const ingot_layout_native_t *native,
                        const ingot_layout_dim_t *dim) {
  const char *text = ingot_module_string(module, dim->text);
  if (dim->size >= 0 || text[strcspn(text, " *+-(,")] != 0) return false;
  for (uint32_t k = 0; k < native->argument_count; ++k) {
    const ingot_layout_value_t *value = &module->values[native->first_value + k];
    for (uint32_t d = 0; d < value->rank; ++d) {
      const ingot_layout_dim_t *known = &module->dims[value->first_dim + d];
      if (strcmp(ingot_module_string(module, known->text), text) == 0) return false;
    }
  }
  return true;
}

/* Whether the signature's text, which programs compare, says what the tensors are, and `decided`
 * what the function decides. */
static bool signature_fits(const ingot_module_t *module, const ingot_layout_native_t *native) {
  const char *at = ingot_module_string(module, native->signature);
  bool fits = ingot_text_take(&at, "(");
  for (uint32_t k = 0; k < native->argument_count + native->result_count; ++k) {
    const ingot_layout_value_t *value = &module->values[native->first_value + k];
    bool decided = false;
    if (k == native->argument_count) fits = fits && ingot_text_take(&at, ") -> (");
    else if (k > 0) fits = fits && ingot_text_take(&at, ", ");
    const char *type = ingot_module_reference_type(module, value);
    fits = fits && ingot_text_take(&at, *type ? "&" : ingot_dtype_name(value->dtype)) &&
           ingot_text_take(&at, *type ? type : "[");
    for (uint32_t d = 0; fits && d < value->rank; ++d) {
      const ingot_layout_dim_t *dim = &module->dims[value->first_dim + d];
      char number[24];
      (void)snprintf(number, sizeof(number), "%lld", (long long)dim->size);
      fits = (d == 0 || ingot_text_take(&at, ",")) && ingot_module_name_fits(module, dim->text) &&
             ingot_text_take(&at, dim->size < 0 ? ingot_module_string(module, dim->text) : number);
      decided |= fits && k >= native->argument_count && decides_dim(module, native, dim);
    }
    fits = fits && (*type || ingot_text_take(&at, "]"));
    if (k >= native->argument_count) {
      fits = fits && decided == (native->decided >> (k - native->argument_count) & 1);
    }
  }
  if (native->result_count == 0) fits = fits && ingot_text_take(&at, ") -> (");
  return fits && strcmp(at, ")") == 0;
}

/* What it calls of others: native functions, which take and give tensors and references only, and
 * modules. */
static ingot_status_t check_imports(const ingot_module_t *module) {
  for (uint32_t i = 0; i < module->native_count; ++i) {
    const ingot_layout_native_t *native = &module->natives[i];
    uint64_t tensors = (uint64_t)native->argument_count + native->result_count;
    bool fits = ingot_module_name_fits(module, native->name) &&
                ingot_module_name_fits(module, native->signature) &&
                native->flags <= INGOT_NATIVE_OPTIONAL && tensors <= INGOT_ENTRY_MAX_BINDINGS &&
                ingot_range_fits_u64(native->first_value, tensors, module->value_count) &&
                (native->result_count == 64 || native->decided >> native->result_count == 0);
    for (uint64_t k = 0; fits && k < tensors; ++k) {
      fits = (module->values[native->first_value + k].kind & ~INGOT_VALUE_REFERENCE) == 0;
    }
    if (!fits || !signature_fits(module, native)) {
      return row_damaged(module, "native function", i, "values or texts");
    }
  }
  for (uint32_t i = 0; i < module->version_count; ++i) {
    if (ingot_module_name_fits(module, module->versions[i].name)) continue;
    return row_damaged(module, "version", i, "texts");
  }
  return NULL;
}

static ingot_status_t check_entries(const ingot_module_t *module) {
  for (uint32_t i = 0; i < module->entry_count; ++i) {
    const ingot_layout_entry_t *entry = &module->entries[i];
    uint64_t region = entry->region_length;
    uint64_t unused = entry->binding_count < 64 ? ~UINT64_C(0) << entry->binding_count : 0;
    if (!string_fits(module, entry->name) || !string_fits(module, entry->layer) ||
        entry->binding_count > INGOT_ENTRY_MAX_BINDINGS || (entry->written & unused) != 0 ||
        entry->constant_count > UINT16_MAX ||
        (region && !ingot_range_fits_u64(entry->region_offset, region, module->regions_length))) {
      return row_damaged(module, "kernel entry", i, "bindings, constants, region or texts");
    }
  }
  uint64_t end = 0;
  for (uint32_t i = 0; i < module->variant_count; ++i) {
    const ingot_layout_variant_t *variant = &module->variants[i];
    if (!ingot_module_name_fits(module, variant->format) ||
        !ingot_module_name_fits(module, variant->name) ||
        variant->offset % INGOT_MODULE_ALIGNMENT != 0 || variant->offset < end ||
        !ingot_range_fits_u64(variant->offset, variant->length, module->objects_length)) {
      return row_damaged(module, "variant", i, "range or texts");
    }
    end = variant->offset + variant->length;
  }
  return NULL;
}

/* Every entry and every variant belongs to one executable, in order. */
static ingot_status_t check_executables(const ingot_module_t *module) {
  uint32_t entries = 0;
  uint32_t variants = 0;
  for (uint32_t i = 0; i < module->executable_count; ++i) {
    const ingot_layout_executable_t *executable = &module->executables[i];
    if (!ingot_module_name_fits(module, executable->name) ||
        !ingot_module_name_fits(module, executable->target) || executable->first_entry != entries ||
        executable->first_variant != variants ||
        executable->entry_count > module->entry_count - entries ||
        executable->variant_count > module->variant_count - variants) {
      return row_damaged(module, "executable", i, "entries, variants or texts");
    }
    variants += executable->variant_count;
    entries += executable->entry_count;
  }
  if (entries == module->entry_count) return NULL;
  return row_damaged(module, "kernel entry", entries, "executable");
}

static ingot_status_t check_locations(const ingot_module_t *module) {
  uint64_t previous = 0;
  for (uint32_t i = 0; i < module->location_count; ++i) {
    const ingot_layout_location_t *location = &module->locations[i];
    if (location->word < previous || location->word >= module->code_length ||
        !string_fits(module, location->layer) || !string_fits(module, location->op)) {
      return row_damaged(module, "location", i, "word or texts");
    }
    previous = location->word;
  }
  return NULL;
}

ingot_status_t ingot_module_number_entries(ingot_module_t *module) {
  void *memory = NULL;
  INGOT_TRY(ingot_allocate_array(&module->instance->allocator, module->entry_count,
                                 sizeof(*module->entry_executables), &memory));
  module->entry_executables = memory;
  for (uint32_t i = 0; i < module->executable_count; ++i) {
    const ingot_layout_executable_t *executable = &module->executables[i];
    for (uint32_t e = 0; e < executable->entry_count; ++e) {
      module->entry_executables[executable->first_entry + e] = i;
    }
  }
  return NULL;
}

ingot_status_t ingot_module_check_tables(const ingot_module_t *module) {
  INGOT_TRY(check_strings(module));
  INGOT_TRY(check_values(module));
  INGOT_TRY(check_functions(module));
  INGOT_TRY(check_variables(module));
  INGOT_TRY(check_imports(module));
  INGOT_TRY(check_table_names(module));
  INGOT_TRY(check_entries(module));
  INGOT_TRY(check_executables(module));
  return check_locations(module);
}
