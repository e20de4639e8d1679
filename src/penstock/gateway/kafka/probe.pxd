# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.core.probe cimport Durations, RequestProbe


cdef class KafkaProbe(RequestProbe):
    @cython.locals(durations=Durations)
    cpdef finished(self, object call, double now)
    @cython.locals(durations=Durations)
    cpdef produced(self, double seconds)
