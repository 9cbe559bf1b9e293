/* The dtype table of spec/dtype.def as an array, and the lengths that follow from it.
 */
#include "base/dtype.h"

#include "base/arithmetic.h"

static const ingot_dtype_facts_t dtype_table[] = {
#define DTYPE(code, ENUM, name, bits, bytes, kind, dlpack) [code] = {name, bits, bytes, kind},
#include "ingot/spec/dtype.def"
#undef DTYPE
};

const ingot_dtype_facts_t *ingot_dtype_facts(ingot_dtype_t dtype) {
  size_t count = sizeof(dtype_table) / sizeof(dtype_table[0]);
  bool known = dtype >= 0 && (size_t)dtype < count;
  return &dtype_table[known ? (size_t)dtype : 0]; /* code 0 is no dtype */
}

const char *ingot_dtype_name(ingot_dtype_t dtype) {
  const char *name = ingot_dtype_facts(dtype)->name;
  return name[0] ? name : NULL;
}

size_t ingot_dtype_length(ingot_dtype_t dtype) { return ingot_dtype_facts(dtype)->length; }

bool ingot_dtype_tensor_length(ingot_dtype_t dtype, uint32_t rank, const int64_t *dims,
                               int64_t *out_length) {
  int64_t length = ingot_dtype_facts(dtype)->length;
  bool fits = true;
  bool empty = false;
  for (uint32_t i = 0; i < rank; ++i) {
    if (dims[i] < 0) return false;
    empty |= dims[i] == 0;
    fits = fits && ingot_multiply_i64(length, dims[i], &length);
  }
  if (!fits && !empty) return false;
  *out_length = empty ? 0 : length;
  return true;
}
