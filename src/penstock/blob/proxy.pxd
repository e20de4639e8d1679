# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.blob.part_intake cimport PartIntake
from penstock.kernels.log_bytes cimport packed_id


cdef class GroupProxy:
    cdef public object group
    cdef public object _clock
    cdef public object _known_link
    cdef public PartIntake _local_link

    @cython.locals(local=PartIntake, parts=list, size=Py_ssize_t)
    cpdef bint submit(self, object blobs, object done) except? -1
    cpdef PartIntake local(self)
