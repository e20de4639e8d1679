# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.kernels.log_bytes cimport set_place
from penstock.kernels.produce_frame cimport ProducedBatch

from penstock.queue.sources cimport SourceState, SourceWrite, after_write, is_producer_source


cdef class PartitionAppend:
    cdef public Py_ssize_t first_offset
    cdef public Py_ssize_t next_offset
    cdef public Py_ssize_t epoch
    cdef public Py_ssize_t size
    cdef public Py_ssize_t batches
    cdef public Py_ssize_t hidden
    cdef public object data_end
    cdef public object first_own
    cdef public long long min_timestamp
    cdef public long long max_timestamp
    cdef public list marks
    cdef public dict sources
    cdef public list named_sources
    cdef public dict changes
    cdef public object transactions
    cdef public list acknowledgements
    cdef public Py_ssize_t taken_bytes
    cdef public Py_ssize_t taken_messages
    cdef public object plan
    cdef public object key_waiters
    cdef public bytes joined
    cdef public dict known_sums
    cdef public list _buffers
    cdef public object _gathered

    @cython.locals(
        produced=ProducedBatch,
        offset=Py_ssize_t,
        size=Py_ssize_t,
        length=Py_ssize_t,
        messages=Py_ssize_t,
        producer_id="long long",
        latest="long long",
        attributes="long long",
    )
    cpdef add(self, object batch, SourceWrite source, SourceState state)
    cpdef bytes data(self)
