"""The lag of a reader of a partition on another node, by the profile of that partition."""

from __future__ import annotations

from penstock.broker import PartitionStatus
from penstock.queue import Partition, PartitionConfig, backlog_of, profile_of
from penstock.testing.batches import make_batch, make_marker
from tests.sim_tablet import SimNode, content, on_node

WRITES = 150
VALUES = 10  # a write
SMALL = PartitionConfig(low_watermark=3000)


async def fill(partition: Partition) -> None:
    """Bodies and a head, of messages that are all alike, one each second."""
    for number in range(WRITES):
        await partition.write(make_batch([content(100, 1)] * VALUES, timestamp=number * VALUES * 1000))


def test_the_lag_by_a_profile_is_near_that_of_the_partition_itself() -> None:
    async def check(node: SimNode) -> None:
        partition = await (await node.queue(1, SMALL)).add_partition(0)
        await fill(partition)
        status = PartitionStatus.of(partition)
        assert 4 < len(status.profile) < 10 < len(partition.runs)
        for point in status.profile:
            assert status.backlog(point.offset) == backlog_of(partition, point.offset)
        for offset in range(0, partition.end_offset, 7):
            exact, told = backlog_of(partition, offset), status.backlog(offset)
            assert told.messages == exact.messages
            assert abs(told.size - exact.size) <= exact.size * 0.1 + 2000
            assert exact.since_ms is not None
            assert told.since_ms is not None
            assert abs(told.since_ms - exact.since_ms) <= exact.messages * 100 + 20_000
        for offset in (partition.end_offset, 10**9):
            assert status.backlog(offset) == (0, 0, None)

    on_node(check)


def test_what_was_deleted_and_markers_at_the_end_are_no_lag() -> None:
    async def check(node: SimNode) -> None:
        partition = await (await node.queue(1, SMALL)).add_partition(0)
        assert PartitionStatus.of(partition).backlog(0) == (0, 0, None)
        await fill(partition)
        await partition.write(make_marker(commit=True, producer_id=7, producer_epoch=0))
        await partition.trim(1000)
        status = PartitionStatus.of(partition)
        assert status.backlog(0) == status.backlog(1000)
        assert status.backlog(0).messages == backlog_of(partition, 0).messages == 501
        assert status.backlog(partition.end_offset - 1) == (0, 0, None)
        await partition.trim(partition.end_offset)
        assert profile_of(partition) == []
        assert PartitionStatus.of(partition).backlog(0) == (0, 0, None)

    on_node(check)
