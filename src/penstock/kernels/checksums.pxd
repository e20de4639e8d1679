# CRC32C of short bytes, for kernels: a call of the crc32c package costs more than the checksum of a small record. Long bytes are for
# the package, which computes several streams at once.

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("sse4.2")))
    static uint32_t penstock_crc32c_by_instruction(uint32_t crc, const unsigned char *data, size_t size) {
        uint64_t state = (uint32_t)~crc, word;
        for (; size >= 8; size -= 8, data += 8) {
            memcpy(&word, data, 8);
            state = __builtin_ia32_crc32di(state, word);
        }
        for (; size; size--) state = __builtin_ia32_crc32qi((uint32_t)state, *data++);
        return ~(uint32_t)state;
    }
    #endif

    static uint32_t penstock_crc32c(uint32_t crc, const unsigned char *data, size_t size) {
        static uint32_t table[256];
        #if defined(__x86_64__) && defined(__GNUC__)
        if (__builtin_cpu_supports("sse4.2")) return penstock_crc32c_by_instruction(crc, data, size);
        #endif
        if (!table[1]) {  /* filled under the interpreter's lock, the last entry of use first */
            for (uint32_t byte = 255; byte; byte--) {
                uint32_t value = byte;
                for (int bit = 0; bit < 8; bit++) value = value & 1 ? value >> 1 ^ 0x82F63B78u : value >> 1;
                table[byte] = value;
            }
        }
        crc = ~crc;
        while (size--) crc = crc >> 8 ^ table[(crc ^ *data++) & 0xFF];
        return ~crc;
    }
    """
    unsigned int penstock_crc32c(unsigned int crc, const unsigned char *data, size_t size)


cdef inline unsigned int crc_of(object data, Py_ssize_t start, unsigned int crc) except? 0:
    """The checksum of the bytes of a buffer from `start` on, continued from `crc`."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    crc = penstock_crc32c(crc, <const unsigned char *>view.buf + start, view.len - start)
    PyBuffer_Release(&view)
    return crc


cdef inline unsigned int crc_at(bytearray data, Py_ssize_t start, Py_ssize_t end) noexcept:
    """The checksum of some of the bytes of a buffer."""
    return penstock_crc32c(0, <const unsigned char *>PyByteArray_AS_STRING(data) + start, end - start)


cdef inline unsigned int crc_of_part(bytes data, Py_ssize_t start, Py_ssize_t end) noexcept:
    """The same, of bytes that do not change."""
    return penstock_crc32c(0, <const unsigned char *>PyBytes_AS_STRING(data) + start, end - start)
