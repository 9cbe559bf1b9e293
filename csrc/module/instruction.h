/* Instructions as spec/op.def describes them: codes, names and the operand letters that
 * say how to take an instruction apart. What operands may mean is verify.c's.
 */
#ifndef INGOT_MODULE_INSTRUCTION_H_
#define INGOT_MODULE_INSTRUCTION_H_

#include <string.h>

#include "ingot/ingot.h"

enum {
#define OP(code, ENUM, name, operands, meaning) INGOT_OP_##ENUM = (code),
#include "ingot/spec/op.def"
#undef OP
};

/* Empty for a number that is no opcode; never NULL. */
const char *ingot_instruction_name(uint32_t code);

/* The letters of its operands. */
const char *ingot_instruction_operands(uint32_t code);

#define INGOT_MAX_OPERANDS 12

/* One operand of a decoded instruction. */
typedef struct ingot_operand_t {
  char letter;
  bool list;
  uint32_t count;    /* items of a list, bindings of b; else 1 */
  uint32_t position; /* word of the first item or value, behind a list's count */
  uint32_t value;    /* of n, s, a single t, and of a single register */
} ingot_operand_t;

typedef struct ingot_decoded_t {
  uint32_t code;
  uint32_t next; /* word behind the instruction */
  uint32_t operand_count;
  ingot_operand_t operands[INGOT_MAX_OPERANDS];
} ingot_decoded_t;

static inline uint32_t ingot_code_u32(const uint16_t *words) {
  return words[0] | (uint32_t)words[1] << 16;
}

static inline int64_t ingot_code_i64(const uint16_t *words) {
  int64_t value; /* code is little-endian, and so is every host (see verify.c) */
  memcpy(&value, words, sizeof(value));
  return value;
}

static inline double ingot_code_f64(const uint16_t *words) {
  double value;
  memcpy(&value, words, sizeof(value));
  return value;
}

/* Takes the instruction at `position` of `length` words apart. False if there is no such
 * opcode or the instruction runs over the end. */
bool ingot_instruction_decode(const uint16_t *words, uint32_t length, uint32_t position,
                              ingot_decoded_t *out_decoded);

#endif /* INGOT_MODULE_INSTRUCTION_H_ */
