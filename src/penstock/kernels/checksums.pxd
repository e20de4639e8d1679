# CRC32C for kernels: a call of the crc32c package costs more than the checksum of a small record, and keeps or takes the
# interpreter's lock. Long bytes are taken as three streams at once, as the package does: the instruction takes three cycles, and
# one can begin in each.

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

    #define PENSTOCK_BYTE_POWER 0xBF818109u  /* of one zero byte */
    typedef long long penstock_pair __attribute__((vector_size(16)));

    /* The state after as many more zero bytes as `power` stands for: it is x to the number of their bits less 33, modulo the
       polynomial, since the product of two reflected numbers is shifted by one, and the instruction shifts by 32. */
    __attribute__((target("sse4.2,pclmul")))
    static uint64_t penstock_crc32c_shifted(uint64_t state, uint64_t power) {
        penstock_pair one = {(long long)(uint32_t)state, 0}, other = {(long long)power, 0};
        return __builtin_ia32_crc32di(0, (uint64_t)__builtin_ia32_pclmulqdq128(one, other, 0)[0]);
    }

    /* Three streams of `length` bytes each, one behind the other; then the next three, while there are so many bytes. */
    __attribute__((target("sse4.2,pclmul")))
    static uint64_t penstock_crc32c_streams(
        uint64_t state, const unsigned char **data, size_t *size, size_t length, uint64_t power, uint64_t double_power
    ) {
        const unsigned char *at = *data;
        while (*size >= 3 * length) {
            uint64_t second = 0, third = 0, words[3];
            for (const unsigned char *end = at + length; at < end; at += 8) {
                memcpy(&words[0], at, 8);
                memcpy(&words[1], at + length, 8);
                memcpy(&words[2], at + 2 * length, 8);
                state = __builtin_ia32_crc32di(state, words[0]);
                second = __builtin_ia32_crc32di(second, words[1]);
                third = __builtin_ia32_crc32di(third, words[2]);
            }
            state = penstock_crc32c_shifted(state, double_power) ^ penstock_crc32c_shifted(second, power) ^ third;
            at += 2 * length;
            *size -= 3 * length;
        }
        *data = at;
        return state;
    }

    static uint32_t penstock_crc32c_by_streams(uint32_t crc, const unsigned char *data, size_t size) {
        uint64_t state = (uint32_t)~crc;
        state = penstock_crc32c_streams(state, &data, &size, 2048, 0xA51B6135u, 0x82F89C77u);
        state = penstock_crc32c_streams(state, &data, &size, 256, 0xB9E02B86u, 0xDD7E3B0Cu);
        return penstock_crc32c_by_instruction(~(uint32_t)state, data, size);
    }
    #endif

    /* Whether checksums can be joined and taken apart here. */
    static int penstock_crc32c_combines(void) {
        #if defined(__x86_64__) && defined(__GNUC__)
        return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
        #else
        return 0;
        #endif
    }

    /* What the checksum of some bytes adds to that of the same with so many bytes behind them: the one of both is this, with
       the bits flipped that are set in the checksum of those behind. */
    static uint32_t penstock_crc32c_before(uint32_t crc, uint64_t size) {
        #if defined(__x86_64__) && defined(__GNUC__)
        uint64_t power = PENSTOCK_BYTE_POWER;
        for (; size; size >>= 1) {
            if (size & 1) crc = (uint32_t)penstock_crc32c_shifted(crc, power);
            power = penstock_crc32c_shifted(power, power);
        }
        #endif
        return crc;
    }

    /* The inverse of that: x to the power of 2^31 - 1 is 1. */
    static uint32_t penstock_crc32c_alone(uint32_t crc, uint64_t size) {
        return penstock_crc32c_before(crc, 0x7FFFFFFFu - size);
    }

    static uint32_t penstock_crc32c(uint32_t crc, const unsigned char *data, size_t size) {
        static uint32_t table[256];
        #if defined(__x86_64__) && defined(__GNUC__)
        if (size >= 3 * 256 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2")) {
            return penstock_crc32c_by_streams(crc, data, size);
        }
        if (__builtin_cpu_supports("sse4.2")) return penstock_crc32c_by_instruction(crc, data, size);
        #endif
        if (!__atomic_load_n(&table[1], __ATOMIC_ACQUIRE)) {  /* by several threads at once perhaps, all with the same */
            for (uint32_t byte = 255; byte; byte--) {
                uint32_t value = byte;
                for (int bit = 0; bit < 8; bit++) value = value & 1 ? value >> 1 ^ 0x82F63B78u : value >> 1;
                __atomic_store_n(&table[byte], value, __ATOMIC_RELEASE);
            }
        }
        crc = ~crc;
        while (size--) crc = crc >> 8 ^ table[(crc ^ *data++) & 0xFF];
        return ~crc;
    }
    """
    unsigned int penstock_crc32c(unsigned int crc, const unsigned char *data, size_t size) nogil
    int penstock_crc32c_combines() nogil
    unsigned int penstock_crc32c_before(unsigned int crc, unsigned long long size) nogil
    unsigned int penstock_crc32c_alone(unsigned int crc, unsigned long long size) nogil


ctypedef struct SummedPart:
    Py_buffer view
    long long checksum  # -1 if it is not known


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
