# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.blob.channel cimport Channel
from penstock.blob.journal cimport Journal


@cython.locals(channels=list, channel=Channel, blob_id=bytes, channel_key=bytes, key=bytes)
cpdef list channels_for(object index, object parts)

@cython.locals(place=tuple, before=Py_ssize_t)
cpdef place_part(object index, Journal journal, Channel channel, bytes blob_id, object body)
