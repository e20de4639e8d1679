"""What a node does for others: handlers by destination and method, and the calls that are in flight to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from penstock.core.clock import Clock
from penstock.interconnect.frames import WHOLE_BYTES_MAX, Frame
from penstock.interconnect.hello import Peer
from penstock.interconnect.options import InterconnectOptions
from penstock.interconnect.probe import ServiceProbe
from penstock.interconnect.status import Buffer, CallStatus, Parts

CALL_COST = 256  # what a call takes beside its body


class ServedCall:
    """A call, as its handler gets it. The handler is cancelled when the caller goes away, gives up, or `deadline` has passed,
    unless its destination was registered otherwise."""

    __slots__ = ("body", "call", "cost", "deadline", "destination", "is_abandoned", "method", "peer", "reply_bytes_max")

    def __init__(self, frame: Frame, destination: Destination, cost: int, peer: Peer) -> None:
        self.call = frame.call
        self.method = frame.code
        self.reply_bytes_max = max(frame.reply_bytes, WHOLE_BYTES_MAX)
        self.destination = destination
        self.cost = cost
        self.peer = peer
        self.is_abandoned = False  # its caller is gone; the handler runs to its end without a reply
        self.body: Buffer | None = None  # while its pieces arrive
        self.deadline = 0.0  # by the monotonic clock of this node


# Returns the parts of the reply; or a coroutine that does, which is then run as a task. It raises PenstockError for what the
# caller is to be told.
Handler = Callable[[ServedCall], Parts | Awaitable[Parts]]


class Destination:
    """Something that can be called, for example a VDisk, and the bytes of the calls in flight to it."""

    __slots__ = ("bytes_held", "cancels", "handlers", "number")

    def __init__(self, number: int, handlers: Mapping[int, Handler], *, cancels: bool) -> None:
        self.cancels = cancels
        self.number = number
        self.handlers = handlers
        self.bytes_held = 0


class Service:
    """The destinations of a node."""

    def __init__(self, clock: Clock, options: InterconnectOptions) -> None:
        self.clock = clock
        self.options = options
        self.probe = ServiceProbe()
        self._destinations: dict[int, Destination] = {}

    def register(self, destination: int, handlers: Mapping[int, Handler], *, cancels: bool = True) -> None:
        """Serve calls to a destination, by method. Handlers that must not be cancelled run to their end after their
        caller is gone, and count for the window until then."""
        if destination in self._destinations:
            raise ValueError(f"destination {destination} is registered already")
        self._destinations[destination] = Destination(destination, handlers, cancels=cancels)

    def unregister(self, destination: int) -> None:
        """Refuse new calls to a destination; those in flight go on."""
        del self._destinations[destination]

    def accept(self, frame: Frame, size: int, peer: Peer) -> ServedCall | tuple[CallStatus, str]:
        """A call whose body has `size` bytes, or why it is refused. Its bytes, and those of its reply, count until `release`."""
        number, method = frame.destination, frame.code
        destination = self._destinations.get(number)
        own = self.options
        if destination is None:
            return CallStatus.UNKNOWN_DESTINATION, f"there is no destination {number} at this node"
        if method not in destination.handlers:
            return CallStatus.UNKNOWN_METHOD, f"destination {number} has no method {method}"
        cost = size + frame.reply_bytes + CALL_COST
        probe = self.probe
        if destination.bytes_held and destination.bytes_held + cost > own.window_bytes:
            return CallStatus.OVERLOADED, (
                f"calls of {destination.bytes_held} bytes are in flight to destination {number}; the limit is {own.window_bytes}"
            )
        if probe.bytes_held and probe.bytes_held + cost > own.served_bytes_max:
            return CallStatus.OVERLOADED, (
                f"this node serves calls of {probe.bytes_held} bytes; {own.served_bytes_max} is the most that it takes"
            )
        destination.bytes_held += cost
        probe.bytes_held += cost
        probe.calls += 1
        probe.in_flight += 1
        return ServedCall(frame, destination, cost, peer)

    def release(self, served: ServedCall) -> None:
        """A call is over."""
        served.destination.bytes_held -= served.cost
        self.probe.bytes_held -= served.cost
        self.probe.in_flight -= 1
