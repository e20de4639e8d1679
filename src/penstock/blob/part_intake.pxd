# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.blob.channel cimport Channel
from penstock.blob.index cimport ChunkUse, DiskIndex
from penstock.blob.journal cimport Journal
from penstock.kernels.log_bytes cimport part_of


cdef class PartIntake:
    cdef public object id
    cdef public DiskIndex index
    cdef public Journal journal
    cdef public bint closed
    cdef public bint in_step
    cdef public bint is_cut_off
    cdef public bint full
    cdef public Py_ssize_t bytes_max

    @cython.locals(index=DiskIndex)
    cpdef bint takes(self, object generation, bytes tablet, long long tablet_generation) except? -1
    @cython.locals(blob_id=bytes, journal=Journal, tablet_generation="long long", channels=list, index=DiskIndex)
    cpdef bint submit(self, object generation, list parts, object done) except? -1
    cpdef before_flush(self, object compose)


@cython.locals(channels=list, channel=Channel, blob_id=bytes, channel_key=bytes, key=bytes)
cpdef list channels_for(DiskIndex index, list parts)

@cython.locals(place=tuple, before=Py_ssize_t, size_part="long long", key=bytes, use=ChunkUse)
cpdef tuple place_part(DiskIndex index, Journal journal, Channel channel, bytes blob_id, object body)
