# Types for the compiler; see CONTRIBUTING.md.

cimport cython


cdef class _LargeBody:
    cdef public object start
    cdef public bint is_begun
    cdef public Py_ssize_t left
    cdef public Py_ssize_t piece
    cdef public object _parts
    cdef public object _offset

    @cython.locals(found=list, size=Py_ssize_t)
    cpdef tuple cut(self)


cdef class Outbox:
    cdef public bint _checked
    cdef public object _full
    cdef public list _small
    cdef public Py_ssize_t _small_bytes
    cdef public dict _large
    cdef public Py_ssize_t bytes

    cpdef drop(self, object call)
    @cython.locals(buffers=list, piece=list, size=Py_ssize_t, length=Py_ssize_t, body=_LargeBody)
    cpdef tuple take(self, Py_ssize_t limit)
    @cython.locals(piece=list, length=Py_ssize_t)
    cpdef tuple _next_frame(self, object call, _LargeBody body)
