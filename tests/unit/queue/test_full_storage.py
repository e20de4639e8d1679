"""A full disk can be emptied: what makes room is written from the reserve, and then writing goes on."""

from __future__ import annotations

import asyncio

import pytest

import tests.sim_tablet as ground
from penstock.blob import GroupOptions, VDiskOptions
from penstock.queue import Partition, PartitionConfig, PartitionFullError
from penstock.testing.batches import make_batch
from tests.sim_tablet import LOG, SimNode, content, history, on_node

CONFIG = PartitionConfig(low_watermark=200_000)
SMALL_DISK = GroupOptions(vdisk=VDiskOptions(chunk_size=1 << 20, space_reserve=3 << 20), sync_interval=None, scrub_interval=None)


async def _fill(node: SimNode, partition: Partition) -> None:
    life = await node.storage.life(0)

    async def write_on() -> None:
        for number in range(100):
            await partition.write(make_batch([content(300_000, number)]))
            await life.tend()

    with pytest.raises(PartitionFullError):
        await write_on()


def test_a_full_partition_can_be_trimmed_and_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground, "QUIET_GROUP", SMALL_DISK)

    async def scenario(node: SimNode) -> None:
        node.faults.capacity = 12 << 20
        queue = await node.queue(1, CONFIG)
        partition = await queue.add_partition(0)
        await _fill(node, partition)
        await partition.trim(partition.end_offset)
        await queue.tablet.collect_garbage()
        life = await node.storage.life(0)
        for _ in range(4):
            await life.tend()
        assert (await partition.write(make_batch([b"again"]))).base_offset == partition.end_offset - 1

    on_node(scenario)


def test_a_full_tablet_can_be_started_and_positions_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground, "QUIET_GROUP", SMALL_DISK)

    async def scenario(node: SimNode) -> None:
        node.faults.capacity = 12 << 20
        await _fill(node, await (await node.queue(1, CONFIG)).add_partition(0))
        partition = (await node.queue(2, CONFIG)).partition(0)
        await partition.commit("reader", partition.end_offset)
        assert partition.committed("reader") == partition.end_offset
        with pytest.raises(PartitionFullError):
            await partition.write(make_batch([b"still no room"]))

    on_node(scenario)


def test_a_full_tablet_makes_keys_of_its_log_from_the_reserve_while_writes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the log could not be dropped, and a disk full of it would stay full."""
    monkeypatch.setattr(ground, "QUIET_GROUP", SMALL_DISK)

    async def scenario(node: SimNode) -> None:
        node.faults.capacity = 12 << 20
        queue = await node.queue(1, CONFIG)
        small, large = await queue.add_partition(0), await queue.add_partition(1)
        for number in range(10):
            await small.write(make_batch([content(10_000, number)]))
        await _fill(node, large)
        assert small.has_unkeyed
        refused = [asyncio.create_task(small.write(make_batch([b"no room"]))) for _ in range(3)]
        await queue.tablet.take_snapshot()
        assert all(isinstance(error, PartitionFullError) for error in await asyncio.gather(*refused, return_exceptions=True))
        assert small.keyed_to == small.end_offset == 10
        assert len(await node.blobs(LOG)) <= 4
        assert [value for _, value in await history((await node.queue(2, CONFIG)).partition(0))] == [
            content(10_000, number) for number in range(10)
        ]

    on_node(scenario)
