# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.blob.write_pace cimport WritePace


cdef class _Tail:
    cdef public object file
    cdef public Py_ssize_t length
    cdef public object reserved
    cdef public Py_ssize_t set_aside
    cdef public Py_ssize_t zeroed
    cdef public list waiting
    cdef public list finish
    cdef public bint failed
    cdef public tuple in_sync


cdef class LocalDisk:
    cdef public object probe
    cdef public object _now
    cdef public object _path
    cdef public object _directory
    cdef public object _lock
    cdef public bint _durable
    cdef public object boot
    cdef public dict _tails
    cdef public object _open
    cdef public object _open_guard
    cdef public object _writer
    cdef public object _readers
    cdef public object _remover
    cdef public bint _can_ask_at_hand
    cdef public WritePace _pace
    cdef public object _syncs

    @cython.locals(tail=_Tail)
    cpdef append(self, str name, object buffers, object finish=*)
    @cython.locals(tail=_Tail, length=Py_ssize_t, buffers=list, finish=list)
    cpdef bint flush_at_once(self, str name) except? -1
    @cython.locals(began=double, stored=double, ended=double, written=Py_ssize_t)
    cpdef bint _write_file(
        self, str name, _Tail tail, list buffers, Py_ssize_t length, object reserved, object wait_s=*
    ) except? -1
    cpdef _note_write(self, str name, _Tail tail, int fd, Py_ssize_t length, double began, double written, double ended)
