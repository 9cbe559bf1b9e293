/* References: making them, telling them apart, and finding them by their handles. */
#include "vm/reference.h"

#include <string.h>

static void release_reference(void *user, void *data) {
  ingot_reference_t *reference = user;
  (void)data;
  if (reference->release) reference->release(reference->user, reference->object);
  ingot_release_memory(reference->allocator, reference);
}

/* Has no dtype, so that it fits no tensor. */
static ingot_status_t view_reference(ingot_buffer_t *root, ingot_buffer_view_t **out_view) {
  INGOT_TRY(ingot_buffer_view_create(root, 0, INGOT_DTYPE_I64, 0, NULL, out_view));
  (*out_view)->layout.dtype = 0;
  return NULL;
}

ingot_status_t ingot_reference_create(ingot_device_t *device, const char *type, void *object,
                                      ingot_release_function_t release, void *user,
                                      ingot_buffer_view_t **out_view) {
  const ingot_allocator_t *allocator = ingot_hal_device_allocator(device);
  size_t length = strlen(type) + 1;
  void *memory = NULL;
  ingot_buffer_t *root = NULL;
  INGOT_TRY(ingot_allocate(allocator, sizeof(ingot_reference_t) + length, &memory));
  ingot_reference_t *reference = memory;
  *reference = (ingot_reference_t){.allocator = allocator, .object = object};
  reference->handle = (uintptr_t)reference;
  memcpy(reference->type, type, length);
  ingot_status_t status =
      ingot_hal_buffer_wrap(device, &reference->handle, sizeof(reference->handle),
                            INGOT_HAL_ACCESS_READ, release_reference, reference, &root);
  if (status) {
    ingot_release_memory(allocator, reference);
    return status;
  }
  root->reference = reference;
  status = view_reference(root, out_view);
  if (!status) {
    reference->release = release;
    reference->user = user;
  }
  ingot_hal_buffer_release(root);
  return status;
}

/* Whether a buffer, which may be NULL, is the handle of a reference of that type. */
static bool is_reference(const ingot_buffer_t *span, const char *type) {
  return span && span->root->reference && strcmp(span->root->reference->type, type) == 0;
}

ingot_status_t ingot_reference_check(const ingot_device_t *device, const ingot_buffer_view_t *view,
                                     const char *type) {
  if (view && is_reference(view->span, type) && view->span->device == device) return NULL;
  const ingot_reference_t *reference = ingot_reference_of(view);
  return ingot_status_create(ingot_hal_device_allocator(device), INGOT_STATUS_INVALID_ARGUMENT,
                             "%s%s, expected &%s of the program's device", reference ? "&" : "",
                             reference ? reference->type
                             : view    ? "no reference"
                                       : "NULL",
                             type);
}

ingot_status_t ingot_reference_object(const ingot_buffer_view_t *view, const char *type,
                                      void **out_object) {
  const ingot_device_t *device = view->span ? view->span->device : view->device;
  INGOT_TRY(ingot_reference_check(device, view, type));
  *out_object = ingot_reference_of(view)->object;
  return NULL;
}

ingot_status_t ingot_vm_reference_find(const ingot_vm_context_t *context, ingot_buffer_t *buffer,
                                       int64_t offset, const char *type,
                                       ingot_buffer_view_t **out_view) {
  const ingot_layout_function_t *function = &context->image->module->functions[context->function];
  const uint32_t count = function->argument_count;
  uint64_t handle = 0;
  INGOT_TRY(ingot_hal_buffer_read(buffer, offset, sizeof(handle), &handle));
  const uint32_t total = count + context->retired_count;
  for (uint32_t i = 0; i < total; ++i) { /* the newest first of what loops make one by one */
    const ingot_buffer_view_t *argument = i < count ? context->arguments[i] : NULL;
    ingot_buffer_t *span =
        i < count ? argument ? argument->span : NULL : context->retired[total - 1 - i];
    if (!is_reference(span, type) || (uintptr_t)span->root->reference != handle) continue;
    return view_reference(span->root, out_view);
  }
  return ingot_status_create(ingot_hal_device_allocator(context->device),
                             INGOT_STATUS_INVALID_ARGUMENT,
                             "the call has no such &%s: the module is damaged", type);
}
