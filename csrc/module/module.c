/* Modules: lifetime, and what one can ask about them. They are made in load.c. */
#include "module/module.h"

#include "base/dtype.h"

/* -- lifetime ------------------------------------------------------------------------------ */

void ingot_module_retain(ingot_module_t *module) {
  ingot_reference_count_retain(&module->references);
}

void ingot_module_release(ingot_module_t *module) {
  if (!module || !ingot_reference_count_release(&module->references)) return;
  ingot_instance_t *instance = module->instance;
  if (module->file.data) ingot_file_close(&instance->allocator, &module->file);
  if (module->release) module->release(module->user, (void *)(uintptr_t)module->data);
  ingot_release_memory(&instance->allocator, module->entry_executables);
  ingot_release_memory(&instance->allocator, module->tables);
  ingot_release_memory(&instance->allocator, module);
  ingot_hal_instance_release(instance);
}

/* -- questions ----------------------------------------------------------------------------- */

const ingot_layout_location_t *ingot_module_find_location(const ingot_module_t *module,
                                                          uint64_t word) {
  uint32_t low = 0; /* locations before `low` start at or before `word` */
  uint32_t high = module->location_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (module->locations[middle].word <= word) low = middle + 1;
    else high = middle;
  }
  return low > 0 ? &module->locations[low - 1] : NULL;
}

const char *ingot_module_reference_type(const ingot_module_t *module,
                                        const ingot_layout_value_t *value) {
  bool is_reference = value->kind & INGOT_VALUE_REFERENCE;
  return is_reference ? ingot_module_string(module, module->dims[value->first_dim].text) : "";
}

int64_t ingot_module_variable_length(const ingot_module_t *module, uint32_t variable,
                                     int64_t rows) {
  const ingot_layout_variable_t *layout = &module->variables[variable];
  int64_t dims[INGOT_MAX_RANK];
  int64_t length = 0;
  for (uint32_t d = 0; d < layout->rank; ++d) {
    int64_t size = module->dims[layout->first_dim + d].size;
    dims[d] = size < 0 ? rows : size;
  }
  return ingot_dtype_tensor_length(layout->dtype, layout->rank, dims, &length) ? length : -1;
}

static ingot_status_t check_ordinal(const ingot_module_t *module, const char *what,
                                    uint32_t ordinal, uint32_t count) {
  if (ordinal < count) return NULL;
  return ingot_status_create(&module->instance->allocator, INGOT_STATUS_OUT_OF_RANGE,
                             "module: %s %u of %u", what, ordinal, count);
}

ingot_module_info_t ingot_module_info(const ingot_module_t *module) {
  return (ingot_module_info_t){
      .function_count = module->function_count,
      .parameter_count = module->parameter_count,
      .variable_count = module->variable_count,
      .metadata = module->metadata ? module->metadata : "",
      .metadata_length = (size_t)module->metadata_length,
  };
}

ingot_status_t ingot_module_function(const ingot_module_t *module, uint32_t function,
                                     ingot_function_info_t *out_info) {
  INGOT_TRY(check_ordinal(module, "function", function, module->function_count));
  const ingot_layout_function_t *layout = &module->functions[function];
  *out_info = (ingot_function_info_t){
      .name = ingot_module_string(module, layout->name),
      .doc = ingot_module_string(module, layout->doc),
      .target = ingot_module_string(module, layout->target),
      .exported = (layout->flags & INGOT_FUNCTION_EXPORTED) != 0,
      .argument_count = layout->argument_count,
      .result_count = layout->result_count,
  };
  return NULL;
}

ingot_status_t ingot_module_value(const ingot_module_t *module, uint32_t function, uint32_t value,
                                  ingot_value_info_t *out_info) {
  INGOT_TRY(check_ordinal(module, "function", function, module->function_count));
  const ingot_layout_function_t *owner = &module->functions[function];
  INGOT_TRY(check_ordinal(module, "value", value, owner->argument_count + owner->result_count));
  const ingot_layout_value_t *layout = &module->values[owner->first_value + value];
  *out_info = (ingot_value_info_t){
      .name = ingot_module_string(module, layout->name),
      .doc = ingot_module_string(module, layout->doc),
      .dtype = layout->dtype,
      .kind = layout->kind,
      .rank = layout->rank,
      .first_dim = layout->first_dim,
  };
  return NULL;
}

ingot_status_t ingot_module_dim(const ingot_module_t *module, uint32_t dim,
                                ingot_dim_info_t *out_info) {
  INGOT_TRY(check_ordinal(module, "dim", dim, module->dim_count));
  const ingot_layout_dim_t *layout = &module->dims[dim];
  *out_info = (ingot_dim_info_t){layout->size, ingot_module_string(module, layout->text)};
  return NULL;
}

ingot_status_t ingot_module_parameter(const ingot_module_t *module, uint32_t parameter,
                                      ingot_parameter_info_t *out_info) {
  INGOT_TRY(check_ordinal(module, "parameter", parameter, module->parameter_count));
  const ingot_layout_parameter_t *layout = &module->parameters[parameter];
  *out_info = (ingot_parameter_info_t){
      .scope = ingot_module_string(module, layout->scope),
      .key = ingot_module_string(module, layout->key),
      .dtype = layout->dtype,
      .rank = layout->rank,
      .first_dim = layout->first_dim,
  };
  return NULL;
}

ingot_status_t ingot_module_variable(const ingot_module_t *module, uint32_t variable,
                                     ingot_value_info_t *out_info) {
  INGOT_TRY(check_ordinal(module, "variable", variable, module->variable_count));
  const ingot_layout_variable_t *layout = &module->variables[variable];
  *out_info = (ingot_value_info_t){
      .name = ingot_module_string(module, layout->name),
      .doc = ingot_module_string(module, layout->doc),
      .dtype = layout->dtype,
      .rank = layout->rank,
      .first_dim = layout->first_dim,
  };
  return NULL;
}
