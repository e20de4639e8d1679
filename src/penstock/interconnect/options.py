"""The bounds of the interconnect: sizes, numbers and times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InterconnectOptions:
    """What a node allows its peers and itself. Nodes of a cluster may differ in all but `body_bytes_max`."""

    body_bytes_max: int = 64 << 20  # of one call or one reply
    window_bytes: int = 32 << 20  # in flight to one destination; a call beyond it fails at once
    link_bytes_max: int = 128 << 20  # in flight to one node, of all its destinations
    calls_max: int = 8192  # in flight on one connection
    served_bytes_max: int = 256 << 20  # of calls that this node serves, from all peers
    unsent_bytes_max: int = 32 << 20  # replies that a peer has not read yet; beyond it nothing more is read from that peer
    connections_max: int = 1024  # accepted and identified
    strangers_max: int = 64  # accepted and not identified yet
    connect_timeout_s: float = 2.0
    hello_timeout_s: float = 3.0  # from the connection, with TLS from its handshake, to the end of the hello
    heartbeat_interval_s: float = 0.25
    heartbeat_timeout_s: float = 1.0  # silence after which the calls of a link fail
    caller_timeout_s: float = 10.0  # silence after which a node gives up a caller
    backoff_first_s: float = 0.05
    backoff_max_s: float = 2.0
    clock_skew_max_s: float = 60.0  # between the wall clocks of two nodes
