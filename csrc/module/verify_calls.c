/* The bytecode verifier, third part: the call graph. Calls must not form a cycle, so every
 * function has a fixed need of VM stack; what only init may do must not be reachable from
 * an exported function, nor a session's state from init.
 */
#include "module/verify.h"

enum { UNSEEN, OPEN, DONE };

enum { REACHES_INIT_ONLY = 1, REACHES_STATE = 2 };

/* Far beyond what compiled code needs; each session allocates what its program needs. */
#define MAX_STACK_LENGTH ((uint64_t)1 << 24)

/* A function on the way of the depth-first walk, and where its code has been scanned to. */
typedef struct walk_step_t {
  uint32_t function;
  uint32_t word;
} walk_step_t;

typedef struct call_walk_t {
  ingot_module_t *module;
  uint8_t *states;    /* per function */
  uint8_t *reaches;   /* per function: REACHES_* of itself and what it calls */
  walk_step_t *steps;
  uint32_t depth;
} call_walk_t;

static uint8_t reach_of(uint32_t code) {
  switch (code) {
    case INGOT_OP_PARAMETER:
    case INGOT_OP_ARENA:
    case INGOT_OP_GLOBAL_STORE: return REACHES_INIT_ONLY;
    case INGOT_OP_VARIABLE_READ:
    case INGOT_OP_VARIABLE_WRITE: return REACHES_STATE;
    default: return 0;
  }
}

static void enter(call_walk_t *walk, uint32_t function) {
  walk->states[function] = OPEN;
  walk->steps[walk->depth++] = (walk_step_t){function, 0};
}

/* All callees are done: the function is, too; its caller takes over what it needs. */
static void leave(call_walk_t *walk) {
  uint32_t function = walk->steps[--walk->depth].function;
  uint64_t *lengths = walk->module->frame_lengths;
  lengths[function] +=
      INGOT_FRAME_HEADER_LENGTH + ingot_module_register_bytes(&walk->module->functions[function]);
  walk->states[function] = DONE;
}

/* Scans on to the next call into a function that has not been walked and enters it, or
 * leaves at the end. */
static ingot_status_t advance(call_walk_t *walk) {
  ingot_module_t *module = walk->module;
  walk_step_t *step = &walk->steps[walk->depth - 1];
  const ingot_layout_function_t *function = &module->functions[step->function];
  const uint16_t *words = module->code + function->code_offset;
  while (step->word < function->code_length) {
    ingot_decoded_t decoded;
    (void)ingot_instruction_decode(words, (uint32_t)function->code_length, step->word, &decoded);
    walk->reaches[step->function] |= reach_of(decoded.code);
    if (decoded.code == INGOT_OP_CALL) {
      uint32_t callee = decoded.operands[0].value;
      if (walk->states[callee] == UNSEEN) {
        enter(walk, callee); /* comes back to this call when it is done */
        return NULL;
      }
      if (walk->states[callee] == OPEN) {
        return ingot_module_damaged(module, "function '%s' calls itself through others or directly",
                                    ingot_module_string(module, module->functions[callee].name));
      }
      uint64_t *lengths = module->frame_lengths;
      if (lengths[step->function] < lengths[callee]) lengths[step->function] = lengths[callee];
      walk->reaches[step->function] |= walk->reaches[callee];
    }
    step->word = decoded.next;
  }
  leave(walk);
  return NULL;
}

static ingot_status_t walk_all(call_walk_t *walk) {
  ingot_module_t *module = walk->module;
  for (uint32_t i = 0; i < module->function_count; ++i) {
    if (walk->states[i] != UNSEEN) continue;
    enter(walk, i);
    while (walk->depth > 0) INGOT_TRY(advance(walk));
  }
  for (uint32_t i = 0; i < module->function_count; ++i) {
    const ingot_layout_function_t *function = &module->functions[i];
    if (module->frame_lengths[i] > MAX_STACK_LENGTH) {
      return ingot_module_damaged(module, "function '%s' and what it calls need %llu bytes of VM "
                                          "stack, expected at most %llu",
                                  ingot_module_string(module, function->name),
                                  (unsigned long long)module->frame_lengths[i],
                                  (unsigned long long)MAX_STACK_LENGTH);
    }
    if ((function->flags & INGOT_FUNCTION_EXPORTED) && (walk->reaches[i] & REACHES_INIT_ONLY)) {
      return ingot_module_damaged(module, "exported function '%s' reaches an instruction that only "
                                          "init may run",
                                  ingot_module_string(module, function->name));
    }
    if ((function->flags & INGOT_FUNCTION_INIT) && (walk->reaches[i] & REACHES_STATE)) {
      return ingot_module_damaged(module, "init function '%s' reaches a variable, which only "
                                          "sessions have",
                                  ingot_module_string(module, function->name));
    }
  }
  return NULL;
}

ingot_status_t ingot_verify_calls(ingot_module_t *module) {
  const ingot_allocator_t *allocator = &module->instance->allocator;
  size_t count = module->function_count;
  void *lengths = NULL;
  void *states = NULL;
  void *reaches = NULL;
  void *steps = NULL;
  ingot_status_t status = ingot_allocate_array(allocator, count, sizeof(uint64_t), &lengths);
  if (status) return status;
  module->frame_lengths = lengths;
  status = ingot_allocate_array(allocator, count, 1, &states);
  if (!status) status = ingot_allocate_array(allocator, count, 1, &reaches);
  if (!status) status = ingot_allocate_array(allocator, count, sizeof(walk_step_t), &steps);
  if (!status) {
    call_walk_t walk = {module, states, reaches, steps, 0};
    status = walk_all(&walk);
  }
  ingot_release_memory(allocator, steps);
  ingot_release_memory(allocator, reaches);
  ingot_release_memory(allocator, states);
  return status;
}
