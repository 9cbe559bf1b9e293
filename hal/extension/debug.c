/* Debuggers in Python: see debug.h. */
#include "debug.h"

/* Defined in Python: debugging.py. */
bool ingot_python_stopped(void *user, const ingot_debug_stop_t *stop);

bool ingot_python_debug(void *user, const ingot_debug_stop_t *stop) {
  ingot_python_debugger_t *debugger = user;
  ++debugger->count;
  if (!debugger->steps && !debugger->stops[stop->word]) return true;
  return ingot_python_stopped(debugger->user, stop);
}
