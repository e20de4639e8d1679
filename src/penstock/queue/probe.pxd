# Types for the compiler; see CONTRIBUTING.md.

cdef class QueueProbe:
    cdef public Py_ssize_t batches_in
    cdef public Py_ssize_t messages_in
    cdef public Py_ssize_t bytes_in
    cdef public Py_ssize_t reads
    cdef public Py_ssize_t messages_out
    cdef public Py_ssize_t bytes_out

    cpdef wrote(self, Py_ssize_t batches, Py_ssize_t messages, Py_ssize_t size)
