# Types for the compiler; see CONTRIBUTING.md.

cdef class ChunkUse:
    cdef public Py_ssize_t size
    cdef public Py_ssize_t live
    cdef public Py_ssize_t extent
    cdef public bint sealed


cdef class DiskIndex:
    cdef public object order
    cdef public object disks
    cdef public object _quorum
    cdef public object part_size
    cdef public dict channels
    cdef public dict blocks
    cdef public dict histories
    cdef public dict chunks
    cdef public object state
    cdef public dict marks
    cdef public Py_ssize_t parts
    cdef public set damaged
    cdef public object tombstones
    cdef public object sync_log
    cdef public object sync_end
