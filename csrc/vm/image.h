/* An image: one module made ready on one device, the part of a program that the VM reads.
 *
 * It changes only while its init functions run, under the thread that creates the program;
 * after that it is shared between sessions without locks.
 */
#ifndef INGOT_VM_IMAGE_H_
#define INGOT_VM_IMAGE_H_

#include "hal/hal.h"
#include "module/module.h"

typedef struct ingot_vm_image_t {
  ingot_module_t *module; /* retained, like the device */
  ingot_device_t *device;
  ingot_hal_executable_t **executables; /* per executable; NULL for other targets */
  ingot_buffer_t *constants;
  ingot_buffer_t **globals; /* NULL until init sets them */
  ingot_buffer_t **arenas;
  uint32_t arena_count;
  uint32_t first_variable; /* its variables' place among those of the program */
  ingot_native_t *natives; /* the application's, by the ordinals of the module */
  /* During init only: where parameters come from, and the buffers that wrap them. */
  const ingot_parameter_span_t *parameter_spans;
  ingot_buffer_t **parameters;
} ingot_vm_image_t;

/* Whether the function or executable with this target string is for the image's device. */
bool ingot_vm_image_has_target(const ingot_vm_image_t *image, uint32_t target);

/* Loads the executables and wraps the constants. `spans` (one per parameter, checked) must
 * stay until ingot_vm_image_finish_init. On failure the image is left for
 * ingot_vm_image_deinitialize, which must be called in any case. */
ingot_status_t ingot_vm_image_initialize(ingot_vm_image_t *image, ingot_device_t *device,
                                         ingot_module_t *module,
                                         const ingot_parameter_span_t *spans);
void ingot_vm_image_deinitialize(ingot_vm_image_t *image);

/* What init-only instructions do. */
ingot_status_t ingot_vm_image_parameter(ingot_vm_image_t *image, uint32_t parameter,
                                        ingot_buffer_t **out_buffer);
ingot_status_t ingot_vm_image_arena(ingot_vm_image_t *image, ingot_hal_queue_t *queue,
                                    int64_t length, ingot_buffer_t **out_buffer);
ingot_status_t ingot_vm_image_set_global(ingot_vm_image_t *image, uint32_t global,
                                         ingot_buffer_t *buffer);

/* Lets go of the parameters. */
void ingot_vm_image_finish_init(ingot_vm_image_t *image);

#endif /* INGOT_VM_IMAGE_H_ */
