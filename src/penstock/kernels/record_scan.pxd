# What other compiled kernels call without the interpreter.

cdef (Py_ssize_t, Py_ssize_t, long long, long long, Py_ssize_t) check_all(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size, Py_ssize_t count
) noexcept nogil
