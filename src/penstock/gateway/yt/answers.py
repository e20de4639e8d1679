"""Answers to commands that change something, for clients that did not get theirs and ask again with the same mutation id.

"m" | expires, in milliseconds, 8 | digest of the mutation id and the user 16
head: version 1 | size of the headers 4 | headers as JSON | body

They are kept over a restart, for a while and up to a number. An answer is sent before it is stored, many in one request soon
after: who has it does not ask again. So a command that the death of the node itself has cut short may be carried out again;
whoever must rule that out has old offsets, producer sessions and transactions for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from penstock.broker import SystemTablet
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.format_version import check_version
from penstock.tablet import Command, DeleteRange, Request, Write

log = logging.getLogger(__name__)

VERSION: Final = 1
KEPT_S: Final = 600.0
KEPT_MAX: Final = 10_000
KEPT_BYTES_MAX: Final = 64 << 20
STORED_BYTES_MAX: Final = 64 << 10  # a larger answer is kept in memory alone
FLUSH_S: Final = 0.02
_KEY = Struct(">cQ16s")
_HEAD = Struct(">BI")


class Answer(NamedTuple):
    """What was answered."""

    body: bytes
    headers: dict[str, str]

    @property
    def size(self) -> int:
        """About the memory that it takes."""
        return len(self.body) + 300


class Answers:
    """Make it when the tablet serves; `stop` it before that stops."""

    def __init__(self, tablet: SystemTablet, clock: Clock) -> None:
        self._tablet = tablet
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[int, Answer]] = OrderedDict()  # the oldest first, with the time each expires
        self._size = 0
        self._unstored: dict[bytes, bytes] = {}
        self._storing: asyncio.Task[None] | None = None
        self._under_way: dict[bytes, asyncio.Future[None]] = {}
        for key in tablet.keys(b"m", b"n"):
            _, expires_ms, digest = _KEY.unpack(key)
            self._keep(digest, expires_ms, _unpacked(tablet.head(key) or b""))

    async def begin(self, mutation_id: str) -> Answer | None:
        """The answer to a command that was carried out before; None if it is to be carried out now, and then `end` must be
        called. While it is being carried out for somebody else, wait."""
        digest = _digest(mutation_id)
        while digest in self._under_way:
            await asyncio.shield(self._under_way[digest])
        known = self._known.get(digest)
        if known is not None and known[0] > self._now_ms():
            return known[1]
        self._under_way[digest] = asyncio.get_running_loop().create_future()
        return None

    def end(self, mutation_id: str, answer: Answer | None, *, is_stored: bool = True) -> None:
        """A command was carried out, or failed, and may then be tried again. What is not stored is known till the next start."""
        digest = _digest(mutation_id)
        self._under_way.pop(digest).set_result(None)
        if answer is None:
            return
        expires_ms = self._now_ms() + int(KEPT_S * 1000)
        self._keep(digest, expires_ms, answer)
        if is_stored and len(answer.body) <= STORED_BYTES_MAX:
            self._unstored[_KEY.pack(b"m", expires_ms, digest)] = _packed(answer)
            if self._storing is None:
                self._storing = asyncio.create_task(self._store(), name="yt-answers")

    async def stop(self) -> None:
        """Store what is not stored yet."""
        while self._storing is not None:
            await self._storing

    async def _store(self) -> None:
        await asyncio.sleep(FLUSH_S)
        taken, self._unstored = self._unstored, {}
        commands: list[Command] = [DeleteRange(b"m", _KEY.pack(b"m", self._oldest_ms(), bytes(16)))]
        commands += (Write(key, b"", head=raw) for key, raw in taken.items())
        try:
            await self._tablet.execute(Request(tuple(commands)))
        except PenstockError as error:
            log.warning("%d answers are remembered until the next restart only: %s", len(taken), error)
        finally:
            self._storing = asyncio.create_task(self._store(), name="yt-answers") if self._unstored else None

    def _oldest_ms(self) -> int:
        """When the oldest that is kept expires: those before it were let go of."""
        first = next(iter(self._known.values()), None)
        return self._now_ms() if first is None else max(first[0], self._now_ms())

    def _keep(self, digest: bytes, expires_ms: int, answer: Answer) -> None:
        before = self._known.pop(digest, None)
        self._size += answer.size - (0 if before is None else before[1].size)
        self._known[digest] = (expires_ms, answer)
        now_ms = self._now_ms()
        while self._known:
            oldest_ms, oldest = next(iter(self._known.values()))
            if oldest_ms > now_ms and len(self._known) <= KEPT_MAX and self._size <= KEPT_BYTES_MAX:
                break
            self._known.popitem(last=False)
            self._size -= oldest.size

    def _now_ms(self) -> int:
        return int(self._clock.wall() * 1000)


def _digest(mutation_id: str) -> bytes:
    return blake2b(mutation_id.encode(), digest_size=16).digest()


def _packed(answer: Answer) -> bytes:
    headers = json.dumps(answer.headers).encode()
    return _HEAD.pack(VERSION, len(headers)) + headers + answer.body


def _unpacked(raw: bytes) -> Answer:
    check_version(raw[0] if raw else 0, VERSION, "a remembered answer")
    _, size = _HEAD.unpack_from(raw)
    return Answer(raw[_HEAD.size + size :], json.loads(raw[_HEAD.size : _HEAD.size + size]))
