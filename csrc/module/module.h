/* A module as the runtime uses it: the file's own tables in place, plus what load derived.
 *
 * After load every table has been validated (tables.c) and all bytecode verified
 * (verify.c), so that readers of this struct check nothing again: ordinals, string
 * offsets, ranks and dtypes in the tables are right, and code can be interpreted without
 * checks. It never changes after load.
 */
#ifndef INGOT_MODULE_MODULE_H_
#define INGOT_MODULE_MODULE_H_

#include "base/allocator.h"
#include "hal/hal.h"
#include "ingot/module_layout.h"
#include "module/file.h"

struct ingot_module_t {
  ingot_reference_count_t references;
  ingot_instance_t *instance;
  /* Sections; an absent one has count 0. */
  const char *strings;
  uint32_t strings_length; /* at least 1; the last byte is NUL */
  uint32_t function_count;
  const ingot_layout_function_t *functions;
  uint32_t value_count;
  uint32_t dim_count;
  const ingot_layout_value_t *values;
  const ingot_layout_dim_t *dims;
  const uint16_t *code;
  uint64_t code_length; /* words */
  const uint8_t *constants;
  uint64_t constants_length; /* bytes */
  uint32_t parameter_count;
  uint32_t executable_count;
  const ingot_layout_parameter_t *parameters;
  const ingot_layout_executable_t *executables;
  uint32_t entry_count;
  uint32_t variant_count;
  const ingot_layout_entry_t *entries;
  const ingot_layout_variant_t *variants;
  const uint8_t *objects;
  uint64_t objects_length;
  uint32_t location_count;
  uint32_t global_count;
  const ingot_layout_location_t *locations;
  uint32_t variable_count;
  const ingot_layout_variable_t *variables;
  uint32_t native_count;
  const ingot_layout_native_t *natives;
  uint32_t version_count;
  const ingot_layout_version_t *versions;
  uint64_t regions_length;
  const char *metadata;
  uint64_t metadata_length;

  /* Derived by load. */
  void *tables; /* what COMPRESSED_TABLES holds, or NULL */
  uint32_t *entry_executables; /* per entry: the ordinal of its executable */
  uint32_t list_count;         /* one more than the greatest ordinal of a list in the code */

  const uint8_t *data; /* the whole file */
  size_t length;
  ingot_file_t file;                /* opened by load_file, else empty */
  ingot_release_function_t release; /* of load_memory; may be NULL */
  void *user;
};

static inline const char *ingot_module_string(const ingot_module_t *module, uint32_t offset) {
  return module->strings + offset;
}

/* refuse.c: a DataLoss status. */
#if defined(INGOT_STRIP_MESSAGES)
#define ingot_module_damaged(module, ...) \
  ingot_status_create(&(module)->instance->allocator, INGOT_STATUS_DATA_LOSS, __VA_ARGS__)
#else
ingot_status_t ingot_module_damaged(const ingot_module_t *module, const char *format, ...)
    INGOT_PRINTF(2, 3);
#endif

/* Bytes of the VM's register files of `function`: 8 per register. */
static inline uint64_t ingot_module_register_bytes(const ingot_layout_function_t *function) {
  return 8 * ((uint64_t)function->i64_count + function->f64_count + function->ref_count);
}

/* The source location of a word of the code section, or NULL. */
const ingot_layout_location_t *ingot_module_find_location(const ingot_module_t *module,
                                                          uint64_t word);

/* How many results of a native function have dims that it decides, which are lists. */
static inline uint32_t ingot_module_decided_count(const ingot_layout_native_t *native) {
  return (uint32_t)__builtin_popcountll(native->decided);
}

/* The type of a value that is a reference, else "". */
const char *ingot_module_reference_type(const ingot_module_t *module,
                                        const ingot_layout_value_t *value);

/* Bytes of a variable; of one whose first dim is open with so many rows, or -1 if there cannot be
 * so many. */
int64_t ingot_module_variable_length(const ingot_module_t *module, uint32_t variable, int64_t rows);

/* container.c: header, section table, crcs; sets the section fields. */
ingot_status_t ingot_module_open_sections(ingot_module_t *module, bool verify_constants);

/* The range of the constants, if they are large: only these are mapped, so that nothing that
 * load checks can change behind its back. */
void ingot_module_choose_constants(const uint8_t *head, size_t length, uint64_t *begin,
                                   uint64_t *end);

/* tables.c: every cross reference of the tables. */
ingot_status_t ingot_module_check_tables(const ingot_module_t *module);

/* The same: sets entry_executables, when they are checked. */
ingot_status_t ingot_module_number_entries(ingot_module_t *module);

/* Whether there is a string at `offset` that is short enough for a name or a message: only
 * such are compared and searched. */
bool ingot_module_name_fits(const ingot_module_t *module, uint32_t offset);

/* verify.c: all bytecode; sets list_count. */
ingot_status_t ingot_module_verify_code(ingot_module_t *module);

#endif /* INGOT_MODULE_MODULE_H_ */
