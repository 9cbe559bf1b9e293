/* Debuggers in Python: C tells the instructions where they stop, so that a call runs fast up to
 * there. Part of the extension only.
 */
#ifndef INGOT_RUNTIME_DEBUG_H_
#define INGOT_RUNTIME_DEBUG_H_

#ifndef INGOT_CDEF
#include "ingot/ingot.h"
#endif /* INGOT_CDEF */

typedef struct ingot_python_debugger_t {
  bool steps;           /* stop everywhere */
  const uint8_t *stops; /* per word of the function that is called: whether to stop there */
  uint64_t count;       /* instructions that the call has come to */
  void *user;           /* of ingot_python_stopped */
} ingot_python_debugger_t;

/* For ingot_session_set_debug, with a debugger as `user`. */
bool ingot_python_debug(void *user, const ingot_debug_stop_t *stop);

#endif /* INGOT_RUNTIME_DEBUG_H_ */
