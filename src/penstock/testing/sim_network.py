"""A simulated network between nodes on one `SimLoop`: `interconnect.Network` with faults, under a seed.

Each connection is a pair of streams, as TCP's are: bytes arrive in order, late, in other portions than they were sent in, and
independently of other connections. A route that is cut delivers nothing until it is restored, in one direction or both; then what
was sent meanwhile arrives, as TCP sends it again. Connections can also be lost: reset, so that both ends notice, or silently.

A protocol runs in the process that made the connection or the listener; bytes on the wire outlive a crash of the sender.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from penstock.interconnect import Connection, NetworkListener
from penstock.testing.sim_loop import SimLoop, outside_context

IN_FLIGHT_MAX: Final = 256 << 10  # bytes on their way beyond which a sender is told to wait
LISTEN_CHECK_S: Final = 0.05
LATE_S: Final = 0.001  # more than the slack of a timer

Factory = Callable[[bool], Connection]


@dataclass(slots=True)
class RouteFaults:
    """What is wrong with the way from one node to another."""

    delay_s_min: float = 0.0001
    delay_s_max: float = 0.001
    is_cut: bool = False


class SimNetwork:
    """All nodes, the routes between them, and the connections that are open. `host` gives a node its own view of it."""

    def __init__(self, loop: SimLoop, *, random: Random | None = None) -> None:
        self.loop = loop
        self.random = random or loop.fork_random("network")
        self._routes: dict[tuple[str, str], RouteFaults] = {}
        self._listeners: dict[str, _SimListener] = {}
        self._wires: dict[_Wire, None] = {}
        self._frozen: set[str] = set()

    def host(self, name: str) -> SimHost:
        """The network as one node sees it."""
        return SimHost(self, name)

    def route(self, source: str, target: str) -> RouteFaults:
        """The way from a node to another; change it with `delay` and `cut`."""
        return self._routes.setdefault((source, target), RouteFaults())

    def delay(self, source: str, target: str, seconds_min: float, seconds_max: float) -> None:
        """Have bytes on a route take so long from now on."""
        route = self.route(source, target)
        route.delay_s_min, route.delay_s_max = seconds_min, seconds_max

    def cut(self, source: str, target: str) -> None:
        """Deliver nothing on a route, in this direction, until `restore`."""
        self.route(source, target).is_cut = True

    def restore(self, source: str, target: str) -> None:
        """Deliver again, first what was held."""
        self.route(source, target).is_cut = False
        self._resume()

    def freeze(self, name: str) -> None:
        """Hold all that comes to a node and all that it sends, as if its process were stopped with its requests buffered."""
        self._frozen.add(name)

    def thaw(self, name: str) -> None:
        """The node continues, beginning with what was held."""
        self._frozen.discard(name)
        self._resume()

    def lose(self, name: str, other: str | None = None, *, silently: bool = False) -> None:
        """Break the connections of a node, or those between two. Silently: neither end is told."""
        for wire in list(self._wires):
            ends = {wire.source, wire.target}
            if name in ends and (other is None or other in ends):
                wire.break_off(silently=silently)

    def is_held(self, wire: _Wire) -> bool:
        """Whether bytes on a wire do not arrive now."""
        return self.route(wire.source, wire.target).is_cut or wire.source in self._frozen or wire.target in self._frozen

    def is_sound(self, name: str, other: str) -> bool:
        """Whether the connections that a node has made to another, and that it has not seen end, carry bytes as quickly as the
        routes do now. Those that were lost and of which it does not know yet do not."""
        replies = [wire for wire in self._wires if wire.leads_to_dialer and (wire.source, wire.target) == (other, name)]
        return not any(wire.is_impaired or wire.back is None or wire.back.is_impaired for wire in replies)

    def draw_delay_s(self, source: str, target: str) -> float:
        """How long the next bytes take."""
        route = self.route(source, target)
        return self.random.uniform(route.delay_s_min, route.delay_s_max)

    async def connect(self, source: str, address: str, factory: Factory) -> Connection:
        """See SimHost."""
        listener = self._listeners.get(address)
        target = listener.host if listener is not None else address.rpartition(":")[0]
        await asyncio.sleep(self.draw_delay_s(source, target))
        # A SYN that is not answered is repeated until the caller gives up.
        while self._unanswered(source, target):  # noqa: ASYNC110 - there is no one event to wait for, and time is free here
            await asyncio.sleep(LISTEN_CHECK_S)
        await asyncio.sleep(self.draw_delay_s(target, source))
        listener = self._listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(f"nothing listens at {address}")
        near = SimTransport(self, contextvars.copy_context())
        far = SimTransport(self, listener.context)
        near.wire = self._new_wire(source, listener.host, far)
        far.wire = self._new_wire(listener.host, source, near)
        near.wire.back, far.wire.back = far.wire, near.wire
        far.wire.leads_to_dialer = True
        self.loop.call_soon(_start, listener.factory, far, context=listener.context)
        connection = factory(False)
        near.start(connection)
        return connection

    def listen(self, host: str, address: str, factory: Factory) -> NetworkListener:
        """See SimHost."""
        if address in self._listeners:
            raise OSError(f"the address {address} is in use")
        listener = self._listeners[address] = _SimListener(self, host, address, factory)
        return listener

    def unlisten(self, address: str) -> None:
        """A listener is closed, or its node is gone."""
        self._listeners.pop(address, None)

    def crash(self, name: str, *, silently: bool = False) -> None:
        """A node is gone: its port is closed and its connections are reset; silently, if its machine lost power."""
        for listener in list(self._listeners.values()):
            if listener.host == name:
                self.unlisten(listener.address)
        self.lose(name, silently=silently)
        for wire in list(self._wires):
            if wire.target == name:
                self.forget(wire)

    def forget(self, wire: _Wire) -> None:
        """A wire is of no use any more."""
        self._wires.pop(wire, None)

    def _unanswered(self, source: str, target: str) -> bool:
        there, back = self.route(source, target), self.route(target, source)
        return there.is_cut or back.is_cut or target in self._frozen or source in self._frozen

    def _new_wire(self, source: str, target: str, receiver: SimTransport) -> _Wire:
        wire = _Wire(self, source, target, receiver)
        self._wires[wire] = None
        return wire

    def _resume(self) -> None:
        for wire in list(self._wires):
            wire.deliver_soon()


class SimHost:
    """`interconnect.Network` for one node."""

    def __init__(self, network: SimNetwork, name: str) -> None:
        self._network = network
        self._name = name

    async def connect(self, address: str, factory: Factory) -> Connection:
        """Connect to a listener; waits as long as the route is cut."""
        return await self._network.connect(self._name, address, factory)

    async def listen(self, address: str, factory: Factory) -> NetworkListener:
        """Accept connections at an address, for example `node-2:1`."""
        return self._network.listen(self._name, address, factory)


class _SimListener:
    def __init__(self, network: SimNetwork, host: str, address: str, factory: Factory) -> None:
        self.host = host
        self.address = address
        self.factory = factory
        self.context = contextvars.copy_context()
        self._network = network

    async def close(self) -> None:
        """See NetworkListener."""
        self._network.unlisten(self.address)


class _Wire:
    """One direction of a connection: what was sent and has not arrived. An item of None is the end of the stream, an exception a
    reset."""

    def __init__(self, network: SimNetwork, source: str, target: str, receiver: SimTransport) -> None:
        self.source = source
        self.target = target
        self.back: _Wire | None = None
        self._network = network
        self._receiver = receiver
        self._items: deque[tuple[float, bytes | Exception | None]] = deque()
        self._last_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_silent = False
        self._has_end = False  # nothing follows what is on it
        self.leads_to_dialer = False
        self.in_flight = 0

    @property
    def is_impaired(self) -> bool:
        """Whether it carries no more, or what was sent last is on its way for longer than it would be if it were sent now."""
        if self._is_silent or self._has_end:
            return True
        now, route = self._network.loop.time(), self._network.route(self.source, self.target)
        is_held = bool(self._items) and self._items[0][0] < now - LATE_S
        return is_held or self._last_at > now + route.delay_s_max

    def send(self, item: bytes | Exception | None) -> None:
        """Put something on the wire; it arrives after all that is there already."""
        if self._is_silent:
            return
        now = self._network.loop.time()
        self._last_at = max(self._last_at, now + self._network.draw_delay_s(self.source, self.target))
        if isinstance(item, Exception) and self._network.random.random() < 0.5:
            self._items.clear()  # a reset may overtake what was sent before it
        if isinstance(item, bytes):
            self.in_flight += len(item)
        else:
            self._has_end = True
        self._items.append((self._last_at, item))
        self.deliver_soon()

    def break_off(self, *, silently: bool) -> None:
        """The connection is lost for this direction."""
        self._items.clear()
        self.in_flight = 0
        if silently:
            self._is_silent = True
        else:
            self._has_end = True
            self._items.append((self._network.loop.time(), ConnectionResetError("the network reset the connection")))
            self.deliver_soon()

    def deliver_soon(self) -> None:
        """Deliver what is due, and what is not when it is."""
        if self._timer is None and self._items and not self._network.is_held(self) and self._receiver.can_receive:
            loop = self._network.loop
            self._timer = loop.call_at(max(self._items[0][0], loop.time()), self._deliver, context=outside_context())

    def _deliver(self) -> None:
        self._timer = None
        now = self._network.loop.time()
        while self._items and self._items[0][0] <= now and not self._network.is_held(self) and self._receiver.can_receive:
            item = self._items.popleft()[1]
            if isinstance(item, bytes):
                self.in_flight -= len(item)
                self._receiver.arrived(item)
                if self.back is not None:
                    self.back._receiver.acknowledged()
            else:
                self._receiver.ended(item)
        self.deliver_soon()


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    wire: _Wire

    def __init__(self, network: SimNetwork, context: contextvars.Context) -> None:
        super().__init__()
        self.can_receive = True
        self._network = network
        self._context = context
        self._protocol: Connection | None = None
        self._is_closing = False
        self._is_paused = False

    def start(self, protocol: Connection) -> None:
        """The protocol is there; runs in its process."""
        self._protocol = protocol
        protocol.connection_made(self)

    # What the protocol calls.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, in portions of any size."""
        if self._is_closing or not len(data):
            return
        whole = bytes(data)
        at = self._network.random.randrange(len(whole)) if self._network.random.random() < 0.3 else 0
        for portion in (whole[:at], whole[at:]):
            if portion:
                self.wire.send(portion)
        if self.wire.in_flight > IN_FLIGHT_MAX and not self._is_paused and self._protocol is not None:
            self._is_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Close after what was written has been sent."""
        self._close(None, None)

    def abort(self) -> None:
        """Close at once; the other end sees a reset."""
        self._close(ConnectionResetError("the peer reset the connection"), None)

    def pause_reading(self) -> None:
        self.can_receive = False

    def resume_reading(self) -> None:
        self.can_receive = True
        if self.wire.back is not None:
            self.wire.back.deliver_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass  # the wire is the buffer

    # What the wire calls, outside of any process.

    def arrived(self, data: bytes) -> None:
        """Bytes came."""
        self._network.loop.call_soon(self._receive, data, context=self._context)

    def acknowledged(self) -> None:
        """The other end took some of what was sent."""
        if self._is_paused and self.wire.in_flight <= IN_FLIGHT_MAX // 2:
            self._network.loop.call_soon(self._resume_writing, context=self._context)

    def ended(self, error: Exception | None) -> None:
        """The other end closed the connection or is gone."""
        self._network.loop.call_soon(self._close, None, error, context=self._context)

    # What runs in the process of the protocol.

    def _receive(self, data: bytes) -> None:
        protocol = self._protocol
        at = 0
        while at < len(data) and not self._is_closing and protocol is not None:
            space = protocol.get_buffer(-1)
            count = min(len(space), len(data) - at)
            space[:count] = data[at : at + count]
            at += count
            protocol.buffer_updated(count)

    def _resume_writing(self) -> None:
        if self._is_paused and not self._is_closing and self._protocol is not None:
            self._is_paused = False
            self._protocol.resume_writing()

    def _close(self, told: Exception | None, error: Exception | None) -> None:
        """Ends the connection: the other end is told in its own time, `error` is what this end is told."""
        if self._is_closing:
            return
        self._is_closing = True
        self.wire.send(told)
        if self.wire.back is not None:
            self._network.forget(self.wire.back)
        if self._protocol is not None:
            self._network.loop.call_soon(self._protocol.connection_lost, error)


def _start(factory: Factory, transport: SimTransport) -> None:
    transport.start(factory(False))
