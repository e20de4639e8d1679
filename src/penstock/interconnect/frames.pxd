# Types for the compiler; see CONTRIBUTING.md.

cimport cython


cdef class _Body:
    cdef public object frame
    cdef public object memory
    cdef public object view
    cdef public Py_ssize_t filled


cdef class _DirectPiece:
    cdef public object view
    cdef public Py_ssize_t length
    cdef public Py_ssize_t left
    cdef public _Body body
    cdef public long long flags
    cdef public long long crc
    cdef public long long crc_begun


cdef class FrameReader:
    cdef public object _admit
    cdef public object _expected
    cdef public bint _checked
    cdef public Py_ssize_t _body_max
    cdef public bytearray _buffer
    cdef public object _view
    cdef public Py_ssize_t _start
    cdef public Py_ssize_t _end
    cdef public dict _bodies
    cdef public _DirectPiece _direct
    cdef public bytearray _scratch
    cdef public bint _was_large

    @cython.locals(direct=_DirectPiece, start=Py_ssize_t, end=Py_ssize_t)
    cpdef space(self)
    @cython.locals(
        direct=_DirectPiece, body=_Body, at=Py_ssize_t, end=Py_ssize_t, stop=Py_ssize_t, length=Py_ssize_t, total=Py_ssize_t,
        flags="long long", kind="long long", crc="long long", found=list
    )
    cpdef list received(self, Py_ssize_t count)
    cpdef discard(self, object call)
    cpdef _Body _body_of(self, object frame, Py_ssize_t total)
    @cython.locals(at=Py_ssize_t)
    cpdef _fill(self, _Body body, Py_ssize_t length)
    cpdef _finish_direct(self, _DirectPiece direct, list found)
    cpdef _finish(self, _Body body, long long flags, list found)
