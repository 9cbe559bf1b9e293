/* What the files of the bytecode verifier share: the state of one function's verification.
 *
 * Passes over a function, each linear in its code:
 *   verify.c             every instruction by itself: operands, ordinals, branch targets
 *   verify_assignment.c  every register is assigned on every path before it is read
 */
#ifndef INGOT_MODULE_VERIFIER_H_
#define INGOT_MODULE_VERIFIER_H_

#include "module/instruction.h"
#include "module/module.h"

typedef struct ingot_verifier_t {
  const ingot_module_t *module;
  const ingot_layout_function_t *function;
  uint32_t ordinal; /* of the function */
  uint32_t length;  /* of its code, in words */
  const uint16_t *words;
  /* Per word of the module's longest function: INGOT_WORD_* bits. */
  uint8_t *marks;
  /* Per word: the number of its label, for words that are branch targets. */
  uint32_t *labels;
  uint32_t label_count;
  uint32_t flow_count; /* branch targets and returns that instructions name */
  uint32_t list_count; /* of all functions so far */
} ingot_verifier_t;

#define INGOT_WORD_START 1u    /* an instruction starts here */
#define INGOT_WORD_TARGET 2u   /* a branch leads here */
#define INGOT_WORD_BACKWARD 4u /* a branch from here on or later leads here */

/* DataLoss that names function, word and instruction. */
#if defined(INGOT_STRIP_MESSAGES)
#define ingot_verifier_refuse(verifier, word, ...) \
  ((void)(word), ingot_module_damaged((verifier)->module, __VA_ARGS__))
#else
ingot_status_t ingot_verifier_refuse(const ingot_verifier_t *verifier, uint32_t word,
                                     const char *format, ...) INGOT_PRINTF(3, 4);
#endif

ingot_status_t ingot_verify_assignment(const ingot_verifier_t *verifier);

#endif /* INGOT_MODULE_VERIFIER_H_ */
