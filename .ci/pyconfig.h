/* What Python.h of the limited API asks of a compiler, for any system: it takes the place of the
 * pyconfig.h of the machine that builds. Before it, pymacconfig.h may have defined some. */
#undef SIZEOF_LONG
#undef SIZEOF_SIZE_T
#undef SIZEOF_VOID_P
#define SIZEOF_INT __SIZEOF_INT__
#define SIZEOF_LONG __SIZEOF_LONG__
#define SIZEOF_LONG_LONG __SIZEOF_LONG_LONG__
#define SIZEOF_SIZE_T __SIZEOF_SIZE_T__
#define SIZEOF_VOID_P __SIZEOF_POINTER__
#define SIZEOF_WCHAR_T __SIZEOF_WCHAR_T__
#define HAVE_SSIZE_T 1
#define HAVE_STDDEF_H 1
#if defined(_WIN32)
#define MS_WINDOWS
#define MS_WIN64
#define Py_ENABLE_SHARED /* what Python exports is in a library of its own */
#endif
