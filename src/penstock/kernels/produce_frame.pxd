# What the produce path uses of these without the interpreter.

from penstock.kernels.frame_fields cimport FrameFields

cpdef bytes source_name(long long producer_id)


cdef class ProduceFrame(FrameFields):
    cdef readonly long long acks
    cdef readonly long long timeout_ms
    cdef public list batches
    cdef public long long throttle_time_ms
    cdef readonly bint has_errors  # whether a batch has an error, or an error code
    cdef readonly bint has_views  # whether a batch is a view of the frame
    cdef readonly bint is_done  # whether it is answered
    # For its owner, here because setting them in each new object takes longer.
    cdef public bint is_refused
    cdef public bint must_close
    cdef public object span
    cdef list _buffers
    cdef Py_ssize_t _size
    cdef Py_ssize_t _left

    cpdef bint parse(self, bytearray buffer, Py_ssize_t begin, Py_ssize_t end) except? -1
    cpdef queued(self)
    cpdef settled(self)
    cpdef answer(self, list buffers=*, Py_ssize_t size=*)
    cpdef tuple encode(self)
    cpdef bytes reply(self)
    cdef bint _parse_topic(self, bytearray buffer)
    cdef bint _parse_batch(self, bytearray buffer, object topic, long long partitions)
    cdef Py_ssize_t _put_topic(self, bytearray out, Py_ssize_t at, ProducedBatch batch)
    cdef Py_ssize_t _put_batch(self, bytearray out, Py_ssize_t at, ProducedBatch batch)
    cdef Py_ssize_t _put_text(self, bytearray out, Py_ssize_t at, str text)


cdef class ProducedBatch:
    cdef readonly object topic  # its name, or its id of 16 bytes
    cdef readonly long long index
    cdef readonly object data
    cdef readonly long long attributes
    cdef readonly long long messages
    cdef readonly long long base_timestamp
    cdef readonly long long max_timestamp
    cdef readonly long long producer_id
    cdef readonly long long producer_epoch
    cdef readonly long long base_sequence
    cdef readonly long long base_offset  # as it came, which is 0; then where it is stored
    cdef readonly bint is_checked  # passed all checks of header and records; then it has:
    cdef readonly long long earliest_ms
    cdef readonly long long latest_ms
    cdef readonly long long keyless  # its first record without a key; -1 if all have one
    cdef public object partition  # which stores it
    cdef readonly bint is_settled
    cdef readonly object error
    cdef public long long error_code
    cdef public object error_message
    cdef public long long log_append_time_ms
    cdef readonly long long log_start_offset
    # How many batches the request has for the topic, if this is the first of them.
    cdef readonly long long partitions
    cdef ProduceFrame request

    cpdef bint done(self) except? -1
    cpdef set_result(self, object result)
    cpdef stored_at(self, long long base_offset)
    cpdef set_exception(self, object error)
    cdef object _settle(self)
    cdef bint parse_header(self, bytearray buffer, Py_ssize_t at)
    cdef bint check_header(self, bytearray buffer, Py_ssize_t at, Py_ssize_t size)
    cdef bint check_records(self, bytearray buffer, Py_ssize_t at, Py_ssize_t size)
    cdef Py_ssize_t reply_size_max(self)
