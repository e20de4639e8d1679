"""One connection as a state machine without I/O: bytes go in, frames come out, and what is to be written is taken from it.

    dialer                     acceptor
      HELLO  ───────────────>    admits the dialer, or answers REFUSED
      admits the acceptor  <───  HELLO
      open                       open
      CALL, PIECE, CANCEL, PING ──>
                              <── REPLY, PIECE, PONG

Until it is open, a session takes one frame of a few hundred bytes and keeps no more memory than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.interconnect.errors import PeerRefusedError, ProtocolError
from penstock.interconnect.frames import (
    CALL,
    CANCEL,
    HEADER_BYTES,
    HELLO,
    PIECE,
    PING,
    PONG,
    REFUSED,
    REPLY,
    Admit,
    Frame,
    FrameReader,
)
from penstock.interconnect.hello import HELLO_BYTES_MAX, Hello, Peer
from penstock.interconnect.outbox import Outbox

_FIRST_OF_DIALER: Final = frozenset({HELLO})
_FIRST_OF_ACCEPTOR: Final = frozenset({HELLO, REFUSED})
_OF_DIALER: Final = frozenset({CALL, PIECE, CANCEL, PING})
_OF_ACCEPTOR: Final = frozenset({REPLY, PIECE, PONG})

Answer = Callable[[Hello], tuple[Peer, Hello]]  # what an acceptor makes of a hello; raises PeerRefusedError
Check = Callable[[Hello], Peer]  # what a dialer makes of the answer; raises PeerRefusedError


class Session:
    """The protocol of one connection. `peer` is set once it is open."""

    __slots__ = ("_answer", "_body_max", "_check", "_expected", "_reader", "outbox", "peer")

    def __init__(
        self, admit: Admit, *, checked: bool, body_bytes_max: int, answer: Answer | None = None, check: Check | None = None
    ) -> None:
        self._answer = answer
        self._check = check
        self._expected = _OF_DIALER if check is None else _OF_ACCEPTOR
        self._body_max = body_bytes_max
        self._reader = FrameReader(
            admit,
            checked=checked,
            body_bytes_max=HELLO_BYTES_MAX,
            expected=_FIRST_OF_DIALER if check is None else _FIRST_OF_ACCEPTOR,
            capacity=HEADER_BYTES + HELLO_BYTES_MAX,
        )
        self.outbox = Outbox(checked=checked)
        self.peer: Peer | None = None

    @classmethod
    def dialing(cls, hello: Hello, check: Check, admit: Admit, *, checked: bool, body_bytes_max: int) -> Session:
        """The session of the node that makes the connection; it has its hello to send."""
        session = cls(admit, checked=checked, body_bytes_max=body_bytes_max, check=check)
        session.outbox.add(HELLO, parts=(hello.pack(),))
        return session

    @classmethod
    def accepting(cls, answer: Answer, admit: Admit, *, checked: bool, body_bytes_max: int) -> Session:
        """The session of the node that accepts the connection; it says nothing before it is spoken to."""
        return cls(admit, checked=checked, body_bytes_max=body_bytes_max, answer=answer)

    def space(self) -> memoryview:
        """The memory to receive into."""
        return self._reader.space()

    def received(self, count: int) -> list[Frame]:
        """Takes note of bytes in `space`; returns frames other than hellos. Raises ProtocolError, or PeerRefusedError after which
        an acceptor still sends what is in its outbox."""
        frames = self._reader.received(count)
        if self.peer is None and frames:
            self._greet(frames.pop(0))
            self._reader.enlarge(self._body_max, self._expected)
            if frames:
                raise ProtocolError("more than one hello")
            frames = self._reader.received(0)
        return frames

    def discard(self, call: int) -> None:
        """Drop what was received of the body of a call."""
        self._reader.discard(call)

    def _greet(self, frame: Frame) -> None:
        if frame.kind == REFUSED and self._check is not None:
            raise PeerRefusedError(frame.code, bytes(frame.body).decode(errors="replace"))
        hello = Hello.unpack(frame.body)
        if self._check is not None:
            self.peer = self._check(hello)
        elif self._answer is not None:
            try:
                self.peer, answer = self._answer(hello)
            except PeerRefusedError as error:
                self.outbox.add(REFUSED, error.reason, parts=(str(error).encode()[:HELLO_BYTES_MAX],))
                raise
            self.outbox.add(HELLO, parts=(answer.pack(),))
