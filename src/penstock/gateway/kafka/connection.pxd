# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.gateway.kafka.apis.plain_produce cimport PlainProduce
from penstock.gateway.kafka.memory cimport MemoryBudget
from penstock.gateway.kafka.probe cimport KafkaProbe
from penstock.kernels.frame_reader cimport FrameReader

cdef long long _PRODUCE
cdef long long _FETCH


cdef class RequestPipeline:
    cdef public object _node
    cdef public MemoryBudget _memory
    cdef public KafkaProbe _probe
    cdef public object _options
    cdef public object _now
    cdef public object _loop
    cdef public object sasl
    cdef public FrameReader _reader
    cdef public object get_buffer
    cdef public object _transport
    cdef public object _files
    cdef public object _calls
    cdef public Py_ssize_t _running
    cdef public long long _running_key
    cdef public Py_ssize_t _held_bytes
    cdef public Py_ssize_t _buffer_bytes
    cdef public Py_ssize_t _unsent_bytes
    cdef public bint _is_reading
    cdef public bint _is_writable
    cdef public bint _is_blocked
    cdef public bint _flush_due
    cdef public object _muting
    cdef public str _finishing
    cdef public double active_at
    cdef public double _frame_since
    cdef public object peer
    cdef public object host
    cdef public object user
    cdef public bint takes_files
    cdef public bint _is_closed
    cdef public object closed

    @cython.locals(now=double)
    cpdef buffer_updated(self, Py_ssize_t nbytes)
    @cython.locals(
        now=double, freed=Py_ssize_t, memory=MemoryBudget, size=Py_ssize_t, reply_size=Py_ssize_t, produce=PlainProduce, is_plain=bint
    )
    cpdef finished(self, object call)
    @cython.locals(reader=FrameReader)
    cpdef _proceed(self)
    @cython.locals(cost=Py_ssize_t, produce=PlainProduce)
    cpdef _start(self, FrameReader reader)
    cpdef _write(self, list buffers, Py_ssize_t size, Py_ssize_t counted, double now)
    cpdef _release(self, Py_ssize_t size)
