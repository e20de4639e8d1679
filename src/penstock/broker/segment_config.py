"""Kafka's topic settings for segment files and replication.

Penstock has neither: every message is synced before it is acknowledged, storage is in blobs, copies are made by the storage
group. Tools and frameworks set these keys anyway, so they are validated, stored and shown, but have no effect.
"""

from __future__ import annotations

from typing import Final, NamedTuple

LONG_MAX: Final = (1 << 63) - 1
INT_MAX: Final = (1 << 31) - 1


class SegmentKey(NamedTuple):
    """One key: its default, its type, and within what it must be if it is a number."""

    default: str
    kind: str
    low: int = 0
    high: int = LONG_MAX


WITHOUT_EFFECT: Final = "accepted for compatibility with Kafka tools, without effect"
NO_EFFECT: Final = f"{WITHOUT_EFFECT}: there are no segment files or replicas"

SEGMENT_KEYS: Final[dict[str, SegmentKey]] = {
    "file.delete.delay.ms": SegmentKey("60000", "long"),
    "flush.messages": SegmentKey(str(LONG_MAX), "long", 1),
    "flush.ms": SegmentKey(str(LONG_MAX), "long"),
    "follower.replication.throttled.replicas": SegmentKey("", "list"),
    "index.interval.bytes": SegmentKey("4096", "int", 0, INT_MAX),
    "leader.replication.throttled.replicas": SegmentKey("", "list"),
    "preallocate": SegmentKey("false", "boolean"),
    "segment.index.bytes": SegmentKey("10485760", "int", 4, INT_MAX),
    "segment.jitter.ms": SegmentKey("0", "long"),
    "unclean.leader.election.enable": SegmentKey("false", "boolean"),
}
