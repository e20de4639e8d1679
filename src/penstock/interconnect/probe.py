"""What is counted on links to other nodes and at the listener for them."""

from __future__ import annotations

from penstock.core.probe import Durations


class LinkProbe:
    """One link to another node."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "calls",
        "connects",
        "errors",
        "in_flight",
        "is_connected",
        "late_replies",
        "round_trips",
    )

    def __init__(self) -> None:
        self.is_connected = False
        self.connects = 0  # how often the link came up
        self.calls = 0
        self.in_flight = 0
        self.errors: dict[str, int] = {}  # calls that did not end as OK, by the name of their status
        self.late_replies = 0  # to calls that were cancelled or had expired
        self.bytes_in = 0
        self.bytes_out = 0
        self.round_trips = Durations()  # of heartbeats

    def count_error(self, status: str) -> None:
        """A call ended in another way than OK."""
        self.errors[status] = self.errors.get(status, 0) + 1


class ServiceProbe:
    """The calls that a node serves."""

    __slots__ = (
        "bytes_held",
        "bytes_in",
        "bytes_out",
        "calls",
        "cancelled",
        "errors",
        "in_flight",
        "peers",
        "refused",
        "strangers",
    )

    def __init__(self) -> None:
        self.peers = 0  # connections of nodes that were admitted
        self.strangers = 0  # connections that have not said who they are
        self.refused: dict[str, int] = {}  # connections, by the reason
        self.calls = 0
        self.in_flight = 0
        self.bytes_held = 0  # of calls in flight
        self.cancelled = 0  # the caller went away, gave up, or its deadline passed
        self.errors: dict[str, int] = {}  # replies other than OK, by the name of their status
        self.bytes_in = 0
        self.bytes_out = 0

    def count_error(self, status: str) -> None:
        """A call was answered with an error."""
        self.errors[status] = self.errors.get(status, 0) + 1

    def count_refused(self, reason: str) -> None:
        """A connection was refused or dropped before it was admitted."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
