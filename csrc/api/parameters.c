/* Binding of parameters: asking the embedder for every one, checking what comes, and one
 * message for all that is missing.
 */
#include <inttypes.h>
#include <string.h>

#include "api/program.h"
#include "base/dtype.h"
#include "base/text.h"

static ingot_status_t check_span(const ingot_module_t *module,
                                 const ingot_layout_parameter_t *parameter,
                                 const ingot_parameter_span_t *span) {
  const ingot_allocator_t *allocator = &module->instance->allocator;
  const char *key = ingot_module_string(module, parameter->key);
  if (span->dtype != parameter->dtype) {
    const char *got = ingot_dtype_name(span->dtype);
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "parameter '%s' is %s, expected %s", key, got ? got : "no dtype",
                               ingot_dtype_name(parameter->dtype));
  }
  if (span->rank != parameter->rank) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "parameter '%s' has rank %u, expected %u", key, span->rank,
                               parameter->rank);
  }
  const ingot_layout_dim_t *dims = &module->dims[parameter->first_dim];
  for (uint32_t d = 0; d < span->rank; ++d) {
    if (span->dims[d] == dims[d].size) continue;
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "parameter '%s': dim %u is %" PRId64 ", expected %" PRId64, key, d,
                               span->dims[d], dims[d].size);
  }
  int64_t length = 0;
  bool fits = ingot_dtype_tensor_length(span->dtype, span->rank, span->dims, &length);
  if (!fits || (uint64_t)length != span->length || (!span->data && length > 0)) {
    return ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "parameter '%s' comes with %zu bytes, expected %" PRId64, key,
                               span->length, length);
  }
  return NULL;
}

ingot_status_t ingot_program_find_parameters(const ingot_module_t *module, const bool *wanted,
                                             const ingot_parameters_t *parameters,
                                             ingot_parameter_span_t *spans) {
  char missing[1024] = "";
  bool is_cut = false;
  uint32_t missing_count = 0;
  uint32_t wanted_count = 0;
  for (uint32_t i = 0; i < module->parameter_count; ++i) {
    if (!wanted[i]) continue;
    ++wanted_count;
    const ingot_layout_parameter_t *parameter = &module->parameters[i];
    const char *scope = ingot_module_string(module, parameter->scope);
    const char *key = ingot_module_string(module, parameter->key);
    ingot_status_t status = NULL;
    if (parameters && parameters->find) {
      status = parameters->find(parameters->user, scope, key, &spans[i]);
      if (!status) status = check_span(module, parameter, &spans[i]);
      if (status && ingot_status_code(status) != INGOT_STATUS_NOT_FOUND) return status;
      if (!status) continue;
    }
    ingot_status_free(status);
    is_cut |= !ingot_text_add(missing, sizeof(missing), "%s'%s%s%s'", missing_count++ ? ", " : "",
                              scope, scope[0] ? "/" : "", key);
  }
  if (missing_count == 0) return NULL;
  return ingot_status_create(&module->instance->allocator, INGOT_STATUS_NOT_FOUND,
                             "%u of %u parameters are missing: %s%s; give the weights that belong "
                             "to this module",
                             missing_count, wanted_count, missing, is_cut ? ", ..." : "");
}

ingot_status_t ingot_program_refuse_scope(const ingot_program_t *program, const char *scope) {
  char names[512] = "";
  const char *last = NULL; /* those of a scope stand together */
  for (uint32_t i = 0; i < program->image_count; ++i) {
    const ingot_module_t *module = program->images[i].module;
    for (uint32_t p = 0; p < module->parameter_count; ++p) {
      const char *each = ingot_module_string(module, module->parameters[p].scope);
      if (last && strcmp(each, last) == 0) continue;
      (void)ingot_text_add(names, sizeof(names), "%s'%s'", last ? ", " : "", each);
      last = each;
    }
  }
  return ingot_status_create(ingot_program_allocator(program), INGOT_STATUS_NOT_FOUND,
                             "the program has no parameters%s%s%s; its scopes are: %s",
                             scope ? " of scope '" : "", scope ? scope : "", scope ? "'" : "",
                             last ? names : "none");
}
