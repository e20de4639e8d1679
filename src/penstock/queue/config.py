"""What a topic asks of its partitions."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.queue import head
from penstock.queue.head import LOW_WATERMARK

BODY_BYTES_MIN = 128 << 10  # smaller bodies would cost more than what retention gains by them
BODIES_OF_RETENTION = 4  # into so many bodies at least, what `retention_bytes` keeps is divided


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """Limits and retention of a partition. None is without limit."""

    low_watermark: int = LOW_WATERMARK
    batch_bytes_max: int = 1 << 20
    retention_ms: int | None = None
    retention_bytes: int | None = None
    retention_messages: int | None = None
    limit_bytes: int | None = None  # over this, writes are refused
    limit_messages: int | None = None  # over this too
    waiting_bytes_max: int = 64 << 20  # of writes on their way to the disk; more are refused, to be sent again
    important_consumers: frozenset[str] = frozenset()  # what they have not read is kept, whatever the retention
    is_compacted: bool = False  # only the last message of each key is kept
    delete_retention_ms: int = 24 * 3600 * 1000  # how long a message without a value is still there after that
    min_compaction_lag_ms: int = 0  # a message is not compacted before it is this old
    max_compaction_lag_ms: int | None = None  # and not left alone for longer than this
    segment_ms: int | None = None  # a head older than this is compacted too
    segment_bytes: int | None = None  # and one that is larger; it also is the most that a body has
    min_dirty_ratio: float = 0.5  # of the bytes that compaction would go over, those it never has; with fewer it waits

    @property
    def body_bytes(self) -> int:
        """What a body has at most. Retention drops whole bodies: where segments or what is retained are small, they are too."""
        asked = head.BODY_SIZE if self.segment_bytes is None else self.segment_bytes
        if self.retention_bytes is not None:
            asked = min(asked, self.retention_bytes // BODIES_OF_RETENTION)
        return min(max(asked, BODY_BYTES_MIN), head.BODY_SIZE)
