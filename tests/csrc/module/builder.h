/* Builds module files by hand: a small assembler that reads the operand letters of
 * spec/op.def, and the tables around it. For tests; it aborts where a test is wrong.
 */
#ifndef INGOT_TESTS_BUILDER_H_
#define INGOT_TESTS_BUILDER_H_

#include <stddef.h>
#include <stdint.h>

#include "ingot/ingot.h"
#include "ingot/kernel_abi.h"
#include "ingot/module_layout.h"
#include "module/instruction.h"

#define BUILDER_SECTIONS (INGOT_SECTION_COMPRESSED_TABLES + 1)

typedef struct builder_bytes_t {
  uint8_t *data;
  size_t length;
} builder_bytes_t;

typedef struct builder_t {
  builder_bytes_t sections[BUILDER_SECTIONS]; /* by kind */
  uint32_t global_count;
} builder_t;

/* Starts with the empty string and nothing else. */
builder_t builder_create(void);

uint32_t builder_string(builder_t *builder, const char *text);

/* Starts a function; its fields may be changed through the result until the next one is
 * started. 32 registers of each kind; target "cpu". */
ingot_layout_function_t *builder_function(builder_t *builder, const char *name, uint32_t flags);

/* Arguments first, then results, behind builder_function. A dim -1 is symbolic. */
void builder_value(builder_t *builder, bool result, const char *name, ingot_dtype_t dtype,
                   uint32_t rank, const int64_t *dims);

/* Makes the last value a sequence or an optional: INGOT_VALUE_*. */
void builder_kind(builder_t *builder, uint32_t kind);

/* Makes a value, an i64 of rank 0 that has `behind` others behind it, a reference. */
void builder_reference(builder_t *builder, uint32_t behind, const char *type);

uint32_t builder_parameter(builder_t *builder, const char *key, ingot_dtype_t dtype, uint32_t rank,
                           const int64_t *dims);

/* Starts as `length` bytes of the constants at `offset`; 0: zeros. */
uint32_t builder_variable(builder_t *builder, const char *name, ingot_dtype_t dtype, uint32_t rank,
                          const int64_t *dims, uint64_t offset, uint64_t length);

/* A tensor that a native function takes or gives; a dim -1 is the symbol n, -2 is k. */
typedef struct builder_tensor_t {
  ingot_dtype_t dtype;
  uint32_t rank;
  int64_t dims[2];
} builder_tensor_t;

/* Behind all functions. `tensors`: arguments, then results; bit r of `decided`: it decides dims of
 * result r. */
uint32_t builder_native(builder_t *builder, const char *name, const char *signature,
                        const builder_tensor_t *tensors, uint32_t argument_count,
                        uint32_t result_count, uint64_t decided);

/* The function of that name, in the last row, may be missing. */
void builder_optional(builder_t *builder);

/* The module's version, with the name "", or the least of another module. */
void builder_version(builder_t *builder, const char *name, uint32_t number);

/* Appends to the constant section; returns the offset. */
uint64_t builder_constants(builder_t *builder, const void *data, size_t length);

/* One executable named `name` with one entry and no variant: its kernel is registered
 * statically. Returns the entry. */
uint32_t builder_kernel(builder_t *builder, const char *name, uint32_t binding_count,
                        uint32_t constant_count, uint64_t written);

/* Gives the last executable one variant with this object as code. */
void builder_variant(builder_t *builder, const char *format, uint64_t features, const void *data,
                     size_t length);

void builder_location(builder_t *builder, const char *op, const char *layer);

/* Appends an instruction to the current function; returns its first word. Operands are one
 * number each; a list is its count and then its items, a binding three numbers. */
uint32_t builder_emit(builder_t *builder, uint32_t code, const int64_t *operands, size_t count);
#define EMIT(code, ...)                                                  \
  builder_emit(builder, INGOT_OP_##code, (const int64_t[]){__VA_ARGS__}, \
               sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* Sets a branch target to the next instruction: operand word `word` of the function. */
void builder_set_target(builder_t *builder, uint32_t word);
uint32_t builder_word(const builder_t *builder);

/* The bits of a double, as operand x. */
int64_t builder_f64(double value);

/* The module file; free the data. The builder is freed. */
builder_bytes_t builder_finish(builder_t *builder);

/* Computes all crcs anew, for changed bytes; leaves alone what is not even a section table. */
void builder_seal(uint8_t *data, size_t length);

/* x + 1 on f32[4], one dispatch: exported function "main", kernel "add_one". */
builder_bytes_t builder_add_one_module(void);
const ingot_kernel_library_t *INGOT_KERNEL_CALL builder_add_one_query(uint32_t abi_version);

/* The function of that module alone, for another kernel with the bindings x and y. */
void builder_add_one_main(builder_t *builder, uint32_t kernel);

/* x + 2 on f32[n], by two dispatches with a slab of 4 n + 64 bytes between: "net/narrow", and
 * "net/wide", which gets all of it. */
builder_bytes_t builder_slab_module(void);

/* y = 1 + 2 + ... + x on i64[1], step by step: as long as one likes. */
builder_bytes_t builder_sum_module(void);

/* x + 1 as above for f32[n]; with init, a parameter "bias" f32[4], an arena, a global, constants,
 * a slab, a loop, and the variables "history" f32[4], which a
 * call sets, and "count" i64[], its calls: everything that load and call do. */
builder_bytes_t builder_full_module(void);

#endif /* INGOT_TESTS_BUILDER_H_ */
