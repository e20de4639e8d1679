# Types for the compiler; see CONTRIBUTING.md.

from penstock.core.probe cimport Durations


cdef class TabletProbe:
    cdef public object now
    cdef public Durations commits
    cdef public Py_ssize_t requests
    cdef public Py_ssize_t failures
