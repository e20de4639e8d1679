# What the kernels of requests inherit.

cdef class FrameFields:
    cdef public long long version
    cdef public long long correlation_id
    cdef public object client_id
    cdef bint is_flexible
    cdef Py_ssize_t at  # where parsing has come to; -1 if the request is not of the common shape
    cdef Py_ssize_t end

    cdef long long number(self, bytearray buffer, Py_ssize_t size)
    cdef long long varint(self, bytearray buffer)
    cdef long long count(self, bytearray buffer)
    cdef void pass_tags(self, bytearray buffer)
    cdef object text(self, bytearray buffer, long long size)
    cdef object short_text(self, bytearray buffer)
    cdef object id(self, bytearray buffer)
    cdef Py_ssize_t put_count(self, bytearray out, Py_ssize_t at, long long count)
    cdef Py_ssize_t put_short_count(self, bytearray out, Py_ssize_t at, long long count)
