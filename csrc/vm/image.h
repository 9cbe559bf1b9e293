/* An image: one module made ready on one device, the part of a program that the VM reads.
 *
 * It never changes once it is made, and is shared between sessions without locks. What its init
 * functions make is init.h's.
 */
#ifndef INGOT_VM_IMAGE_H_
#define INGOT_VM_IMAGE_H_

#include "hal/hal.h"
#include "module/module.h"

typedef struct ingot_vm_image_t {
  ingot_module_t *module; /* retained, like the device */
  ingot_device_t *device;
  ingot_hal_account_t *account; /* its owner's */
  ingot_hal_executable_t **executables; /* per executable; NULL for other targets */
  ingot_buffer_t *constants;
  uint32_t first_variable; /* its variables' place among those of the program */
  uint32_t first_global;   /* the same of its globals */
  ingot_native_t *natives; /* the application's, by the ordinals of the module */
} ingot_vm_image_t;

/* Whether the function or executable with this target string is for the image's device. */
bool ingot_vm_image_has_target(const ingot_vm_image_t *image, uint32_t target);

/* Whether it is an init function for the image's device. */
bool ingot_vm_image_is_init(const ingot_vm_image_t *image, const ingot_layout_function_t *function);

/* Loads the executables and wraps the constants. On failure the image is left for
 * ingot_vm_image_deinitialize, which must be called in any case. */
ingot_status_t ingot_vm_image_initialize(ingot_vm_image_t *image, ingot_device_t *device,
                                         ingot_hal_account_t *account, ingot_module_t *module);
void ingot_vm_image_deinitialize(ingot_vm_image_t *image);

#endif /* INGOT_VM_IMAGE_H_ */
