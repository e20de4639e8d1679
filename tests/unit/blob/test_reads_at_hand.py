"""Reading many blobs at once: those that a disk of this process has in memory are not waited for, others are."""

from __future__ import annotations

import pytest

from penstock.blob import Disk, Erasure, GetResult, Status
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_loop import current_loop, run_simulation
from tests.sim_group import SimGroup, blob_at, payload

SIZES = (1, 100, 5_000, 70_000)


class CountedDisk(SimDisk):
    """A disk that counts the reads that are waited for."""

    reads = 0

    async def read(self, name: str, offset: int, length: int) -> bytes:
        type(self).reads += 1
        return await super().read(name, offset, length)


class QuickGroup(SimGroup):
    """A group whose disks have everything in memory."""

    async def open_disk(self, order: int) -> Disk:
        return CountedDisk(self.platters[order], self._random, self.faults[order], at_once_rate=1.0)


async def _read_all(group: SimGroup) -> list[GetResult]:
    blobs = [blob_at(step, size) for step, size in enumerate(SIZES, start=1)]
    return await group.do(group.proxy.get_many([(blob_id, 0, None) for blob_id in (*blobs, blob_at(99, 10))]))


@pytest.mark.parametrize("erasure", [Erasure.NONE, Erasure.MIRROR_3, Erasure.MIRROR_3_DC])
def test_blobs_in_memory_are_read_without_waiting_and_others_all_the_same(erasure: Erasure) -> None:
    async def main() -> None:
        group = await QuickGroup(erasure).start()
        await group.do(group.proxy.block(1, 1, 1))
        data = [payload(size, step) for step, size in enumerate(SIZES, start=1)]
        for step, body in enumerate(data, start=1):
            assert await group.put(blob_at(step, len(body)), body) is Status.OK
        await group.settle()
        CountedDisk.reads = 0
        *read, missing = await _read_all(group)
        assert [(result.status, bytes(result.data)) for result in read] == [(Status.OK, body) for body in data]
        assert missing.status is Status.NODATA
        at_hand = len(SIZES) if erasure is not Erasure.MIRROR_3_DC else 1  # of nine disks one need not have a blob
        assert CountedDisk.reads <= len(SIZES) - at_hand
        for faults in group.faults:
            faults.slow_factor, faults.throughput = 2.0, 1e9  # none of them is quick any more
        assert [result.data for result in await _read_all(group)] == [*data, b""]
        assert CountedDisk.reads >= len(SIZES)

    run_simulation(main(), seed=1)


def test_a_blob_that_was_damaged_in_memory_is_read_from_another_disk() -> None:
    async def main() -> None:
        group = await QuickGroup(Erasure.MIRROR_3).start()
        await group.do(group.proxy.block(1, 1, 1))
        data = [payload(size, step) for step, size in enumerate(SIZES, start=1)]
        for step, body in enumerate(data, start=1):
            assert await group.put(blob_at(step, len(body)), body) is Status.OK
        platter, random = group.platters[0], current_loop().random
        name = max(platter.names(), key=platter.written)
        platter.rot(random, name, 300, length=platter.written(name) - 300)
        assert [result.data for result in await _read_all(group)] == [*data, b""]

    run_simulation(main(), seed=1)
