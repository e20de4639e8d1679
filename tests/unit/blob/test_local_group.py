"""The rules of a group's life: disks that are wiped, damaged, away, moved, full or slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from random import Random
from typing import TypeVar

import pytest

from penstock.blob import BlobId, DiscoverResult, Disk, Erasure, GetResult, GroupProxy, RangeResult, Reply, Status
from penstock.blob.channel import place_of
from penstock.blob.erasure import codec_for
from penstock.blob.group import Group
from penstock.blob.journal import chunk_name
from penstock.blob.meta import DiskState
from penstock.blob.record import HEADER_SIZE
from penstock.testing.sim_disk import SimDisk, SimPlatter
from penstock.testing.sim_loop import SimClock, current_loop
from tests.sim_group import SMALL, SimGroup, blob_at, options, payload, run_group

T = TypeVar("T")

KINDS = list(Erasure)
REDUNDANT = [Erasure.BLOCK_4_2, Erasure.MIRROR_3_DC, Erasure.MIRROR_3]

all_kinds = pytest.mark.parametrize("erasure", KINDS)
redundant_kinds = pytest.mark.parametrize("erasure", REDUNDANT)
kinds_with_handoffs = pytest.mark.parametrize("erasure", [Erasure.BLOCK_4_2, Erasure.MIRROR_3_DC])


async def _all_holders(group: SimGroup, blobs: Iterable[BlobId]) -> dict[BlobId, dict[int, int]]:
    return {blob_id: await group.holders(blob_id) for blob_id in blobs}


def _stored_bytes(group: SimGroup) -> list[int]:
    """Bytes of live records on each disk."""
    return [sum(use.live for use in vdisk.index.chunks.values()) for _, vdisk in sorted(group.life.vdisks.items())]


# Rule 10: a VDisk moves.


@all_kinds
def test_commands_of_an_older_membership_are_answered_race(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(3))
        blob_id = next(iter(blobs))
        stale = Group(group.life.group.id, 1, erasure, group.life.group.links)
        proxy = GroupProxy(stale, SimClock(current_loop()))
        assert (await group.do(proxy.get(blob_id))).status is Status.OK
        group.life.set_generation(2)
        assert (await group.do(proxy.put(blob_at(9, 4), b"data"))).status is Status.RACE
        assert (await group.do(proxy.get(blob_id))).status is Status.RACE
        assert (await group.do(proxy.block(1, 1, 1))).status is Status.RACE
        assert (await group.do(proxy.collect_garbage(1, 0, 1, 1, barrier=(1, 1)))).status is Status.RACE
        assert (await group.do(proxy.range(blob_at(0, 0), blob_at(9, 0)))).status is Status.RACE
        assert (await group.do(proxy.discover(1))).status is Status.RACE
        assert proxy.pieces(blob_id, 0, 10) is None
        await group.expect(blobs)
        assert await group.get(blob_at(9, 4)) == (Status.NODATA, b"")

    run_group(erasure, scenario)


@all_kinds
def test_a_command_in_flight_when_the_membership_changes_gets_race_and_may_be_retried(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        async def put_and_change() -> Status:
            putting = asyncio.ensure_future(group.proxy.put(blob_at(0, 1000), payload(1000)))
            # Its requests are made with the old generation, and arrive after the change.
            await asyncio.sleep(0)
            group.life.set_generation(2)
            return (await putting).status

        assert await group.do(put_and_change()) is (Status.OK if erasure is Erasure.NONE else Status.RACE)
        assert await group.put(blob_at(0, 1000), payload(1000)) is Status.OK
        assert await group.get(blob_at(0, 1000)) == (Status.OK, payload(1000))

    run_group(erasure, scenario)


@kinds_with_handoffs
def test_a_moved_vdisk_is_refilled_on_its_new_disk(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(20))
        before = await _all_holders(group, blobs)
        other = SimPlatter()

        async def open_other(order: int) -> Disk:
            return SimDisk(other, Random(order))

        await group.do(group.life.move(3, open_other))
        assert group.life.group.generation == 2
        assert {vdisk.id.generation for vdisk in group.life.vdisks.values()} == {2}
        await group.expect(blobs)
        await group.refill()
        assert await _all_holders(group, blobs) == before
        await group.take_out(3)
        await group.expect(blobs)
        await group.do(group.life.put_in(3))
        assert other.used > 0

    run_group(erasure, scenario)


# Rules 11-13: disks that lost something.


@redundant_kinds
def test_each_disk_wiped_in_turn_is_full_again_with_nothing_in_excess(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(30))
        before, stored = await _all_holders(group, blobs), _stored_bytes(group)
        for order in group.orders:
            await group.take_out(order)
            group.platters[order].wipe()
            await group.put_in(order)
            assert group.life.vdisks[order].index.state == DiskState.FRESH
            await group.refill()
            assert group.life.vdisks[order].index.state == DiskState.COMPLETE
            assert await _all_holders(group, blobs) == before
            assert _stored_bytes(group) == stored
        await group.expect(blobs)
        await group.restart(crash=True)
        await group.expect(blobs)

    run_group(erasure, scenario)


@redundant_kinds
def test_a_disk_that_is_being_refilled_proves_no_absence(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(1))
        blob_id = next(iter(blobs))
        order = group.subgroup(blob_id)[0]
        await group.take_out(order)
        group.platters[order].wipe()
        await group.put_in(order)
        vdisk = group.life.vdisks[order]
        for state in (DiskState.FRESH, DiskState.SYNCED):
            assert vdisk.index.state == state
            assert (await group.do(vdisk.get(1, blob_id.pack_part(1), 0, 1))).status is Status.ERROR
            assert await group.get(blob_id) == (Status.OK, blobs[blob_id])
            assert (await group.get(blob_at(1, 1000)))[0] is Status.NODATA
            await group.do(group.life._members[order].syncer.round())
        await group.refill()
        assert (await group.do(vdisk.get(1, blob_at(1, 1000).pack_part(1), 0, 1))).status is Status.NODATA

    run_group(erasure, scenario)


@kinds_with_handoffs
def test_handoffs_give_up_their_parts_once_these_are_where_they_belong(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blob_id = blob_at(0, 1000)
        await group.store(range(1))
        healthy = await group.holders(blob_id)
        for step in range(1, 20):
            orders = group.subgroup(blob_at(step, 1000))
            await group.take_out(*orders[:2])
            await group.store(range(step, step + 1))
            assert set(await group.holders(blob_at(step, 1000))).isdisjoint(orders[:2])
            await group.put_in(*orders[:2])
        await group.refill()
        for step in range(20):
            orders = group.subgroup(blob_at(step, 1000))
            assert sorted(await group.holders(blob_at(step, 1000))) == sorted(orders[: len(healthy)])

    run_group(erasure, scenario)


def _spoil(group: SimGroup, blob_id: BlobId, order: int, part: int, at: int) -> None:
    entry = group.life.vdisks[order].index.entry_of(blob_id.pack_part(part))
    assert entry is not None
    place = place_of(entry)
    group.platters[order].rot(Random(part), chunk_name(place.chunk), place.offset + at)


@redundant_kinds
@pytest.mark.parametrize("at", [10, HEADER_SIZE + 100], ids=["header", "body"])
def test_each_part_corrupted_in_turn_reads_right_and_is_healed_by_a_scrub(erasure: Erasure, at: int) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(3), 5000)
        await group.restart()  # so that the chunks are sealed, and a scrub looks at them
        before, stored = await _all_holders(group, blobs), _stored_bytes(group)
        for blob_id in blobs:
            for order, parts in before[blob_id].items():
                part = parts.bit_length()
                _spoil(group, blob_id, order, part, at)
                await group.expect(blobs)
                assert await group.do(group.life.scrub()) in (0, 1)  # 0 if a read came upon it first
                assert order not in await group.holders(blob_id)
                await group.refill()
                assert await _all_holders(group, blobs) == before
                assert _stored_bytes(group) == stored
                assert await group.do(group.life.scrub()) == 0
                await group.restart()
        await group.expect(blobs)

    run_group(erasure, scenario)


def test_a_scrub_finds_damage_that_nobody_has_read() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(3), 5000)
        await group.restart()
        for blob_id in blobs:
            _spoil(group, blob_id, 0, 1, HEADER_SIZE)
        assert await group.do(group.life.scrub()) == 3
        assert await group.do(group.life.scrub()) == 0
        for blob_id in blobs:
            assert (await group.get(blob_id))[0] is Status.ERROR
        assert group.life.vdisks[0].index.damaged == {blob_id.pack_part(1) for blob_id in blobs}
        assert all(str(blob_id._replace(part=1)) in loss for blob_id, loss in zip(blobs, group.life.losses(0), strict=True))

    run_group(Erasure.NONE, scenario)


@redundant_kinds
@pytest.mark.parametrize("restarted", [False, True])
def test_a_disk_that_was_away_agrees_with_the_others_after(erasure: Erasure, restarted: bool) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(10))
        ids = list(blobs)
        assert (await group.do(group.proxy.collect_garbage(1, 0, 1, 1, barrier=(1, 2), keep=ids[:3]))).status is Status.OK
        await group.settle()
        away = group.subgroup(ids[2])[0]
        await group.take_out(away)
        collect = group.proxy.collect_garbage(1, 0, 1, 2, barrier=(1, 6), keep=ids[3:5], do_not_keep=ids[2:3])
        assert (await group.do(collect)).status is Status.OK
        assert (await group.do(group.proxy.collect_garbage(1, 0, 1, 3, barrier=(1, 1), hard=True))).status is Status.OK
        assert (await group.do(group.proxy.block(1, 3, 7))).status is Status.OK
        await group.settle()
        if restarted:
            await group.restart(crash=True)
        await group.put_in(away)
        await group.refill()
        expected = {3, 4, 7, 8, 9}
        assert {blob_id.step for blob_id in ids if (await group.get(blob_id))[0] is Status.OK} == expected
        _expect_agreement(group, away)
        # The tombstone of the blob that DoNotKeep ended goes once every disk has heard of it.
        await group.settle()
        await group.settle()
        for vdisk in group.life.vdisks.values():
            known = vdisk.index.channels[ids[0].pack()[:9]].blobs
            assert {blob_id.step for blob_id in ids if blob_id.pack()[9:21] in known} <= expected

    run_group(erasure, scenario)


def _expect_agreement(group: SimGroup, away: int) -> None:
    one = group.life.vdisks[away].index
    other = group.life.vdisks[(away + 1) % len(group.orders)].index
    key = blob_at(0, 1).pack()[:9]
    assert one.blocked_generation(bytes(7) + b"\1") == other.blocked_generation(bytes(7) + b"\1") == 2
    assert (one.channels[key].soft.acting, one.channels[key].hard.acting) == (
        other.channels[key].soft.acting,
        other.channels[key].hard.acting,
    )
    assert one.channels[key].soft.acting == blob_at(6, 1).pack()[9:17]
    for step in range(10):
        flags = {index.channels[key].flags(blob_at(step, 1).pack()[9:21]) for index in (one, other)}
        assert len(flags) == 1 or step <= 6


# Rule 14: discover.


async def _leave_parts(group: SimGroup, blob_id: BlobId, data: bytes, parts: range) -> None:
    """What a put leaves that was cut short: these parts on their main disks."""
    bodies = codec_for(group.erasure).encode(data)
    for part in parts:
        vdisk = group.life.vdisks[group.subgroup(blob_id)[part - 1]]
        reply = await group.do(vdisk.put(1, blob_id.pack_part(part), bodies[part - 1]))
        assert reply.status is Status.OK


def test_discover_passes_over_a_phantom_with_up_to_two_disks_out() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(2))
        assert (await group.do(group.proxy.block(1, 1, 1))).status is Status.OK
        phantom = blob_at(9, 1000)
        await _leave_parts(group, phantom, payload(1000, 9), range(1, 4))
        mains = group.subgroup(phantom)[:3]
        for out in ((), mains[:1], mains[:2]):
            await group.take_out(*out)
            found = await group.do(group.proxy.discover(1))
            assert (found.status, found.blocked_generation) == (Status.OK, 0), found.reason
            assert [(blob_id, bytes(data or b"")) for blob_id, data in found.blobs] == [(blob_at(1, 1000), payload(1000, 1))]
            await group.put_in(*out)
        await group.expect(blobs)

    run_group(Erasure.BLOCK_4_2, scenario)


@kinds_with_handoffs
def test_discover_does_not_guess_when_more_disks_are_out_than_the_model_allows(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(3))
        newest = blob_at(2, 1000)
        mains = group.subgroup(newest)[:3]
        await group.take_out(*mains[:2])
        found = await group.do(group.proxy.discover(1, limit=2))
        assert (found.status, [blob_id.step for blob_id, _ in found.blobs]) == (Status.OK, [2, 1])
        await group.take_out(mains[2])
        assert (await group.do(group.proxy.discover(1))).status is Status.ERROR
        assert (await group.do(group.proxy.range(blob_at(0, 0), blob_at(9, 0)))).status is Status.ERROR
        await group.put_in(*mains)
        await group.expect(blobs)

    run_group(erasure, scenario)


@kinds_with_handoffs
def test_a_blob_that_discover_reports_is_made_whole_first(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        half = blob_at(9, 1000)
        await _leave_parts(group, half, payload(1000, 9), range(1, 5 if erasure is Erasure.BLOCK_4_2 else 2))
        found = await group.do(group.proxy.discover(1))
        assert [blob_id for blob_id, _ in found.blobs] == [half]
        await group.settle()
        await group.take_out(*group.subgroup(half)[:2])
        assert await group.get(half) == (Status.OK, payload(1000, 9))
        found = await group.do(group.proxy.discover(1))
        assert [blob_id for blob_id, _ in found.blobs] == [half]

    run_group(erasure, scenario)


@all_kinds
def test_discover_of_an_unknown_tablet_is_nodata(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        await group.store(range(1))
        found = await group.do(group.proxy.discover(2))
        assert (found.status, found.blocked_generation, found.blobs) == (Status.NODATA, -1, ())
        assert (await group.do(group.proxy.discover(1, min_generation=2))).status is Status.NODATA

    run_group(erasure, scenario)


# Rule 15: full disks.


async def _fill(group: SimGroup, first: int, *, tend: bool = True) -> dict[BlobId, bytes]:
    """Put blobs until one is refused, which must be for want of room."""
    blobs: dict[BlobId, bytes] = {}
    for step in range(first, first + 1000):
        if tend:
            await group.do(group.life.tend())
        blob_id, data = blob_at(step, 20_000), payload(20_000, step)
        status = await group.put(blob_id, data)
        if status is not Status.OK:
            assert status is Status.OUT_OF_SPACE
            return blobs
        blobs[blob_id] = data
    raise AssertionError("the disks are never full")


@all_kinds
def test_full_disks_stop_writes_only_until_garbage_is_collected(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        for faults in group.faults:
            faults.capacity = 12 * SMALL.chunk_size
        blobs = await _fill(group, 0)
        assert len(blobs) > 10
        await group.expect(blobs)
        await group.restart()
        blobs |= await _fill(group, 1000)
        await group.expect(blobs)
        collected = await group.do(group.proxy.collect_garbage(1, 0, 1, 1, barrier=(1, 999)))
        assert collected.status is Status.OK, collected.reason
        await group.settle()
        for _ in range(15):
            await group.do(group.life.tend())
        assert await group.put(blob_at(5000, 20_000), payload(20_000, 5000)) is Status.OK
        await group.expect({blob_id: data for blob_id, data in blobs.items() if blob_id.step >= 1000})

    run_group(erasure, scenario, options(replace(SMALL, space_reserve=3 * SMALL.chunk_size)))


@all_kinds
def test_full_disks_have_their_reserve_left_however_much_is_written_between_two_looks_at_them(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        for faults in group.faults:
            faults.capacity = 12 * SMALL.chunk_size
        await group.do(group.life.tend())
        blobs = await _fill(group, 0, tend=False)
        room = min(faults.capacity - platter.used for faults, platter in zip(group.faults, group.platters, strict=True))
        assert room >= SMALL.chunk_size, "of three, one may be set aside, and one have taken the last blobs"
        collected = await group.do(group.proxy.collect_garbage(1, 0, 1, 1, barrier=(1, len(blobs))))
        assert collected.status is Status.OK, collected.reason
        await group.settle()
        for _ in range(15):
            await group.do(group.life.tend())
        assert await group.put(blob_at(5000, 20_000), payload(20_000, 5000)) is Status.OK

    run_group(erasure, scenario, options(replace(SMALL, space_reserve=3 * SMALL.chunk_size)))


@all_kinds
def test_room_that_somebody_made_since_the_last_look_is_used_before_a_put_is_refused(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        before = [faults.capacity for faults in group.faults]
        for faults in group.faults:
            faults.capacity = 12 * SMALL.chunk_size
        await group.do(group.life.tend())
        for faults, capacity in zip(group.faults, before, strict=True):
            faults.capacity = capacity
        blobs = await group.store(range(150), 20_000)
        blobs |= await group.store(range(150, 152), 2_000_000)
        parts = [(blob_at(step, 20_000), payload(20_000, step)) for step in range(200, 300)]
        assert {reply.status for reply in await group.do(group.proxy.put_all(parts))} == {Status.OK}
        await group.expect(blobs)

    run_group(erasure, scenario, options(replace(SMALL, space_reserve=3 * SMALL.chunk_size)))


@redundant_kinds
def test_a_refill_leaves_a_small_disk_room_to_collect_garbage_with_and_ends_when_there_is_less_to_hold(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        size = {Erasure.MIRROR_3: 20_000}.get(erasure, 60_000)
        blobs = await group.store(range(1, 61), size)
        await group.take_out(0)
        group.platters[0].wipe()
        group.faults[0].capacity = 10 * SMALL.chunk_size
        await group.put_in(0)
        await group.refill()
        assert not group.life.vdisks[0].proves_absence
        assert group.faults[0].capacity - group.platters[0].used >= SMALL.chunk_size
        collected = await group.do(group.proxy.collect_garbage(1, 0, 1, 1, barrier=(1, 45)))
        assert collected.status is Status.OK, collected.reason
        await group.settle()
        for _ in range(15):
            await group.do(group.life.tend())
        await group.refill()
        assert group.life.vdisks[0].index.state == DiskState.COMPLETE
        await group.expect({blob_id: data for blob_id, data in blobs.items() if blob_id.step > 45})

    run_group(erasure, scenario, options(replace(SMALL, space_reserve=6 * SMALL.chunk_size)))


def test_a_disk_that_is_full_when_it_is_opened_takes_nothing() -> None:
    async def scenario(group: SimGroup) -> None:
        group.faults[0].capacity = 2 * SMALL.chunk_size
        await group.restart()
        assert await group.put(blob_at(1, 100), payload(100, 1)) is Status.OUT_OF_SPACE

    run_group(Erasure.NONE, scenario, options(replace(SMALL, space_reserve=3 * SMALL.chunk_size)))


@redundant_kinds
def test_one_full_disk_is_stood_in_for(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        group.faults[0].capacity = 0
        await group.do(group.life.tend())
        blobs = await group.store(range(20))
        assert all([0 not in await group.holders(blob_id) for blob_id in blobs])
        await group.expect(blobs)

    run_group(erasure, scenario, options(replace(SMALL, space_reserve=1)))


# Rule 16: slow disks and deadlines.


@redundant_kinds
def test_a_slow_disk_is_avoided_in_favour_of_a_handoff(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        await group.store(range(30))
        slow = 2
        group.faults[slow].slow_factor = 200.0
        await group.store(range(30, 60))
        loop = current_loop()
        concerned = quick = 0
        for step in range(60, 160):
            before = loop.time()
            assert await group.put(blob_at(step, 1000), payload(1000, step)) is Status.OK
            if slow in group.subgroup(blob_at(step, 1000))[:3]:
                concerned += 1
                # Without waiting first for the slow disk, and doubting it only then.
                quick += loop.time() - before < 0.05
        assert concerned >= 20
        assert quick >= 0.8 * concerned

    run_group(erasure, scenario)


@all_kinds
def test_a_deadline_is_answered_in_time_and_nothing_hangs(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(1))
        blob_id = next(iter(blobs))
        for faults in group.faults:
            faults.slow_factor = 1e6
        loop = current_loop()
        before = loop.time()
        answers: list[Callable[[], Awaitable[Reply | GetResult | RangeResult | DiscoverResult]]] = [
            lambda: group.proxy.put(blob_at(1, 4), b"data", deadline_s=1.0),
            lambda: group.proxy.get(blob_id, deadline_s=1.0),
            lambda: group.proxy.range(blob_at(0, 0), blob_at(9, 0), with_data=True, deadline_s=1.0),
            lambda: group.proxy.discover(1, deadline_s=1.0),
            lambda: group.proxy.block(1, 1, 1, deadline_s=1.0),
            lambda: group.proxy.collect_garbage(1, 0, 1, 1, barrier=(1, 0), deadline_s=1.0),
        ]
        for number, ask in enumerate(answers, start=1):
            answer = await group.do(_awaited(ask()))
            assert answer.status is Status.DEADLINE, (number, answer)
            assert loop.time() - before == pytest.approx(number * 1.0)
        for faults in group.faults:
            faults.slow_factor = 1.0
        await group.settle()
        assert await group.get(blob_at(1, 4)) == (Status.OK, b"data")

    run_group(erasure, scenario)


async def _awaited(work: Awaitable[T]) -> T:
    return await work


@redundant_kinds
def test_more_broken_disks_than_the_model_allows_give_an_error_and_no_hang(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(1))
        for order in group.orders:
            group.faults[order].broken = True
        blob_id = next(iter(blobs))
        assert await group.put(blob_at(1, 4), b"data") is Status.ERROR
        assert (await group.get(blob_id))[0] is Status.ERROR
        assert (await group.do(group.proxy.block(1, 1, 1))).status is Status.ERROR
        for order in group.orders:
            group.faults[order].broken = False
        await group.expect(blobs)

    run_group(erasure, scenario)
