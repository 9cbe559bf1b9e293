/* Statuses of functions that belong to nobody: of the application, of other libraries. */
#include "base/allocator.h"

ingot_status_t ingot_status_make(ingot_status_code_t code, const char *message) {
  const ingot_allocator_t allocator = ingot_allocator_system();
  if (code == INGOT_STATUS_OK || !ingot_status_code_name(code)) {
    return ingot_status_create(&allocator, INGOT_STATUS_INTERNAL, "%d is no status code: %s", code,
                               message);
  }
  return ingot_status_create(&allocator, code, "%s", message);
}
