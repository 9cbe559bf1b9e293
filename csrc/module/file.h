/* A file's bytes, read into private memory, but for a range that may stay the file's own. That
 * must not be cut or changed while it is open; a file that is cut while it is read is DataLoss.
 */
#ifndef INGOT_MODULE_FILE_H_
#define INGOT_MODULE_FILE_H_

#include "base/allocator.h"

typedef struct ingot_file_t {
  const uint8_t *data; /* never NULL once opened, page or malloc aligned */
  size_t length;
} ingot_file_t;

/* Names bytes [*begin, *end) of a file, both 0 before, by the file's first bytes: all, or
 * INGOT_FILE_HEAD of them. Nothing is checked yet, and a range outside of the file is none. */
#define INGOT_FILE_HEAD 8192
typedef void (*ingot_file_choose_t)(const uint8_t *head, size_t length, uint64_t *begin,
                                    uint64_t *end);

/* `choose` says what is to be mapped where the system can; NULL: nothing. NotFound,
 * PermissionDenied or Internal, with path and the system's reason; InvalidArgument for what is
 * no regular file. */
ingot_status_t ingot_file_open(const ingot_allocator_t *allocator, const char *path,
                               ingot_file_choose_t choose, ingot_file_t *out_file);
void ingot_file_close(const ingot_allocator_t *allocator, ingot_file_t *file);

#endif /* INGOT_MODULE_FILE_H_ */
