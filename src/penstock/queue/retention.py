"""The offset up to which a topic's retention allows a partition to be trimmed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.queue.body import Body
from penstock.queue.config import PartitionConfig
from penstock.queue.piece import Piece


def expired_offset(runs: Sequence[Body | Piece], config: PartitionConfig, *, start_offset: int, size: int, now_ms: int) -> int:
    """Up to where retention by time and size lets a partition be cut that is in these runs and has so many bytes."""
    excess = 0 if config.retention_bytes is None else size - config.retention_bytes
    offset = start_offset
    for run in runs:
        too_old = config.retention_ms is not None and run.max_timestamp < now_ms - config.retention_ms
        # By size they go only while enough is left without them.
        if not too_old and excess < run.size:
            break
        excess -= run.size
        offset = run.next_offset
    return offset
