"""Streams as one caller may use them: whatever access rules do not allow is refused. A durable name is a group for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from penstock.blob import Buffer
from penstock.broker import CLUSTER_NAME, Access, Broker, Operation, ResourceKind, UnknownTopicError
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
    is_pattern,
    matches,
)
from penstock.gateway.stream.errors import NotAllowedError


class GuardedStreams:
    """An engine behind access rules, for one caller."""

    def __init__(self, streams: StreamEngine, broker: Broker, access: Access, principal: str, host: str) -> None:
        self._streams = streams
        self._broker = broker
        self._access = access
        self._principal = principal
        self._host = host

    @property
    def followers(self) -> Followers:
        """Those who wait for more messages."""
        return self._streams.followers

    async def publish(self, subject: str, data: Buffer, headers: Mapping[str, str] | None = None) -> Published:
        """Publish one message."""
        self._check_publish(subject)
        return await self._streams.publish(subject, data, headers)

    async def publish_batch(self, subject: str, contents: Sequence[Content]) -> list[Published]:
        """Publish messages of one subject, in order."""
        self._check_publish(subject)
        return await self._streams.publish_batch(subject, contents)

    async def publish_reference(self, subject: str, object_name: str, headers: Mapping[str, str] | None = None) -> int:
        """A message whose payload the publisher keeps elsewhere."""
        self._check_publish(subject)
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
        """Publish what comes in parts, of whatever size."""
        self._check_publish(subject)
        return await self._streams.publish_stream(subject, parts, headers, crc32c=crc32c, size=size)

    async def get_message(self, sequence: int) -> StreamMessage | None:
        """The message of a sequence."""
        message = await self._streams.get_message(sequence)
        if message is not None:
            self._check_message(message)
        return message

    async def read(self, subject: str, from_sequence: int, limit: int, bytes_max: int = 8 << 20) -> ReadMessages:
        """Messages from a sequence on, of a subject or of a pattern, all of whose subjects must be allowed."""
        await self._check_subjects(Operation.READ, subject)
        return await self._streams.read(subject, from_sequence, limit, bytes_max)

    async def fetch(self, subject: str, durable_name: str, limit: int, bytes_max: int = 8 << 20) -> list[StreamMessage]:
        """What a durable consumer has not acknowledged."""
        await self._check_subjects(Operation.READ, subject)
        self._check(Operation.READ, ResourceKind.GROUP, durable_name)
        return await self._streams.fetch(subject, durable_name, limit, bytes_max)

    async def acknowledge(self, durable_name: str, subject: str, sequence: int, *, rewind: bool = False) -> int:
        """A consumer has dealt with a message."""
        await self._check_subjects(Operation.READ, subject)
        self._check(Operation.READ, ResourceKind.GROUP, durable_name)
        return await self._streams.acknowledge(durable_name, subject, sequence, rewind=rewind)

    async def set_rule(self, durable_name: str, subject: str, rule: DeliveryRule | None) -> None:
        """Change how messages are handed to the members of a durable name."""
        self._check_made(subject)  # a subject is made by its first rule, too
        self._check(Operation.READ, ResourceKind.TOPIC, subject)
        self._check(Operation.READ, ResourceKind.GROUP, durable_name)
        if rule is not None and rule.dead_letter:
            self._check_publish(rule.dead_letter)
        await self._streams.set_rule(durable_name, subject, rule)

    async def last_sequence(self, subject: str) -> int:
        """The last sequence that can be read."""
        await self._check_subjects(Operation.DESCRIBE, subject)
        return await self._streams.last_sequence(subject)

    async def get_position(self, durable_name: str, subject: str) -> int:
        """The last sequence a consumer has acknowledged."""
        await self._check_subjects(Operation.DESCRIBE, subject)
        self._check(Operation.DESCRIBE, ResourceKind.GROUP, durable_name)
        return await self._streams.get_position(durable_name, subject)

    async def get_consumers(self, subject: str) -> list[ConsumerPosition]:
        """The durable consumers of a subject that the caller may know of."""
        await self._check_subjects(Operation.DESCRIBE, subject)
        found = await self._streams.get_consumers(subject)
        return [one for one in found if self._allows(Operation.DESCRIBE, ResourceKind.GROUP, one.durable_name)]

    async def get_subjects(self) -> list[str]:
        """The subjects that the caller may know of."""
        found = await self._streams.get_subjects()
        return [name for name in found if self._allows(Operation.DESCRIBE, ResourceKind.TOPIC, name)]

    async def delete_old(self, ttl_s: float) -> list[Deleted]:
        """Let go of messages of all subjects."""
        self._check(Operation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME)
        return await self._streams.delete_old(ttl_s)

    async def locate_payload(self, message: StreamMessage) -> StreamMessage:
        """A message with the size of its payload, if that is known."""
        return await self._streams.locate_payload(message)

    async def payload_of(self, sequence: int) -> tuple[StreamMessage, int]:
        """The message whose payload is to be read, and its size."""
        found = await self._streams.payload_of(sequence)
        self._check_message(found[0])
        return found

    def read_payload(self, message: StreamMessage, begin: int = 0, end: int | None = None) -> AsyncIterator[Buffer]:
        """The bytes of a payload; whoever has the message may have them."""
        return self._streams.read_payload(message, begin, end)

    async def sweep(self) -> None:
        """Let go of what is over."""
        await self._streams.sweep()

    async def stop(self) -> None:
        """Nothing of its own is under way."""

    def _check_publish(self, subject: str) -> None:
        self._check_made(subject)
        self._check(Operation.WRITE, ResourceKind.TOPIC, subject)

    def _check_made(self, subject: str) -> None:
        """The subject is there, or may be made."""
        try:
            self._broker.catalog.topic(subject)
        except UnknownTopicError:
            if not self._allows(Operation.CREATE, ResourceKind.CLUSTER, CLUSTER_NAME):
                self._check(Operation.CREATE, ResourceKind.TOPIC, subject)

    def _check_message(self, message: StreamMessage) -> None:
        """The caller has named a sequence only, and is not told of which subject that is."""
        if not self._allows(Operation.READ, ResourceKind.TOPIC, message.subject):
            raise NotAllowedError(f"{self._principal} may not READ the subject of message {message.sequence}")

    async def _check_subjects(self, operation: Operation, subject: str) -> None:
        if not is_pattern(subject):
            self._check(operation, ResourceKind.TOPIC, subject)
            return
        # A topic may become a subject by being asked for; an engine may have subjects that are no topics.
        names = {topic.name for topic in self._broker.catalog.topics() if topic.partitions == 1}
        names.update(await self._streams.get_subjects())
        for name in sorted(names):
            if matches(subject, name):
                self._check(operation, ResourceKind.TOPIC, name)

    def _check(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        if not self._allows(operation, kind, name):
            what = f"{operation.name} {kind.name} {name!r}"
            raise NotAllowedError(f"{self._principal} may not {what}; an access rule must allow it")

    def _allows(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return self._access.allows(self._principal, self._host, operation, kind, name)
