"""The link to another node: it reconnects by itself, and each call on it ends, by its deadline at the latest.

A link has two connections, one for calls and one for heartbeats, which therefore do not wait behind large bodies. When heartbeats
are missing the calls in flight fail at once, and so do new ones until both connections are made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import ceil, inf
from random import Random
from ssl import SSLError

from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.interconnect.backoff import Backoff
from penstock.interconnect.connection import Connection
from penstock.interconnect.deadlines import DeadlineTimer
from penstock.interconnect.errors import PeerRefusedError
from penstock.interconnect.frames import CANCEL, PING, REPLY, SUMMED, Frame
from penstock.interconnect.hello import Admission, Hello, Peer, Role
from penstock.interconnect.network import Network
from penstock.interconnect.options import InterconnectOptions
from penstock.interconnect.probe import LinkProbe
from penstock.interconnect.session import Session
from penstock.interconnect.status import CallStatus, Parts, Reply, unpack_reply

log = logging.getLogger(__name__)

CALL_COST = 256  # what a call takes beside its body
TIMEOUT_MS_MAX = (1 << 31) - 1
CLOCK_WRAP = 1 << 32
_OK = CallStatus.OK  # to look it up in the enumeration costs every call a third of a microsecond


class PendingCall(asyncio.Future[Reply]):
    """A call on its way: awaiting it gives the reply, cancelling it tells the other node. It never has an exception."""

    __slots__ = ("call", "cost", "deadline", "destination", "link")

    link: Link
    call: int
    destination: int
    cost: int
    deadline: float

    def __hash__(self) -> int:
        return self.call  # not the address, so that a simulation replays

    def cancel(self, msg: object = None) -> bool:
        """The caller does not wait any longer."""
        if not self.done():
            self.link.forget(self)
        return super().cancel(msg)


class Link:
    """Calls to one other node."""

    def __init__(
        self,
        node_id: int,
        address: str,
        *,
        admission: Admission,
        network: Network,
        clock: Clock,
        random: Random,
        options: InterconnectOptions,
    ) -> None:
        self.node_id = node_id
        self.address = address
        self.loop = asyncio.get_running_loop()
        self.probe = LinkProbe()
        self.peer: Peer | None = None  # while connected
        self.is_refused = False  # whether one of the two nodes does not want the other, which waiting does not change
        self.is_gone = False  # whether no process listened at its address when it was tried last
        self._admission = admission
        self._network = network
        self._clock = clock
        self._random = random
        self._options = options
        self._hurry = asyncio.Event()
        self._backoff = Backoff(random, options.backoff_first_s, options.backoff_max_s)
        self._missed_max = ceil(options.heartbeat_timeout_s / options.heartbeat_interval_s)
        self._calls: Connection | None = None  # set while calls may be sent
        self._heart: Connection | None = None
        self._opening: dict[Connection, asyncio.Future[Peer]] = {}
        self._pending: dict[int, PendingCall] = {}
        self._windows: dict[int, int] = {}  # bytes in flight by destination
        self._bytes_held = 0  # all together
        self._last_call = 0
        self._why_down = f"node {node_id} is not connected yet"
        self._broken: asyncio.Future[None] | None = None
        self._deadlines = DeadlineTimer(self.loop, clock, self._expire)
        self._next_beat: asyncio.TimerHandle | None = None
        self._pings: dict[int, float] = {}
        self._missed = 0
        self._quiet = 0  # heartbeats since something arrived for the calls in flight
        self._calls_bytes_in = 0
        self._counted_in = self._counted_out = 0  # bytes of the present connections that the probe has
        self._watchers: list[Callable[[bool], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        """Whether calls are sent; otherwise they fail at once."""
        return self._calls is not None

    @property
    def why_down(self) -> str:
        """Why the link is not connected, for people."""
        return "" if self._calls is not None else self._why_down

    def start(self) -> None:
        """Connect, and go on doing so until closed."""
        self._task = self.loop.create_task(self._run(), name=f"interconnect-link-{self.node_id}")

    def watch(self, watcher: Callable[[bool], None]) -> None:
        """Have a function called whenever the link comes up (True) or breaks (False)."""
        self._watchers.append(watcher)

    def hurry(self) -> None:
        """The node has just connected to this one: try now, if this link is waiting to try again."""
        self._hurry.set()

    def move(self, address: str) -> None:
        """The node has another address from now on; it may be empty until it is known."""
        if address != self.address:
            self.address = address
            self._hurry.set()
            self._break("its address has changed")

    async def close(self) -> None:
        """End the link; calls in flight fail."""
        self._is_closed = True
        self._why_down = f"the link to node {self.node_id} is closed"
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._break("this node closed the link")

    def call(
        self, method: int, destination: int, parts: Parts, *, timeout_s: float, reply_bytes: int = 0, summed: bool = False
    ) -> asyncio.Future[Reply]:
        """Call a method of a destination. The future has a reply within `timeout_s`, whatever happens, and never an exception.
        `reply_bytes` is how much the reply may bring if that is more than 128 KiB; it counts for the window of the destination,
        as the body does. `summed` says that the body has checksums of its own, which the method compares: it gets no others."""
        connection = self._calls
        if connection is None:
            return self._failed(CallStatus.UNREACHABLE, self._why_down)
        size = sum(map(len, parts))
        options = self._options
        if size > options.body_bytes_max:
            return self._failed(CallStatus.TOO_LARGE, f"a call of {size} bytes; at most {options.body_bytes_max} are allowed")
        cost = size + reply_bytes + CALL_COST
        used = self._windows.get(destination, 0)
        pending = self._pending
        held = self._bytes_held
        if (
            (used and used + cost > options.window_bytes)
            or (held and held + cost > options.link_bytes_max)
            or len(pending) >= options.calls_max
        ):
            return self._overloaded(destination)
        now = self._clock.monotonic()
        number = self._last_call = self._last_call + 1
        future = PendingCall(loop=self.loop)  # with attributes set here: a constructor in Python would take twice as long
        future.link = self
        future.call = number
        future.destination = destination
        future.cost = cost
        future.deadline = now + timeout_s
        self._windows[destination] = used + cost
        self._bytes_held = held + cost
        pending[number] = future
        self._deadlines.note(future.deadline)
        timeout_ms = min(max(int(timeout_s * 1000), 1), TIMEOUT_MS_MAX)
        connection.session.outbox.add_call(
            method,
            number,
            parts,
            size,
            destination=destination,
            timeout_ms=timeout_ms,
            sent_ms=int(now * 1000) % CLOCK_WRAP,
            reply_bytes=reply_bytes,
            flags=SUMMED if summed else 0,
        )
        if len(pending) == 1:
            connection.flush()  # nothing to share the write with, most likely
        else:
            connection.flush_soon()
        self.probe.calls += 1
        return future

    def forget(self, future: PendingCall) -> None:
        """A caller gave up: the other node is told."""
        if self._pending.pop(future.call, None) is not None:
            self._release(future)
            self._send_cancel(future.call)

    # What the connections report.

    def opened(self, connection: Connection, peer: Peer) -> None:
        """See ConnectionOwner."""
        opening = self._opening.pop(connection, None)
        if opening is not None and not opening.done():
            opening.set_result(peer)

    def received(self, connection: Connection, frames: list[Frame]) -> None:
        """See ConnectionOwner."""
        for frame in frames:
            if frame.kind == REPLY:
                future = self._pending.pop(frame.call, None)
                if future is None:
                    self.probe.late_replies += 1
                    continue
                self._release(future)
                connection.session.outbox.drop(frame.call)  # refused before all of it was sent
                if frame.code:
                    self._fail(future, unpack_reply(frame.code, frame.body))
                elif not future.done():
                    future.set_result(Reply(_OK, frame.body))
            elif connection is self._heart:
                self._missed = 0
                sent = self._pings.pop(frame.call, None)
                if sent is not None:
                    self.probe.round_trips.note(self._clock.monotonic() - sent)

    def drained(self, connection: Connection) -> None:
        """See ConnectionOwner."""

    def lost(self, connection: Connection, reason: str) -> None:
        """See ConnectionOwner."""
        opening = self._opening.pop(connection, None)
        if opening is not None and not opening.done():
            opening.set_exception(connection.refusal or ConnectionError(reason))
        elif connection is self._calls or connection is self._heart:
            self._break(reason)

    # Connecting.

    async def _run(self) -> None:
        if not self.address:
            await self._pause()
        while True:
            try:
                await self._connect()
            except (PeerRefusedError, SSLError) as error:
                self.is_refused = True
                self._note_down(f"node {self.node_id} at {self.address} cannot be a peer: {error}", logging.ERROR)
            except (OSError, PenstockError) as error:  # time-outs are OSErrors
                self.is_gone = isinstance(error, ConnectionRefusedError)
                self._note_down(f"node {self.node_id} at {self.address} cannot be reached: {str(error) or type(error).__name__}")
            else:
                self.is_refused = self.is_gone = False
                up_since = self._clock.monotonic()
                if self._broken is not None:
                    await self._broken
                if self._clock.monotonic() - up_since > self._options.heartbeat_timeout_s:
                    self._backoff.reset()
            await self._pause()

    async def _pause(self) -> None:
        """Wait before the next attempt: less long if the node connects or has moved, and until it has an address at all."""
        self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._backoff.delay_s() if self.address else None):
                await self._hurry.wait()

    async def _connect(self) -> None:
        options = self._options
        session = self._random.getrandbits(64)
        made: list[Connection] = []
        peer: Peer | None = None
        try:
            async with asyncio.timeout(options.connect_timeout_s + options.hello_timeout_s):
                for role in (Role.HEARTBEAT, Role.CALLS):
                    connection = await self._network.connect(self.address, partial(self._dialing, role, session))
                    made.append(connection)
                    peer = await self._opening_of(connection)
        except BaseException:
            for connection in made:
                self._opening.pop(connection, None)
                connection.abort("the link was not completed")
            raise
        self._heart, self._calls = made
        if peer is None or any(connection.is_closed for connection in made):
            self._break("the peer closed the connection")
            raise ConnectionError("the peer closed the connection again")
        self._come_up(peer)

    def _dialing(self, role: Role, session: int, secured: bool) -> Connection:
        hello = self._admission.hello(role, session, self.node_id)
        made = Connection(
            Session.dialing(hello, self._check, self._wants, checked=not secured, body_bytes_max=self._options.body_bytes_max),
            self,
            secured=secured,
        )
        self._opening[made] = self.loop.create_future()
        return made

    async def _opening_of(self, connection: Connection) -> Peer:
        """Waits for the hello of the peer."""
        if connection.session.peer is not None:
            return connection.session.peer
        opening = self._opening.get(connection)
        if opening is None:
            raise ConnectionError("the peer closed the connection")
        return await opening

    def _check(self, hello: Hello) -> Peer:
        return self._admission.admit(hello, expected_node_id=self.node_id)

    def _wants(self, frame: Frame, total: int) -> bool:
        """Whether a large body is wanted: the reply to a call in flight is."""
        return frame.call in self._pending

    def _come_up(self, peer: Peer) -> None:
        self.peer = peer
        self._broken = self.loop.create_future()
        self._missed = self._quiet = self._calls_bytes_in = self._counted_in = self._counted_out = 0
        self._pings.clear()
        self.probe.is_connected = True
        self.probe.connects += 1
        log.info("connected to node %d at %s", self.node_id, self.address)
        self._beat()
        self._notify(True)

    def _note_down(self, reason: str, level: int = logging.WARNING) -> None:
        if reason != self._why_down:
            self._why_down = reason
            log.log(level, "%s", reason)

    def _break(self, reason: str) -> None:
        """Fail all calls and drop both connections; `_run` makes new ones."""
        heart, calls = self._heart, self._calls
        if heart is None or calls is None:
            return
        self._count(heart, calls)
        self._heart = self._calls = self.peer = None
        if self._next_beat is not None:
            self._next_beat.cancel()  # the next connections have heartbeats of their own
        if not self._is_closed:
            self._note_down(f"the link to node {self.node_id} at {self.address} broke: {reason}")
        heart.abort(reason)
        calls.abort(reason)
        self._deadlines.stop()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            self._release(future)
            self._fail(future, Reply(CallStatus.BROKEN, reason=self._why_down, code="broken"))
        self.probe.in_flight = 0
        if self.probe.is_connected:
            self.probe.is_connected = False
            self._notify(False)
        if self._broken is not None and not self._broken.done():
            self._broken.set_result(None)

    def _notify(self, is_up: bool) -> None:
        for watcher in self._watchers:
            watcher(is_up)

    # Heartbeats.

    def _beat(self) -> None:
        heart, calls = self._heart, self._calls
        if heart is None or calls is None:
            return
        options = self._options
        # Heartbeats are counted, not timed: a process that was stopped itself must not take its peers for dead.
        if self._missed >= self._missed_max:
            self._break(f"no heartbeat for {options.heartbeat_timeout_s:g} s")
            return
        self._count(heart, calls)
        self._missed += 1
        self._ping(heart)
        if self._pending and calls.bytes_in == self._calls_bytes_in:
            self._quiet += 1
            if self._quiet >= 3 * self._missed_max:
                self._break("nothing comes on the connection for calls, though heartbeats do")
                return
            if self._quiet >= self._missed_max:
                self._ping(calls)
        else:
            self._quiet, self._calls_bytes_in = 0, calls.bytes_in
        self._next_beat = self.loop.call_later(options.heartbeat_interval_s, self._beat)

    def _count(self, heart: Connection, calls: Connection) -> None:
        """Bring the probe up to date: with each heartbeat, not with each call."""
        probe = self.probe
        probe.in_flight = len(self._pending)
        bytes_in, bytes_out = heart.bytes_in + calls.bytes_in, heart.bytes_out + calls.bytes_out
        probe.bytes_in += bytes_in - self._counted_in
        probe.bytes_out += bytes_out - self._counted_out
        self._counted_in, self._counted_out = bytes_in, bytes_out

    def _ping(self, connection: Connection) -> None:
        number = self._last_call = self._last_call + 1
        if connection is self._heart:
            self._pings[number] = self._clock.monotonic()
            if len(self._pings) > 2 * self._missed_max:
                del self._pings[next(iter(self._pings))]
        connection.session.outbox.add(PING, call=number)
        connection.flush_soon()

    # Calls.

    def _expire(self, now: float) -> float:
        earliest = inf
        expired = []
        for future in self._pending.values():
            if future.deadline <= now:
                expired.append(future)
            elif future.deadline < earliest:
                earliest = future.deadline
        for future in expired:
            del self._pending[future.call]
            self._release(future)
            self._send_cancel(future.call)
            self._fail(future, Reply(CallStatus.EXPIRED, reason=f"node {self.node_id} did not reply in time", code="expired"))
        return earliest

    def _send_cancel(self, call: int) -> None:
        connection = self._calls
        if connection is not None:
            connection.session.outbox.drop(call)
            connection.session.discard(call)
            connection.session.outbox.add(CANCEL, call=call)
            connection.flush_soon()

    def _release(self, future: PendingCall) -> None:
        self._bytes_held -= future.cost
        left = self._windows[future.destination] - future.cost
        if left:
            self._windows[future.destination] = left
        else:
            del self._windows[future.destination]

    def _fail(self, future: PendingCall, reply: Reply) -> None:
        self.probe.count_error(reply.status.name)
        if not future.done():
            future.set_result(reply)

    def _overloaded(self, destination: int) -> asyncio.Future[Reply]:
        options, used = self._options, self._windows.get(destination, 0)
        return self._failed(
            CallStatus.OVERLOADED,
            f"{used} bytes are in flight to destination {destination} of node {self.node_id}, {self._bytes_held} bytes and "
            f"{len(self._pending)} calls to the node; the limits are {options.window_bytes}, {options.link_bytes_max} and "
            f"{options.calls_max}",
        )

    def _failed(self, status: CallStatus, reason: str) -> asyncio.Future[Reply]:
        self.probe.count_error(status.name)
        future: asyncio.Future[Reply] = self.loop.create_future()
        future.set_result(Reply(status, reason=reason, code=status.name.lower()))
        return future
