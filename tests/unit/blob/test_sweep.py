"""Blobs that a barrier has ended are forgotten in slices: none is given out meanwhile, and a crash leaves none behind."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from penstock.blob import Erasure, Status
from penstock.blob.index import DiskIndex
from penstock.blob.meta import KEEP, BarrierItem, FlagsItem
from penstock.blob.record import record_size
from penstock.blob.upkeep import Upkeep
from penstock.blob.vdisk import VDisk
from tests.sim_group import SimGroup, blob_at, run_group

CHANNEL = (1).to_bytes(8, "big") + b"\0"
SLICE = 5


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_slices_end_what_one_sweep_would(seed: int, hard: bool) -> None:
    random = Random(seed)
    one, other = (DiskIndex(0, 1, bool, lambda size: size) for _ in range(2))
    blobs = [blob_at(random.randrange(12), 100, cookie=cookie) for cookie in range(80)]
    kept = random.sample(blobs, 20)
    for index in (one, other):
        for at, blob in enumerate(blobs):
            index.add_part(blob.pack_part(1), 1, at)
        for blob in kept:
            index.apply(FlagsItem(blob.pack()[:21], KEEP))
    for counter, step in enumerate(sorted(random.sample(range(12), 3))):
        for index in (one, other):
            index.apply(BarrierItem(CHANNEL, hard, 1, counter, blob_at(step, 1).pack()[9:17], 0))
        assert one.collect_garbage(CHANNEL)
        slices = 1
        while not other.collect_garbage(CHANNEL, SLICE):
            slices += 1
            assert slices < 100
        assert one.channels[CHANNEL].blobs == other.channels[CHANNEL].blobs
        left = len(one.channels[CHANNEL].blobs)
        assert (one.parts, other.parts) == (left, left)
        assert (one.chunks[1].live, other.chunks[1].live) == (left * record_size(100), left * record_size(100))


def test_a_blob_that_both_barriers_end_is_forgotten_once() -> None:
    index = DiskIndex(0, 1, bool, lambda size: size)
    for step in (1, 2):
        index.add_part(blob_at(step, 100).pack_part(1), 1, step)
    for hard in (False, True):
        index.apply(BarrierItem(CHANNEL, hard, 1, 1, blob_at(1, 1).pack()[9:17], 0))
    assert index.collect_garbage(CHANNEL)
    assert (index.parts, index.chunks[1].live) == (1, record_size(100))


def test_a_barrier_over_many_blobs_takes_several_turns_and_acts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.blob.vdisk.SWEEP_AT_ONCE", 1)

    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(500))
        vdisk = group.life.vdisks[0]
        collecting = asyncio.create_task(group.do(group.proxy.collect_garbage(1, 0, 1, 1, barrier=(1, 489))))
        while vdisk.index.channels[CHANNEL].soft.own is None:  # noqa: ASYNC110 - the very turn in which it acts
            await asyncio.sleep(0)
        assert len(vdisk.index.channels[CHANNEL].blobs) > 490
        listed = (await vdisk.listing(1, CHANNEL, b"", None, reverse=False, limit=1000))[1]
        assert [one.key for one in listed] == [blob_at(step, 1).pack()[9:21] for step in range(490, 500)]
        assert (await vdisk.get(1, blob_at(489, 1000).pack_part(1), 0, 1000)).status is Status.NODATA
        assert (await collecting).status is Status.OK
        await asyncio.sleep(1)
        assert len(vdisk.index.channels[CHANNEL].blobs) == vdisk.index.parts == 10
        await group.expect({blob: data for blob, data in blobs.items() if blob.step >= 490})

    run_group(Erasure.NONE, scenario)


def test_a_crash_within_a_sweep_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(60))
        with monkeypatch.context() as stopped:
            stopped.setattr(VDisk, "_sweep", lambda self, channel_key: self.index.collect_garbage(channel_key, SLICE))
            assert (await group.do(group.proxy.collect_garbage(1, 0, 1, 1, barrier=(1, 49)))).status is Status.OK
        vdisk = group.life.vdisks[0]
        assert len(vdisk.index.channels[CHANNEL].blobs) == 60 - SLICE
        assert await group.do(Upkeep(vdisk).checkpoint())  # which has those, too, that are still to be forgotten
        await group.restart(crash=True)
        assert len(group.life.vdisks[0].index.channels[CHANNEL].blobs) == group.life.vdisks[0].index.parts == 10
        await group.expect({blob: data for blob, data in blobs.items() if blob.step > 49})

    run_group(Erasure.NONE, scenario)


@pytest.mark.parametrize("hard", [False, True])
def test_what_a_barrier_of_the_others_has_ended_is_not_written_again(hard: bool) -> None:
    index = DiskIndex(2, 3, lambda holders: holders.bit_count() >= 2, lambda size: size)
    collect = blob_at(5, 1).pack()[9:17]
    for holder in (0, 1):  # this disk has lost its own
        index.apply(BarrierItem(CHANNEL, hard, 1, 1, collect, holder))
    channel = index.channel(CHANNEL)
    assert channel.refuses(blob_at(5, 1).pack()[9:21])
    assert not channel.refuses(blob_at(6, 1).pack()[9:21])
    index.apply(FlagsItem(blob_at(4, 1).pack()[:21], KEEP))
    assert channel.refuses(blob_at(4, 1).pack()[9:21]) == hard
