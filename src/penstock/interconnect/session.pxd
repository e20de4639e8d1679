# Types for the compiler; see CONTRIBUTING.md.

from penstock.interconnect.frames cimport FrameReader
from penstock.interconnect.outbox cimport Outbox


cdef class Session:
    cdef public object _answer
    cdef public object _check
    cdef public object _expected
    cdef public Py_ssize_t _body_max
    cdef public FrameReader _reader
    cdef public Outbox outbox
    cdef public object peer

    cpdef space(self)
    cpdef list received(self, Py_ssize_t count)
    cpdef discard(self, object call)
