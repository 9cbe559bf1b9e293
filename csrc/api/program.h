/* Programs: the images of their modules and the list of functions that can be called.
 */
#ifndef INGOT_API_PROGRAM_H_
#define INGOT_API_PROGRAM_H_

#include "vm/image.h"

/* A function that sessions can call. */
typedef struct ingot_program_function_t {
  uint32_t image;
  uint32_t function; /* ordinal in the image's module */
} ingot_program_function_t;

struct ingot_program_t {
  ingot_reference_count_t references;
  ingot_device_t *device;
  bool zero_memory; /* of sessions */
  uint32_t image_count;
  uint32_t function_count;
  ingot_vm_image_t *images;
  ingot_program_function_t *functions;
};

/* One span per parameter of the module, checked against its dtype and shape. NotFound names
 * all that are missing. `parameters` may be NULL; `spans` has room for all. */
ingot_status_t ingot_program_find_parameters(const ingot_module_t *module,
                                             const ingot_parameters_t *parameters,
                                             ingot_parameter_span_t *spans);

/* NotFound names all native functions that the modules call and `options` lack; InvalidArgument
 * those of another signature. */
ingot_status_t ingot_program_check_natives(const ingot_device_t *device,
                                           ingot_module_t *const *modules, uint32_t module_count,
                                           const ingot_program_options_t *options);

/* Gives an image those that its module calls, which are checked. */
ingot_status_t ingot_program_take_natives(ingot_vm_image_t *image,
                                          const ingot_program_options_t *options);

#endif /* INGOT_API_PROGRAM_H_ */
