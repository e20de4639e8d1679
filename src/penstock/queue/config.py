"""What a topic asks of its partitions."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.queue.head import LOW_WATERMARK


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """Limits and retention of a partition. None is without limit."""

    low_watermark: int = LOW_WATERMARK
    batch_bytes_max: int = 1 << 20
    retention_ms: int | None = None
    retention_bytes: int | None = None
    limit_bytes: int | None = None  # over this, writes are refused
    limit_messages: int | None = None  # likewise
    important_consumers: frozenset[str] = frozenset()  # what they have not read is kept, whatever the retention
