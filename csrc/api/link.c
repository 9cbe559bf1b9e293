/* Links: functions of one module that another one calls, by the name MODULE.FUNCTION. Here they are
 * compared when a program is made; inner.c calls them.
 */
#include <string.h>

#include "api/program.h"
#include "base/dtype.h"
#include "base/text.h"

/* -- signatures -------------------------------------------------------------------------------- */

static const ingot_module_t *module_of(const ingot_program_t *program, uint32_t function) {
  return program->images[program->functions[function].image].module;
}

static const ingot_layout_function_t *layout_of(const ingot_program_t *program, uint32_t function) {
  return &module_of(program, function)->functions[program->functions[function].function];
}

/* Whether a value of a function is what a module that calls it says. A dim that the function knows
 * must be that number where it is an argument; one that only the call tells is compared there. */
static bool value_fits(const ingot_module_t *caller, const ingot_layout_value_t *wanted,
                       const ingot_module_t *module, const ingot_layout_value_t *value,
                       bool argument) {
  bool fits = value->kind == wanted->kind && value->dtype == wanted->dtype &&
              value->rank == wanted->rank &&
              strcmp(ingot_module_reference_type(module, value),
                     ingot_module_reference_type(caller, wanted)) == 0;
  for (uint32_t d = 0; fits && d < value->rank; ++d) {
    int64_t size = module->dims[value->first_dim + d].size;
    int64_t said = caller->dims[wanted->first_dim + d].size;
    fits = size < 0 || size == said || (said < 0 && !argument);
  }
  return fits;
}

bool ingot_program_link_fits(const ingot_program_t *program, const ingot_module_t *caller,
                             const ingot_layout_native_t *native, uint32_t function) {
  const ingot_module_t *module = module_of(program, function);
  const ingot_layout_function_t *layout = layout_of(program, function);
  if (layout->argument_count != native->argument_count) return false;
  if (layout->result_count != native->result_count) return false;
  for (uint32_t k = 0; k < native->argument_count + native->result_count; ++k) {
    if (!value_fits(caller, &caller->values[native->first_value + k], module,
                    &module->values[layout->first_value + k], k < native->argument_count)) {
      return false;
    }
  }
  return true;
}

void ingot_program_link_text(const ingot_program_t *program, uint32_t function, char *out_text,
                             size_t capacity) {
  const ingot_module_t *module = module_of(program, function);
  const ingot_layout_function_t *layout = layout_of(program, function);
  out_text[0] = 0;
  (void)ingot_text_add(out_text, capacity, "(");
  for (uint32_t k = 0; k < layout->argument_count + layout->result_count; ++k) {
    const ingot_layout_value_t *value = &module->values[layout->first_value + k];
    const char *before = k == layout->argument_count ? ") -> (" : k > 0 ? ", " : "";
    const char *type = ingot_module_reference_type(module, value);
    const char *kind = value->kind ? "list of " : "";
    (void)ingot_text_add(out_text, capacity, "%s%s%s%s", before, *type ? "&" : kind,
                         *type ? type : ingot_dtype_name(value->dtype), *type ? "" : "[");
    for (uint32_t d = 0; d < value->rank; ++d) {
      const ingot_layout_dim_t *dim = &module->dims[value->first_dim + d];
      (void)ingot_text_add(out_text, capacity, "%s%s", d ? "," : "",
                           ingot_module_string(module, dim->text));
    }
    (void)ingot_text_add(out_text, capacity, *type ? "" : "]");
  }
  (void)ingot_text_add(out_text, capacity, layout->result_count ? ")" : ") -> ()");
}

/* -- versions ---------------------------------------------------------------------------------- */

static uint32_t version_of(const ingot_module_t *module) {
  for (uint32_t i = 0; i < module->version_count; ++i) {
    if (*ingot_module_string(module, module->versions[i].name) == 0) {
      return module->versions[i].number;
    }
  }
  return 0;
}

/* What image `i` needs of the image `k`, in one row of its versions. */
static ingot_status_t check_version(const ingot_program_t *program, uint32_t i, uint32_t k,
                                    const ingot_layout_version_t *needed) {
  const char *name = ingot_module_string(program->images[i].module, needed->name);
  uint32_t version = version_of(program->images[k].module);
  if (*name == 0 || strcmp(name, program->names[k]) != 0 || version >= needed->number) return NULL;
  return ingot_status_create(ingot_program_allocator(program), INGOT_STATUS_INCOMPATIBLE,
                             "module '%s' needs version %u of the module '%s', or a later one, but "
                             "it is version %u: load a newer '%s'",
                             program->names[i], needed->number, name, version, name);
}

ingot_status_t ingot_program_check_versions(const ingot_program_t *program) {
  for (uint32_t i = 0; i < program->image_count; ++i) {
    const ingot_module_t *module = program->images[i].module;
    for (uint32_t row = 0; row < module->version_count; ++row) {
      for (uint32_t k = 0; k < program->image_count; ++k) {
        INGOT_TRY(check_version(program, i, k, &module->versions[row]));
      }
    }
  }
  return NULL;
}

/* -- circles ----------------------------------------------------------------------------------- */

enum { UNSEEN, OPEN, CLOSED };

/* Whether what `image` calls leads to an image that is open, as itself. */
static bool is_circle(const ingot_program_t *program, uint32_t image, uint8_t *marks) {
  if (marks[image] != UNSEEN) return marks[image] == OPEN;
  marks[image] = OPEN;
  for (uint32_t i = 0; i < program->link_count; ++i) {
    const ingot_program_link_t *link = &program->links[i];
    if (link->caller != image) continue;
    if (is_circle(program, program->functions[link->target].image, marks)) return true;
  }
  marks[image] = CLOSED;
  return false;
}

ingot_status_t ingot_program_check_circles(const ingot_program_t *program) {
  const ingot_allocator_t *allocator = ingot_program_allocator(program);
  void *marks = NULL;
  ingot_status_t status = NULL;
  INGOT_TRY(ingot_allocate(allocator, program->image_count, &marks));
  for (uint32_t i = 0; !status && i < program->image_count; ++i) {
    if (!is_circle(program, i, marks)) continue;
    status = ingot_status_create(allocator, INGOT_STATUS_INVALID_ARGUMENT,
                                 "module '%s' and others call each other in a circle; put what "
                                 "they share into a module that calls none of them",
                                 program->names[i]);
  }
  ingot_release_memory(allocator, marks);
  return status;
}
