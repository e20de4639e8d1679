"""Figures of a partition, which the node that runs it reports to the leader."""

from __future__ import annotations

import msgspec

from penstock.queue import Backlog, Partition, ProfilePoint, backlog_in, profile_of


class PartitionStatus(msgspec.Struct, frozen=True, array_like=True):
    """The figures of a partition; of one on another node they are a moment old."""

    tablet_id: int
    number: int
    epoch: int
    start_offset: int
    end_offset: int
    stable_offset: int
    message_count: int
    size: int
    head_size: int
    body_count: int
    max_timestamp: int
    data_end: int = 0  # only markers follow
    profile: list[ProfilePoint] = []

    @classmethod
    def of(cls, partition: Partition) -> PartitionStatus:
        """The figures of a partition that is served here."""
        return cls(
            partition.tablet.id,
            partition.number,
            partition.epoch,
            partition.start_offset,
            partition.end_offset,
            partition.stable_offset,
            partition.message_count,
            partition.size,
            partition.head_size,
            len(partition.bodies),
            partition.max_timestamp,
            partition.data_end,
            profile_of(partition),
        )

    def backlog(self, position: int) -> Backlog:
        """What a reader at a position has before it."""
        offset = max(position, self.start_offset)
        backlog = backlog_in(self.profile, ProfilePoint(self.data_end, 0, self.max_timestamp), offset)
        return backlog._replace(messages=self.end_offset - offset) if backlog.messages else backlog
