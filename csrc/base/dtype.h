/* Facts about dtypes beyond name and length, from spec/dtype.def.
 */
#ifndef INGOT_BASE_DTYPE_H_
#define INGOT_BASE_DTYPE_H_

#include "ingot/ingot.h"

typedef struct ingot_dtype_facts_t {
  char name[16];  /* empty for a number that is no dtype */
  uint8_t bits;   /* of the value */
  uint8_t length; /* bytes of one element in a buffer */
  char kind;      /* b boolean, i signed, u unsigned, f float, c complex */
} ingot_dtype_facts_t;

/* Never NULL; all zero for a number that is no dtype. */
const ingot_dtype_facts_t *ingot_dtype_facts(ingot_dtype_t dtype);

/* Whether an i64 register can stand for an element: booleans and integers. */
static inline bool ingot_dtype_is_integer(ingot_dtype_t dtype) {
  char kind = ingot_dtype_facts(dtype)->kind;
  return kind == 'b' || kind == 'i' || kind == 'u';
}

/* Bytes of a dense tensor; false if a dim is negative or the product does not fit int64_t.
 * Zero-sized tensors have length 0 whatever their other dims are. */
bool ingot_dtype_tensor_length(ingot_dtype_t dtype, uint32_t rank, const int64_t *dims,
                               int64_t *out_length);

#endif /* INGOT_BASE_DTYPE_H_ */
