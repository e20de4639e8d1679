"""Runs in which disks that lost their memory, or that were away, made a group answer wrongly: each told in its few steps."""

from __future__ import annotations

import pytest

from penstock.blob import Erasure, Status
from penstock.blob.meta import BlockItem, DiskState
from tests.sim_group import SimGroup, blob_at, payload, run_group

TABLET = (1).to_bytes(8, "big")
# Disks that a group can just do without, and the rest, which are just enough.
SPARE = {Erasure.BLOCK_4_2: (0, 1), Erasure.MIRROR_3_DC: (0, 1, 2, 3)}

redundant_kinds = pytest.mark.parametrize("erasure", list(SPARE))


async def _wipe(group: SimGroup, order: int) -> None:
    """Replace a disk by an empty one, which is not in step with the others yet."""
    await group.take_out(order)
    group.platters[order].wipe()
    await group.put_in(order)


@redundant_kinds
def test_s5_a_repeated_block_after_wipes_makes_no_second_owner_of_a_generation(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        first, second = 7, 8
        # The first starter reaches a few disks and gives up; the second is told that the generation is its own.
        for order in SPARE[erasure]:
            reply = await group.do(group.life.vdisks[order].block(1, BlockItem(TABLET, 5, first)))
            assert reply.status is Status.OK
        assert (await group.do(group.proxy.block(1, 6, second))).status is Status.OK
        for order in group.orders:
            if order not in SPARE[erasure]:
                await _wipe(group, order)
                await group.refill()
        assert (await group.do(group.proxy.block(1, 6, first))).status is Status.ALREADY
        assert (await group.do(group.proxy.block(1, 7, first))).status is Status.OK

    run_group(erasure, scenario)


async def _put_on_two_realms(group: SimGroup) -> tuple[int, ...]:
    """A blob acknowledged by two disks in each of two realms, the others being out and then back; those that hold it."""
    holders = (3, 4, 6, 7)
    others = [order for order in group.orders if order not in holders]
    await group.take_out(*others)
    assert await group.put(blob_at(1, 100), payload(100)) is Status.OK
    assert set(await group.holders(blob_at(1, 100))) == set(holders)
    await group.put_in(*others)
    return holders


async def _expect_no_verdict(group: SimGroup) -> None:
    """The blob is there, and nobody who answers has it: nothing may be said of it, nor of what a boot would find."""
    assert (await group.get(blob_at(1, 100)))[0] is Status.ERROR
    assert (await group.do(group.proxy.discover(1))).status is Status.ERROR
    assert (await group.do(group.proxy.range(blob_at(0, 0), blob_at(9, 0)))).status is Status.ERROR


def test_s1_a_wiped_disk_that_hears_too_few_sisters_stays_fresh_and_nothing_is_called_absent() -> None:
    async def scenario(group: SimGroup) -> None:
        wiped, *away = await _put_on_two_realms(group)
        await group.take_out(*away)
        await _wipe(group, wiped)
        await group.refill()
        assert group.life.vdisks[wiped].index.state is DiskState.FRESH
        await _expect_no_verdict(group)
        await group.put_in(*away)
        await group.refill()
        assert group.life.vdisks[wiped].index.state is DiskState.COMPLETE
        await group.expect({blob_at(1, 100): payload(100)})

    run_group(Erasure.MIRROR_3_DC, scenario)


def test_s1_a_refill_does_not_end_while_silent_disks_could_hold_a_finished_put() -> None:
    async def scenario(group: SimGroup) -> None:
        wiped, *away = await _put_on_two_realms(group)
        await _wipe(group, wiped)
        await group.do(group.life._members[wiped].syncer.round())
        await group.take_out(*away)
        await group.refill()
        assert group.life.vdisks[wiped].index.state is DiskState.SYNCED
        await _expect_no_verdict(group)
        await group.put_in(*away)
        await group.refill()
        await group.expect({blob_at(1, 100): payload(100)})

    run_group(Erasure.MIRROR_3_DC, scenario)


def test_s2_a_wiped_disk_does_not_count_itself_among_those_that_know_the_blocks() -> None:
    async def scenario(group: SimGroup) -> None:
        stale = SPARE[Erasure.MIRROR_3_DC]
        wiped, *away = (order for order in group.orders if order not in stale)
        await group.take_out(*stale)
        assert (await group.do(group.proxy.block(1, 6, issuer=1))).status is Status.OK
        await group.do(group.life.group.drain())
        await group.take_out(*away)
        await group.put_in(*stale)
        await _wipe(group, wiped)
        await group.refill()
        fenced = blob_at(1, 4, generation=5)
        assert await group.put(fenced, b"late") is Status.ERROR
        await group.put_in(*away)
        await group.refill()
        assert await group.put(fenced, b"late") is Status.BLOCKED

    run_group(Erasure.MIRROR_3_DC, scenario)


def test_a_refilled_handoff_stands_in_again_for_a_disk_that_has_not_got_its_part_yet() -> None:
    async def scenario(group: SimGroup) -> None:
        blob_id, data = blob_at(1, 1000), payload(1000)
        main, second, third, *_ = orders = group.subgroup(blob_id)
        await group.take_out(main)
        assert await group.put(blob_id, data) is Status.OK
        await group.do(group.life.group.drain())
        (handoff,) = set(await group.holders(blob_id)) - set(orders[:6])
        await group.put_in(main)
        await _wipe(group, handoff)
        await group.settle()
        assert group.life.vdisks[handoff].index.state is DiskState.COMPLETE
        await group.take_out(second, third)
        found = await group.do(group.proxy.discover(1))
        assert (found.status, found.blobs) == (Status.OK, ((blob_id, data),))
        await group.put_in(second, third)
        await group.refill()
        assert await group.holders(blob_id) == {order: 1 << index for index, order in enumerate(orders[:6])}

    run_group(Erasure.BLOCK_4_2, scenario)


@redundant_kinds
def test_a_group_is_not_taken_for_new_because_its_disks_are_empty(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        await group.store(range(3))
        assert (await group.do(group.proxy.block(1, 6, issuer=1))).status is Status.OK
        await group.do(group.life.stop())
        for platter in group.platters:
            platter.wipe()
        await group.start()
        await group.refill()
        assert {vdisk.index.state for vdisk in group.life.vdisks.values()} == {DiskState.FRESH}
        assert await group.put(blob_at(9, 4, generation=5), b"late") is Status.ERROR
        assert (await group.do(group.proxy.block(1, 6, issuer=2))).status is Status.ERROR
        assert (await group.do(group.proxy.discover(1))).status is Status.ERROR

    run_group(erasure, scenario)


@redundant_kinds
def test_a_new_group_forms_without_the_disks_that_it_can_do_without(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        await group.do(group.life.stop())
        for platter in group.platters:
            platter.wipe()
        group.absent, group.is_formed = set(SPARE[erasure]), False
        await group.start()
        assert group.is_formed
        blobs = await group.store(range(5))
        await group.put_in(*SPARE[erasure])
        await group.refill()
        assert {vdisk.index.state for vdisk in group.life.vdisks.values()} == {DiskState.COMPLETE}
        await group.expect(blobs)

    run_group(erasure, scenario)
