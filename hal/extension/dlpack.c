/* Exports buffer views as DLPack tensors: see dlpack.h. Consumers run the deleters on any
 * thread, with or without the interpreter's lock, so they are plain C. */
#include "dlpack.h"

#include "ingot/opencl.h"

#include <Python.h>
#include <stdlib.h>
#include <string.h>

/* What a deleter needs: the view and its mapping, then room for dims and strides. */
typedef struct ingot_dlpack_context_t {
  ingot_buffer_view_t *view;
  void *data; /* the mapping; NULL: there is none */
  int64_t dims[32];
  int64_t strides[32];
} ingot_dlpack_context_t;

static void ingot_dlpack_context_free(ingot_dlpack_context_t *context) {
  if (context->data) {
    ingot_buffer_unmap(ingot_buffer_view_layout(context->view)->buffer, context->data);
  }
  ingot_buffer_view_release(context->view);
  free(context);
}

/* Where the bytes are, for the kind of device. */
static ingot_status_t ingot_dlpack_locate(const ingot_buffer_view_layout_t *layout,
                                          ingot_dlpack_context_t *context,
                                          ingot_dlpack_tensor_t *tensor) {
  context->data = NULL;
  tensor->offset = 0;
  if (tensor->device_kind == INGOT_DLPACK_OPENCL) {
    size_t offset = 0;
    ingot_status_t status = ingot_opencl_buffer_handle(layout->buffer, &tensor->data, &offset);
    tensor->offset = offset + layout->offset;
    return status;
  }
  ingot_status_t status = ingot_buffer_map(layout->buffer, layout->offset, layout->length,
                                           INGOT_MAP_READ | INGOT_MAP_WRITE, &context->data);
  tensor->data = context->data;
  return status;
}

/* Fills `tensor` and returns the context that keeps it valid; NULL: no memory. */
static ingot_dlpack_context_t *ingot_dlpack_fill(ingot_buffer_view_t *view, int32_t device_kind,
                                                 uint8_t dtype_code, uint8_t dtype_bits,
                                                 ingot_dlpack_tensor_t *tensor) {
  const ingot_buffer_view_layout_t *layout = ingot_buffer_view_layout(view);
  ingot_dlpack_context_t *context = malloc(sizeof *context);
  if (!context) return NULL;
  *tensor = (ingot_dlpack_tensor_t){
      .device_kind = device_kind,
      .rank = (int32_t)layout->rank,
      .dtype_code = dtype_code,
      .dtype_bits = dtype_bits,
      .dtype_lanes = 1,
      .dims = context->dims,
      .strides = context->strides,
  };
  ingot_status_t status = ingot_dlpack_locate(layout, context, tensor);
  if (status) {
    ingot_status_free(status);
    free(context);
    return NULL;
  }
  int64_t stride = 1;
  for (uint32_t i = layout->rank; i-- > 0;) {
    context->dims[i] = layout->dims[i];
    context->strides[i] = stride;
    stride *= layout->dims[i];
  }
  ingot_buffer_view_retain(view);
  context->view = view;
  return context;
}

static void ingot_dlpack_managed_free(ingot_dlpack_managed_t *self) {
  ingot_dlpack_context_free(self->context);
  free(self);
}

ingot_dlpack_managed_t *ingot_dlpack_export(ingot_buffer_view_t *view, int32_t device_kind,
                                            uint8_t dtype_code, uint8_t dtype_bits) {
  ingot_dlpack_managed_t *managed = calloc(1, sizeof *managed);
  if (!managed) return NULL;
  managed->context = ingot_dlpack_fill(view, device_kind, dtype_code, dtype_bits, &managed->tensor);
  if (!managed->context) {
    free(managed);
    return NULL;
  }
  managed->deleter = ingot_dlpack_managed_free;
  return managed;
}

static void ingot_dlpack_versioned_free(ingot_dlpack_versioned_t *self) {
  ingot_dlpack_context_free(self->context);
  free(self);
}

ingot_dlpack_versioned_t *ingot_dlpack_export_versioned(ingot_buffer_view_t *view,
                                                        int32_t device_kind, uint8_t dtype_code,
                                                        uint8_t dtype_bits, uint64_t flags) {
  ingot_dlpack_versioned_t *managed = calloc(1, sizeof *managed);
  if (!managed) return NULL;
  managed->context = ingot_dlpack_fill(view, device_kind, dtype_code, dtype_bits, &managed->tensor);
  if (!managed->context) {
    free(managed);
    return NULL;
  }
  managed->major = INGOT_DLPACK_MAJOR;
  managed->flags = flags;
  managed->deleter = ingot_dlpack_versioned_free;
  return managed;
}

#define INGOT_DLPACK_NAME "dltensor"
#define INGOT_DLPACK_NAME_VERSIONED "dltensor_versioned"

const char *ingot_dlpack_capsule_name(bool versioned) {
  return versioned ? INGOT_DLPACK_NAME_VERSIONED : INGOT_DLPACK_NAME;
}

/* Consumers rename the capsule to "used_...": then the tensor is theirs to delete. */
static void ingot_dlpack_capsule_free(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, INGOT_DLPACK_NAME)) {
    ingot_dlpack_managed_t *managed = PyCapsule_GetPointer(capsule, INGOT_DLPACK_NAME);
    managed->deleter(managed);
  } else if (PyCapsule_IsValid(capsule, INGOT_DLPACK_NAME_VERSIONED)) {
    ingot_dlpack_versioned_t *managed = PyCapsule_GetPointer(capsule, INGOT_DLPACK_NAME_VERSIONED);
    managed->deleter(managed);
  }
}

void *ingot_dlpack_capsule_destructor(void) {
  PyCapsule_Destructor destructor = ingot_dlpack_capsule_free;
  void *address;
  _Static_assert(sizeof address == sizeof destructor, "a function pointer is an address");
  memcpy(&address, &destructor, sizeof address);
  return address;
}
