# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.kernels.produce_frame cimport ProducedBatch
from penstock.queue.partition_state cimport PartitionState
from penstock.queue.partition_writer cimport PartitionWriter
from penstock.queue.sources cimport producer_source


cdef class Route:
    cdef public object topic
    cdef public PartitionState partition
    cdef public PartitionWriter _writer
    cdef public bint uses_append_time
    cdef public object codec
    cdef public object codec_level
    cdef public object limits
    cdef public long long _before_ms
    cdef public long long _after_ms
    cdef public bint needs_keys
    cdef public bint shows_own_headers
    cdef public object epoch
    cdef public object schema_rule

    @cython.locals(now_ms="long long")
    cpdef bint is_plain(self, ProducedBatch batch, object clock) except? -1
    cpdef enqueue(self, ProducedBatch batch)
