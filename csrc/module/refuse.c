/* How load says what is wrong with a module. */
#include <stdio.h>

#include "module/verifier.h"

#if !defined(INGOT_STRIP_MESSAGES)
ingot_status_t ingot_module_damaged(const ingot_module_t *module, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  ingot_status_t status = ingot_status_create_variadic(&module->instance->allocator,
                                                       INGOT_STATUS_DATA_LOSS, format, arguments);
  va_end(arguments);
  return ingot_status_prefix(status, "module");
}

ingot_status_t ingot_verifier_refuse(const ingot_verifier_t *verifier, uint32_t word,
                                     const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  bool inside = word < verifier->length;
  const char *name = ingot_instruction_name(inside ? verifier->words[word] : 0);
  return ingot_module_damaged(verifier->module, "function '%s', word %u (%s): %s",
                              ingot_module_string(verifier->module, verifier->function->name), word,
                              name[0] ? name : "no instruction", text);
}
#endif
