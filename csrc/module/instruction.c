/* The instruction table and the decoder that its operand letters drive. */
#include <stddef.h>

#include "module/instruction.h"

/* Names and letters, one text behind the other: as pointers they would cost a relocation each, as
 * arrays of one length twice their bytes. */
typedef struct instruction_texts_t {
  char none[2];
#define OP(code, ENUM, name, operands, meaning) char ENUM[sizeof(name "\0" operands)];
#include "ingot/spec/op.def"
#undef OP
} instruction_texts_t;

static const instruction_texts_t instruction_texts = {
    "",
#define OP(code, ENUM, name, operands, meaning) name "\0" operands,
#include "ingot/spec/op.def"
#undef OP
};

/* Of codes without an instruction 0, which is that of `none`. */
static const uint16_t instruction_offsets[] = {
#define OP(code, ENUM, name, operands, meaning) [code] = offsetof(instruction_texts_t, ENUM),
#include "ingot/spec/op.def"
#undef OP
};

const char *ingot_instruction_name(uint32_t code) {
  return (const char *)&instruction_texts +
         (code < sizeof(instruction_offsets) / sizeof(instruction_offsets[0])
              ? instruction_offsets[code]
              : 0);
}

const char *ingot_instruction_operands(uint32_t code) {
  const char *name = ingot_instruction_name(code);
  return name + strlen(name) + 1;
}

/* Words of one item of a letter. */
static uint32_t letter_words(char letter) {
  switch (letter) {
    case 'k':
    case 'x': return 4;
    case 's':
    case 't': return 2;
    case 'b': return 3;
    default: return 1;
  }
}

bool ingot_instruction_decode(const uint16_t *words, uint32_t length, uint32_t position,
                              ingot_decoded_t *out_decoded) {
  uint64_t at = position;
  if (at >= length) return false;
  out_decoded->code = words[at++];
  out_decoded->operand_count = 0;
  const char *letters = ingot_instruction_operands(out_decoded->code);
  if (!ingot_instruction_name(out_decoded->code)[0]) return false;
  while (*letters) {
    ingot_operand_t *operand = &out_decoded->operands[out_decoded->operand_count++];
    operand->letter = *letters++;
    operand->list = *letters == '*';
    letters += operand->list;
    operand->count = 1;
    if (operand->list || operand->letter == 'b') {
      if (at >= length) return false;
      operand->count = words[at++];
    }
    operand->position = (uint32_t)at;
    at += (uint64_t)operand->count * letter_words(operand->letter);
    if (at > length) return false;
    operand->value = 0;
    if (operand->list || operand->letter == 'b') continue;
    bool wide = letter_words(operand->letter) == 2;
    operand->value = wide ? ingot_code_u32(words + operand->position) : words[operand->position];
  }
  out_decoded->next = (uint32_t)at;
  return true;
}
