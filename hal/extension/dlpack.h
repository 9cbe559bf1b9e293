/* The DLPack structs, as far as Ingot speaks them, and how a buffer view becomes one.
 *
 * The layout is fixed by the DLPack specification, versions 0.x (DLManagedTensor) and 1.x
 * (DLManagedTensorVersioned). Part of the Python extension only.
 */
#ifndef INGOT_EXTENSION_DLPACK_H_
#define INGOT_EXTENSION_DLPACK_H_

#ifndef INGOT_CDEF
#include "ingot/ingot.h"
#endif /* INGOT_CDEF */

#define INGOT_DLPACK_CPU 1
#define INGOT_DLPACK_OPENCL 4
#define INGOT_DLPACK_MAJOR 1
#define INGOT_DLPACK_READ_ONLY 1
#define INGOT_DLPACK_COPIED 2

typedef struct ingot_dlpack_tensor_t {
  void *data;
  int32_t device_kind;
  int32_t device_ordinal;
  int32_t rank;
  uint8_t dtype_code;
  uint8_t dtype_bits;
  uint16_t dtype_lanes;
  int64_t *dims;
  int64_t *strides; /* in elements; NULL for row-major */
  uint64_t offset;
} ingot_dlpack_tensor_t;

typedef struct ingot_dlpack_managed_t {
  ingot_dlpack_tensor_t tensor;
  void *context;
  void (*deleter)(struct ingot_dlpack_managed_t *self);
} ingot_dlpack_managed_t;

typedef struct ingot_dlpack_versioned_t {
  uint32_t major;
  uint32_t minor;
  void *context;
  void (*deleter)(struct ingot_dlpack_versioned_t *self);
  uint64_t flags;
  ingot_dlpack_tensor_t tensor;
} ingot_dlpack_versioned_t;

/* Tensors over the bytes of `view`, which is retained, and mapped but for OpenCL, where `data` is
 * its cl_mem, until the deleter runs. `device_kind`: INGOT_DLPACK_*. NULL: no memory. */
ingot_dlpack_managed_t *ingot_dlpack_export(ingot_buffer_view_t *view, int32_t device_kind,
                                            uint8_t dtype_code, uint8_t dtype_bits);
ingot_dlpack_versioned_t *ingot_dlpack_export_versioned(ingot_buffer_view_t *view,
                                                        int32_t device_kind, uint8_t dtype_code,
                                                        uint8_t dtype_bits, uint64_t flags);

/* The name of a capsule with either kind, and the PyCapsule_Destructor for both, which frees
 * a tensor that nobody consumed. They outlive the interpreter's own strings. */
const char *ingot_dlpack_capsule_name(bool versioned);
void *ingot_dlpack_capsule_destructor(void);

#endif /* INGOT_EXTENSION_DLPACK_H_ */
