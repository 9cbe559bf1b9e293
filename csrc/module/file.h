/* A file's bytes, read-only: mapped where that is wanted and the system can, else read into memory.
 * A mapped file must not be cut while it is open; one that is cut while it is read is DataLoss.
 */
#ifndef INGOT_MODULE_FILE_H_
#define INGOT_MODULE_FILE_H_

#include "base/allocator.h"

typedef struct ingot_file_t {
  const uint8_t *data; /* never NULL once opened, page or malloc aligned */
  size_t length;
  bool mapped;
} ingot_file_t;

/* NotFound, PermissionDenied or Internal, with path and the system's reason. */
ingot_status_t ingot_file_open(const ingot_allocator_t *allocator, const char *path, bool mapped,
                               ingot_file_t *out_file);
void ingot_file_close(const ingot_allocator_t *allocator, ingot_file_t *file);

#endif /* INGOT_MODULE_FILE_H_ */
