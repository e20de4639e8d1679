# Types for the compiler; see CONTRIBUTING.md.

cimport cython


@cython.locals(parts=list, note=bytes, data=bytes)
cpdef bytes encode_appends(object appends, int kinds=*, object sections=*)
