/* The bytecode verifier, second part: definite assignment. On every path, a register is
 * written before it is read, and an exported function has made every result before it
 * returns.
 *
 * One pass in code order, without iterating: the state at a label is the intersection of
 * the states of the branches that lead to it from above. A branch that leads back must
 * bring at least what the label had when it was passed; then the loop body, verified with
 * that, is right for every iteration.
 */
#include <string.h>

#include "module/verifier.h"

/* A set is merged or compared at every branch target and return, which would make many of
 * them over many registers more than linear work: words of sets per word of code, which only
 * absurd code needs. */
#define SET_WORDS_PER_WORD 64
#define SET_WORDS_AT_LEAST 4096 /* of a function of any length */

/* A set of registers is a bit string: i64, f64, references, results. */
typedef struct assignment_t {
  const ingot_verifier_t *verifier;
  uint32_t f64_base;
  uint32_t ref_base;
  uint32_t result_base;
  uint32_t word_count; /* u64 words of one set */
  uint64_t *current;
  uint64_t **label_states; /* per label: NULL before a branch reaches it */
  bool reachable;          /* whether control can come to the current instruction */
} assignment_t;

static uint32_t bit_of(const assignment_t *self, char letter, uint32_t number) {
  switch (letter) {
    case 'i':
    case 'I': return number;
    case 'f':
    case 'F': return self->f64_base + number;
    default: return self->ref_base + number;
  }
}

static bool has(const assignment_t *self, uint32_t bit) {
  return (self->current[bit / 64] >> (bit % 64)) & 1;
}

static void set(assignment_t *self, uint32_t bit) {
  self->current[bit / 64] |= UINT64_C(1) << (bit % 64);
}

static const ingot_allocator_t *allocator_of(const assignment_t *self) {
  return &self->verifier->module->instance->allocator;
}

static ingot_status_t check_read(const assignment_t *self, uint32_t word, char letter,
                                 uint32_t number) {
  if (has(self, bit_of(self, letter, number))) return NULL;
  return ingot_verifier_refuse(self->verifier, word,
                               "register %u of kind %c may be read before "
                               "it is written",
                               number, letter);
}

static ingot_status_t check_reads(const assignment_t *self, uint32_t word,
                                  const ingot_decoded_t *decoded) {
  const uint16_t *words = self->verifier->words;
  for (uint32_t k = 0; k < decoded->operand_count; ++k) {
    const ingot_operand_t *operand = &decoded->operands[k];
    const uint16_t *registers = words + operand->position;
    if (operand->letter == 'i' || operand->letter == 'f' || operand->letter == 'o') {
      for (uint32_t r = 0; r < operand->count; ++r) {
        INGOT_TRY(check_read(self, word, operand->letter, registers[r]));
      }
    } else if (operand->letter == 'b') {
      for (uint32_t r = 0; r < operand->count; ++r) {
        INGOT_TRY(check_read(self, word, 'o', registers[3 * r]));
        INGOT_TRY(check_read(self, word, 'i', registers[3 * r + 1]));
        INGOT_TRY(check_read(self, word, 'i', registers[3 * r + 2]));
      }
    }
  }
  return NULL;
}

static void apply_writes(assignment_t *self, const ingot_decoded_t *decoded) {
  const uint16_t *words = self->verifier->words;
  for (uint32_t k = 0; k < decoded->operand_count; ++k) {
    const ingot_operand_t *operand = &decoded->operands[k];
    if (operand->letter != 'I' && operand->letter != 'F' && operand->letter != 'O') continue;
    for (uint32_t r = 0; r < operand->count; ++r) {
      set(self, bit_of(self, operand->letter, words[operand->position + r]));
    }
  }
  if (decoded->code == INGOT_OP_RESULT_BUFFER) {
    set(self, self->result_base + decoded->operands[2].value);
  } else if (decoded->code == INGOT_OP_LIST_RESULT) {
    set(self, self->result_base + decoded->operands[0].value);
  }
}

/* The current state flows to `target`. */
static ingot_status_t flow_to(assignment_t *self, uint32_t word, uint32_t target) {
  uint64_t **state = &self->label_states[self->verifier->labels[target]];
  size_t length = self->word_count * sizeof(uint64_t);
  if (target <= word) {
    for (uint32_t k = 0; k < self->word_count; ++k) {
      if ((*state)[k] & ~self->current[k]) {
        return ingot_verifier_refuse(self->verifier, word,
                                     "the branch back to word %u comes with "
                                     "fewer registers written than there",
                                     target);
      }
    }
  } else if (!*state) {
    void *memory = NULL;
    INGOT_TRY(
        ingot_allocate_array(allocator_of(self), self->word_count, sizeof(uint64_t), &memory));
    *state = memory;
    memcpy(*state, self->current, length);
  } else {
    for (uint32_t k = 0; k < self->word_count; ++k) (*state)[k] &= self->current[k];
  }
  return NULL;
}

/* Control passes a label: the state becomes what holds on all ways here. */
static ingot_status_t pass_label(assignment_t *self, uint32_t word) {
  uint64_t **state = &self->label_states[self->verifier->labels[word]];
  size_t length = self->word_count * sizeof(uint64_t);
  bool backward = self->verifier->marks[word] & INGOT_WORD_BACKWARD;
  if (!self->reachable) {
    if (*state) memcpy(self->current, *state, length);
    /* Reached from below only, or never: then everything counts as written, and the
     * branch back must prove it. */
    else memset(self->current, 0xFF, length);
  } else if (*state) {
    for (uint32_t k = 0; k < self->word_count; ++k) self->current[k] &= (*state)[k];
  }
  self->reachable = true;
  if (!backward) {
    ingot_release_memory(allocator_of(self), *state);
    *state = NULL;
    return NULL;
  }
  if (!*state) {
    void *memory = NULL;
    INGOT_TRY(
        ingot_allocate_array(allocator_of(self), self->word_count, sizeof(uint64_t), &memory));
    *state = memory;
  }
  memcpy(*state, self->current, length);
  return NULL;
}

static ingot_status_t check_results(const assignment_t *self, uint32_t word) {
  for (uint32_t k = self->result_base / 64; k < self->word_count; ++k) {
    uint64_t missing = ~self->current[k]; /* behind the last result all bits are set */
    if (missing == 0) continue;
    return ingot_verifier_refuse(self->verifier, word, "result %u may not have been made",
                                 64 * k + (uint32_t)__builtin_ctzll(missing) - self->result_base);
  }
  return NULL;
}

static ingot_status_t visit(assignment_t *self, uint32_t word, const ingot_decoded_t *decoded) {
  INGOT_TRY(check_reads(self, word, decoded));
  apply_writes(self, decoded);
  if (decoded->code == INGOT_OP_RETURN) {
    INGOT_TRY(check_results(self, word));
    self->reachable = false;
  }
  for (uint32_t k = 0; k < decoded->operand_count; ++k) {
    const ingot_operand_t *operand = &decoded->operands[k];
    if (operand->letter != 't') continue;
    for (uint32_t t = 0; t < operand->count; ++t) {
      const uint16_t *words = self->verifier->words + operand->position + 2 * t;
      INGOT_TRY(flow_to(self, word, ingot_code_u32(words)));
    }
    self->reachable = false;
  }
  return NULL;
}

static ingot_status_t visit_all(assignment_t *self) {
  const ingot_verifier_t *verifier = self->verifier;
  const ingot_layout_function_t *function = verifier->function;
  uint32_t end = self->result_base + function->result_count;
  for (; end < 64 * self->word_count; ++end) set(self, end);
  self->reachable = true;
  for (uint32_t word = 0; word < verifier->length;) {
    ingot_decoded_t decoded;
    if (verifier->marks[word] & INGOT_WORD_TARGET) INGOT_TRY(pass_label(self, word));
    (void)ingot_instruction_decode(verifier->words, verifier->length, word, &decoded);
    /* Dead code is skipped: nothing in it runs. */
    if (self->reachable) INGOT_TRY(visit(self, word, &decoded));
    word = decoded.next;
  }
  return NULL;
}

/* Leaves word_count 0 if the sets would be absurdly much work. Results start on a word. */
static void lay_out(assignment_t *self) {
  const ingot_verifier_t *verifier = self->verifier;
  const ingot_layout_function_t *function = verifier->function;
  self->f64_base = function->i64_count;
  self->ref_base = self->f64_base + function->f64_count;
  self->result_base = (self->ref_base + function->ref_count + 63) / 64 * 64;
  uint64_t words = ((uint64_t)self->result_base + function->result_count + 63) / 64 + 1;
  if (words * verifier->flow_count >
      SET_WORDS_AT_LEAST + SET_WORDS_PER_WORD * (uint64_t)verifier->length) {
    return;
  }
  self->word_count = (uint32_t)words;
}

ingot_status_t ingot_verify_assignment(const ingot_verifier_t *verifier) {
  assignment_t self = {.verifier = verifier};
  void *current = NULL;
  void *states = NULL;
  lay_out(&self);
  if (self.word_count == 0) {
    return ingot_verifier_refuse(verifier, 0,
                                 "%u branch targets and returns over so many "
                                 "registers are more than the verifier takes",
                                 verifier->flow_count);
  }
  ingot_status_t status =
      ingot_allocate_array(allocator_of(&self), self.word_count, sizeof(uint64_t), &current);
  if (!status) {
    status = ingot_allocate_array(allocator_of(&self), verifier->label_count, sizeof(uint64_t *),
                                  &states);
  }
  self.current = current;
  self.label_states = states;
  if (!status) status = visit_all(&self);
  for (uint32_t k = 0; states && k < verifier->label_count; ++k) {
    ingot_release_memory(allocator_of(&self), self.label_states[k]);
  }
  ingot_release_memory(allocator_of(&self), states);
  ingot_release_memory(allocator_of(&self), current);
  return status;
}
