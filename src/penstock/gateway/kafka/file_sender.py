"""Sends pieces of files to a client with `os.sendfile`, in a thread where reading a cold page would block the event loop.

It replaces the transport for one reply at a time, and only while the transport has nothing left to send. It sends at once what
the socket accepts, and yields to the event loop only when the socket is full or its turn is used up.

A client on the same machine gets a copy instead: it would have to load pages of files from memory one by one, while copied bytes
are still in the CPU cache. That costs no more in total, and less for the client, which usually is the slower side.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any

from penstock.blob import FilePiece

THREADS = 4
VECTOR_MAX = 512
TURN_BYTES = 2 << 20  # what one connection sends before it yields to others
PORTION_BYTES = 4 << 20  # what a thread sends at a time
SAMPLE_EVERY = 256 << 10
COPY_BYTES = 512 << 10  # what is copied at a time: it is to stay in the cache until it is sent

_NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0)
_MORE: int = getattr(socket, "MSG_MORE", 0)


@cache
def _copied() -> memoryview:
    """Where the loop's thread copies to; what is there has left when the call that put it there returns."""
    return memoryview(bytearray(COPY_BYTES))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="penstock-sendfile")


class FileSender:
    """Sends replies that have pieces of files in them over one connection."""

    def __init__(
        self, socket_fd: int, progressed: Callable[[], None], ended: Callable[[OSError | None], None], *, copies: bool
    ) -> None:
        # A descriptor of its own: event loops refuse to watch one that a transport has.
        self._socket = socket.socket(fileno=os.dup(socket_fd))
        self._loop = asyncio.get_running_loop()
        self._progressed = progressed  # called whenever the client has taken something
        self._ended = ended  # called when a reply that was not sent at once has left, or cannot
        self._copies = copies and bool(_NO_WAIT)
        self._rest: deque[Any] = deque()  # of the reply
        self._at = 0  # bytes sent of the first of the rest
        self._cached_to = 0  # up to where the first of the rest is known to be in memory
        self._is_watching = False
        self._in_thread = False
        self._is_closed = False

    def send(self, buffers: Sequence[Any]) -> bool:
        """Send a reply, one at a time. Returns whether it was sent completely. OSError if the client has disconnected."""
        # An empty buffer at the end would leave what is before it marked as "more follows", and the system would wait for that.
        self._rest.extend(buffer for buffer in buffers if isinstance(buffer, FilePiece) or len(buffer))
        return self._advance()

    def close(self) -> None:
        """Close the connection and drop what is being sent."""
        self._is_closed = True
        self._unwatch()
        self._rest.clear()
        if not self._in_thread:
            self._socket.close()
            return
        # A thread may be sending: the descriptor must not be reused before it is done.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _advance(self) -> bool:
        """Send as much as the socket accepts, up to a limit per turn. Returns whether all was sent; otherwise sending
        continues in the background."""
        left = TURN_BYTES
        try:
            while self._rest and left > 0:
                piece = self._rest[0]
                if not isinstance(piece, FilePiece):
                    self._send_buffers()
                elif sent := self._send_copy(piece) if self._copies else self._send_file(piece, left):
                    left -= sent
                else:
                    self._unwatch()
                    self._send_in_thread(piece)
                    return False
        except BlockingIOError:
            pass
        if self._rest:
            self._watch()
            return False
        self._unwatch()
        return True

    def _go_on(self) -> None:
        """Called when the socket accepts more."""
        self._progressed()
        try:
            if not self._advance():
                return
        except OSError as error:
            self._fail(error)
            return
        self._ended(None)

    def _fail(self, error: OSError) -> None:
        self._unwatch()
        self._rest.clear()
        self._ended(error)

    def _send_buffers(self) -> None:
        """Send the buffers up to the next piece of a file. BlockingIOError if the socket takes nothing."""
        run: list[Any] = []
        for buffer in islice(self._rest, VECTOR_MAX):
            if isinstance(buffer, FilePiece):
                break
            run.append(buffer)
        more = _MORE if len(run) < len(self._rest) else 0
        if self._at:
            run[0] = memoryview(run[0])[self._at :]
        sent = self._socket.sendmsg(run, (), more)
        for buffer in run:
            if sent < len(buffer):
                self._at += sent
                return
            sent -= len(buffer)
            self._rest.popleft()
            self._at = 0

    def _send_copy(self, piece: FilePiece) -> int:
        """Send of a piece what is in memory, up to what is copied at a time; the bytes, 0 if it is not there. BlockingIOError if
        the socket takes nothing."""
        left = piece.length - self._at
        try:
            count = os.preadv(piece.fd, [_copied()[:left]], piece.offset + self._at, _NO_WAIT)
        except OSError:
            return 0
        if not count:
            return 0
        sent = self._socket.send(_copied()[:count], _MORE if count < left or len(self._rest) > 1 else 0)
        self._sent(piece, sent)
        return sent

    def _send_file(self, piece: FilePiece, most: int) -> int:
        """Send of a piece what the socket takes and is in memory, up to so much; the bytes, 0 if it is not there. BlockingIOError
        if the socket takes nothing."""
        if not self._is_cached(piece):
            return 0
        sent = _pump(self._socket.fileno(), piece, self._at, min(self._cached_to - self._at, most))
        self._sent(piece, sent)
        return sent

    def _sent(self, piece: FilePiece, count: int) -> None:
        self._at += count
        if self._at == piece.length:
            self._rest.popleft()
            self._at = self._cached_to = 0

    def _is_cached(self, piece: FilePiece) -> bool:
        """Whether what is to be sent next of a piece is in memory; looked at once for every portion."""
        if self._at < self._cached_to:
            return True
        length = min(piece.length - self._at, PORTION_BYTES)
        if not _is_in_memory(piece.fd, piece.offset + self._at, length):
            return False
        self._cached_to = self._at + length
        return True

    def _send_in_thread(self, piece: FilePiece) -> None:
        length = min(piece.length - self._at, PORTION_BYTES)
        self._in_thread = True
        work = self._loop.run_in_executor(_threads(), _pump, self._socket.fileno(), piece, self._at, length)
        work.add_done_callback(self._thread_is_done)

    def _thread_is_done(self, work: asyncio.Future[int]) -> None:
        self._in_thread = False
        if self._is_closed:
            work.exception()  # which is of no interest now
            self._socket.close()
            return
        try:
            self._sent(self._rest[0], work.result())
        except BlockingIOError:
            self._watch()
            return
        except OSError as error:
            self._fail(error)
            return
        self._go_on()

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._loop.add_writer(self._socket.fileno(), self._go_on)

    def _unwatch(self) -> None:
        if self._is_watching:
            self._is_watching = False
            self._loop.remove_writer(self._socket.fileno())


def _pump(socket_fd: int, piece: FilePiece, at: int, length: int) -> int:
    """Send of a piece as much as the socket takes now; BlockingIOError if that is nothing."""
    sent = 0
    while sent < length:
        try:
            count = os.sendfile(socket_fd, piece.fd, piece.offset + at + sent, length - sent)
        except BlockingIOError:
            if not sent:
                raise
            break
        if not count:
            raise OSError(f"the file ends at {piece.offset + at + sent}, {length - sent} bytes short")
        sent += count
    return sent


def _is_in_memory(fd: int, at: int, length: int) -> bool:
    """Whether the range is in memory, judged by samples; False where the system cannot tell."""
    if not _NO_WAIT:
        return False
    sample = [bytearray(1)]
    try:
        for position in (*range(at, at + length, SAMPLE_EVERY), at + length - 1):
            if not os.preadv(fd, sample, position, _NO_WAIT):
                return False
    except OSError:
        return False
    return True
