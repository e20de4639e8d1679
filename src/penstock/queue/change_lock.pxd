# Types for the compiler; see CONTRIBUTING.md.

cdef class ChangeLock:
    cdef public object _tablet
    cdef public object _partition
    cdef public bint _is_held
    cdef public object _waiting

    cpdef take(self)
    cpdef leave(self, object error=*)
