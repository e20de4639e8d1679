"""Keeps the responses of commands that change something, for clients that retry with the same mutation id.

"m" | expires, in milliseconds, 8 | digest of the mutation id and the user 16
head: version 1 | size of the headers 4 | headers as JSON | body

Responses are kept for a limited time and up to a limited number, also over a restart. A response is sent before it is stored;
many are stored together soon after. So a command may run twice if the node crashes within it, or before its response is stored.
Clients that must rule that out use old offsets, producer sessions or transactions.
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
STORED_BYTES_MAX: Final = 64 << 10  # a larger response is kept only in memory
FLUSH_S: Final = 0.02
_KEY = Struct(">cQ16s")
_HEAD = Struct(">BI")


class KeptResponse(NamedTuple):
    """A response as it was sent."""

    body: bytes
    headers: dict[str, str]

    @property
    def size(self) -> int:
        """About how much memory it takes."""
        return len(self.body) + 300


class ResponseKeeper:
    """Recognizes retries of commands. Create it once the tablet serves, and `stop` it before the tablet stops."""

    def __init__(self, tablet: SystemTablet, clock: Clock) -> None:
        self._tablet = tablet
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[int, KeptResponse]] = OrderedDict()  # the oldest first, with the time each expires
        self._size = 0
        self._unstored: dict[bytes, bytes] = {}
        self._storing: asyncio.Task[None] | None = None
        self._in_flight: dict[bytes, asyncio.Future[None]] = {}
        for key in tablet.keys(b"m", b"n"):
            _, expires_ms, digest = _KEY.unpack(key)
            self._keep(digest, expires_ms, _decode(tablet.head(key) or b""))

    async def begin(self, mutation_id: str) -> KeptResponse | None:
        """The response of a command that was executed before, after waiting for it if it is in flight. Returns None if the
        command must be executed now; the caller then calls `end`."""
        digest = _digest(mutation_id)
        while digest in self._in_flight:
            await asyncio.shield(self._in_flight[digest])
        known = self._known.get(digest)
        if known is not None and known[0] > self._now_ms():
            return known[1]
        self._in_flight[digest] = asyncio.get_running_loop().create_future()
        return None

    def end(self, mutation_id: str, response: KeptResponse | None, *, is_stored: bool = True) -> None:
        """Keep the response of a command, or None if it failed and may be retried. Without `is_stored` it is kept until the next
        restart only."""
        digest = _digest(mutation_id)
        self._in_flight.pop(digest).set_result(None)
        if response is None:
            return
        expires_ms = self._now_ms() + int(KEPT_S * 1000)
        self._keep(digest, expires_ms, response)
        if is_stored and len(response.body) <= STORED_BYTES_MAX:
            self._unstored[_KEY.pack(b"m", expires_ms, digest)] = _encode(response)
            if self._storing is None:
                self._storing = asyncio.create_task(self._store(), name="yt-response-keeper")

    async def stop(self) -> None:
        """Store the responses that are not stored yet."""
        while self._storing is not None:
            await self._storing

    async def _store(self) -> None:
        await asyncio.sleep(FLUSH_S)
        storing, self._unstored = self._unstored, {}
        commands: list[Command] = [DeleteRange(b"m", _KEY.pack(b"m", self._oldest_ms(), bytes(16)))]
        commands += (Write(key, b"", head=raw) for key, raw in storing.items())
        try:
            await self._tablet.execute(Request(tuple(commands)))
        except PenstockError as error:
            log.warning("%d responses are kept until the next restart only: %s", len(storing), error)
        finally:
            self._storing = asyncio.create_task(self._store(), name="yt-response-keeper") if self._unstored else None

    def _oldest_ms(self) -> int:
        """When the oldest kept response expires; those before it were evicted."""
        first = next(iter(self._known.values()), None)
        return self._now_ms() if first is None else max(first[0], self._now_ms())

    def _keep(self, digest: bytes, expires_ms: int, response: KeptResponse) -> None:
        before = self._known.pop(digest, None)
        self._size += response.size - (0 if before is None else before[1].size)
        self._known[digest] = (expires_ms, response)
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


def _encode(response: KeptResponse) -> bytes:
    headers = json.dumps(response.headers).encode()
    return _HEAD.pack(VERSION, len(headers)) + headers + response.body


def _decode(raw: bytes) -> KeptResponse:
    check_version(raw[0] if raw else 0, VERSION, "a kept response")
    _, size = _HEAD.unpack_from(raw)
    return KeptResponse(raw[_HEAD.size + size :], json.loads(raw[_HEAD.size : _HEAD.size + size]))
