/* The values of f16, bf16, f32 and f64, and their bytes in the low bytes of a word.
 */
#ifndef INGOT_BASE_FLOAT_H_
#define INGOT_BASE_FLOAT_H_

#include "ingot/ingot.h"

/* The nearest value of the dtype, ties to even, overflow to infinity. */
double ingot_float_round(double value, ingot_dtype_t dtype);

/* The bytes of that, and the value of bytes. */
uint64_t ingot_float_encode(double value, ingot_dtype_t dtype);
double ingot_float_decode(uint64_t bits, ingot_dtype_t dtype);

#endif /* INGOT_BASE_FLOAT_H_ */
