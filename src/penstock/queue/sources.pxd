# Types for the compiler; see CONTRIBUTING.md. Sequence numbers are objects: other sources than Kafka's producers count to 2**63.

cpdef producer_source(object batch)
cpdef bint is_producer_source(object source, object batch) except? -1
cpdef check_source(object write, object count)
cpdef known_offset(object state, object write, object count)
cpdef after_write(object state, object write, object count, object base_offset)
