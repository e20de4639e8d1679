# Types for the compiler; see CONTRIBUTING.md.

cdef class MemoryBudget:
    cdef public Py_ssize_t _bytes_max
    cdef public Py_ssize_t used
    cdef public dict waiting

    cpdef give(self, Py_ssize_t size)
