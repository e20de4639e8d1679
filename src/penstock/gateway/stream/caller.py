"""What one caller of the streams may do: access rules and quotas, checked before the engine is called.

A durable name is a consumer group for the access rules. The quotas are those of Kafka's clients, by user and client id. A caller
over its quota waits before anything is stored or read, so that nothing is half done if it disconnects meanwhile. A wait of more
than `THROTTLE_S_MAX` is refused, to be retried; payloads sent in parts only slow down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final

from penstock.blob import Buffer
from penstock.broker import CLUSTER_NAME, Broker, Operation, ResourceKind, UnknownTopicError
from penstock.broker.quotas import FETCH_QUOTA, PRODUCE_QUOTA, QuotaExceededError, RateLimit
from penstock.broker.streams import Content, DeliveryRule, StreamEngine, StreamMessage, is_pattern, matches
from penstock.core.errors import InvalidRequestError
from penstock.core.probe import RequestProbe
from penstock.gateway.measured_request import note_waited

THROTTLE_S_MAX: Final = 5.0
FETCH_BYTES: Final = 8 << 20


class NotAllowedError(InvalidRequestError):
    """No access rule allows the call."""

    code = "not_allowed"


class StreamCaller:
    """Checks the calls of one caller. Each `admit` method raises NotAllowedError if the access rules do not allow the call, and
    QuotaExceededError if the caller is too far over its quota. Without access rules everything is allowed."""

    def __init__(
        self, streams: StreamEngine, broker: Broker, probe: RequestProbe, *, principal: str, host: str, client: str
    ) -> None:
        self.streams = streams
        self._broker = broker
        self._access = broker.access
        self._quotas = broker.quotas
        self._probe = probe
        self._principal = principal
        self._user = principal.removeprefix("User:")
        self._host = host
        self._client = client

    async def admit_publish(self, subject: str, contents: Sequence[Content]) -> None:
        """Admit messages to a subject, and charge their bytes to the produce quota."""
        self._check_publish(subject)
        limit = self._produce_limit()
        if limit is not None:
            await self._spend(limit, _size(contents))

    async def admit_read(self, subject: str, durable_name: str | None = None) -> int:
        """Admit a read of a subject or a pattern, for a durable consumer if it is named. Returns how many bytes it may read at
        once: no more than a second's worth of the fetch quota. Charge what it has read by `charge_read`."""
        await self._check_consumer(Operation.READ, subject, durable_name)
        limit = self._fetch_limit()
        await self._wait(limit)
        return FETCH_BYTES if limit is None else max(min(FETCH_BYTES, int(limit.size)), 1)

    def charge_read(self, messages: Iterable[StreamMessage]) -> None:
        """Charge messages to the fetch quota; the next read waits if it is overdrawn."""
        limit = self._fetch_limit()
        if limit is not None:
            limit.draw(_size(messages))

    async def admit_describe(self, subject: str, durable_name: str | None = None) -> None:
        """Admit a question about a subject or a pattern, and about a durable consumer of it."""
        await self._check_consumer(Operation.DESCRIBE, subject, durable_name)

    async def admit_acknowledge(self, subject: str, durable_name: str) -> None:
        """Admit a change of the position of a durable consumer."""
        await self._check_consumer(Operation.READ, subject, durable_name)

    def admit_rule(self, subject: str, durable_name: str, rule: DeliveryRule | None) -> None:
        """Admit a new delivery rule of a durable consumer."""
        self._check_create(subject)  # the first rule of a subject creates it, too
        self._check(Operation.READ, ResourceKind.TOPIC, subject)
        self._check(Operation.READ, ResourceKind.GROUP, durable_name)
        if rule is not None and rule.dead_letter:
            self._check_publish(rule.dead_letter)

    async def open_payload(self, sequence: int) -> tuple[StreamMessage, int]:
        """The message of a sequence and the size of its payload, which `throttle_download` charges part by part. As the caller
        named only a sequence, a refusal does not tell of which subject it is."""
        await self._wait(self._fetch_limit())
        message, size = await self.streams.payload_of(sequence)
        if not self._allows(Operation.READ, ResourceKind.TOPIC, message.subject):
            raise NotAllowedError(f"{self._principal} may not READ the subject of message {sequence}")
        return message, size

    def may_describe(self, kind: ResourceKind, name: str) -> bool:
        """Whether the caller may know of a topic or a group; listings leave out the others."""
        return self._allows(Operation.DESCRIBE, kind, name)

    async def throttle_upload(self, parts: AsyncIterator[Buffer]) -> AsyncIterator[Buffer]:
        """Pass on the parts of a payload at the rate of the produce quota."""
        async for part in parts:
            await self._spend(self._produce_limit(), len(part), refuses=False)
            yield part

    async def throttle_download(self, parts: AsyncIterator[Buffer]) -> AsyncIterator[Buffer]:
        """Pass on the parts of a payload at the rate of the fetch quota."""
        async for part in parts:
            await self._spend(self._fetch_limit(), len(part), refuses=False)
            yield part

    def _check_publish(self, subject: str) -> None:
        self._check_create(subject)
        self._check(Operation.WRITE, ResourceKind.TOPIC, subject)

    def _check_create(self, subject: str) -> None:
        """Check that the subject exists, or that the caller may create it."""
        if self._access is None:
            return
        try:
            self._broker.catalog.topic(subject)
        except UnknownTopicError:
            if not self._allows(Operation.CREATE, ResourceKind.CLUSTER, CLUSTER_NAME):
                self._check(Operation.CREATE, ResourceKind.TOPIC, subject)

    async def _check_consumer(self, operation: Operation, subject: str, durable_name: str | None) -> None:
        if self._access is None:
            return
        for name in await self._subjects(subject):
            self._check(operation, ResourceKind.TOPIC, name)
        if durable_name is not None:
            self._check(operation, ResourceKind.GROUP, durable_name)

    async def _subjects(self, subject: str) -> list[str]:
        """The subjects that a pattern matches; a subject stands for itself, whether it exists or not."""
        if not is_pattern(subject):
            return [subject]
        # Reading a topic by a pattern makes it a subject; and an engine may have subjects that are no topics.
        names = {topic.name for topic in self._broker.catalog.topics() if topic.partitions == 1}
        names.update(await self.streams.get_subjects())
        return sorted(name for name in names if matches(subject, name))

    def _check(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        if not self._allows(operation, kind, name):
            action = f"{operation.name} {kind.name} {name!r}"
            raise NotAllowedError(f"{self._principal} may not {action}; an access rule must allow it")

    def _allows(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return self._access is None or self._access.allows(self._principal, self._host, operation, kind, name)

    def _produce_limit(self) -> RateLimit | None:
        quotas = self._quotas
        return quotas.limit(PRODUCE_QUOTA, self._user, self._client) if quotas.limits_produce else None

    def _fetch_limit(self) -> RateLimit | None:
        quotas = self._quotas
        return quotas.limit(FETCH_QUOTA, self._user, self._client) if quotas.limits_fetch else None

    async def _spend(self, limit: RateLimit | None, size: int, *, refuses: bool = True) -> None:
        await self._wait(limit, refuses=refuses)
        if limit is not None:
            limit.draw(size)

    async def _wait(self, limit: RateLimit | None, *, refuses: bool = True) -> None:
        """Wait while the quota is overdrawn. QuotaExceededError if that takes too long."""
        waited_s = 0.0
        while limit is not None and (wait_ms := limit.wait_ms()):
            wait_s = wait_ms / 1000
            if refuses and waited_s + wait_s > THROTTLE_S_MAX:
                raise QuotaExceededError(f"{self._user} is over its quota; send this again in {wait_s:.1f} s")
            waited_s += wait_s
            self._probe.count_throttle(wait_s)
            note_waited(wait_s)
            await asyncio.sleep(wait_s)


def _size(messages: Iterable[Content | StreamMessage]) -> int:
    return sum(len(message.data) + _headers_size(message.headers) for message in messages)


def _headers_size(headers: Mapping[str, str]) -> int:
    return sum(len(name) + len(value) for name, value in headers.items())
