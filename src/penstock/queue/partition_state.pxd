# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.queue.partition_append cimport PartitionAppend
from penstock.queue.probe cimport QueueProbe
from penstock.queue.sources cimport SourceState
from penstock.queue.tail cimport Tail


cdef class PartitionState:
    cdef public object tablet
    cdef public Py_ssize_t number
    cdef public object config
    cdef public Py_ssize_t watermark
    cdef public Py_ssize_t batch_bytes_max
    cdef public Py_ssize_t waiting_bytes_max
    cdef public bint has_limits
    cdef public object _reader
    cdef public Py_ssize_t start_offset
    cdef public Py_ssize_t end_offset
    cdef public Py_ssize_t size
    cdef public Py_ssize_t written
    cdef public Py_ssize_t _held
    cdef public Py_ssize_t data_end
    cdef public list _bodies
    cdef public list _head
    cdef public Py_ssize_t head_size
    cdef public Py_ssize_t keyed_to
    cdef public Py_ssize_t _keyed_pieces
    cdef public dict _sources
    cdef public dict _changes
    cdef public object _keyed_epoch
    cdef public object _keyed_origins
    cdef public object transactions
    cdef public object _epochs
    cdef public object origins
    cdef public object arrivals
    cdef public QueueProbe probe

    cpdef SourceState source(self, bytes source)
    @cython.locals(messages=Py_ssize_t, count=Py_ssize_t, tail=Tail)
    cpdef apply(self, PartitionAppend added)
