"""Runs in which disks that lost their memory, or that were away, made a group answer wrongly: each told in its few steps."""

from __future__ import annotations

import pytest

from penstock.blob import Erasure, Status
from penstock.blob.meta import DO_NOT_KEEP, KEEP, BlockItem, DiskState, FlagsItem, HistoryItem
from penstock.testing.sim_disk import SimPlatter
from tests.sim_group import SimGroup, blob_at, payload, run_group

TABLET = (1).to_bytes(8, "big")
# Disks that a group can just do without, and the rest, which are just enough.
SPARE = {Erasure.BLOCK_4_2: (0, 1), Erasure.MIRROR_3_DC: (0, 1, 2, 3), Erasure.MIRROR_3: (0,)}

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
    """The blob exists, but no disk that answers has it: neither a read nor a boot may say that it does not."""
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
        await group.take_out(*away, wiped)
        group.platters[wiped].wipe()
        await group.put_in(*stale, wiped)
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


def _copy(platter: SimPlatter) -> dict[str, bytes]:
    return platter.snapshot()


def _give_back(platter: SimPlatter, copy: dict[str, bytes]) -> None:
    platter.wipe()
    for name, content in copy.items():
        platter.write(name, content)


@redundant_kinds
def test_a_disk_that_went_back_in_time_brings_nothing_back_and_counts_for_nothing_until_it_has_learned(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        kept, deleted = blob_at(9, 1000), blob_at(1, 1000)
        for blob_id in (kept, deleted):
            assert await group.put(blob_id, payload(1000)) is Status.OK
        first = await group.do(group.proxy.collect_garbage(1, 0, 1, 1, barrier=(1, 5), keep=[deleted]))
        assert first.status is Status.OK
        await group.settle()
        old = group.subgroup(deleted)[0]
        copy = _copy(group.platters[old])
        # The blob is deleted, and once every disk has heard of that none remembers that it was kept.
        assert (await group.do(group.proxy.collect_garbage(1, 0, 1, 2, do_not_keep=[deleted]))).status is Status.OK
        assert (await group.do(group.proxy.block(1, 6, issuer=1))).status is Status.OK
        for _ in range(4):
            await group.settle()
        await group.take_out(old)
        _give_back(group.platters[old], copy)
        group.absent.discard(old)
        await group.do(group.life._open(old))
        for order, member in group.life._members.items():
            if order != old:  # the others ask it first, before it knows what it is
                await group.do(member.syncer.round())
        await group.put_in(old)
        assert group.life.vdisks[old].sisters.own.life == 1
        assert group.life.vdisks[old].index.state is DiskState.SYNCED
        for _ in range(4):
            await group.refill()
        assert group.life.vdisks[old].index.state is DiskState.COMPLETE
        assert await group.get(deleted) == (Status.NODATA, b"")
        assert all(
            one.index.entry_of(deleted.pack_part(part)) is None for one in group.life.vdisks.values() for part in (1, 2, 3)
        )
        assert await group.put(blob_at(10, 4, generation=5), b"late") is Status.BLOCKED
        await group.expect({kept: payload(1000)})
        # It is another disk by now: the old copy is found out again, a restart of all is not.
        await group.restart(crash=True)
        assert {one.index.state for one in group.life.vdisks.values()} == {DiskState.COMPLETE}
        assert {order: one.sisters.own.life for order, one in group.life.vdisks.items() if one.sisters.own.life} == {old: 1}
        await group.take_out(old)
        _give_back(group.platters[old], copy)
        await group.put_in(old)
        assert group.life.vdisks[old].sisters.own.life == 2

    run_group(erasure, scenario)


@redundant_kinds
@pytest.mark.parametrize("learns_before", [True, False])
def test_a_keep_of_a_disk_that_went_back_is_still_given_up_after_a_crash(erasure: Erasure, *, learns_before: bool) -> None:
    async def scenario(group: SimGroup) -> None:
        deleted = blob_at(1, 1000)
        assert await group.put(deleted, payload(1000)) is Status.OK
        assert (await group.do(group.proxy.collect_garbage(1, 0, 1, 1, barrier=(1, 5), keep=[deleted]))).status is Status.OK
        await group.settle()
        old = group.subgroup(deleted)[0]
        copy = _copy(group.platters[old])
        assert (await group.do(group.proxy.collect_garbage(1, 0, 1, 2, do_not_keep=[deleted]))).status is Status.OK
        assert await group.put(blob_at(9, 1000), payload(1000)) is Status.OK
        for _ in range(4):
            await group.settle()
        for member in group.life._members.values():  # no log tells of it any more
            assert await group.do(member.upkeep.checkpoint())
        await group.take_out(old)
        _give_back(group.platters[old], copy)
        if learns_before:
            await group.put_in(old)
            assert group.life.vdisks[old].index.state is DiskState.SYNCED
        else:
            group.absent.discard(old)
            await group.do(group.life._open(old))
            await group.do(group.life.vdisks[old].start_over())
        await group.restart(crash=True)
        for _ in range(4):
            await group.refill()
        assert {vdisk.index.state for vdisk in group.life.vdisks.values()} == {DiskState.COMPLETE}
        assert await group.get(deleted) == (Status.NODATA, b"")
        assert not await group.holders(deleted)

    run_group(erasure, scenario)


@redundant_kinds
def test_a_disk_that_went_back_stays_fresh_while_too_few_others_are_there(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        *away, old = SPARE[erasure]
        copy = _copy(group.platters[old])
        assert (await group.do(group.proxy.block(1, 6, issuer=1))).status is Status.OK
        await group.store(range(0))
        await group.settle()
        away += [order for order in group.orders if order not in SPARE[erasure]][:1]
        await group.take_out(*away, old)
        _give_back(group.platters[old], copy)
        await group.put_in(old)
        await group.refill()
        assert group.life.vdisks[old].index.state is DiskState.FRESH
        assert await group.put(blob_at(1, 4, generation=5), b"late") is not Status.OK
        await group.restart()
        assert group.life.vdisks[old].index.state is DiskState.FRESH
        await group.put_in(*away)
        await group.refill()
        assert group.life.vdisks[old].index.state is DiskState.COMPLETE

    run_group(erasure, scenario)


@redundant_kinds
def test_r6_a_disk_compares_its_whole_list_of_parts_once_after_it_was_opened(erasure: Erasure) -> None:
    """A disk is taken out and put in so quickly that it misses one blob, and the notice of that is lost."""

    async def scenario(group: SimGroup) -> None:
        blob_id = blob_at(1, 1000)
        away = group.subgroup(blob_id)[0]
        await group.take_out(away)
        assert await group.put(blob_id, payload(1000)) is Status.OK
        await group.do(group.life.group.drain())
        group.life.group.disorders = 0
        await group.put_in(away)
        assert away not in await group.holders(blob_id)
        member = group.life._members[away]
        counts = []
        for _ in range(4):
            assert await group.do(member.round(0.0))
            if member._healing is not None:
                await member._healing
            counts.append(group.life.probe.rounds)
        assert away in await group.holders(blob_id)
        assert counts[-1] == counts[-2], "it is done once, and once more for handoffs of what was restored"

    run_group(erasure, scenario)


@redundant_kinds
def test_a_disk_that_was_away_takes_no_command_before_it_has_heard_from_a_quorum(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        away = SPARE[erasure][0]
        await group.take_out(away)
        assert (await group.do(group.proxy.block(1, 6, issuer=1))).status is Status.OK
        others = [order for order in group.orders if order != away]
        await group.take_out(*others)
        await group.put_in(away)
        late = blob_at(1, 4, generation=5).pack_part(1)
        assert (await group.do(group.life.vdisks[away].put(1, late, b"late"))).status is Status.ERROR
        await group.put_in(*others)
        await group.settle()
        assert (await group.do(group.life.vdisks[away].put(1, late, b"late"))).status is Status.BLOCKED

    run_group(erasure, scenario)


@redundant_kinds
def test_a_group_of_which_too_much_went_back_goes_on_only_when_its_configuration_says_so(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(5))
        assert (await group.do(group.proxy.block(1, 1, issuer=1))).status is Status.OK
        await group.settle()
        copies = [_copy(platter) for platter in group.platters]
        await group.store(range(5, 10))
        for _ in range(2):
            await group.settle()
        await group.do(group.life.stop())
        # All but one come from an older copy.
        for platter, copy in list(zip(group.platters, copies, strict=True))[1:]:
            _give_back(platter, copy)
        for _ in range(2):
            await group.start()
            assert sum(vdisk.index.state == DiskState.FRESH for vdisk in group.life.vdisks.values()) == len(copies) - 1
            assert (await group.do(group.proxy.discover(1))).status is Status.ERROR
            await group.do(group.life.stop())
        group.is_formed = False
        await group.start()
        await group.refill()
        assert {vdisk.index.state for vdisk in group.life.vdisks.values()} == {DiskState.COMPLETE}
        await group.expect(blobs)
        await group.restart(crash=True)
        assert {vdisk.index.state for vdisk in group.life.vdisks.values()} == {DiskState.COMPLETE}

    run_group(erasure, scenario)


@redundant_kinds
def test_s4_the_newest_channel_history_is_synced_outlives_restarts_and_is_told_by_block_and_discover(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        older, newer = HistoryItem(TABLET, 1, b"older"), HistoryItem(TABLET, 2, b"newer")
        assert (await group.do(group.proxy.block(1, 5, issuer=1, history=newer))).status is Status.OK
        for order in group.orders:
            await _wipe(group, order)
            await group.refill()
        await group.do(group.life.tend())
        await group.restart(crash=True)
        assert {vdisk.index.histories[TABLET] for vdisk in group.life.vdisks.values()} == {newer}
        assert (await group.do(group.proxy.discover(1))).history == newer
        late = await group.do(group.proxy.block(1, 6, issuer=2, history=older))
        assert (late.status, late.history) == (Status.OK, newer)
        fenced = await group.do(group.proxy.block(1, 3, issuer=3, history=older))
        assert (fenced.status, fenced.history) == (Status.BLOCKED, newer)

    run_group(erasure, scenario)


@redundant_kinds
def test_a_keep_heard_after_its_end_is_told_to_sisters_together_with_that(erasure: Erasure) -> None:
    """A disk that missed the Keep and has the DoNotKeep hears of the Keep later. A sister that has forgotten both by then must
    not be told of the Keep alone."""

    async def scenario(group: SimGroup) -> None:
        index = group.life.vdisks[0].index
        prefix = blob_at(1, 100).pack()[:21]
        assert index.apply(FlagsItem(prefix, DO_NOT_KEEP))
        assert index.apply(FlagsItem(prefix, KEEP))
        assert list(index.sync_log)[-2:] == [FlagsItem(prefix, DO_NOT_KEEP), FlagsItem(prefix, KEEP | DO_NOT_KEEP)]

    run_group(erasure, scenario)
