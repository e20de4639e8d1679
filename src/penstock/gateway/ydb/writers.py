"""Who writes under which producer id: one stream at a time, and a new one takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from penstock.gateway.ydb.statuses import StatusError, session_expired
from penstock.gateway.ydb.write_speed import WriteSpeed
from penstock.queue import WriteResult

Outcome = asyncio.Future[WriteResult]


class ProducerKey(NamedTuple):
    """A producer of a topic."""

    topic_id: UUID
    producer: str


class Writers:
    """The streams that write under a producer id, and what of each producer is on its way to the disk, whoever sent it."""

    def __init__(self, speed: WriteSpeed) -> None:
        self.speed = speed
        self._streams: dict[ProducerKey, Callable[[StatusError], None]] = {}
        self._under_way: dict[ProducerKey, set[Outcome]] = {}

    async def take_over(self, key: ProducerKey, end: Callable[[StatusError], None]) -> None:
        """From now on this stream writes; the one before it is ended. What that has sent is settled when this returns."""
        old = self._streams.get(key)
        self._streams[key] = end
        if old is not None:
            old(session_expired(f"another stream writes as producer {key.producer!r} now"))
        while pending := self._under_way.get(key):
            await asyncio.wait(pending)
            await asyncio.sleep(0)

    def leave(self, key: ProducerKey, end: Callable[[StatusError], None]) -> None:
        """A stream is over."""
        if self._streams.get(key) == end:
            del self._streams[key]

    def send(self, key: ProducerKey, outcome: Outcome) -> None:
        """Something of a producer is on its way."""
        pending = self._under_way.setdefault(key, set())
        pending.add(outcome)
        outcome.add_done_callback(lambda done: self._settled(key, done))

    def _settled(self, key: ProducerKey, outcome: Outcome) -> None:
        pending = self._under_way[key]
        pending.discard(outcome)
        if not pending:
            del self._under_way[key]
