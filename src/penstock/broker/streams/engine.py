"""The interface of stream engines, which listeners use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.blob import Buffer
from penstock.broker.streams.followers import Followers
from penstock.broker.streams.positions import ConsumerPosition, DeliveryRule
from penstock.broker.streams.reading import ReadMessages, StreamMessage
from penstock.broker.streams.records import Content
from penstock.core.errors import PenstockError


class PublishResult(NamedTuple):
    """A message that is durable and has its sequence."""

    sequence: int
    object_name: str


class PartlyPublishedError(PenstockError):
    """Only the first messages of a batch were published; the cause is attached."""

    code = "partly_published"

    def __init__(self, published: list[PublishResult], reason: PenstockError) -> None:
        super().__init__(f"only the first {len(published)} messages are published: {reason}")
        self.published = published
        self.reason = reason


class DeletedMessage(NamedTuple):
    """A deleted message."""

    sequence: int
    subject: str
    object_name: str


class StreamEngine(Protocol):
    """The streams of a node, in any store."""

    @property
    def followers(self) -> Followers:
        """Readers that wait for new messages."""
        ...

    async def publish(self, subject: str, data: Buffer, headers: Mapping[str, str] | None = None) -> PublishResult:
        """Publish one message."""
        ...

    async def publish_batch(self, subject: str, contents: Sequence[Content]) -> list[PublishResult]:
        """Publish messages of one subject, in order. PartlyPublishedError if some are published and others cannot be."""
        ...

    async def publish_reference(self, subject: str, object_name: str, headers: Mapping[str, str] | None = None) -> int:
        """The seed's publish_message: a message whose payload the publisher keeps elsewhere; its sequence."""
        ...

    async def publish_stream(
        self,
        subject: str,
        parts: AsyncIterator[Buffer],
        headers: Mapping[str, str] | None = None,
        *,
        crc32c: int | None = None,
        size: int | None = None,
    ) -> PublishResult:
        """Publish data that arrives in parts, of any size."""
        ...

    async def get_message(self, sequence: int) -> StreamMessage | None:
        """The message of a sequence."""
        ...

    async def read(self, subject: str, from_sequence: int, limit: int, bytes_max: int = ...) -> ReadMessages:
        """Messages from a sequence on, of a subject or a pattern."""
        ...

    async def fetch(self, subject: str, durable_name: str, limit: int, bytes_max: int = ...) -> list[StreamMessage]:
        """What a durable consumer has not acknowledged."""
        ...

    async def acknowledge(self, durable_name: str, subject: str, sequence: int, *, rewind: bool = False) -> int:
        """A consumer has dealt with a message; its position then."""
        ...

    async def set_rule(self, durable_name: str, subject: str, rule: DeliveryRule | None) -> None:
        """Set the delivery rule of a durable consumer."""
        ...

    async def last_sequence(self, subject: str) -> int:
        """The last sequence that can be read, of a subject or a pattern."""
        ...

    async def get_position(self, durable_name: str, subject: str) -> int:
        """The last sequence a consumer has acknowledged."""
        ...

    async def get_consumers(self, subject: str) -> list[ConsumerPosition]:
        """Every durable consumer of a subject, also by a pattern; of a pattern, all consumers of what it stands for."""
        ...

    async def get_subjects(self) -> list[str]:
        """The names of all subjects."""
        ...

    async def delete_old(self, ttl_s: float) -> list[DeletedMessage]:
        """Delete messages older than `ttl_s` with their payloads. Returns the deleted messages."""
        ...

    async def locate_payload(self, message: StreamMessage) -> StreamMessage:
        """A message whose payload the publisher keeps, with the size of it if this engine can read it from there."""
        ...

    async def payload_of(self, sequence: int) -> tuple[StreamMessage, int]:
        """The message whose payload is to be read, and its size."""
        ...

    def read_payload(self, message: StreamMessage, begin: int = 0, end: int | None = None) -> AsyncIterator[Buffer]:
        """The bytes begin <= at < end of a payload, part by part."""
        ...

    async def sweep(self) -> None:
        """Delete expired messages now."""
        ...

    async def stop(self) -> None:
        """Finish the writes in flight."""
        ...


async def first_messages(
    streams: StreamEngine, subject: str, from_sequence: int, limit: int, bytes_max: int
) -> list[StreamMessage]:
    """The first messages from a sequence on, however many of other subjects, or whose time is over, come before them: one read
    passes over a bounded number of those, and a durable consumer that was answered with nothing would stay where it is."""
    while True:
        read = await streams.read(subject, from_sequence, limit, bytes_max)
        if read.messages or read.next_sequence <= from_sequence:
            return read.messages
        from_sequence = read.next_sequence
