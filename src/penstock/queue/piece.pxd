# Types for the compiler; see CONTRIBUTING.md.

cdef class Marks:
    cdef public object offsets
    cdef public object positions
    cdef public object latest

    cpdef add(self, long long offset, Py_ssize_t position, long long timestamp)


cdef class Piece:
    cdef public Py_ssize_t first_offset
    cdef public Py_ssize_t count
    cdef public Py_ssize_t hidden
    cdef public list buffers
    cdef public Marks marks
    cdef public long long min_timestamp
    cdef public long long max_timestamp
    cdef public list starts
    cdef public Py_ssize_t size
