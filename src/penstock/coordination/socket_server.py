"""Serves a store to the workers of one machine over a Unix socket that only their user may open."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.coordination.frames import (
    DONE,
    EVENTS,
    FAILED,
    REQUEST_BYTES_MAX,
    AnswerFrame,
    RequestFrame,
    failure,
    pack,
    read_frame,
    transaction_of,
)
from penstock.coordination.port import KeyStore
from penstock.core.errors import ConfigError, InvalidRequestError, PenstockError

log = logging.getLogger(__name__)

CALLS_MAX: Final = 256
"""Calls and watches of one worker at a time."""
UNREAD_BYTES_MAX: Final = 64 << 20
"""A worker that leaves more than this unread is disconnected; it connects again and lists."""


class SocketServer:
    """Listens on a path. A socket file that a dead supervisor left is replaced; a live one is an error."""

    def __init__(self, store: KeyStore, path: Path) -> None:
        self._store = store
        self._path = path
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. ConfigError if the path cannot be listened on."""
        try:
            listener = _bind(self._path)
        except OSError as error:
            raise ConfigError(f"cannot listen on {self._path}: {error.strerror or error}; name another directory") from error
        self._server = await asyncio.start_unix_server(self._accept, sock=listener)

    async def close(self) -> None:
        """Disconnect everyone and remove the socket file."""
        if self._server is not None:
            self._server.close()
            for connection in list(self._connections):
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            self._path.unlink(missing_ok=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            await _Connection(self._store, reader, writer).serve()
        except asyncio.CancelledError:
            if self._server is not None and self._server.is_serving():
                raise
        finally:
            self._connections.discard(connection)


class _Connection:
    """One worker. Calls run at the same time and are answered as they end."""

    def __init__(self, store: KeyStore, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._store = store
        self._reader = reader
        self._writer = writer
        self._calls: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Serve until the worker is gone."""
        decoder = msgspec.msgpack.Decoder(RequestFrame)
        try:
            while True:
                self._take(decoder.decode(await read_frame(self._reader, REQUEST_BYTES_MAX)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except (ValueError, msgspec.DecodeError) as error:
            log.warning("a worker sent what is no request, and is disconnected: %s", error)
        finally:
            for call in self._calls.values():
                call.cancel()
            await asyncio.gather(*self._calls.values(), return_exceptions=True)
            self._writer.close()
            with suppress(ConnectionError):
                await self._writer.wait_closed()

    def _take(self, frame: RequestFrame) -> None:
        if frame.method == "cancel":
            call = self._calls.pop(frame.call, None)
            if call is not None:
                call.cancel()
        elif frame.call in self._calls or len(self._calls) >= CALLS_MAX:
            raise ValueError(f"call {frame.call} is the {len(self._calls) + 1}th at a time, or was used twice")
        else:
            task = asyncio.create_task(self._answer(frame), name=f"coordination-{frame.method}")
            self._calls[frame.call] = task
            task.add_done_callback(lambda done: self._ended(frame.call, done))

    def _ended(self, call: int, task: asyncio.Task[None]) -> None:
        if self._calls.get(call) is task:
            del self._calls[call]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a call of a worker failed", exc_info=error)
            self._writer.transport.abort()

    async def _answer(self, frame: RequestFrame) -> None:
        try:
            if frame.method == "watch":
                await self._watch(frame)
            else:
                self._send(frame.call, DONE, await self._do(frame))
        except PenstockError as error:
            self._send(frame.call, FAILED, failure(error))
        except (msgspec.ValidationError, ValueError) as error:
            self._send(frame.call, FAILED, failure(InvalidRequestError(f"{frame.method}: {error}")))

    async def _do(self, frame: RequestFrame) -> Any:
        store, arguments = self._store, frame.arguments
        match frame.method:
            case "get":
                return await store.get(*msgspec.convert(arguments, tuple[str]))
            case "scan":
                return await store.scan(*msgspec.convert(arguments, tuple[str]))
            case "commit":
                return await store.commit(*transaction_of(arguments))
            case "grant":
                return await store.grant(*msgspec.convert(arguments, tuple[float]))
            case "renew":
                return await store.renew(*msgspec.convert(arguments, tuple[int, float]))
            case "revoke":
                return await store.revoke(*msgspec.convert(arguments, tuple[int]))
        raise InvalidRequestError(f"{frame.method} is no call of the coordination store; is the supervisor of another version?")

    async def _watch(self, frame: RequestFrame) -> None:
        watch = self._store.watch(*msgspec.convert(frame.arguments, tuple[str, int]))
        try:
            async for events in watch:
                self._send(frame.call, EVENTS, events)
        finally:
            await watch.aclose()

    def _send(self, call: int, kind: str, payload: Any) -> None:
        self._writer.write(pack(AnswerFrame(call, kind, payload)))
        if self._writer.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            log.warning("a worker reads too slowly and is disconnected")
            self._writer.transport.abort()


def _bind(path: Path) -> socket.socket:
    """A listening socket with permissions for its owner alone from the first moment."""
    if path.exists():
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise OSError(f"{path} is not a socket")
        if not is_abandoned(path):
            raise OSError("another supervisor listens there")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
        listener.listen()
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def is_abandoned(path: Path) -> bool:
    """Whether a socket is left of a supervisor that was killed: there is one, and nothing listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            return False
        except OSError:
            return True
    return False
