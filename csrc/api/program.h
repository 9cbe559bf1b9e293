/* Programs: the images of their modules, what init made, and the list of functions that can be
 * called.
 *
 * Only the weights of a program ever change, by a swap. A session holds a reference to those that
 * it uses, so a call pays one load to learn of a swap; whoever swaps visits the sessions that are
 * idle, and one that is in a call looks again when it leaves.
 */
#ifndef INGOT_API_PROGRAM_H_
#define INGOT_API_PROGRAM_H_

#include "vm/init.h"

/* A function that sessions can call. */
typedef struct ingot_program_function_t {
  uint32_t image;
  uint32_t function; /* ordinal in the image's module */
} ingot_program_function_t;

/* A function that the code of an image calls: the user of a native function without `call`. */
typedef struct ingot_program_link_t {
  uint32_t caller; /* the image */
  uint32_t target; /* the function, ordinal in the program */
} ingot_program_link_t;

struct ingot_program_t {
  ingot_reference_count_t references;
  ingot_device_t *device;
  bool zero_memory; /* of sessions */
  ingot_hal_account_t *account; /* of the program and its sessions */
  uint32_t image_count;
  uint32_t function_count;
  ingot_vm_image_t *images;
  ingot_program_function_t *functions;
  char **names; /* of the images; "" for one without */
  uint32_t link_count;
  ingot_program_link_t *links; /* with room for all that the modules import */
  _Atomic bool swapping;
  ingot_mutex_t mutex;                   /* guards the rest */
  ingot_vm_weights_t *_Atomic weights; /* NULL until they are made; may be read without it */
  ingot_session_t *sessions;             /* all of them */
};

static inline const ingot_allocator_t *ingot_program_allocator(const ingot_program_t *program) {
  return ingot_hal_device_allocator(program->device);
}

static inline const char *ingot_program_function_name(const ingot_program_t *program,
                                                      uint32_t ordinal) {
  ingot_program_function_t function = program->functions[ordinal];
  const ingot_module_t *module = program->images[function.image].module;
  return ingot_module_string(module, module->functions[function.function].name);
}

/* The function called MODULE.FUNCTION. */
bool ingot_program_find_link(const ingot_program_t *program, const char *name,
                             uint32_t *out_function);

/* Which parameters init functions get, and which of them run: without `swaps` those whose globals
 * are not all there, else those that read a parameter of `scope`, or of any if that is NULL. */
typedef struct ingot_making_t {
  const ingot_parameters_t *parameters; /* may be NULL */
  const ingot_call_options_t *limits;
  int64_t begin; /* of ingot_clock */
  bool swaps;
  const char *scope;
} ingot_making_t;

/* weights.c: runs the init functions of the program's images, which set `weights`. */
ingot_status_t ingot_program_make_weights(const ingot_program_t *program,
                                          const ingot_making_t *making,
                                          ingot_vm_weights_t *weights);

/* Whether a parameter of `scope`, or any if that is NULL, is among those marked in `reads`. */
bool ingot_program_reads_scope(const ingot_module_t *module, const bool *reads, const char *scope);

/* A reference to the program's weights, for the caller to release. */
ingot_vm_weights_t *ingot_program_hold_weights(ingot_program_t *program);

/* One span per parameter of the module that is `wanted`, checked against its dtype and shape.
 * NotFound names all that are missing. `parameters` may be NULL; `spans` has room for all. */
ingot_status_t ingot_program_find_parameters(const ingot_module_t *module, const bool *wanted,
                                             const ingot_parameters_t *parameters,
                                             ingot_parameter_span_t *spans);

/* NotFound: no parameter is of `scope`, which names those that there are. */
ingot_status_t ingot_program_refuse_scope(const ingot_program_t *program, const char *scope);

/* natives.c: gives all images the native functions that their modules call: those of `options`,
 * else functions of other modules. NotFound names all that nobody has; InvalidArgument those of
 * another signature. */
ingot_status_t ingot_program_take_natives(ingot_program_t *program,
                                          const ingot_program_options_t *options);

/* link.c: whether a function takes and gives what the module that calls it says. */
bool ingot_program_link_fits(const ingot_program_t *program, const ingot_module_t *caller,
                             const ingot_layout_native_t *native, uint32_t function);

/* What it takes and gives, as text. */
void ingot_program_link_text(const ingot_program_t *program, uint32_t function, char *out_text,
                             size_t capacity);

/* Incompatible if a module needs a later version of another one. */
ingot_status_t ingot_program_check_versions(const ingot_program_t *program);

/* InvalidArgument if modules call each other in a circle. */
ingot_status_t ingot_program_check_circles(const ingot_program_t *program);

/* packed.c: sets the globals that a file holds, which belong to one of the program's modules. */
ingot_status_t ingot_program_open_packed(const ingot_program_t *program, const char *path,
                                         bool verify, ingot_vm_weights_t *weights);

/* session.c: gives every session that is idle the program's weights. With the mutex held. */
void ingot_program_renew_sessions(const ingot_program_t *program);

#endif /* INGOT_API_PROGRAM_H_ */
