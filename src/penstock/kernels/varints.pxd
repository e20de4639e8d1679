# cython: boundscheck=False, wraparound=False
# The numbers of core/varint_buffers.py for compiled kernels: defined here, so that they become part of the loops that use them.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcpy, memset


cdef inline (long long, Py_ssize_t) zigzag_at(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef unsigned long long value = 0
    cdef unsigned long long byte
    cdef int shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return <long long>(value >> 1) ^ -<long long>(value & 1), at
        shift += 7
    return 0, -1


cdef inline Py_ssize_t varint_size(unsigned long long number) noexcept nogil:
    cdef Py_ssize_t size = 1
    while number > 0x7F:
        number >>= 7
        size += 1
    return size


cdef inline Py_ssize_t put_varint(unsigned char[::1] out, Py_ssize_t at, unsigned long long number) noexcept nogil:
    while number > 0x7F:
        out[at] = <unsigned char>(number & 0x7F | 0x80)
        number >>= 7
        at += 1
    out[at] = <unsigned char>number
    return at + 1


cdef inline Py_ssize_t zigzag_size(long long number) noexcept nogil:
    return varint_size((<unsigned long long>number << 1) ^ <unsigned long long>(number >> 63))


cdef inline Py_ssize_t put_zigzag(unsigned char[::1] out, Py_ssize_t at, long long number) noexcept nogil:
    return put_varint(out, at, (<unsigned long long>number << 1) ^ <unsigned long long>(number >> 63))


cdef inline long long unsigned_at(bytes data, Py_ssize_t at, Py_ssize_t size) noexcept:
    cdef const unsigned char *source = <const unsigned char *>PyBytes_AS_STRING(data) + at
    cdef long long value = 0
    cdef Py_ssize_t place
    for place in range(size):
        value = value << 8 | source[place]
    return value


cdef inline long long signed_at(bytearray data, Py_ssize_t at, Py_ssize_t size) noexcept:
    cdef const unsigned char *source = <const unsigned char *>PyByteArray_AS_STRING(data) + at
    cdef long long value = <signed char>source[0]
    cdef Py_ssize_t place
    for place in range(1, size):
        value = <long long>(<unsigned long long>value << 8) | source[place]
    return value


cdef inline (long long, Py_ssize_t) varint_at(bytearray data, Py_ssize_t at, Py_ssize_t end) noexcept:
    cdef const unsigned char *source = <const unsigned char *>PyByteArray_AS_STRING(data)
    cdef unsigned long long value = 0
    cdef int shift = 0
    while at < end and shift < 28:
        value |= <unsigned long long>(source[at] & 0x7F) << shift
        at += 1
        if source[at - 1] < 0x80:
            return <long long>value, at
        shift += 7
    return 0, -1


cdef inline Py_ssize_t put_number(bytearray out, Py_ssize_t at, long long number, Py_ssize_t size) noexcept:
    cdef unsigned char *target = <unsigned char *>PyByteArray_AS_STRING(out) + at
    cdef Py_ssize_t place
    for place in range(size - 1, -1, -1):
        target[place] = <unsigned char>(number & 0xFF)
        number >>= 8
    return at + size


cdef inline Py_ssize_t put_varint_in(bytearray out, Py_ssize_t at, unsigned long long number) noexcept:
    cdef unsigned char *target = <unsigned char *>PyByteArray_AS_STRING(out)
    while number > 0x7F:
        target[at] = <unsigned char>(number & 0x7F | 0x80)
        number >>= 7
        at += 1
    target[at] = <unsigned char>number
    return at + 1


cdef inline Py_ssize_t put_bytes(bytearray out, Py_ssize_t at, bytes data) noexcept:
    memcpy(PyByteArray_AS_STRING(out) + at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return at + PyBytes_GET_SIZE(data)


cdef inline bytes lettered(long long letter, long long number):
    """A byte, and a number of eight bytes behind it."""
    cdef bytes out = PyBytes_FromStringAndSize(NULL, 9)
    cdef unsigned char *target = <unsigned char *>PyBytes_AS_STRING(out)
    cdef Py_ssize_t place
    target[0] = <unsigned char>letter
    for place in range(8, 0, -1):
        target[place] = <unsigned char>(number & 0xFF)
        number >>= 8
    return out


cdef inline bytearray unfilled(Py_ssize_t size):
    """A buffer of any bytes: its owner shows none that it has not set."""
    return PyByteArray_FromStringAndSize(NULL, size)


cdef inline void put_start(bytearray out, bytearray data, Py_ssize_t size) noexcept:
    """Copies so many bytes from the start of one buffer to that of another."""
    memcpy(PyByteArray_AS_STRING(out), PyByteArray_AS_STRING(data), size)


cdef inline bytearray zeroed(Py_ssize_t size):
    cdef bytearray out = PyByteArray_FromStringAndSize(NULL, size)
    memset(PyByteArray_AS_STRING(out), 0, size)
    return out


cdef inline bytes cut_bytes(bytearray data, Py_ssize_t at, Py_ssize_t end):
    return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(data) + at, end - at)


cdef inline bytes bytes_at(bytes data, Py_ssize_t at, Py_ssize_t end):
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + at, end - at)


cdef inline bytearray cut(bytearray data, Py_ssize_t at, Py_ssize_t end):
    return PyByteArray_FromStringAndSize(PyByteArray_AS_STRING(data) + at, end - at)


cdef inline str text_at(bytearray data, Py_ssize_t at, Py_ssize_t end):
    return PyUnicode_DecodeUTF8(PyByteArray_AS_STRING(data) + at, end - at, NULL)
