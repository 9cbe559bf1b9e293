/* The interpreter: a plain switch over verified code. It checks nothing that the verifier
 * has proven; what depends on data (ranges, overflow, unset globals) is checked here or in
 * the HAL core.
 *
 * The i64, f64 and reference registers of a function lie in a row, 8 bytes each. They start
 * arbitrary: definite assignment is proven.
 */
#include <inttypes.h>

#include "base/arithmetic.h"
#include "base/float.h"
#include "module/instruction.h"
#include "vm/context.h"
#include "vm/debug.h"
#include "vm/device_work.h"
#include "vm/list.h"
#include "vm/native.h"
#include "vm/scalar.h"

/* The register files of the function that runs. */
typedef struct registers_t {
  int64_t *i;
  double *f;
  ingot_buffer_t **o;
} registers_t;

static registers_t registers_of(const ingot_vm_context_t *context,
                                const ingot_layout_function_t *function) {
  int64_t *i = (int64_t *)(void *)context->registers;
  double *f = (double *)(void *)(i + function->i64_count);
  return (registers_t){i, f, (ingot_buffer_t **)(void *)(f + function->f64_count)};
}

/* -- failures ---------------------------------------------------------------------------------- */

/* Whether a limit may have been reached. Device work looks at the clock itself. */
static inline bool must_look(const ingot_vm_context_t *context, uint64_t steps) {
  return steps >= context->look_step || ingot_stop_is_found(&context->stop);
}

static __attribute__((noinline)) ingot_status_t check_limits(ingot_vm_context_t *context,
                                                             uint64_t steps) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(context->device);
  if (steps > context->max_steps) {
    return ingot_status_create(allocator, INGOT_STATUS_DEADLINE_EXCEEDED,
                               "the call has run more than its limit of %" PRIu64 " steps",
                               context->max_steps);
  }
  context->look_step = steps + INGOT_VM_STEPS_BETWEEN_LOOKS;
  if (context->look_step > context->max_steps) context->look_step = context->max_steps;
  return ingot_stop_is_due(&context->stop, true) ? ingot_stop_status(allocator, &context->stop)
                                                 : NULL;
}

static __attribute__((noinline)) ingot_status_t size_failure(const ingot_vm_context_t *context,
                                                             uint16_t code, int64_t a, int64_t b) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(context->device);
  if (code == INGOT_OP_BROADCAST_SIZE) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "dims %" PRId64 " and %" PRId64
                               " do not broadcast: they must be equal or one of them 1",
                               a, b);
  }
  return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                             "a size does not fit 64 bits: %s of %" PRId64 " and %" PRId64,
                             ingot_instruction_name(code), a, b);
}

static __attribute__((noinline)) ingot_status_t unset_global(const ingot_vm_context_t *context,
                                                             uint32_t global) {
  return ingot_status_create(ingot_hal_device_allocator(context->device),
                             INGOT_STATUS_FAILED_PRECONDITION,
                             "global %u is read but no init function has set it", global);
}

/* Adds the source location of `word` to a failure. An assert's message is complete. */
static __attribute__((noinline)) ingot_status_t locate(ingot_vm_context_t *context,
                                                       const uint16_t *word,
                                                       ingot_status_t status) {
  char text[INGOT_HAL_DESCRIPTION_CAPACITY];
  if (!INGOT_WITH_MESSAGES) return status;
  uint16_t code = *word & (uint16_t)~INGOT_VM_TRAP;
  if (code == INGOT_OP_ASSERT || code == INGOT_OP_RESULT_BUFFER) return status;
  if (!ingot_vm_describe(context, word, text, sizeof(text))) return status;
  return ingot_status_prefix(status, "%s", text);
}

/* Which word of a branch.table has the target for a number. */
static inline uint32_t table_word(const uint16_t *pc, uint64_t number) {
  uint32_t last = pc[2] - 1u;
  return 3 + 2 * (number < last ? (uint32_t)number : last);
}

/* -- the switch -------------------------------------------------------------------------------- */

#define I(k) r.i[pc[k]]
#define F(k) r.f[pc[k]]
#define O(k) r.o[pc[k]]
#define UNSIGNED(k) ((uint64_t)r.i[pc[k]])
#define LIST(k) (&context->lists[pc[k]])

/* Begins a case, of which nothing is left in a runtime without the instruction. */
#define NEED(op) \
  if (!INGOT_WITH_OP(INGOT_OP_##op)) goto unknown

/* A case that computes one register and goes on `words` words later. */
#define COMPUTE(op, target, words, value) \
  case INGOT_OP_##op:                     \
    NEED(op);                             \
    target = (value);                     \
    pc += (words);                        \
    continue

/* A case whose work is a function that returns a status. */
#define WORK(op, words, call)  \
  case INGOT_OP_##op:          \
    NEED(op);                  \
    context->queue->site = pc; \
    status = (call);           \
    if (status) goto failed;   \
    pc += (words);             \
    continue

/* A case of size arithmetic: `compute` says whether the result fits. */
#define SIZE(op, compute)                               \
  case INGOT_OP_##op:                                   \
    NEED(op);                                           \
    if (!compute(I(2), I(3), &size)) {                  \
      status = size_failure(context, code, I(2), I(3)); \
      goto failed;                                      \
    }                                                   \
    I(1) = size;                                        \
    pc += 4;                                            \
    continue

ingot_status_t ingot_vm_run(ingot_vm_context_t *context) {
  const ingot_vm_image_t *image = context->image;
  const ingot_layout_function_t *function = &image->module->functions[context->function];
  if (!context->marked) context->code = image->module->code + function->code_offset;
  const uint16_t *start = context->code;
  const uint16_t *pc = start;
  const registers_t r = registers_of(context, function);
  uint64_t steps = 0;
  int64_t size = 0;
  ingot_status_t status = NULL;
  for (;;) {
    ++steps;
    uint16_t code = *pc;
  execute:
    switch (code) {
      case INGOT_OP_BRANCH:
      case INGOT_OP_BRANCH_IF:
      case INGOT_OP_BRANCH_TABLE: {
        uint32_t word = 1;
        if (code == INGOT_OP_BRANCH_IF) word = I(1) ? 2 : 4;
        else if (code == INGOT_OP_BRANCH_TABLE) word = table_word(pc, UNSIGNED(1));
        uint32_t target = ingot_code_u32(pc + word);
        if (start + target <= pc && must_look(context, steps)) {
          status = check_limits(context, steps);
          if (status) goto failed;
        }
        pc = start + target;
        continue;
      }
      case INGOT_OP_RETURN: return NULL;
      case INGOT_OP_ASSERT:
        NEED(ASSERT);
        if (I(1) == 0) {
          status = ingot_vm_assert_failure(context, pc, r.i);
          goto failed;
        }
        pc += 6 + pc[5];
        continue;

        COMPUTE(CONST_I64, I(1), 6, ingot_code_i64(pc + 2));
        COMPUTE(MOVE_I64, I(1), 3, I(2));
        COMPUTE(ADD_I64, I(1), 4, (int64_t)(UNSIGNED(2) + UNSIGNED(3)));
        COMPUTE(SUB_I64, I(1), 4, (int64_t)(UNSIGNED(2) - UNSIGNED(3)));
        COMPUTE(MUL_I64, I(1), 4, (int64_t)(UNSIGNED(2) * UNSIGNED(3)));
        COMPUTE(DIV_I64, I(1), 4, ingot_scalar_divide(I(2), I(3)));
        COMPUTE(REM_I64, I(1), 4, ingot_scalar_remainder(I(2), I(3)));
        COMPUTE(AND_I64, I(1), 4, (int64_t)(UNSIGNED(2) & UNSIGNED(3)));
        COMPUTE(OR_I64, I(1), 4, (int64_t)(UNSIGNED(2) | UNSIGNED(3)));
        COMPUTE(XOR_I64, I(1), 4, (int64_t)(UNSIGNED(2) ^ UNSIGNED(3)));
        COMPUTE(SHL_I64, I(1), 4, ingot_scalar_shift_left(I(2), I(3)));
        COMPUTE(SHR_I64, I(1), 4, ingot_scalar_shift_right(I(2), I(3)));
        COMPUTE(MIN_I64, I(1), 4, I(2) < I(3) ? I(2) : I(3));
        COMPUTE(MAX_I64, I(1), 4, I(2) > I(3) ? I(2) : I(3));
        COMPUTE(EQ_I64, I(1), 4, I(2) == I(3));
        COMPUTE(NE_I64, I(1), 4, I(2) != I(3));
        COMPUTE(LT_I64, I(1), 4, I(2) < I(3));
        COMPUTE(LE_I64, I(1), 4, I(2) <= I(3));
        COMPUTE(SELECT_I64, I(1), 5, I(2) ? I(3) : I(4));
        COMPUTE(WRAP_I64, I(1), 4, ingot_scalar_wrap(I(2), pc[3]));
        SIZE(ADD_SIZE, ingot_add_i64);
        SIZE(SUB_SIZE, ingot_subtract_i64);
        SIZE(MUL_SIZE, ingot_multiply_i64);
        SIZE(FLOORDIV_SIZE, ingot_floor_divide_i64);
        SIZE(MOD_SIZE, ingot_floor_modulo_i64);
        SIZE(BROADCAST_SIZE, ingot_broadcast_i64);

        COMPUTE(CONST_F64, F(1), 6, ingot_code_f64(pc + 2));
        COMPUTE(MOVE_F64, F(1), 3, F(2));
        COMPUTE(ADD_F64, F(1), 4, F(2) + F(3));
        COMPUTE(SUB_F64, F(1), 4, F(2) - F(3));
        COMPUTE(MUL_F64, F(1), 4, F(2) * F(3));
        COMPUTE(DIV_F64, F(1), 4, F(2) / F(3));
        COMPUTE(EQ_F64, I(1), 4, F(2) == F(3));
        COMPUTE(LT_F64, I(1), 4, F(2) < F(3));
        COMPUTE(LE_F64, I(1), 4, F(2) <= F(3));
        COMPUTE(SELECT_F64, F(1), 5, I(2) ? F(3) : F(4));
        COMPUTE(ROUND_F64, F(1), 4, ingot_float_round(F(2), pc[3]));
        COMPUTE(I64_TO_F64, F(1), 3, (double)I(2));
        COMPUTE(F64_TO_I64, I(1), 3, ingot_scalar_f64_to_i64(F(2)));

      case INGOT_OP_ARGUMENT_BUFFER:
        O(1) = context->arguments[pc[3]]->span;
        I(2) = 0;
        pc += 4;
        continue;
        COMPUTE(ARGUMENT_DIM, I(1), 4, context->arguments[pc[2]]->dims[pc[3]]);
        WORK(RESULT_BUFFER, 5 + pc[4], ingot_vm_make_result(context, pc, r.i, &O(1), &I(2)));
      case INGOT_OP_SLAB:
        status = ingot_vm_context_slab(context, I(3), &O(1));
        if (status) goto failed;
        I(2) = 0;
        pc += 4;
        continue;
        COMPUTE(CONSTANTS, O(1), 2, image->constants);
      case INGOT_OP_PARAMETER:
        NEED(PARAMETER);
        status = ingot_vm_init_parameter(context->initializing, pc[3], &O(1));
        if (status) goto failed;
        I(2) = 0;
        pc += 4;
        continue;
      case INGOT_OP_ARENA:
        NEED(ARENA);
        status = ingot_vm_init_arena(context->initializing, context->queue, I(3), &O(1));
        if (status) goto failed;
        I(2) = 0;
        pc += 4;
        continue;
      case INGOT_OP_GLOBAL_LOAD:
        O(1) = context->globals[pc[2]];
        if (!O(1)) {
          status = unset_global(context, pc[2]);
          goto failed;
        }
        pc += 3;
        continue;
      case INGOT_OP_VARIABLE_READ:
        O(1) = context->variables[pc[3]].readable;
        I(2) = 0;
        pc += 4;
        continue;
      case INGOT_OP_VARIABLE_GROW:
      case INGOT_OP_VARIABLE_WRITE: {
        NEED(VARIABLE_WRITE);
        ingot_vm_variable_t *variable = &context->variables[pc[3]];
        bool grows = code == INGOT_OP_VARIABLE_GROW;
        if (grows ? variable->buffer->length < I(4) : ingot_vm_variable_is_shared(variable)) {
          status =
              ingot_vm_context_part(context, variable, grows ? I(4) : 0, r.o, function->ref_count);
          if (status) goto failed;
        }
        O(1) = grows ? variable->readable : variable->buffer;
        if (!grows) variable->is_changing = context->state.is_changing = true;
        I(2) = 0;
        pc += grows ? 5 : 4;
        continue;
      }
        WORK(GLOBAL_STORE, 3, ingot_vm_init_set_global(context->initializing, pc[2], O(1)));

      case INGOT_OP_DISPATCH: {
        if (must_look(context, steps)) {
          status = check_limits(context, steps);
          if (status) goto failed;
        }
        const uint16_t *next = pc;
        status = ingot_vm_dispatch(context, &next, r.i, r.o);
        if (status) return status; /* its message names the dispatch already */
        pc = next;
        continue;
      }
      case INGOT_OP_NATIVE_CALL: {
        NEED(NATIVE_CALL);
        const uint16_t *next = pc;
        context->queue->site = pc;
        status = ingot_vm_call_native(context, &next, r.i, r.o);
        if (status) goto failed;
        pc = next;
        continue;
      }
        WORK(COPY, 6, ingot_vm_copy(context, pc, r.i, r.o));
        WORK(READ_I64, 5, ingot_vm_read_i64(context, O(2), I(3), pc[4], &I(1)));
        WORK(READ_F64, 5, ingot_vm_read_f64(context, O(2), I(3), pc[4], &F(1)));
        WORK(WRITE_I64, 5, ingot_vm_write_i64(context, O(1), I(2), I(3), pc[4]));
        WORK(WRITE_F64, 5, ingot_vm_write_f64(context, O(1), I(2), F(3), pc[4]));

      case INGOT_OP_LIST_CLEAR:
        NEED(LIST_CLEAR);
        ingot_vm_list_clear(LIST(1));
        pc += 2;
        continue;
      case INGOT_OP_LIST_SWAP: {
        NEED(LIST_SWAP);
        const ingot_vm_list_t first = *LIST(1);
        *LIST(1) = *LIST(2);
        *LIST(2) = first;
        pc += 3;
        continue;
      }
        WORK(LIST_COPY, 3, ingot_vm_copy_list(context, pc));
        WORK(LIST_INSERT, 7 + pc[6], ingot_vm_insert_element(context, pc, r.i, r.o));
        WORK(LIST_ERASE, 3, ingot_vm_list_erase(context, LIST(1), I(2)));
        WORK(LIST_SET, 6 + pc[5], ingot_vm_set_element(context, pc, r.i, r.o));
        WORK(LIST_EXTEND, 6, ingot_vm_extend_element(context, pc, r.i, r.o));
        COMPUTE(LIST_LENGTH, I(1), 3, LIST(2)->count);
        WORK(LIST_DIM, 5, ingot_vm_list_dim(context, LIST(2), I(3), pc[4], &I(1)));
        WORK(LIST_ARGUMENT, 4, ingot_vm_list_argument(context, pc, &I(1)));
        WORK(LIST_RESULT, 4, ingot_vm_list_result(context, pc, I(3)));
        WORK(LIST_GET, 5, ingot_vm_list_get(context, LIST(3), I(4), &O(1), &I(2)));
      default: /* the verifier knows every opcode that the switch does */
      unknown:
        if (code & INGOT_VM_TRAP) {
          const uint16_t *next = pc; /* the address of `pc` would keep it out of a register */
          status = context->trap(context, &next, r.i, r.o);
          if (status) goto failed;
          if (next != pc) {
            pc = next;
            continue;
          }
          code &= (uint16_t)~INGOT_VM_TRAP;
          goto execute;
        }
        status = ingot_status_create(ingot_hal_device_allocator(context->device),
                                     INGOT_STATUS_INTERNAL, "opcode 0x%02x has no code", code);
        goto failed;
    }
  }
failed:
  return locate(context, pc, status);
}

/* The single-file build goes on with other files. */
#undef I
#undef F
#undef O
#undef UNSIGNED
#undef LIST
#undef NEED
#undef COMPUTE
#undef WORK
#undef SIZE
