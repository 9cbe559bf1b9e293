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

#endif /* INGOT_API_PROGRAM_H_ */
