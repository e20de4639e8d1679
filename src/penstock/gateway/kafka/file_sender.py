"""Sending pieces of files to a client without a copy, by `os.sendfile`; in a thread where a cold page would stop the loop.

It takes the place of the transport for one reply at a time, and only while the transport has nothing left to send.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any

from penstock.blob import FilePiece

THREADS = 4
VECTOR_MAX = 512
PORTION_BYTES = 4 << 20
SAMPLE_EVERY = 256 << 10

_NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="penstock-sendfile")


class FileSender:
    """Sends replies that have pieces of files in them over one connection."""

    def __init__(self, socket_fd: int, progressed: Callable[[], None]) -> None:
        # A descriptor of its own: event loops refuse to watch one that a transport has.
        self._socket = socket.socket(fileno=os.dup(socket_fd))
        self._loop = asyncio.get_running_loop()
        self._progressed = progressed  # called whenever the client has taken something
        self._is_sending = False
        self._is_closed = False

    async def send(self, buffers: Sequence[Any]) -> None:
        """Send them all, in order, one call at a time. OSError if the client is gone."""
        self._is_sending = True
        try:
            await self._send(buffers)
        finally:
            self._is_sending = False
            if self._is_closed:
                self._socket.close()

    def close(self) -> None:
        """Let go of the connection. What is being sent fails."""
        self._is_closed = True
        if not self._is_sending:
            self._socket.close()
            return
        # A thread may be at it this moment: its descriptor must not become another's before it is done.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def _send(self, buffers: Sequence[Any]) -> None:
        at = 0
        while at < len(buffers):
            if isinstance(buffers[at], FilePiece):
                await self._send_file(buffers[at])
                at += 1
                continue
            end = at
            while end < len(buffers) and not isinstance(buffers[end], FilePiece) and end - at < VECTOR_MAX:
                end += 1
            await self._send_buffers(buffers[at:end], more=end < len(buffers))
            at = end

    async def _send_buffers(self, buffers: Sequence[Any], *, more: bool) -> None:
        flags = getattr(socket, "MSG_MORE", 0) if more else 0
        rest = [memoryview(buffer) for buffer in buffers]
        while rest:
            try:
                sent = self._socket.sendmsg(rest, (), flags)
            except BlockingIOError:
                await self._writable()
                continue
            while rest and sent >= len(rest[0]):
                sent -= len(rest.pop(0))
            if sent:
                rest[0] = rest[0][sent:]

    async def _send_file(self, piece: FilePiece) -> None:
        at, end = piece.offset, piece.offset + piece.length
        while at < end:
            length = min(end - at, PORTION_BYTES)
            try:
                if _is_cached(piece.fd, at, length):
                    at += self._pump(piece.fd, at, length)
                    await asyncio.sleep(0)  # others are to be served as well
                else:
                    at += await self._loop.run_in_executor(_threads(), self._pump, piece.fd, at, length)
            except BlockingIOError:
                await self._writable()

    def _pump(self, fd: int, at: int, length: int) -> int:
        """Send as much as the socket takes now; BlockingIOError if that is nothing."""
        sent = 0
        while sent < length:
            try:
                count = os.sendfile(self._socket.fileno(), fd, at + sent, length - sent)
            except BlockingIOError:
                if not sent:
                    raise
                break
            if not count:
                raise OSError(f"the file ends at {at + sent}, {length - sent} bytes short")
            sent += count
        return sent

    async def _writable(self) -> None:
        ready = self._loop.create_future()
        fd = self._socket.fileno()
        self._loop.add_writer(fd, _wake, ready)
        try:
            await ready
        finally:
            self._loop.remove_writer(fd)
        self._progressed()


def _is_cached(fd: int, at: int, length: int) -> bool:
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


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
