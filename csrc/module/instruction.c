/* The instruction table and the decoder that its operand letters drive. Texts lie in the table, as
 * pointers would cost a relocation each.
 */
#include "module/instruction.h"

/* Codes have gaps: rows of the table, by code. */
enum {
  ROW_NONE,
#define OP(code, ENUM, name, operands, meaning) ROW_##ENUM,
#include "ingot/spec/op.def"
#undef OP
};

static const uint8_t instruction_rows[] = {
#define OP(code, ENUM, name, operands, meaning) [code] = ROW_##ENUM,
#include "ingot/spec/op.def"
#undef OP
};

static const ingot_instruction_t instruction_table[] = {
    [ROW_NONE] = {"", ""},
#define OP(code, ENUM, name, operands, meaning) [ROW_##ENUM] = {name, operands},
#include "ingot/spec/op.def"
#undef OP
};

const ingot_instruction_t *ingot_instruction(uint32_t code) {
  return &instruction_table[code < sizeof(instruction_rows) ? instruction_rows[code] : ROW_NONE];
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
  const ingot_instruction_t *instruction = ingot_instruction(out_decoded->code);
  const char *letters = instruction->operands;
  if (!instruction->name[0]) return false;
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
