"""What is counted of streams while they work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.streams.reading import StreamMessage


class EngineProbe:
    """Plain numbers that only grow; what Kafka's clients write and read of a subject is counted with its topic."""

    __slots__ = (
        "dead_lettered",
        "expired",
        "orphans_removed",
        "published",
        "published_bytes",
        "read",
        "read_bytes",
        "redelivered",
    )

    def __init__(self) -> None:
        self.published = 0  # messages that are durable and have their sequences
        self.published_bytes = 0  # of their payloads, wherever those are
        self.read = 0  # messages that were given to readers
        self.read_bytes = 0  # of payloads
        self.redelivered = 0  # messages handed out again
        self.dead_lettered = 0  # messages that were handed out for the last time, in vain
        self.expired = 0  # messages whose time was over, or that were too many
        self.orphans_removed = 0  # payloads without a message

    def note_published(self, messages: int, size: int) -> None:
        """Messages were published."""
        self.published += messages
        self.published_bytes += size

    def note_read(self, messages: Iterable[StreamMessage]) -> None:
        """Messages were given to a reader, with what of their payloads is in the log."""
        for message in messages:
            self.read += 1
            self.read_bytes += len(message.data)
