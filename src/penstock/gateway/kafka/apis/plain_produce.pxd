# Types for the compiler; see CONTRIBUTING.md.

cimport cython

from penstock.broker.route cimport Route
from penstock.kernels.produce_frame cimport ProducedBatch, ProduceFrame


cdef class PlainProduce(ProduceFrame):
    cdef public object node
    cdef public object peer
    cdef public Py_ssize_t cost
    cdef public double began
    cdef public double _deadline

    @cython.locals(batch=ProducedBatch, route=Route)
    cpdef start(self)
    cpdef settled(self)
