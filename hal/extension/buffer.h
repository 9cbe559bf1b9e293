/* The base type of arrays before Python 3.12: it has the buffer protocol from the method
 * `__buffer__`, as classes have themselves from there on. Part of the Python extension only.
 */
#ifndef INGOT_EXTENSION_BUFFER_H_
#define INGOT_EXTENSION_BUFFER_H_

/* A new reference to the type, a PyObject; NULL with an exception set. With the interpreter's
 * lock, which cffi lets go of in its own calls. */
void *ingot_python_buffer_type(void);

#endif /* INGOT_EXTENSION_BUFFER_H_ */
