"""Moves bytes between a transport and a session: frames that are due in one turn of the event loop are sent in one write."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Protocol, cast

from penstock.core.errors import PenstockError
from penstock.interconnect.errors import PeerRefusedError
from penstock.interconnect.frames import Frame
from penstock.interconnect.hello import Peer
from penstock.interconnect.session import Session

log = logging.getLogger(__name__)

WRITE_BYTES = 256 << 10
UNIX_WRITE_BYTES = 1 << 20  # a peer on this machine takes it so soon that nothing waits behind it, and is woken less often
JOIN_BYTES_MAX = 64 << 10  # small frames leave as one buffer
# That the kernel holds for a peer, if it is allowed to; by default it is less than one write, which then takes several.
UNIX_SEND_BYTES = 2 << 20


class ConnectionOwner(Protocol):
    """What a connection reports to; nothing is reported after `lost`."""

    def opened(self, connection: Connection, peer: Peer) -> None:
        """Both hellos were exchanged."""
        ...

    def received(self, connection: Connection, frames: list[Frame]) -> None:
        """Frames arrived. Raises PenstockError if they make no sense, which closes the connection."""
        ...

    def drained(self, connection: Connection) -> None:
        """Everything that was to be sent has been given to the network."""
        ...

    def lost(self, connection: Connection, reason: str) -> None:
        """The connection is gone."""
        ...


class Connection(asyncio.BufferedProtocol):
    """One connection to a peer. `secured` says that TLS protects it."""

    def __init__(self, session: Session, owner: ConnectionOwner, *, secured: bool) -> None:
        self.session = session
        self.secured = secured
        self.bytes_in = 0
        self.bytes_out = 0
        self.is_writable = False
        self.is_closed = False
        self.refusal: PeerRefusedError | None = None  # why one of the nodes did not want the other
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._write_bytes = WRITE_BYTES
        self._abort: Callable[[], object] | None = None
        self._is_reading = True
        self._flush_due = False
        self._reason = ""

    def attach(self, abort: Callable[[], object]) -> None:
        """Have a way to abort while the TLS handshake is not over; `connection_made` comes later."""
        self._abort = abort

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._abort = self._transport.abort
        # Without a buffer of its own the transport says at once whether the peer takes what is sent. With TLS, a limit of 0
        # counts as reached by an empty buffer.
        self._transport.set_write_buffer_limits(high=1 if self.secured else 0, low=0)
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.family == socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_SEND_BYTES)
            self._write_bytes = UNIX_WRITE_BYTES
        self.is_writable = True
        if self._reason:
            self._transport.abort()
        else:
            self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.is_writable = False
            self._owner.lost(self, self._reason or (f"the connection broke: {exc}" if exc else "the peer closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.session.space()

    def buffer_updated(self, nbytes: int) -> None:
        if self._reason:
            return
        self.bytes_in += nbytes
        session = self.session
        was_open = session.peer is not None
        try:
            frames = session.received(nbytes)
            if not was_open and session.peer is not None:
                self._owner.opened(self, session.peer)
            if frames:
                self._owner.received(self, frames)
        except PeerRefusedError as error:
            self._reason = str(error)
            self.refusal = error
            self._close_politely()
        except PenstockError as error:
            self.abort(str(error))
        else:
            if session.outbox:
                self.flush()

    def eof_received(self) -> bool:
        return False  # closes the transport

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self.flush()

    def pause_reading(self) -> None:
        """Receives nothing more until `resume_reading`; the peer notices when the network's buffers are full."""
        if self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Receives again."""
        if not self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    def flush_soon(self) -> None:
        """Sends what is in the outbox, at the end of this turn of the event loop."""
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush_due_now)

    def flush(self) -> None:
        """Sends what is in the outbox, as far as the peer takes it."""
        outbox = self.session.outbox
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        while self.is_writable and outbox:
            buffers, size = outbox.take(self._write_bytes)
            self.bytes_out += size
            if size <= JOIN_BYTES_MAX:
                transport.write(b"".join(buffers))
            else:
                transport.writelines(buffers)
        if self.is_writable and not self.is_closed:
            self._owner.drained(self)

    def abort(self, reason: str) -> None:
        """Closes the connection at once."""
        self._reason = self._reason or reason
        if self._abort is not None:
            self._abort()

    def _flush_due_now(self) -> None:
        self._flush_due = False
        self.flush()

    def _close_politely(self) -> None:
        """Sends the refusal and closes."""
        self.flush()
        if self._transport is not None:
            self._transport.close()
