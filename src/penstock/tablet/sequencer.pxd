# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.kernels.log_bytes cimport entry_of_appends
from penstock.kernels.produce_frame cimport ProducedBatch
from penstock.tablet.probe cimport TabletProbe


@cython.locals(batch=ProducedBatch)
cpdef acknowledge(list acknowledgements)


cdef class Draft:
    cdef public object _index
    cdef public object _tablet
    cdef public object _generation
    cdef public object overlay
    cdef public object step
    cdef public list puts
    cdef public list appends


cdef class _Flight:
    cdef public object step
    cdef public list requests
    cdef public list appenders
    cdef public object changes
    cdef public object born
    cdef public object collected
    cdef public object snapshot
    cdef public Py_ssize_t size
    cdef public double began


cdef class Sequencer:
    cdef public object _storage
    cdef public object _tablet
    cdef public object _generation
    cdef public object _index
    cdef public TabletProbe _probe
    cdef public object _on_settled
    cdef public object _on_broken
    cdef public object _answer
    cdef public object _loop
    cdef public tuple settled
    cdef public Py_ssize_t step
    cdef public object boot
    cdef public object collected
    cdef public object snapshot
    cdef public Py_ssize_t entries
    cdef public Py_ssize_t bytes
    cdef public Py_ssize_t entries_due
    cdef public Py_ssize_t bytes_due
    cdef public Py_ssize_t _aborted_from
    cdef public Py_ssize_t _abandoned_blobs
    cdef public Py_ssize_t _abandoned_bytes
    cdef public object _queue
    cdef public list _due
    cdef public _Flight _flight
    cdef public object _reading
    cdef public bint _is_scheduled
    cdef public object _stop_cause
    cdef public list _idle_waiters
    cdef public object _on_turn_end
    cdef public object _on_finished

    cpdef request_turn(self, object appender)
    cpdef _compose_next(self)
    @cython.locals(draft=Draft, appenders=list, due=list, flight=_Flight, puts=list)
    cpdef _try_commit(self, list requests)
    @cython.locals(flight=_Flight, probe=TabletProbe, acknowledged=list)
    cpdef _finished(self, object trouble)
    @cython.locals(acknowledged=list)
    cpdef list _settle(self, _Flight flight)
