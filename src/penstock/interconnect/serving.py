"""A connection that another node made, and the calls on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial
from math import inf
from typing import Protocol

from penstock.core.errors import PenstockError
from penstock.interconnect.connection import Connection
from penstock.interconnect.deadlines import DeadlineTimer
from penstock.interconnect.errors import ProtocolError
from penstock.interconnect.frame_age import FrameAge
from penstock.interconnect.frames import CALL, CANCEL, PING, PONG, REPLY, Frame
from penstock.interconnect.hello import Hello, Peer, Role
from penstock.interconnect.service import ServedCall, Service
from penstock.interconnect.session import Session
from penstock.interconnect.status import CallStatus, Parts, pack_error

log = logging.getLogger(__name__)

_OK = CallStatus.OK  # as in link.py


class Admitting(Protocol):
    """What decides about the peers of accepted connections and keeps their list."""

    def answer(self, caller: CallerConnection, hello: Hello) -> tuple[Peer, Hello]:
        """Admit a node; raises PeerRefusedError."""
        ...

    def forget(self, caller: CallerConnection, reason: str) -> None:
        """A connection is gone."""
        ...


class CallerConnection:
    """One accepted connection. Nothing more is read from a peer that does not read its replies."""

    def __init__(self, service: Service, listener: Admitting, *, secured: bool) -> None:
        self._service = service
        self._listener = listener
        self._options = service.options
        self._clock = service.clock
        self._loop = asyncio.get_running_loop()
        session = Session.accepting(
            lambda hello: listener.answer(self, hello),
            self._wants,
            checked=not secured,
            body_bytes_max=self._options.body_bytes_max,
        )
        self.connection = Connection(session, self, secured=secured)
        self.peer: Peer | None = None
        self.since = self.heard_at = self.written_at = self._clock.monotonic()
        self._heard_bytes = 0
        self._is_receiving = False
        self._calls: dict[int, ServedCall] = {}
        self._tasks: dict[int, asyncio.Future[Parts]] = {}
        self._age = FrameAge()
        self._deadlines = DeadlineTimer(self._loop, self._clock, self._expire)

    def sweep(self, now: float, *, has_heartbeat: bool) -> None:
        """Applies the time limits; called periodically. `has_heartbeat` says whether the peer's other connection is alive."""
        options, connection = self._options, self.connection
        self._count()
        if connection.bytes_in != self._heard_bytes:
            self._heard_bytes, self.heard_at = connection.bytes_in, now
        if connection.is_writable:
            self.written_at = now
        if self.peer is None:
            if now - self.since > options.hello_timeout_s:
                connection.abort(f"no hello within {options.hello_timeout_s:g} s")
        elif now - self.written_at > options.caller_timeout_s:
            connection.abort(f"the peer has not read its replies for {options.caller_timeout_s:g} s")
        elif now - self.heard_at > options.caller_timeout_s and not has_heartbeat:
            connection.abort(f"nothing came from the peer for {options.caller_timeout_s:g} s")

    # What the connection reports.

    def opened(self, connection: Connection, peer: Peer) -> None:
        """See ConnectionOwner."""
        self.peer = peer

    def received(self, connection: Connection, frames: list[Frame]) -> None:
        """See ConnectionOwner."""
        self._is_receiving = True  # what is answered meanwhile is sent at the end
        for frame in frames:
            if frame.kind == CALL:
                self._begin(frame)
            elif frame.kind == PING:
                connection.session.outbox.add(PONG, call=frame.call)
            elif frame.kind == CANCEL:
                self._cancel(frame.call)
        self._is_receiving = False
        if connection.session.outbox.bytes > self._options.unsent_bytes_max:
            connection.pause_reading()

    def drained(self, connection: Connection) -> None:
        """See ConnectionOwner."""
        connection.resume_reading()

    def lost(self, connection: Connection, reason: str) -> None:
        """See ConnectionOwner."""
        self._count()
        self._deadlines.stop()
        for call in list(self._calls):
            self._cancel(call)
        self._listener.forget(self, reason)

    # Calls.

    def _wants(self, frame: Frame, total: int) -> bool:
        """Admits a call whose body comes in pieces, or refuses it at once."""
        served = self._accept(frame, total)
        if served is None:
            return False
        self._deadlines.note(served.deadline)
        return True

    def _accept(self, frame: Frame, size: int) -> ServedCall | None:
        call = frame.call
        peer = self.connection.session.peer
        if peer is None or peer.role is not Role.CALLS:
            raise ProtocolError("a call on a connection for heartbeats")
        if call in self._calls:
            raise ProtocolError(f"call {call} came twice")
        if len(self._calls) >= self._options.calls_max:
            self._refuse(call, CallStatus.OVERLOADED, f"{len(self._calls)} calls of this peer are in flight already")
            return None
        made = self._service.accept(frame, size, peer)
        if isinstance(made, tuple):
            self._refuse(call, *made)
            return None
        now = self._clock.monotonic()
        made.deadline = now + (frame.timeout_ms - self._age.age_ms(int(now * 1000), frame.sent_ms)) / 1000
        self._calls[call] = made
        return made

    def _begin(self, frame: Frame) -> None:
        """All of a call is here: run its handler."""
        served = self._calls.get(frame.call)
        if served is None:
            served = self._accept(frame, len(frame.body))
            if served is None:
                return
        elif served.body is not None:
            raise ProtocolError(f"call {frame.call} came twice")
        served.body = frame.body
        if served.deadline <= self._clock.monotonic():
            self._end(served)
            self._refuse(frame.call, CallStatus.EXPIRED, "the deadline had passed before the call was read")
            return
        try:
            result = served.destination.handlers[served.method](served)
        except Exception as error:  # noqa: BLE001  # whatever a handler raises is an answer to its caller
            self._answer_error(served, error)
            return
        if isinstance(result, Awaitable):
            self._deadlines.note(served.deadline)
            task = self._tasks[served.call] = asyncio.ensure_future(result)
            task.add_done_callback(partial(self._finished, served))
        else:
            self._answer(served, result)

    def _finished(self, served: ServedCall, task: asyncio.Future[Parts]) -> None:
        if served.is_abandoned:
            self._service.release(served)
        if task.cancelled():
            self._answer_error(served, PenstockError("the handler was cancelled"))
        elif (error := task.exception()) is not None:
            self._answer_error(served, error)
        else:
            self._answer(served, task.result())

    def _answer(self, served: ServedCall, parts: Parts) -> None:
        if self._end(served):
            size = sum(map(len, parts))
            if size > served.reply_bytes_max:
                allowed = f"the reply has {size} bytes; the caller allows {served.reply_bytes_max}"
                self._refuse(served.call, CallStatus.TOO_LARGE, allowed)
                return
            outbox = self.connection.session.outbox
            outbox.add(REPLY, _OK, served.call, parts)
            if self._calls:
                self.connection.flush_soon()  # together with the replies to others
            elif not self._is_receiving:
                self.connection.flush()
            if outbox.bytes > self._options.unsent_bytes_max:
                self.connection.pause_reading()

    def _answer_error(self, served: ServedCall, error: BaseException) -> None:
        if not self._end(served):
            return
        if isinstance(error, PenstockError):
            body = pack_error(error.code, str(error))
        else:
            log.error("a call of method %d failed", served.method, exc_info=error)
            body = pack_error("internal", f"{type(error).__name__}: {error}")
        self._send_error(served.call, CallStatus.FAILED, body)

    def _refuse(self, call: int, status: CallStatus, reason: str) -> None:
        self._send_error(call, status, pack_error(status.name.lower(), reason))

    def _send_error(self, call: int, status: CallStatus, body: bytes) -> None:
        self._service.probe.count_error(status.name)
        self.connection.session.outbox.add(REPLY, status, call, (body,))
        self.connection.flush_soon()

    def _end(self, served: ServedCall) -> bool:
        """A call is over; False if it was before."""
        if self._calls.pop(served.call, None) is None:
            return False
        self._tasks.pop(served.call, None)
        self._service.release(served)
        return True

    def _cancel(self, call: int) -> None:
        """The caller has given up: the handler stops, and the rest of its reply is not sent."""
        self.connection.session.outbox.drop(call)
        served = self._calls.get(call)
        if served is None:
            return
        self._service.probe.cancelled += 1
        task = self._tasks.pop(call, None)
        if task is not None and not served.destination.cancels:
            del self._calls[call]
            served.is_abandoned = True
            return
        self._end(served)
        if task is not None:
            task.cancel()
        else:
            self.connection.session.discard(call)

    def _expire(self, now: float) -> float:
        for call in [call for call, served in self._calls.items() if served.deadline <= now]:
            self._cancel(call)
        return min((served.deadline for served in self._calls.values()), default=inf)

    def _count(self) -> None:
        """Bring the probe up to date: now and then, not with each call."""
        probe, connection = self._service.probe, self.connection
        probe.bytes_in += connection.bytes_in - self._counted[0]
        probe.bytes_out += connection.bytes_out - self._counted[1]
        self._counted = (connection.bytes_in, connection.bytes_out)

    _counted: tuple[int, int] = (0, 0)
