# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.kernels.log_bytes cimport record_start


cdef class Segment:
    cdef public Py_ssize_t chunk
    cdef public list buffers
    cdef public list finish
    cdef public bint begins
    cdef public bint ends
    cdef public Py_ssize_t end


cdef class Batch:
    cdef public list waiters
    cdef public list callbacks
    cdef public list segments
    cdef public list undo
    cdef public tuple end
    cdef public tuple last
    cdef public Py_ssize_t bytes_appended

    cpdef settle(self, object error)


cdef class Journal:
    cdef public object _disk
    cdef public Py_ssize_t _chunk_size
    cdef public bytes _head
    cdef public object _on_seal
    cdef public object _loop
    cdef public list _composers
    cdef public bint _is_due
    cdef public bint _is_backing_off
    cdef public bint _is_closing
    cdef public bint _is_closed
    cdef public object _done
    cdef public Batch _flushing
    cdef public object _task
    cdef public Batch _batch
    cdef public Py_ssize_t _records
    cdef public Segment _segment
    cdef public object _name
    cdef public Py_ssize_t chunk
    cdef public Py_ssize_t offset
    cdef public tuple durable
    cdef public tuple reached
    cdef public dict ends
    cdef public set abandoned
    cdef public Py_ssize_t _empty_from
    cdef public Py_ssize_t failures
    cdef public object trouble
    cdef public Py_ssize_t _failures_in_a_row
    cdef public double _retry_at
    cdef public Py_ssize_t bytes_appended
    cdef public Py_ssize_t bytes_settled
    cdef public Py_ssize_t records_appended

    @cython.locals(length=Py_ssize_t, size=Py_ssize_t, place=tuple, durable=tuple, buffers=list)
    cpdef tuple append(self, int kind, bytes blob_id, object body)
    cpdef before_flush(self, object compose)
    cpdef when_durable(self, object done, object replies)
    cpdef undo_on_failure(self, tuple undo)
    cpdef _start_chunk(self, Py_ssize_t abandoned_from=*)
    cpdef _flush(self)
    @cython.locals(batch=Batch, segment=Segment)
    cpdef _start_flush(self)
    @cython.locals(segment=Segment)
    cpdef _finish(self, Batch batch, object error)
