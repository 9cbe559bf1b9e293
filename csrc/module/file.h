/* A file's bytes, as ingot_file_load of the platform, with what went wrong as a status.
 */
#ifndef INGOT_MODULE_FILE_H_
#define INGOT_MODULE_FILE_H_

#include "base/allocator.h"
#include "platform/platform.h"

/* `choose` says what is to be mapped where the system can; NULL: nothing. That range must not be
 * cut or changed while the file is open. NotFound, PermissionDenied or Internal, with path and the
 * system's reason; InvalidArgument for what is no regular file, DataLoss for one that is cut while
 * it is read. */
ingot_status_t ingot_file_open(const ingot_allocator_t *allocator, const char *path,
                               ingot_file_choose_t choose, ingot_file_t *out_file);
void ingot_file_close(const ingot_allocator_t *allocator, ingot_file_t *file);

#endif /* INGOT_MODULE_FILE_H_ */
