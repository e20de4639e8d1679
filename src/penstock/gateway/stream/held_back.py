"""Streams as the quotas of a caller let it use them: the same quotas as of Kafka's clients, by user and client id.

Whoever has used up its share waits before the next message is stored or read, so that nothing is half done if it does not wait so
long. What would take longer than `HELD_S_MAX` is refused, to be sent again; payloads in parts only slow down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final

from penstock.blob import Buffer
from penstock.broker import FETCH_QUOTA, PRODUCE_QUOTA, QuotaExceededError
from penstock.broker.quotas import Quotas, RateLimit
from penstock.broker.streams import (
    ConsumerPosition,
    Content,
    Deleted,
    DeliveryRule,
    Followers,
    Published,
    ReadMessages,
    StreamEngine,
    StreamMessage,
)
from penstock.core.probe import RequestProbe
from penstock.gateway.measured_request import note_waited

HELD_S_MAX: Final = 5.0
FETCH_BYTES: Final = 8 << 20


class HeldBackStreams:
    """An engine behind the quotas of one caller. Where nobody is limited it costs a glance."""

    def __init__(self, streams: StreamEngine, quotas: Quotas, probe: RequestProbe, user: str, client: str) -> None:
        self._streams = streams
        self._quotas = quotas
        self._probe = probe
        self._user = user
        self._client = client

    @property
    def followers(self) -> Followers:
        """Those who wait for more messages."""
        return self._streams.followers

    async def publish(self, subject: str, data: Buffer, headers: Mapping[str, str] | None = None) -> Published:
        """Publish one message."""
        await self._spend(self._produce_limit(), len(data) + _headers_size(headers))
        return await self._streams.publish(subject, data, headers)

    async def publish_batch(self, subject: str, contents: Sequence[Content]) -> list[Published]:
        """Publish messages of one subject, in order."""
        limit = self._produce_limit()
        if limit is not None:
            await self._spend(limit, sum(len(content.data) + _headers_size(content.headers) for content in contents))
        return await self._streams.publish_batch(subject, contents)

    async def publish_reference(self, subject: str, object_name: str, headers: Mapping[str, str] | None = None) -> int:
        """A message whose payload the publisher keeps elsewhere."""
        await self._spend(self._produce_limit(), len(object_name) + _headers_size(headers))
        return await self._streams.publish_reference(subject, object_name, headers)

    async def publish_stream(
        self,
        subject: str,
        parts: AsyncIterator[Buffer],
        headers: Mapping[str, str] | None = None,
        *,
        crc32c: int | None = None,
        size: int | None = None,
    ) -> Published:
        """Publish what comes in parts, each when there is a share left for it."""
        await self._spend(self._produce_limit(), _headers_size(headers))
        return await self._streams.publish_stream(subject, self._taken(parts), headers, crc32c=crc32c, size=size)

    async def get_message(self, sequence: int) -> StreamMessage | None:
        """The message of a sequence."""
        await self._wait(self._fetch_limit())
        message = await self._streams.get_message(sequence)
        if message is not None:
            self._read([message])
        return message

    async def read(self, subject: str, from_sequence: int, limit: int, bytes_max: int = FETCH_BYTES) -> ReadMessages:
        """Messages from a sequence on, no more than a second's worth at a time."""
        found = await self._streams.read(subject, from_sequence, limit, await self._share(bytes_max))
        self._read(found.messages)
        return found

    async def fetch(self, subject: str, durable_name: str, limit: int, bytes_max: int = FETCH_BYTES) -> list[StreamMessage]:
        """What a durable consumer has not acknowledged, no more than a second's worth at a time."""
        found = await self._streams.fetch(subject, durable_name, limit, await self._share(bytes_max))
        self._read(found)
        return found

    async def acknowledge(self, durable_name: str, subject: str, sequence: int, *, rewind: bool = False) -> int:
        """A consumer has dealt with a message."""
        return await self._streams.acknowledge(durable_name, subject, sequence, rewind=rewind)

    async def set_rule(self, durable_name: str, subject: str, rule: DeliveryRule | None) -> None:
        """Change how messages are handed to the members of a durable name."""
        await self._streams.set_rule(durable_name, subject, rule)

    async def last_sequence(self, subject: str) -> int:
        """The last sequence that can be read."""
        return await self._streams.last_sequence(subject)

    async def get_position(self, durable_name: str, subject: str) -> int:
        """The last sequence a consumer has acknowledged."""
        return await self._streams.get_position(durable_name, subject)

    async def get_consumers(self, subject: str) -> list[ConsumerPosition]:
        """Every durable consumer of a subject."""
        return await self._streams.get_consumers(subject)

    async def get_subjects(self) -> list[str]:
        """The names of all subjects."""
        return await self._streams.get_subjects()

    async def delete_old(self, ttl_s: float) -> list[Deleted]:
        """Let go of messages older than this."""
        return await self._streams.delete_old(ttl_s)

    async def locate_payload(self, message: StreamMessage) -> StreamMessage:
        """A message with the size of its payload, if that is known."""
        return await self._streams.locate_payload(message)

    async def payload_of(self, sequence: int) -> tuple[StreamMessage, int]:
        """The message whose payload is to be read, and its size. What counts is the payload, part by part."""
        await self._wait(self._fetch_limit())
        return await self._streams.payload_of(sequence)

    async def read_payload(self, message: StreamMessage, begin: int = 0, end: int | None = None) -> AsyncIterator[Buffer]:
        """The bytes begin <= at < end of a payload, each part when there is a share left for it."""
        async for part in self._streams.read_payload(message, begin, end):
            await self._spend(self._fetch_limit(), len(part), refuses=False)
            yield part

    async def sweep(self) -> None:
        """Let go of what is over."""
        await self._streams.sweep()

    async def stop(self) -> None:
        """Nothing of its own is under way."""

    def _produce_limit(self) -> RateLimit | None:
        quotas = self._quotas
        return quotas.limit(PRODUCE_QUOTA, self._user, self._client) if quotas.limits_produce else None

    def _fetch_limit(self) -> RateLimit | None:
        quotas = self._quotas
        return quotas.limit(FETCH_QUOTA, self._user, self._client) if quotas.limits_fetch else None

    async def _taken(self, parts: AsyncIterator[Buffer]) -> AsyncIterator[Buffer]:
        async for part in parts:
            await self._spend(self._produce_limit(), len(part), refuses=False)
            yield part

    async def _share(self, bytes_max: int) -> int:
        """How much may be read at once, when it may be."""
        limit = self._fetch_limit()
        await self._wait(limit)
        return bytes_max if limit is None else max(min(bytes_max, int(limit.size)), 1)

    def _read(self, messages: Iterable[StreamMessage]) -> None:
        """So much was read; the next read waits for what was too much."""
        limit = self._fetch_limit()
        if limit is not None:
            limit.draw(sum(len(message.data) + _headers_size(message.headers) for message in messages))

    async def _spend(self, limit: RateLimit | None, size: int, *, refuses: bool = True) -> None:
        await self._wait(limit, refuses=refuses)
        if limit is not None:
            limit.draw(size)

    async def _wait(self, limit: RateLimit | None, *, refuses: bool = True) -> None:
        """Wait until there is a share left. QuotaExceededError if that takes too long; nothing was done then."""
        waited_s = 0.0
        while limit is not None and (wait_ms := limit.wait_ms()):
            wait_s = wait_ms / 1000
            if refuses and waited_s + wait_s > HELD_S_MAX:
                raise QuotaExceededError(f"{self._user} is over its quota; send this again in {wait_s:.1f} s")
            waited_s += wait_s
            self._probe.hold_back(wait_s)
            note_waited(wait_s)
            await asyncio.sleep(wait_s)


def _headers_size(headers: Mapping[str, str] | None) -> int:
    return sum(len(name) + len(value) for name, value in headers.items()) if headers else 0
