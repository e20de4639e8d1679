# Types for the compiler; see CONTRIBUTING.md. Numbers of a write are objects until they are checked: other sources than Kafka's
# producers may send any.

cimport cython

from penstock.kernels.produce_frame cimport ProducedBatch, source_name

cdef long long _WRAP
cdef Py_ssize_t _RECENT_KEPT


cdef class SourceWrite:
    cdef readonly bytes source
    cdef readonly object seqno
    cdef readonly object epoch
    cdef readonly bint contiguous


cdef class RecentBatch:
    cdef readonly long long last_seqno
    cdef readonly long long base_offset
    cdef readonly long long messages


cdef class SourceState:
    cdef readonly object epoch
    cdef readonly tuple recent


@cython.locals(write=SourceWrite, produced=ProducedBatch)
cpdef SourceWrite producer_source(object batch)
cpdef bint is_producer_source(SourceWrite source, object batch) except? -1
cpdef check_source(SourceWrite write, long long count)
@cython.locals(latest=RecentBatch)
cpdef known_offset(SourceState state, SourceWrite write, long long count)
@cython.locals(batch=RecentBatch, last="long long", after=SourceState, recent=tuple)
cpdef SourceState after_write(SourceState state, SourceWrite write, long long count, long long base_offset)
