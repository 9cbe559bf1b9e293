/* What single instructions do beyond registers: dispatches, copies, results, reads and writes
 * of elements, failing asserts. Operands are taken from verified code.
 */
#ifndef INGOT_VM_DEVICE_WORK_H_
#define INGOT_VM_DEVICE_WORK_H_

#include "vm/context.h"

/* The dispatch instruction at *pc, which moves behind it on success. */
ingot_status_t ingot_vm_dispatch(ingot_vm_context_t *context, const uint16_t **pc,
                                 const int64_t *i64, ingot_buffer_t *const *references);

/* The copy instruction at `pc`. */
ingot_status_t ingot_vm_copy(ingot_vm_context_t *context, const uint16_t *pc, const int64_t *i64,
                             ingot_buffer_t *const *references);
/* The list.insert, list.set, list.extend and list.copy instruction at `pc`. */
ingot_status_t ingot_vm_insert_element(ingot_vm_context_t *context, const uint16_t *pc,
                                       const int64_t *i64, ingot_buffer_t *const *references);
ingot_status_t ingot_vm_set_element(ingot_vm_context_t *context, const uint16_t *pc,
                                    const int64_t *i64, ingot_buffer_t *const *references);
ingot_status_t ingot_vm_extend_element(ingot_vm_context_t *context, const uint16_t *pc,
                                       const int64_t *i64, ingot_buffer_t *const *references);
ingot_status_t ingot_vm_copy_list(ingot_vm_context_t *context, const uint16_t *pc);

/* The list.argument and the list.result instruction at `pc`. */
ingot_status_t ingot_vm_list_argument(ingot_vm_context_t *context, const uint16_t *pc,
                                      int64_t *out_given);
ingot_status_t ingot_vm_list_result(ingot_vm_context_t *context, const uint16_t *pc, int64_t given);

/* The result.buffer instruction at `pc`. */
ingot_status_t ingot_vm_make_result(ingot_vm_context_t *context, const uint16_t *pc,
                                    const int64_t *i64, ingot_buffer_t **out_buffer,
                                    int64_t *out_offset);

/* The status of the failed assert instruction at `pc`: its message with values filled in. */
ingot_status_t ingot_vm_assert_failure(const ingot_vm_context_t *context, const uint16_t *pc,
                                       const int64_t *i64);

ingot_status_t ingot_vm_read_i64(ingot_vm_context_t *context, ingot_buffer_t *buffer,
                                 int64_t offset, ingot_dtype_t dtype, int64_t *out_value);
ingot_status_t ingot_vm_read_f64(ingot_vm_context_t *context, ingot_buffer_t *buffer,
                                 int64_t offset, ingot_dtype_t dtype, double *out_value);
ingot_status_t ingot_vm_write_i64(ingot_vm_context_t *context, ingot_buffer_t *buffer,
                                  int64_t offset, int64_t value, ingot_dtype_t dtype);
ingot_status_t ingot_vm_write_f64(ingot_vm_context_t *context, ingot_buffer_t *buffer,
                                  int64_t offset, double value, ingot_dtype_t dtype);

#endif /* INGOT_VM_DEVICE_WORK_H_ */
