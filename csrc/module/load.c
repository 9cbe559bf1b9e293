/* Loading a module: the checks that it runs are in container.c, tables.c and verify.c. */
#include "module/module.h"

static ingot_status_t check_module(ingot_module_t *module, uint32_t flags) {
  if (flags & ~INGOT_MODULE_VERIFY_CONSTANTS) {
    return ingot_status_create(&module->instance->allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "module: load flags 0x%x, known is 0x%x only", flags,
                               INGOT_MODULE_VERIFY_CONSTANTS);
  }
  if ((uintptr_t)module->data % sizeof(uint64_t) != 0) {
    return ingot_status_create(&module->instance->allocator, INGOT_STATUS_INVALID_ARGUMENT,
                               "module: its memory must start on a multiple of 8 bytes");
  }
  INGOT_TRY(ingot_module_open_sections(module, flags & INGOT_MODULE_VERIFY_CONSTANTS));
#if defined(INGOT_ONLY_MODULE)
  if (((const ingot_layout_header_t *)(const void *)module->data)->crc != INGOT_ONLY_MODULE) {
    return ingot_status_create(&module->instance->allocator, INGOT_STATUS_INCOMPATIBLE,
                               "module: this runtime is of a bundle and loads its module only, "
                               "which this is not: make a bundle of it too");
  }
  return ingot_module_number_entries(module);
#else
  INGOT_TRY(ingot_module_check_tables(module));
  INGOT_TRY(ingot_module_number_entries(module));
  return ingot_module_verify_code(module);
#endif
}

static ingot_status_t create_module(ingot_instance_t *instance, const void *data, size_t length,
                                    uint32_t flags, ingot_module_t **out_module) {
  void *memory = NULL;
  INGOT_TRY(ingot_allocate(&instance->allocator, sizeof(ingot_module_t), &memory));
  ingot_module_t *module = memory;
  ingot_reference_count_initialize(&module->references);
  ingot_hal_instance_retain(instance);
  module->instance = instance;
  module->data = data;
  module->length = length;
  ingot_status_t status = check_module(module, flags);
  if (status) {
    ingot_module_release(module);
    return status;
  }
  *out_module = module;
  return NULL;
}

ingot_status_t ingot_module_load_memory(ingot_instance_t *instance, const void *data, size_t length,
                                        uint32_t flags, ingot_release_function_t release,
                                        void *user, ingot_module_t **out_module) {
  ingot_module_t *module = NULL;
  INGOT_TRY(create_module(instance, data, length, flags, &module));
  module->release = release;
  module->user = user;
  *out_module = module;
  return NULL;
}

ingot_status_t ingot_module_load_file(ingot_instance_t *instance, const char *path, uint32_t flags,
                                      ingot_module_t **out_module) {
  ingot_file_t file;
  bool reads_all = flags & INGOT_MODULE_VERIFY_CONSTANTS;
  INGOT_TRY(ingot_file_open(&instance->allocator, path,
                            reads_all ? NULL : ingot_module_choose_constants, &file));
  ingot_module_t *module = NULL;
  ingot_status_t status = create_module(instance, file.data, file.length, flags, &module);
  if (status) {
    ingot_file_close(&instance->allocator, &file);
    return ingot_status_prefix(status, "'%s'", path);
  }
  module->file = file;
  *out_module = module;
  return NULL;
}
