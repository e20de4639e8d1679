"""Commands to a group some of whose VDisks are behind links that break, hang, or lose answers."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from penstock.blob import BlobId, Erasure, Status
from penstock.blob.bounded_link import CALL_TIMEOUT_S, BoundedLink
from penstock.blob.group import DRAIN_S
from penstock.blob.meta import BlockItem, DiskState
from penstock.testing.sim_carrier import RouteFaults, ServedDisk, SimCarrier
from tests.sim_group import SimGroup, blob_at, payload, run_group

KINDS = [Erasure.MIRROR_3, Erasure.BLOCK_4_2]
kinds = pytest.mark.parametrize("erasure", KINDS)
ways = pytest.mark.parametrize("way", ["refused", "lost there", "lost back"])


class RemoteDisk:
    """One VDisk of a group, behind a link."""

    def __init__(self, group: SimGroup, order: int) -> None:
        self.there, self.back = RouteFaults(delay_s=0.001), RouteFaults(delay_s=0.001)
        self.order = order
        vdisk = group.life.vdisks[order]
        carrier = SimCarrier(lambda: ServedDisk(vdisk), self.there, self.back, Random(order))
        self.link = BoundedLink(carrier, f"VDisk {order}")  # type: ignore[arg-type]  # it carries every call
        group.life.group.links[order] = self.link

    def fail(self, way: str) -> None:
        """Break the link in one of three ways."""
        self.there.refused = way == "refused"
        self.there.lost = way == "lost there"
        self.back.lost = way == "lost back"

    def mend(self) -> None:
        """Let calls pass again."""
        self.there.refused = self.there.lost = self.back.lost = False


async def _all_commands(group: SimGroup, step: int) -> dict[str, Status]:
    """The status of each command of a group, none of which may raise."""
    blob_id = blob_at(step, 100)
    put = await group.put(blob_id, payload(100, step))
    return {
        "put": put,
        "get": (await group.get(blob_id))[0],
        "block": (await group.do(group.proxy.block(2, step, issuer=step))).status,
        "collect": (await group.do(group.proxy.collect_garbage(1, 1, 1, step, barrier=(1, step)))).status,
        "discover": (await group.do(group.proxy.discover(1))).status,
        "range": (await group.do(group.proxy.range(blob_at(0, 0), blob_at(99, 0)))).status,
    }


@kinds
@ways
def test_one_link_that_is_broken_or_silent_is_done_without_at_once(erasure: Erasure, way: str) -> None:
    async def scenario(group: SimGroup) -> None:
        remote = RemoteDisk(group, 1)
        assert set((await _all_commands(group, 1)).values()) == {Status.OK}
        remote.fail(way)
        started = asyncio.get_running_loop().time()
        assert set((await _all_commands(group, 2)).values()) == {Status.OK}
        assert asyncio.get_running_loop().time() - started < 1.0, "no command waits for the silent disk"
        await group.do(group.life._members[0].syncer.round())
        assert asyncio.get_running_loop().time() - started < 1.5, "nor does a sync"

    run_group(erasure, scenario)


@kinds
@ways
def test_too_many_silent_links_give_a_status_in_time_and_never_an_exception(erasure: Erasure, way: str) -> None:
    async def scenario(group: SimGroup) -> None:
        remotes = [RemoteDisk(group, order) for order in group.orders[:3]]
        for remote in remotes:
            remote.fail(way)
        started = asyncio.get_running_loop().time()
        statuses = await _all_commands(group, 1)
        assert statuses.pop("get") in (Status.OK, Status.ERROR)  # the parts of a failed put may be enough to read it
        assert set(statuses.values()) == {Status.ERROR}, statuses
        assert asyncio.get_running_loop().time() - started < 6 * 3 * CALL_TIMEOUT_S
        for member in group.life._members.values():
            await group.do(member.syncer.round())
            await group.do(member.replicate())
        await group.do(group.life.group.drain())

    run_group(erasure, scenario)


def test_what_does_not_end_in_time_does_not_hold_up_a_shutdown() -> None:
    async def scenario(group: SimGroup) -> None:
        _ = group.life.group.spawn(asyncio.sleep(1e6))
        started = asyncio.get_running_loop().time()
        await group.do(group.life.group.drain())
        assert asyncio.get_running_loop().time() - started <= DRAIN_S + 1

    run_group(Erasure.MIRROR_3, scenario)


@kinds
def test_r6_a_part_lost_on_a_link_is_restored_though_every_notice_of_it_was_lost_too(erasure: Erasure) -> None:
    """Twenty puts miss a disk whose link loses everything; the disk stays open and hears of nothing until the link mends."""

    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(5))
        remote = RemoteDisk(group, 1)
        member = group.life._members[1]
        await group.do(member.replicate())
        seen = member._disorders_seen
        remote.fail("lost there")
        for step in range(5, 25):
            blob_id = blob_at(step, 1000)
            blobs[blob_id] = payload(1000, step)
            assert await group.put(blob_id, blobs[blob_id]) is Status.OK
        await asyncio.sleep(2 * CALL_TIMEOUT_S)
        # The process of the disk itself has noted nothing: the writers are elsewhere.
        group.life.group.disorders = seen[0]
        assert member.vdisk.disorders == seen[1]
        remote.mend()
        await group.do(group.life._members[0].syncer.round())  # the first call that passes
        await asyncio.sleep(1.0)
        assert member.vdisk.disorders > seen[1], "the link that mended has told the disk"
        await group.do(member.round(0.0))
        await member.heal()
        index = group.life.vdisks[1].index
        for blob_id in blobs:
            orders = group.subgroup(blob_id)
            if 1 in orders[:6]:
                assert index.entry_of(blob_id.pack_part(orders.index(1) + 1)) is not None, blob_id

    run_group(erasure, scenario)


@kinds
def test_r6_a_disorder_heard_of_by_one_disk_spreads_to_its_sisters_by_sync(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        await group.do(group.life.vdisks[0].note_disorder(1))
        await group.settle()
        assert {vdisk.disorders for vdisk in group.life.vdisks.values()} == {1}

    run_group(erasure, scenario)


def test_r8_a_late_drop_removes_nothing_that_was_stored_since() -> None:
    async def scenario(group: SimGroup) -> None:
        vdisk = group.life.vdisks[0]
        part = BlobId(1, 0, 1, 1, 0, 4).pack_part(1)
        first = await group.do(vdisk.put(1, part, b"mine"))
        assert first.written
        assert (await group.do(vdisk.drop(2, part, first.place))).status is Status.RACE
        assert (await group.do(vdisk.drop(1, part, first.place))).status is Status.OK
        again = await group.do(vdisk.put(1, part, b"next"))
        assert again.place > first.place
        assert (await group.do(vdisk.drop(1, part, first.place))).status is Status.NODATA
        assert (await group.do(vdisk.get(1, part, 0, 4))).parts == ((1, b"next"),)

    run_group(Erasure.MIRROR_3, scenario)


@kinds
def test_a_sync_that_was_late_is_taken_in_when_it_comes(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        remote = RemoteDisk(group, 1)
        tablet = (9).to_bytes(8, "big")
        remote.back.delay_s = 3.0
        await group.do(group.life.group.links[0].block(1, BlockItem(tablet, 4, 7)))  # type: ignore[union-attr]
        await group.take_out(0)
        group.platters[0].wipe()
        await group.put_in(0)
        syncer = group.life._members[0].syncer
        await group.do(syncer.round())
        if erasure is Erasure.MIRROR_3:
            assert group.life.vdisks[0].index.state is DiskState.SYNCED, "both sisters are needed, so both are waited for"
        await asyncio.sleep(4.0)
        assert syncer._cursors[1][0] != 0

    run_group(erasure, scenario)
