/* Files as bytes. */
#include "module/file.h"

#include <string.h>

#define LONGEST_SHOWN_PATH 4095 /* a path that is too long is not shown whole */

ingot_status_t ingot_file_open(const ingot_allocator_t *allocator, const char *path,
                               ingot_file_choose_t choose, ingot_file_t *out_file) {
  ingot_reason_t reason = {"this runtime was built without files: give the bytes"};
#if defined(INGOT_NO_FILES)
  (void)choose;
  *out_file = (ingot_file_t){NULL, 0};
  ingot_status_code_t code = INGOT_STATUS_UNSUPPORTED;
#else
  ingot_status_code_t code = ingot_file_load(allocator, path, choose, out_file, &reason);
  if (!code) return NULL;
#endif
  bool is_long = strlen(path) > LONGEST_SHOWN_PATH;
  return ingot_status_create(allocator, code, "cannot read '%.*s%s': %s",
                             is_long ? 200 : LONGEST_SHOWN_PATH, path, is_long ? "..." : "",
                             reason.text);
}

void ingot_file_close(const ingot_allocator_t *allocator, ingot_file_t *file) {
#if defined(INGOT_NO_FILES)
  (void)allocator;
  (void)file;
#else
  ingot_file_unload(allocator, file);
#endif
}
