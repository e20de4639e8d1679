# Types for the compiler; see CONTRIBUTING.md.

cimport cython

cdef list _BOUNDS_S


cdef class Durations:
    cdef public list counts
    cdef public double total_s

    @cython.locals(at=Py_ssize_t, bound=double)
    cpdef note(self, double seconds)


cdef class RequestProbe:
    cdef public object now
    cdef public dict durations
    cdef public Py_ssize_t bytes_in
    cdef public Py_ssize_t bytes_out
    cdef public Py_ssize_t connections_opened
    cdef public Py_ssize_t throttled
    cdef public double throttled_s
    cdef public object tracing
