# Types for the compiler; see CONTRIBUTING.md.

cimport cython


cdef class WritePace:
    cdef public double _mean_max_s
    cdef public double _mean_s
    cdef public Py_ssize_t _slow
    cdef public Py_ssize_t _slow_max
    cdef public double _slow_until
    cdef public double quick_from

    @cython.locals(took=double)
    cpdef note(self, double began, double ended)
