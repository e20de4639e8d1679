"""Sending replies with pieces of files in them: all of it, in order, at once if the socket takes it, in a thread if need be."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.blob import FilePiece
from penstock.gateway.kafka import file_sender
from penstock.gateway.kafka.file_sender import FileSender

TIMEOUT_S = 20.0
LARGE = 9 << 20

both = pytest.mark.parametrize("copies", [True, False], ids=["copied", "not copied"])


class Sent:
    """A sender, the other end of its connection, and what it told."""

    def __init__(self, path: Path, content: bytes, *, copies: bool) -> None:
        path.write_bytes(content)
        self.content = content
        self._file = path.open("rb")
        self._near, self.far = socket.socketpair()
        self._near.setblocking(False)
        self.far.setblocking(False)
        self.ends: list[OSError | None] = []
        self.has_ended = asyncio.Event()
        self.steps = 0
        self._loop = asyncio.get_running_loop()
        self.sender = FileSender(self._near.fileno(), self._step, self._end, copies=copies)

    def _step(self) -> None:
        self.steps += 1

    def _end(self, error: OSError | None) -> None:
        self.ends.append(error)
        self.has_ended.set()

    def piece(self, offset: int, length: int) -> FilePiece:
        """A piece of the file."""
        return FilePiece(self._file.fileno(), offset, length, self._file)

    async def received(self, size: int) -> bytes:
        """What arrives."""
        found = b""
        while len(found) < size and (more := await self._loop.sock_recv(self.far, 100_000)):
            found += more
        return found

    def close(self) -> None:
        """Close everything."""
        self.sender.close()
        for one in (self._near, self.far, self._file):
            one.close()


@contextmanager
def sending(path: Path, size: int, *, copies: bool) -> Iterator[Sent]:
    sent = Sent(path / "data", os.urandom(size), copies=copies)
    try:
        yield sent
    finally:
        sent.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario()

    asyncio.run(limited())


@both
def test_a_reply_that_the_socket_takes_has_left_at_once(tmp_path: Path, copies: bool) -> None:
    async def scenario() -> None:
        with sending(tmp_path, 50_000, copies=copies) as sent:
            parts = [b"head", sent.piece(10, 20_000), b"", memoryview(b"middle"), sent.piece(30_000, 5), b"end"]
            assert sent.sender.send(parts)
            expected = b"head" + sent.content[10:20_010] + b"middle" + sent.content[30_000:30_005] + b"end"
            assert sent.far.recv(100_000) == expected
            assert sent.ends == []

    run(scenario)


@both
@pytest.mark.parametrize("last", [b"", bytearray(), None], ids=["empty", "empty of its own", "none"])
def test_the_end_of_a_reply_is_not_kept_for_what_does_not_follow(tmp_path: Path, copies: bool, last: bytes | None) -> None:
    """As the replies of Fetch up to version 11 are: nothing stands behind the records."""

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, sending(tmp_path, 5000, copies=copies) as sent:
            far = socket.create_connection(server.getsockname())
            near, _ = server.accept()
            sender = FileSender(near.fileno(), lambda: None, lambda error: None, copies=copies)
            with far, near:
                near.setblocking(False)
                far.setblocking(False)
                parts = [b"head", sent.piece(0, 5000)]
                assert sender.send(parts if last is None else [*parts, last])
                # On one machine what is sent has arrived, and what waits for more has not.
                assert far.recv(100_000) == b"head" + sent.content
                sender.close()

    run(scenario)


@both
@pytest.mark.parametrize("can_tell", [True, False], ids=["in memory", "by thread"])
def test_a_large_reply_arrives_whole_and_in_order(
    tmp_path: Path, copies: bool, can_tell: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_tell:
        monkeypatch.setattr(file_sender, "_NO_WAIT", 0)

    async def scenario() -> None:
        with sending(tmp_path, LARGE, copies=copies) as sent:
            buffer = os.urandom(700_000)
            parts = [b"head", sent.piece(0, 5 << 20), buffer, buffer, sent.piece(5 << 20, LARGE - (5 << 20)), b"end"]
            assert not sent.sender.send(parts)
            expected = b"head" + sent.content[: 5 << 20] + buffer * 2 + sent.content[5 << 20 :] + b"end"
            assert await sent.received(len(expected)) == expected
            await sent.has_ended.wait()
            assert sent.ends == [None]
            assert sent.steps > 1
            assert sent.sender.send([b"next"])
            assert await sent.received(4) == b"next"

    run(scenario)


@both
def test_others_have_their_turn_while_a_large_reply_leaves(tmp_path: Path, copies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sender, "TURN_BYTES", 1000)
    monkeypatch.setattr(file_sender, "COPY_BYTES", 1000)
    file_sender._copied.cache_clear()

    async def scenario() -> None:
        with sending(tmp_path, 10_000, copies=copies) as sent:
            assert not sent.sender.send([sent.piece(0, 10_000)])
            assert len(sent.far.recv(100_000)) == 1000
            assert await sent.received(9000) == sent.content[1000:]

    try:
        run(scenario)
    finally:
        file_sender._copied.cache_clear()


@both
def test_a_file_that_is_too_short_is_an_error(tmp_path: Path, copies: bool) -> None:
    async def scenario() -> None:
        with sending(tmp_path, 1000, copies=copies) as sent:
            assert not sent.sender.send([sent.piece(500, 1000)])
            await sent.has_ended.wait()
            assert "500 bytes short" in str(sent.ends[0])

    run(scenario)


@both
def test_a_client_that_goes_is_an_error(tmp_path: Path, copies: bool) -> None:
    async def scenario() -> None:
        with sending(tmp_path, LARGE, copies=copies) as sent:
            assert not sent.sender.send([sent.piece(0, LARGE)])
            sent.far.close()
            await sent.has_ended.wait()
            assert isinstance(sent.ends[0], OSError)

    run(scenario)


@both
def test_nothing_is_told_of_a_reply_that_was_dropped(tmp_path: Path, copies: bool) -> None:
    async def scenario() -> None:
        with sending(tmp_path, LARGE, copies=copies) as sent:
            assert not sent.sender.send([sent.piece(0, LARGE)])
            sent.sender.close()
            await asyncio.sleep(0.01)
            assert sent.ends == []

    run(scenario)
