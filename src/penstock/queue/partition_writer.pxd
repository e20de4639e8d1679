# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.kernels.produce_frame cimport ProducedBatch
from penstock.queue.change_lock cimport ChangeLock
from penstock.queue.partition_append cimport PartitionAppend
from penstock.queue.partition_state cimport PartitionState
from penstock.queue.sources cimport SourceState, SourceWrite, check_source, known_offset
from penstock.tablet.sequencer cimport Draft as LogDraft, Sequencer, acknowledge


cdef class PartitionWriter:
    cdef public PartitionState _partition
    cdef public object _clock
    cdef public Sequencer _sequencer
    cdef public ChangeLock _lock
    cdef public list _waiting
    cdef public Py_ssize_t _held_bytes
    cdef public Py_ssize_t _held_messages
    cdef public object _resume_at
    cdef public list _composing
    cdef public PartitionAppend _current
    cdef public bint _is_due
    cdef public bint _holds_lock
    cdef public list _key_waiters
    cdef public bint _rolls
    cdef public bint makes_room
    cdef public double _patient_until
    cdef public long long _patient_from

    @cython.locals(partition=PartitionState)
    cpdef enqueue(self, object batch, object source, object outcome)
    @cython.locals(size=Py_ssize_t, messages=Py_ssize_t, produced=ProducedBatch)
    cpdef append(self, object batch, object source, object outcome, Py_ssize_t bytes_max=*)
    @cython.locals(added=PartitionAppend, partition=PartitionState)
    cpdef bint compose(self, LogDraft draft) except? -1
    @cython.locals(added=PartitionAppend, partition=PartitionState)
    cpdef list settle(self)
    @cython.locals(
        added=PartitionAppend,
        waiting=list,
        partition=PartitionState,
        count=Py_ssize_t,
        has_open=bint,
        produced=ProducedBatch,
        messages=Py_ssize_t,
        attributes="long long",
        source=SourceWrite,
        state=SourceState,
    )
    cpdef PartitionAppend _take_waiting(self, bint none)
    cpdef list _finish(self, PartitionAppend added)
