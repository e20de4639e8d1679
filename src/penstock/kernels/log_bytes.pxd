# What typed modules call without the interpreter.

cpdef bytearray record_start(
    bytes start,
    bytes blob_id,
    object body,
    Py_ssize_t length,
    long long chunk,
    long long offset,
    long long durable_chunk,
    long long durable_offset,
)
cpdef bytes packed_id(
    unsigned long long tablet, long long channel, long long generation, long long step, long long cookie, long long size_part
)
cpdef bytes part_of(bytes data, Py_ssize_t at, Py_ssize_t end)
cpdef bytearray entry_of_appends(bytes start, list sections, list appends)
cpdef copy_into(bytearray room, Py_ssize_t at, bytes data)
cpdef set_place(bytearray batch, long long offset, long long length, long long epoch)
cpdef bytearray grown(bytearray room, Py_ssize_t size, Py_ssize_t capacity)
