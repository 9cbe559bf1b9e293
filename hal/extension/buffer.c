/* The buffer protocol from `__buffer__`. The limited API of Python 3.10 does not name what is used
 * here, though every CPython from 3.9 on has it under these numbers. */
#include "buffer.h"

#include <Python.h>
#include <string.h>

#if !defined(Py_bf_getbuffer)
#define Py_bf_getbuffer 1
#endif
#if Py_LIMITED_API < 0x030B0000
int PyObject_GetBuffer(PyObject *object, void *view, int flags);
#endif

static int ingot_python_get_buffer(PyObject *self, void *view, int flags) {
  PyObject *made = PyObject_CallMethod(self, "__buffer__", "i", flags);
  int result = made ? PyObject_GetBuffer(made, view, flags) : -1;
  if (result != 0) ((PyObject **)view)[1] = NULL; /* `obj`, as the protocol has it */
  Py_XDECREF(made);
  return result;
}

void *ingot_python_buffer_type(void) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, NULL}, {0, NULL}};
  static PyType_Spec spec = {"ingot.hal._Buffer", sizeof(PyObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  int (*function)(PyObject *, void *, int) = ingot_python_get_buffer;
  memcpy(&slots[0].pfunc, &function, sizeof(function));
  return PyType_FromSpec(&spec);
}
