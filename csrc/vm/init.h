/* Init: what a program's code finds ready made, and what running an init function needs.
 *
 * Weights are what the init functions of all images of a program made, a buffer for each global.
 * They never change: other parameters make other weights, and whoever runs code holds a
 * reference to those that it began with.
 */
#ifndef INGOT_VM_INIT_H_
#define INGOT_VM_INIT_H_

#include "vm/image.h"

typedef struct ingot_vm_weights_t {
  ingot_reference_count_t references;
  const ingot_allocator_t *allocator;
  uint32_t count;
  ingot_buffer_t *globals[]; /* of all images in their order; NULL until init sets them */
} ingot_vm_weights_t;

/* `count` globals: those of `old`, or with NULL none set yet. */
ingot_status_t ingot_vm_weights_create(const ingot_allocator_t *allocator, uint32_t count,
                                       const ingot_vm_weights_t *old,
                                       ingot_vm_weights_t **out_weights);
void ingot_vm_weights_retain(ingot_vm_weights_t *weights);
void ingot_vm_weights_release(ingot_vm_weights_t *weights);

/* Takes over a reference to `buffer`. */
void ingot_vm_weights_set(ingot_vm_weights_t *weights, uint32_t global, ingot_buffer_t *buffer);

/* Bytes that they keep. */
int64_t ingot_vm_weights_length(const ingot_vm_weights_t *weights);

/* One image whose init functions run. */
typedef struct ingot_vm_init_t {
  const ingot_vm_image_t *image;
  ingot_vm_weights_t *weights;         /* that are being made */
  const ingot_parameter_span_t *spans; /* one per parameter that code reads, checked */
  ingot_buffer_t **parameters;         /* the same wrapped, as soon as code asks for them */
  const ingot_parameter_span_t *last;  /* that code asked for; may be NULL */
  ingot_buffer_t **arenas;
  uint32_t arena_count;
} ingot_vm_init_t;

/* `spans` must stay until deinitialize, which must be called in any case. */
ingot_status_t ingot_vm_init_initialize(ingot_vm_init_t *init, const ingot_vm_image_t *image,
                                        ingot_vm_weights_t *weights,
                                        const ingot_parameter_span_t *spans);
void ingot_vm_init_deinitialize(ingot_vm_init_t *init);

/* Marks the parameters that an init function reads, and the globals that it sets. Either may be
 * NULL. */
void ingot_vm_init_scan(const ingot_module_t *module, const ingot_layout_function_t *function,
                        bool *parameters, bool *globals);

/* What init-only instructions do. */
ingot_status_t ingot_vm_init_parameter(ingot_vm_init_t *init, uint32_t parameter,
                                       ingot_buffer_t **out_buffer);
ingot_status_t ingot_vm_init_arena(ingot_vm_init_t *init, ingot_hal_queue_t *queue, int64_t length,
                                   ingot_buffer_t **out_buffer);
ingot_status_t ingot_vm_init_set_global(ingot_vm_init_t *init, uint32_t global,
                                        ingot_buffer_t *buffer);

#endif /* INGOT_VM_INIT_H_ */
