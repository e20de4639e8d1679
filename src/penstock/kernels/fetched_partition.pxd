# What the kernel of Fetch requests uses without the interpreter.

cdef class FetchedPartition:
    cdef readonly object topic  # its name, or its id of 16 bytes
    cdef readonly long long index
    cdef readonly tuple key  # both of these
    # What the client asks for; epochs are -1 if it names none.
    cdef readonly long long offset
    cdef readonly long long size_max
    cdef readonly long long leader_epoch
    cdef readonly long long last_epoch
    cdef readonly object partition  # None before it is looked at, and after an error
    cdef readonly bint shows_all  # whether headers of other gateways are shown
    cdef public long long until  # up to where it is to be read; -1 if there is nothing
    cdef readonly long long error_code
    cdef readonly long long high_watermark
    cdef readonly long long stable_offset
    cdef readonly long long start_offset
    cdef public object diverging  # an epoch and its end offset, if the client went another way
    cdef public object leader  # the id and the epoch of the node to ask instead
    cdef public object aborted  # transactions as (last offset, producer id, first offset)
    cdef readonly object records  # buffers and pieces of files
    cdef readonly long long size  # of the records
    cdef FetchedPartition _kept  # that of the session
    # What the session sent last.
    cdef long long _sent_high
    cdef long long _sent_stable
    cdef long long _sent_start

    cpdef reset(self)
    cpdef bint look(self, object route, bint is_committed) except? -1
    cpdef bint is_news(self) except? -1
