# Types for the compiler; see CONTRIBUTING.md.

cimport cython


cdef class GroupProxy:
    cdef public object group
    cdef public object _clock
    cdef public object _known_link
    cdef public object _local_link

    @cython.locals(parts=list, size=Py_ssize_t)
    cpdef bint submit(self, object blobs, object done) except? -1
    cpdef local(self)
