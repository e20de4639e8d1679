"""The write stream of each producer id: one at a time, and a new one fences the one before."""

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
    """The write streams by producer, and the writes of each producer that are in flight, of any stream."""

    def __init__(self, speed: WriteSpeed) -> None:
        self.speed = speed
        self._streams: dict[ProducerKey, Callable[[StatusError], None]] = {}
        self._in_flight: dict[ProducerKey, set[Outcome]] = {}

    async def take_over(self, key: ProducerKey, end: Callable[[StatusError], None]) -> None:
        """Make a stream the writer of a producer, and end the stream before. Returns when the writes of that one are done."""
        old = self._streams.get(key)
        self._streams[key] = end
        if old is not None:
            old(session_expired(f"another stream writes as producer {key.producer!r} now"))
        while pending := self._in_flight.get(key):
            await asyncio.wait(pending)
            await asyncio.sleep(0)

    def leave(self, key: ProducerKey, end: Callable[[StatusError], None]) -> None:
        """Remove a stream that has ended."""
        if self._streams.get(key) == end:
            del self._streams[key]

    def track(self, key: ProducerKey, outcome: Outcome) -> None:
        """Track a write of a producer until it is done."""
        pending = self._in_flight.setdefault(key, set())
        pending.add(outcome)
        outcome.add_done_callback(lambda done: self._untrack(key, done))

    def _untrack(self, key: ProducerKey, outcome: Outcome) -> None:
        pending = self._in_flight[key]
        pending.discard(outcome)
        if not pending:
            del self._in_flight[key]
