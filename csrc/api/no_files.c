/* What a runtime without files says of weights in files. */
#include "platform/platform.h"

#if defined(INGOT_NO_FILES)
#include "api/program.h"

static ingot_status_t no_files(const ingot_allocator_t *allocator) {
  return ingot_status_create(allocator, INGOT_STATUS_UNSUPPORTED,
                             "this runtime was built without files: give weights as parameters");
}

ingot_status_t ingot_safetensors_open(ingot_instance_t *instance, const char *path,
                                      ingot_safetensors_t **out_file) {
  (void)path;
  (void)out_file;
  return no_files(&instance->allocator);
}

void ingot_safetensors_close(ingot_safetensors_t *file) { (void)file; }

ingot_parameters_t ingot_safetensors_parameters(ingot_safetensors_t *file) {
  (void)file;
  return (ingot_parameters_t){NULL, NULL};
}

ingot_status_t ingot_program_open_packed(const ingot_program_t *program, const char *path,
                                         bool verify, ingot_vm_weights_t *weights) {
  (void)path;
  (void)verify;
  (void)weights;
  return no_files(ingot_program_allocator(program));
}

ingot_status_t ingot_program_save_weights(ingot_program_t *program, const ingot_module_t *module,
                                          const char *scope, ingot_write_function_t write,
                                          void *user) {
  (void)module;
  (void)scope;
  (void)write;
  (void)user;
  return no_files(ingot_program_allocator(program));
}
#endif /* INGOT_NO_FILES */
