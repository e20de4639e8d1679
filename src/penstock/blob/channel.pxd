# Types for the compiler; see CONTRIBUTING.md.

cdef class Barrier:
    cdef public Py_ssize_t _self
    cdef public object _quorum
    cdef public list held
    cdef public object own
    cdef public bytes acting


cdef class Channel:
    cdef public dict blobs
    cdef public list _order
    cdef public list fresh
    cdef public Barrier soft
    cdef public Barrier hard
    cdef public bytes swept_soft
    cdef public bytes swept_hard
    cdef public bint is_swept

    cpdef bint refuses(self, bytes key) except? -1
