# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.kernels.log_bytes cimport copy_into, grown
from penstock.queue.piece cimport Piece


cdef class Tail(Piece):
    cdef public bytearray _room
    cdef public Py_ssize_t size_max
    cdef public Py_ssize_t _marked_at

    @cython.locals(size=Py_ssize_t, end=Py_ssize_t, offset="long long", position=Py_ssize_t, timestamp="long long")
    cpdef extend(self, bytes data, Py_ssize_t count, Py_ssize_t hidden, long long earliest, long long latest, list marks)
