"""What is counted while partitions are written and read; one probe for the partitions of one tablet, whatever its generation."""

from __future__ import annotations


class QueueProbe:
    """Batches, messages and bytes that came and went, one addition for a write cycle or a read."""

    __slots__ = ("batches_in", "bytes_in", "bytes_out", "messages_in", "messages_out", "reads")

    def __init__(self) -> None:
        self.batches_in = 0
        self.messages_in = 0
        self.bytes_in = 0
        self.reads = 0
        self.messages_out = 0
        self.bytes_out = 0

    def wrote(self, batches: int, messages: int, size: int) -> None:
        """A cycle is durable."""
        self.batches_in += batches
        self.messages_in += messages
        self.bytes_in += size

    def read(self, messages: int, size: int) -> None:
        """A reader was given something."""
        self.reads += 1
        self.messages_out += messages
        self.bytes_out += size
