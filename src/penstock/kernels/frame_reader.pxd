# What a connection uses of it without the interpreter.

cdef class FrameReader:
    cdef readonly bytearray buffer
    cdef readonly Py_ssize_t begin  # of the frame that `find` has found
    cdef readonly Py_ssize_t end
    cdef readonly long long api_key  # of that frame; -1 if it is too short to have one
    cdef object _view
    cdef long long _frame_max
    cdef Py_ssize_t _size
    cdef Py_ssize_t _start
    cdef Py_ssize_t _stop
    cdef bint _is_shared

    cpdef bint received(self, Py_ssize_t count) except? -1
    cpdef bint fits(self, Py_ssize_t size) except? -1
    cpdef bint find(self) except? -1
    cpdef take(self, bint is_shared=*)
    cpdef release(self)
    cdef Py_ssize_t _wanted(self)
    cdef object _renew(self, Py_ssize_t held, Py_ssize_t wanted)
