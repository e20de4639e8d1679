"""Scenarios that the fault simulation found, each cut down to the few steps that matter."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.blob import Disk, Erasure, Status
from penstock.blob.checkpoint import checkpoint_name
from penstock.blob.identity import IDENTITY_NAME
from penstock.blob.journal import CHUNK_SUFFIX
from penstock.blob.meta import BarrierItem, DiskState
from penstock.blob.record import HEADER_SIZE
from penstock.blob.upkeep import Upkeep
from penstock.blob.vdisk import VDisk
from penstock.testing.sim_disk import Operation, SimDisk, SimPlatter, Tear
from penstock.testing.sim_loop import ProcessDiedError
from tests.sim_group import SimGroup, blob_at, payload, run_group


def test_room_set_aside_behind_a_checkpoint_is_not_damage() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(20))
        upkeep = Upkeep(group.life.vdisks[0])
        assert await group.do(upkeep.checkpoint())
        assert await group.do(upkeep.checkpoint())
        for number in (1, 2):
            group.platters[0].write(checkpoint_name(number), bytes(4096))
        await group.restart(crash=True)
        assert group.life.vdisks[0].recovered.checkpoints == [1, 2]
        await group.expect(blobs)

    run_group(Erasure.NONE, scenario)


def test_a_checkpoint_that_failed_does_not_spoil_the_next() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(20))
        upkeep = Upkeep(group.life.vdisks[0])
        group.faults[0].error_rate = {"flush": 1.0}
        with pytest.raises(OSError, match="injected"):
            await group.do(upkeep.checkpoint())
        group.faults[0].error_rate = {}
        assert await group.do(upkeep.checkpoint())
        await group.restart(crash=True)
        assert len(group.life.vdisks[0].recovered.checkpoints) == 1
        await group.expect(blobs)

    run_group(Erasure.NONE, scenario)


def test_the_loss_of_all_checkpoints_is_told() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.store(range(100), 10_000)
        reply = await group.do(group.proxy.collect_garbage(1, 0, 1, 1, barrier=(1, 90)))
        assert reply.status is Status.OK
        for _ in range(12):
            await group.do(group.life.tend())
        platter = group.platters[0]
        assert "00000001.chunk" not in platter.names()
        for name in [name for name in platter.names() if name.endswith(".checkpoint")]:
            platter.rot(group.life._random, name, 20)
        await group.restart(crash=True)
        assert any("no checkpoint can be read" in loss for loss in group.life.vdisks[0].recovered.losses)

    run_group(Erasure.NONE, scenario)


@pytest.mark.parametrize("erasure", [Erasure.BLOCK_4_2, Erasure.MIRROR_3_DC])
def test_listings_pass_over_what_some_disks_have_collected(erasure: Erasure) -> None:
    # Disks that know of the barrier: two that held parts and enough others that the blob cannot be written in full again.
    ahead = {Erasure.BLOCK_4_2: (0, 1, 6), Erasure.MIRROR_3_DC: (0, 1, 3, 4, 6, 7)}[erasure]

    async def scenario(group: SimGroup) -> None:
        older, newer = blob_at(1, 1000), blob_at(2, 1000)
        for blob_id in (older, newer, blob_at(9, 1000)):
            assert await group.put(blob_id, payload(1000)) is Status.OK
        await group.do(group.life.group.drain())
        collect = (1).to_bytes(4, "big") + (5).to_bytes(4, "big")
        barrier = tuple(BarrierItem(older.pack()[:9], False, 1, 1, collect, order) for order in group.orders)
        for index in ahead:
            reply = await group.do(group.life.vdisks[group.subgroup(newer)[index]].absorb(barrier))
            assert reply.status is Status.OK
        found = await group.do(group.proxy.range(blob_at(0, 1000), blob_at(10, 1000)))
        assert found.status is Status.OK
        listed = [blob_id for blob_id, _ in found.blobs]
        assert newer not in listed
        assert blob_at(9, 1000) in listed
        # What is passed over does not count towards what was asked for.
        discovered = await group.do(group.proxy.discover(1, limit=len(listed)))
        assert [blob_id for blob_id, _ in discovered.blobs] == listed[::-1]

    run_group(erasure, scenario)


def test_a_damaged_part_on_a_handoff_is_given_up() -> None:
    async def scenario(group: SimGroup) -> None:
        blob_id, data = blob_at(1, 1000), payload(1000)
        orders = group.subgroup(blob_id)
        await group.take_out(orders[0])
        assert await group.put(blob_id, data) is Status.OK
        await group.do(group.life.group.drain())
        handoff = group.life.vdisks[orders[6]]
        part_id = blob_id.pack_part(1)
        entry = handoff.index.entry_of(part_id)
        if entry is None:
            handoff = group.life.vdisks[orders[7]]
            entry = handoff.index.entry_of(part_id)
        assert entry is not None
        assert handoff.index.mark_damaged(part_id, entry)
        await group.put_in(orders[0])
        await group.refill()
        assert handoff.index.entry_of(part_id) is None
        assert await group.holders(blob_id) == {order: 1 << index for index, order in enumerate(orders[:6])}

    run_group(Erasure.BLOCK_4_2, scenario)


def test_a_disk_that_opens_while_another_moves_joins_the_new_generation() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(5))
        await group.take_out(3)
        group.absent.discard(3)
        group.faults[3].slow_factor = 100.0

        async def elsewhere(order: int) -> Disk:
            return SimDisk(SimPlatter(), group.life._random)

        await asyncio.gather(group.do(group.life.put_in(3)), group.do(group.life.move(5, elsewhere)))
        assert {vdisk.id.generation for vdisk in group.life.vdisks.values()} == {2}
        await group.refill()
        await group.expect(blobs)

    run_group(Erasure.BLOCK_4_2, scenario)


@pytest.mark.parametrize("kept", [1, 30, 47])
@pytest.mark.parametrize("zeros", [0, 4096])
def test_an_identity_torn_at_the_first_start_is_made_again(kept: int, zeros: int) -> None:
    async def scenario(group: SimGroup) -> None:
        await group.do(group.life.stop())
        raw = group.platters[0].snapshot()[IDENTITY_NAME]
        group.platters[0].wipe()
        group.platters[0].write(IDENTITY_NAME, raw[:kept] + bytes(zeros))
        await group.start()
        await group.expect(await group.store(range(3)))

    run_group(Erasure.NONE, scenario)


def test_work_on_a_disk_that_was_taken_out_ends() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.store(range(5))
        vdisk = group.life.vdisks[2]
        await group.take_out(2)
        async with asyncio.timeout(60):
            reply = await group.do(vdisk.reach(DiskState.COMPLETE))
            with pytest.raises(OSError, match="closed"):
                await group.do(Upkeep(vdisk).checkpoint())
        assert reply.status is Status.ERROR

    run_group(Erasure.BLOCK_4_2, scenario)


def test_what_comes_to_an_empty_disk_while_it_closes_is_answered() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.take_out(2)
        group.platters[2].wipe()
        await group.put_in(2)
        vdisk = group.life.vdisks[2]
        assert vdisk.journal.records_appended == 0
        async with asyncio.timeout(60):
            _, reply = await asyncio.gather(group.do(group.life.take_out(2)), group.do(vdisk.reach(DiskState.SYNCED)))
        assert reply.status is Status.ERROR

    run_group(Erasure.BLOCK_4_2, scenario)


class FailsUntilNoticed(dict[Operation, float]):
    """Fails the flushes of a disk until its journal knows of one."""

    def __init__(self, vdisk: VDisk) -> None:
        super().__init__({"flush": 1.0})
        self._vdisk = vdisk

    def get(self, operation: Operation, default: Any = None) -> Any:
        return default if self._vdisk.journal.failures else super().get(operation, default)


def test_a_rewritten_chunk_is_kept_if_its_parts_did_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    # The chunk is read in many small steps, as one of full size would be.
    monkeypatch.setattr("penstock.blob.chunk_scan.WINDOW_BYTES", 12_000)

    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(12), 10_000)
        vdisk = group.life.vdisks[0]
        upkeep = Upkeep(vdisk)
        # The first parts to move go out in a flush that fails while the chunk is still being read.
        group.faults[0].error_rate = FailsUntilNoticed(vdisk)
        await group.do(upkeep._rewrite(1))
        assert vdisk.journal.failures
        group.faults[0].error_rate = {}
        await group.expect(blobs)
        for _ in range(3):
            await group.do(upkeep.step())
        await group.expect(blobs)
        await group.restart(crash=True)
        await group.expect(blobs)

    run_group(Erasure.NONE, scenario)


async def _forget_all_but(group: SimGroup, order: int) -> None:
    """Let every disk forget what all have heard of, and all but one write that down."""
    for _ in range(4):
        await group.settle()
    for other, vdisk in group.life.vdisks.items():
        if other != order:
            assert await group.do(Upkeep(vdisk).checkpoint())


def test_a_do_not_keep_that_never_reached_a_disk_is_not_forgotten_by_the_others() -> None:
    async def scenario(group: SimGroup) -> None:
        blob_id = blob_at(1, 100)
        assert await group.put(blob_id, payload(100)) is Status.OK
        first = await group.do(group.proxy.collect_garbage(1, 0, 1, 1, barrier=(1, 5), keep=[blob_id]))
        assert first.status is Status.OK
        await group.settle()
        await group.settle()
        lame = group.subgroup(blob_id)[0]
        group.faults[lame].error_rate = {"flush": 1.0}
        second = await group.do(group.proxy.collect_garbage(1, 0, 1, 2, do_not_keep=[blob_id]))
        assert second.status is Status.OK
        await group.do(group.life.group.drain())
        group.faults[lame].error_rate = {}
        await _forget_all_but(group, lame)
        for faults in group.faults:
            faults.tears = (Tear.NOTHING,)
        await group.restart(crash=True)
        for _ in range(4):
            await group.settle()
        assert await group.get(blob_id) == (Status.NODATA, b"")

    run_group(Erasure.MIRROR_3_DC, scenario)


def test_a_disk_that_lost_a_do_not_keep_to_rot_does_not_bring_the_blob_back() -> None:
    async def scenario(group: SimGroup) -> None:
        blob_id = blob_at(1, 100)
        assert await group.put(blob_id, payload(100)) is Status.OK
        first = await group.do(group.proxy.collect_garbage(1, 0, 1, 1, barrier=(1, 5), keep=[blob_id]))
        assert first.status is Status.OK
        await group.settle()
        rotten = group.subgroup(blob_id)[0]
        at = group.life.vdisks[rotten].journal.offset
        second = await group.do(group.proxy.collect_garbage(1, 0, 1, 2, do_not_keep=[blob_id]))
        assert second.status is Status.OK
        await _forget_all_but(group, rotten)
        await group.store(range(10, 30))
        await group.do(group.life.stop())
        chunk = next(name for name in group.platters[rotten].names() if name.endswith(CHUNK_SUFFIX))
        group.platters[rotten].rot(group._random, chunk, at + HEADER_SIZE)
        await group.start()
        assert group.life.vdisks[rotten].recovered.unknown_loss
        for _ in range(4):
            await group.settle()
        assert await group.get(blob_id) == (Status.NODATA, b"")
        assert not any(vdisk.index.entry_of(blob_id.pack_part(1)) for vdisk in group.life.vdisks.values())

    run_group(Erasure.MIRROR_3_DC, scenario)


def test_a_repeated_put_does_not_risk_what_is_stored() -> None:
    async def scenario(group: SimGroup) -> None:
        blob_id, data = blob_at(1, 1000), payload(1000)
        assert await group.put(blob_id, data) is Status.OK
        group.faults[0].error_rate = {"read": 1.0, "flush": 1.0}
        assert await group.put(blob_id, data) is Status.ERROR
        group.faults[0].error_rate = {}
        assert await group.get(blob_id) == (Status.OK, data)

    run_group(Erasure.NONE, scenario)


def test_a_damaged_part_stays_known_as_damaged_if_its_repair_fails() -> None:
    async def scenario(group: SimGroup) -> None:
        blob_id, data = blob_at(1, 1000), payload(1000)
        assert await group.put(blob_id, data) is Status.OK
        vdisk = group.life.vdisks[0]
        entry = vdisk.index.entry_of(blob_id.pack_part(1))
        assert entry is not None
        assert vdisk.index.mark_damaged(blob_id.pack_part(1), entry)
        group.faults[0].error_rate = {"flush": 1.0}
        assert await group.put(blob_id, data) is Status.ERROR
        group.faults[0].error_rate = {}
        assert (await group.get(blob_id))[0] is Status.ERROR
        assert await group.put(blob_id, data) is Status.OK
        assert await group.get(blob_id) == (Status.OK, data)

    run_group(Erasure.NONE, scenario)


def _states(group: SimGroup) -> dict[int, DiskState]:
    return {order: vdisk.index.state for order, vdisk in group.life.vdisks.items()}


@pytest.mark.parametrize("erasure", [Erasure.BLOCK_4_2, Erasure.MIRROR_3_DC])
def test_a_group_whose_forming_was_cut_short_forms_in_the_end(erasure: Erasure, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(group: SimGroup) -> None:
        await group.do(group.life.stop())
        for platter in group.platters:
            platter.wipe()

        async def die() -> None:
            group.process.crash()
            await asyncio.sleep(1)

        group.is_formed = False
        with monkeypatch.context() as patch:
            patch.setattr(group, "_note_formed", die)
            with pytest.raises(ProcessDiedError):
                await group.start()
        group.platters[1].wipe()
        await group.start()
        assert set(_states(group).values()) == {DiskState.COMPLETE}
        await group.expect(await group.store(range(3)))

    run_group(erasure, scenario)


def test_a_wiped_disk_takes_no_part_before_it_has_heard_a_quorum() -> None:
    async def scenario(group: SimGroup) -> None:
        assert (await group.do(group.proxy.block(1, 5, issuer=1))).status is Status.OK
        await group.settle()
        await group.take_out(0)
        group.platters[0].wipe()
        await group.put_in(0)
        group.faults[0].broken = True
        await group.refill()
        assert _states(group)[0] is DiskState.FRESH
        group.faults[0].broken = False
        await group.do(group.life.tend())
        await group.refill()
        assert _states(group)[0] is DiskState.COMPLETE
        assert group.life.vdisks[0].index.blocked_generation((1).to_bytes(8, "big")) == 4

    run_group(Erasure.BLOCK_4_2, scenario)


def test_a_put_is_not_confirmed_by_bytes_of_a_flush_that_failed() -> None:
    async def scenario(group: SimGroup) -> None:
        blob_id, data = blob_at(1, 10), payload(10)
        vdisk = group.life.vdisks[0]
        for _ in range(20):
            group.faults[0].error_rate = {"flush": 1.0}
            replies = await asyncio.gather(*(group.do(vdisk.put(1, blob_id.pack_part(1), data)) for _ in range(3)))
            assert {reply.status for reply in replies} == {Status.ERROR}
            assert (await group.get(blob_id))[0] is Status.NODATA
        group.faults[0].error_rate = {}
        assert await group.put(blob_id, data) is Status.OK

    run_group(Erasure.NONE, scenario)


def test_one_damaged_checkpoint_costs_nothing_even_if_it_is_the_first() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(30), 10_000)
        kept = blob_at(1, 10_000)
        for counter, step in ((1, 20), (2, 55)):
            reply = await group.do(group.proxy.collect_garbage(1, 0, 1, counter, barrier=(1, step), keep=[kept] * (counter == 1)))
            assert reply.status is Status.OK
            blobs |= await group.store(range(30 * counter, 30 * counter + 30), 10_000)
        upkeep = Upkeep(group.life.vdisks[0])
        assert await group.do(upkeep.checkpoint())
        await group.do(upkeep.reclaim())
        newest = max(name for name in group.platters[0].names() if name.endswith(".checkpoint"))
        group.platters[0].rot(group.life._random, newest, 20)
        await group.restart(crash=True)
        await group.expect({blob_id: data for blob_id, data in blobs.items() if blob_id.step > 55 or blob_id == kept})

    run_group(Erasure.NONE, scenario)


def test_a_disk_that_missed_a_keep_does_not_hide_the_blob() -> None:
    async def scenario(group: SimGroup) -> None:
        blob_id, data = blob_at(1, 100), payload(100)
        assert await group.put(blob_id, data) is Status.OK
        late, lost = group.subgroup(blob_id)[2], group.subgroup(blob_id)[0]
        await group.take_out(late)
        assert (await group.do(group.proxy.collect_garbage(1, 0, 1, 1, keep=[blob_id]))).status is Status.OK
        group.platters[late].wipe()
        await group.put_in(late)
        await group.do(group.life.vdisks[late].reach(DiskState.SYNCED))
        assert (await group.do(group.proxy.collect_garbage(1, 0, 1, 2, barrier=(1, 5)))).status is Status.OK
        await group.do(group.life.group.drain())
        await group.take_out(lost)
        found = await group.do(group.proxy.range(blob_at(0, 1), blob_at(9, 1)))
        assert (found.status, [listed for listed, _ in found.blobs]) == (Status.OK, [blob_id])

    run_group(Erasure.MIRROR_3_DC, scenario)


def test_with_a_realm_out_and_all_other_disks_full_a_blob_is_read_and_listed_again_once_there_is_room() -> None:
    """With only two of its three replicas in sight it looks half written, and cannot be completed: a listing does not vouch for
    it, but nothing is lost and nothing is said to be absent."""
    size = 200_000  # more than is left of what disks have set aside

    async def scenario(group: SimGroup) -> None:
        blob_id, data = blob_at(1, size), payload(size)
        assert await group.put(blob_id, data) is Status.OK
        await group.settle()
        capacities = [faults.capacity for faults in group.faults]
        for faults in group.faults:
            faults.capacity = 0
        await group.take_out(*(order for order in group.orders if order // 3 == group.subgroup(blob_id)[0] // 3))
        assert (await group.do(group.proxy.range(blob_id, blob_id))).status is Status.ERROR
        assert (await group.do(group.proxy.discover(1))).status is Status.ERROR
        assert await group.get(blob_id) == (Status.OK, data)
        for faults, capacity in zip(group.faults, capacities, strict=True):
            faults.capacity = capacity
        found = await group.do(group.proxy.discover(1))
        assert (found.status, found.blobs) == (Status.OK, ((blob_id, data),))

    run_group(Erasure.MIRROR_3_DC, scenario)


def test_a_part_that_cannot_be_read_now_is_not_called_damaged() -> None:
    async def scenario(group: SimGroup) -> None:
        blob_id, data = blob_at(1, 1000), payload(1000)
        assert await group.put(blob_id, data) is Status.OK
        group.faults[0].error_rate = {"read": 1.0}
        result = await group.do(group.proxy.get(blob_id))
        assert (result.status, result.damaged) == (Status.ERROR, False)
        assert "cannot be read now" in result.reason
        group.faults[0].error_rate = {}
        assert await group.get(blob_id) == (Status.OK, data)

    run_group(Erasure.NONE, scenario)
