# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.blob.part_intake cimport PartIntake
from penstock.blob.proxy cimport GroupProxy


cdef class TabletStorage:
    cdef public object _storage
    cdef public dict _proxies
    cdef public dict _groups
    cdef public set _submitted
    cdef public object info
    cdef public object tablet
    cdef public object log_group

    @cython.locals(proxy=GroupProxy)
    cpdef submit(self, list blobs, object done, bint from_reserve=*)
    @cython.locals(proxy=GroupProxy, local=PartIntake)
    cpdef at_turn_end(self, object compose)
