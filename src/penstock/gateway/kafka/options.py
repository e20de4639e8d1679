"""Options of a Kafka listener: its limits, and what it advertises to clients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Limits of a listener, for each connection and for all of them together."""

    frame_bytes_max: int = 100 << 20  # a larger request is refused, and its connection closed
    connection_bytes_max: int = 32 << 20  # requests in flight and responses not sent; beyond it nothing more is read
    connection_requests_max: int = 1000  # requests in flight and responses not sent
    memory_bytes_max: int = 512 << 20  # the same bytes, of all connections
    connections_max: int = 10_000
    idle_timeout_s: float = 600.0  # a connection on which nothing moves for so long is closed
    drain_timeout_s: float = 10.0  # how long requests in flight may take once the listener stops
    fetch_bytes_max: int = 55 << 20  # of one reply, whatever the client asks
    fetch_sessions_max: int = 1000
    fetch_session_idle_s: float = 120.0  # unused for so long, a session gives way to a new one
