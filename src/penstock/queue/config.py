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
    retention_messages: int | None = None
    limit_bytes: int | None = None  # over this, writes are refused
    limit_messages: int | None = None  # likewise
    waiting_bytes_max: int = 64 << 20  # of writes on their way to the disk; more are refused, to be sent again
    important_consumers: frozenset[str] = frozenset()  # what they have not read is kept, whatever the retention
    is_compacted: bool = False  # only the last message of each key is kept
    delete_retention_ms: int = 24 * 3600 * 1000  # how long a message without a value is still there after that
    min_compaction_lag_ms: int = 0  # a message is not compacted before it is this old
    max_compaction_lag_ms: int | None = None  # and not left alone for longer than this
    segment_ms: int | None = None  # a head older than this is compacted too
    segment_bytes: int | None = None  # and one that is larger
    min_dirty_ratio: float = 0.5  # of the bytes that compaction would go over, those it never has; with fewer it waits
