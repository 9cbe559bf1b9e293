/* Measuring: what marked instructions do instead of their work. */
#include "vm/measure.h"

#include <inttypes.h>

#include "base/dtype.h"
#include "module/instruction.h"
#include "vm/debug.h"

static const uint16_t return_word = INGOT_OP_RETURN;

/* Its address stands for the slab in registers; nobody looks into it. */
static const uint64_t slab_mark = 0;

static const ingot_layout_function_t *measured(const ingot_vm_context_t *context) {
  return &context->image->module->functions[context->function];
}

/* Whether an instruction has more than scalars to do. */
static bool is_work(uint32_t code) { return code >= INGOT_OP_ARGUMENT_BUFFER; }

/* How many dims the tensors among the first `count` of some values have. */
static uint32_t dims_before(const ingot_layout_value_t *values, uint32_t count) {
  uint32_t dims = 0;
  for (uint32_t v = 0; v < count; ++v) dims += values[v].kind == 0 ? values[v].rank : 0;
  return dims;
}

/* The module's own words, which have no marks. */
static bool decode_at(const ingot_vm_context_t *context, uint32_t word, ingot_decoded_t *decoded) {
  const ingot_layout_function_t *function = measured(context);
  const uint16_t *code = context->image->module->code + function->code_offset;
  return ingot_instruction_decode(code, (uint32_t)function->code_length, word, decoded);
}

/* The first word that the instruction at `word` leads back to, if it is before `first`. */
static uint32_t first_target(const uint16_t *code, uint32_t word, const ingot_decoded_t *decoded,
                             uint32_t first) {
  for (uint32_t k = 0; k < decoded->operand_count; ++k) {
    const ingot_operand_t *operand = &decoded->operands[k];
    for (uint32_t t = 0; operand->letter == 't' && t < operand->count; ++t) {
      uint32_t target = ingot_code_u32(code + operand->position + 2 * t);
      if (target <= word && target < first) first = target;
    }
  }
  return first;
}

/* Whether a slab may be asked for once more from word `stop` on. */
static bool may_grow(const ingot_vm_context_t *context, uint32_t stop) {
  const uint16_t *code = context->image->module->code + measured(context)->code_offset;
  ingot_decoded_t decoded;
  uint32_t last = 0, first = UINT32_MAX;
  bool is_asked = false;
  for (uint32_t word = 0; decode_at(context, word, &decoded); word = decoded.next) {
    if (decoded.code == INGOT_OP_SLAB) {
      is_asked = true;
      last = word;
    }
    first = first_target(code, word, &decoded, first);
  }
  return is_asked && (last > stop || (first <= last && stop > first));
}

/* -- instructions ------------------------------------------------------------------------------ */

static int64_t argument_dim(const ingot_vm_context_t *context, uint32_t argument, uint32_t dim) {
  const int64_t *dims = context->measure->argument_dims;
  if (!dims) return context->arguments[argument]->dims[dim];
  const ingot_module_t *module = context->image->module;
  return dims[dims_before(&module->values[measured(context)->first_value], argument) + dim];
}

static ingot_status_t measure_result(const ingot_vm_context_t *context, const uint16_t *pc,
                                     const int64_t *i64) {
  const ingot_module_t *module = context->image->module;
  const ingot_layout_function_t *function = measured(context);
  const ingot_layout_value_t *results =
      &module->values[function->first_value] + function->argument_count;
  int64_t *dims = context->measure->result_dims;
  if (!dims) return NULL;
  dims += dims_before(results, pc[3]);
  for (uint32_t d = 0; d < pc[4]; ++d) dims[d] = i64[pc[5 + d]];
  int64_t length = 0;
  const ingot_layout_value_t *result = &results[pc[3]];
  if (ingot_dtype_tensor_length(result->dtype, result->rank, dims, &length)) return NULL;
  return ingot_vm_result_too_large(context, pc[3]);
}

/* Remembers a dispatch whose bindings reach further into the slab than those of all before. */
static void measure_dispatch(ingot_vm_measure_t *measure, const uint16_t *pc, const int64_t *i64,
                             ingot_buffer_t *const *references) {
  const uint16_t *words = pc + 8 + pc[7]; /* behind kernel, workload, costs, constants */
  for (uint32_t b = 0; b < words[0]; ++b) {
    const uint16_t *binding = words + 1 + 3 * b;
    int64_t end = (int64_t)((uint64_t)i64[binding[1]] + (uint64_t)i64[binding[2]]);
    if ((const void *)references[binding[0]] != &slab_mark || end <= measure->widest_end) continue;
    measure->widest_end = end;
    measure->widest = pc;
  }
}

static ingot_status_t measure_step(ingot_vm_context_t *context, const uint16_t **pc, int64_t *i64,
                                   ingot_buffer_t **references) {
  ingot_vm_measure_t *measure = context->measure;
  const uint16_t *words = *pc;
  ingot_decoded_t decoded;
  (void)decode_at(context, (uint32_t)(words - context->code), &decoded);
  *pc = context->code + decoded.next;
  switch (decoded.code) {
    case INGOT_OP_SLAB:
      if (i64[words[3]] > measure->slab_length) measure->slab_length = i64[words[3]];
      references[words[1]] = (ingot_buffer_t *)(uintptr_t)&slab_mark;
      i64[words[2]] = 0;
      return NULL;
    case INGOT_OP_ARGUMENT_DIM:
      i64[words[1]] = argument_dim(context, words[2], words[3]);
      return NULL;
    case INGOT_OP_CONSTANTS:
    case INGOT_OP_GLOBAL_LOAD: references[words[1]] = NULL; return NULL;
    case INGOT_OP_ARGUMENT_BUFFER:
    case INGOT_OP_RESULT_BUFFER:
    case INGOT_OP_VARIABLE_READ:
    case INGOT_OP_VARIABLE_GROW:
    case INGOT_OP_VARIABLE_WRITE:
      references[words[1]] = NULL;
      i64[words[2]] = 0;
      return decoded.code == INGOT_OP_RESULT_BUFFER ? measure_result(context, words, i64) : NULL;
    case INGOT_OP_DISPATCH: measure_dispatch(measure, words, i64, references); return NULL;
    case INGOT_OP_COPY:
    case INGOT_OP_WRITE_I64:
    case INGOT_OP_WRITE_F64: return NULL;
    default:
      measure->stop = words;
      *pc = &return_word;
      return NULL;
  }
}

/* -- the function ------------------------------------------------------------------------------ */

ingot_status_t ingot_vm_measure_begin(ingot_vm_context_t *context, ingot_vm_measure_t *measure) {
  measure->is_exact = true;
  INGOT_TRY(ingot_vm_mark(context, is_work, measure_step));
  context->measure = measure;
  ingot_status_t status = ingot_vm_run(context);
  context->measure = NULL;
  if (measure->stop && may_grow(context, (uint32_t)(measure->stop - context->code))) {
    measure->is_exact = false;
  }
  return status;
}

void ingot_vm_measure_end(ingot_vm_context_t *context) { ingot_vm_unmark(context); }

/* -- failures ---------------------------------------------------------------------------------- */

ingot_status_t ingot_vm_name_widest(ingot_vm_context_t *context, ingot_status_t status) {
  char text[INGOT_HAL_DESCRIPTION_CAPACITY];
  int64_t length = context->slab_missing;
  context->slab_missing = 0;
  ingot_vm_measure_t measure = {.result_dims = NULL};
  ingot_status_free(ingot_vm_measure_begin(context, &measure));
  if (measure.widest && ingot_vm_describe(context, measure.widest, text, sizeof(text))) {
    status = ingot_status_prefix(
        status, "working memory of %" PRId64 " bytes, which is fullest at %s", length, text);
  }
  ingot_vm_measure_end(context);
  return status;
}
