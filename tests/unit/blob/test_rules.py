"""The rules of BlobStorage's commands, one by one, over the kinds of group to which they apply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

import pytest

from penstock.blob import BLOB_SIZE_MAX, MAX_BARRIER, BlobId, Erasure, Reply, Status
from penstock.blob.channel import place_of
from penstock.blob.erasure import codec_for
from penstock.blob.index import DiskIndex
from penstock.blob.journal import chunk_name
from penstock.blob.link import CollectRequest, DiskReply
from penstock.blob.meta import BarrierItem, BlockItem
from penstock.blob.quorum import group_quorum
from penstock.blob.range_operation import ListedBlob, windows
from penstock.blob.record import HEADER_SIZE
from penstock.testing.sim_loop import current_loop
from tests.sim_group import SimGroup, blob_at, payload, run_group

T = TypeVar("T")

KINDS = list(Erasure)
REDUNDANT = [Erasure.BLOCK_4_2, Erasure.MIRROR_3_DC, Erasure.MIRROR_3]
TABLET = (1).to_bytes(8, "big")
CHANNEL = TABLET + b"\0"

all_kinds = pytest.mark.parametrize("erasure", KINDS)
redundant_kinds = pytest.mark.parametrize("erasure", REDUNDANT)
kinds_with_handoffs = pytest.mark.parametrize("erasure", [Erasure.BLOCK_4_2, Erasure.MIRROR_3_DC])


async def _collect(
    group: SimGroup,
    key: tuple[int, int],
    barrier: tuple[int, int] | None,
    *,
    hard: bool = False,
    keep: list[BlobId] | None = None,
    drop: list[BlobId] | None = None,
) -> Status:
    work = group.proxy.collect_garbage(1, 0, *key, barrier=barrier, hard=hard, keep=keep or [], do_not_keep=drop or [])
    status = (await group.do(work)).status
    await group.settle()
    return status


async def _block(group: SimGroup, generation: int, issuer: int = 1) -> Status:
    return (await group.do(group.proxy.block(1, generation, issuer))).status


# Rules 1-3: put.


@all_kinds
@pytest.mark.parametrize(
    ("blob_id", "length"),
    [
        (blob_at(0, 10), 9),
        (blob_at(0, 10), 11),
        (blob_at(0, 10)._replace(part=1), 10),
        (blob_at(0, 0), 0),
        (blob_at(0, BLOB_SIZE_MAX + 1), BLOB_SIZE_MAX + 1),
        (blob_at(0, 10)._replace(channel=256), 10),
        (blob_at(0, 10)._replace(step=1 << 32), 10),
        (blob_at(0, 10)._replace(generation=-1), 10),
    ],
)
def test_a_wrong_put_is_an_error_with_a_reason_and_leaves_nothing(erasure: Erasure, blob_id: BlobId, length: int) -> None:
    async def scenario(group: SimGroup) -> None:
        before = [vdisk.journal.records_appended for vdisk in group.life.vdisks.values()]
        reply = await group.do(group.proxy.put(blob_id, bytes(length)))
        assert reply.status is Status.ERROR
        assert reply.reason
        assert [vdisk.journal.records_appended for vdisk in group.life.vdisks.values()] == before

    run_group(erasure, scenario)


@all_kinds
def test_a_blob_of_the_largest_size_is_taken(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        data = payload(BLOB_SIZE_MAX)
        assert await group.put(blob_at(0, BLOB_SIZE_MAX), data) is Status.OK
        assert await group.get(blob_at(0, BLOB_SIZE_MAX)) == (Status.OK, data)

    run_group(erasure, scenario)


@all_kinds
def test_a_repeated_put_is_ok_and_writes_nothing(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(1))
        before = [vdisk.journal.records_appended for vdisk in group.life.vdisks.values()]
        await group.store(range(1))
        assert [vdisk.journal.records_appended for vdisk in group.life.vdisks.values()] == before
        await group.expect(blobs)

    run_group(erasure, scenario)


@all_kinds
@pytest.mark.parametrize("size", [1000, 999])
def test_the_same_id_with_other_bytes_or_size_is_refused(erasure: Erasure, size: int) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(1))
        reply = await group.do(group.proxy.put(blob_at(0, size), payload(size, seed=9)))
        assert reply.status is Status.ERROR
        assert "blobs never change" in reply.reason
        await group.settle()
        await group.expect(blobs)
        if size != 1000:
            assert await group.get(blob_at(0, size)) == (Status.NODATA, b"")

    run_group(erasure, scenario)


@kinds_with_handoffs
def test_other_bytes_are_refused_even_where_some_main_disks_lack_the_blob(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        orders = group.subgroup(blob_at(0, 1000))
        await group.take_out(*orders[:2])
        blobs = await group.store(range(1))
        await group.put_in(*orders[:2])
        await group.settle()
        assert await group.put(blob_at(0, 1000), payload(1000, seed=9)) is Status.ERROR
        await group.settle()
        await group.expect(blobs)
        await group.refill()
        await group.expect(blobs)

    run_group(erasure, scenario)


@redundant_kinds
def test_a_put_that_failed_reads_as_the_right_bytes_or_as_nothing(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        for step in range(20):
            blob_id = blob_at(step, 1000)
            broken = Random(step).sample(group.orders, 7 if erasure is Erasure.MIRROR_3_DC else 3)
            for order in broken:
                group.faults[order].broken = True
            assert await group.put(blob_id, payload(1000, step)) is Status.ERROR
            for order in broken:
                group.faults[order].broken = False
            await group.settle()
            assert await group.get(blob_id) in [(Status.OK, payload(1000, step)), (Status.NODATA, b"")]
            assert await group.put(blob_id, payload(1000, step)) is Status.OK
            assert await group.get(blob_id) == (Status.OK, payload(1000, step))

    run_group(erasure, scenario)


@pytest.mark.parametrize(("stored", "hurt", "answer"), [(4, 1, Status.NODATA), (5, 2, Status.NODATA), (6, 3, Status.ERROR)])
def test_what_a_failed_put_left_reads_as_nothing_when_too_much_of_it_is_damaged(stored: int, hurt: int, answer: Status) -> None:
    """Only with all six parts can it have been acknowledged: then it is told as damaged."""

    async def scenario(group: SimGroup) -> None:
        blob_id, data = blob_at(1, 100), payload(100)
        bodies = codec_for(Erasure.BLOCK_4_2).encode(data)
        for part, order in enumerate(group.subgroup(blob_id)[:stored], 1):
            vdisk = group.life.vdisks[order]
            assert (await group.do(vdisk.put(1, blob_id.pack_part(part), bodies[part - 1]))).status is Status.OK
            if part <= hurt:
                place = place_of(vdisk.index.entry_of(blob_id.pack_part(part)) or 0)
                group.platters[order].rot(Random(1), chunk_name(place.chunk), place.offset + HEADER_SIZE)
        result = await group.do(group.proxy.get(blob_id))
        assert (result.status, result.damaged) == (answer, answer is Status.ERROR)

    run_group(Erasure.BLOCK_4_2, scenario)


# Rules 4 and 5: blocks.


@all_kinds
def test_a_stale_generation_is_blocked(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(1))
        assert await _block(group, 3) is Status.OK
        for generation in (1, 2):
            assert await group.put(blob_at(5, 4, generation=generation), b"late") is Status.BLOCKED
            assert await _collect(group, (generation, 1), (1, 5)) is Status.BLOCKED
            assert await _block(group, generation) is Status.BLOCKED
        assert await group.put(blob_at(5, 4, generation=3), b"mine") is Status.OK
        assert await _collect(group, (3, 1), None) is Status.OK
        await group.expect(blobs)

    run_group(erasure, scenario)


@redundant_kinds
def test_the_first_disk_that_says_blocked_decides(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        order = group.subgroup(blob_at(0, 4))[0]
        item = BlockItem(TABLET, 4, 1)
        assert (await group.do(group.life.vdisks[order].block(1, item))).status is Status.OK
        assert await group.put(blob_at(0, 4), b"late") is Status.BLOCKED
        assert await _block(group, 2, issuer=2) is Status.BLOCKED

    run_group(erasure, scenario)


@redundant_kinds
def test_a_block_that_reached_one_disk_spreads_to_all(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        assert (await group.do(group.life.vdisks[2].block(1, BlockItem(TABLET, 4, 1)))).status is Status.OK
        await group.settle()
        assert {vdisk.index.blocked_generation(TABLET) for vdisk in group.life.vdisks.values()} == {4}
        await group.restart(crash=True)
        assert {vdisk.index.blocked_generation(TABLET) for vdisk in group.life.vdisks.values()} == {4}

    run_group(erasure, scenario)


@all_kinds
def test_blocks_only_rise_and_a_rival_is_told_from_a_retry(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        assert await _block(group, 0) is Status.ERROR
        assert await _block(group, 5, issuer=7) is Status.OK
        assert await _block(group, 5, issuer=7) is Status.OK
        assert await _block(group, 5, issuer=8) is Status.ALREADY
        await group.restart(crash=True)
        assert await _block(group, 5, issuer=7) is Status.OK
        assert await _block(group, 5, issuer=8) is Status.ALREADY
        assert await _block(group, 4, issuer=7) is Status.BLOCKED
        assert await _block(group, 6, issuer=8) is Status.OK
        assert (await group.do(group.proxy.discover(1))).blocked_generation == 5

    run_group(erasure, scenario)


@pytest.mark.parametrize("in_one_call", [False, True])
def test_a_put_that_was_compared_with_a_damaged_part_while_its_tablet_was_blocked_writes_nothing(in_one_call: bool) -> None:
    async def scenario(group: SimGroup) -> None:
        blob_id, data = blob_at(1, 100), payload(100)
        assert await group.put(blob_id, data) is Status.OK
        await group.settle()
        vdisk = group.life.vdisks[0]
        part_id = next(blob_id.pack_part(part) for part in (1, 2, 3) if vdisk.index.entry_of(blob_id.pack_part(part)))
        place = place_of(vdisk.index.entry_of(part_id) or 0)
        group.platters[0].rot(Random(1), chunk_name(place.chunk), place.offset + HEADER_SIZE)

        async def put() -> DiskReply:
            return (await vdisk.put_all(1, [(part_id, data)]))[0] if in_one_call else await vdisk.put(1, part_id, data)

        async def race() -> tuple[DiskReply, DiskReply]:
            return await asyncio.gather(put(), vdisk.block(1, BlockItem(TABLET, 1, 7)))

        again, block = await group.do(race())
        assert (again.status, block.status) == (Status.BLOCKED, Status.OK)

    run_group(Erasure.MIRROR_3, scenario)


# Rules 6-9: garbage.


@all_kinds
def test_barriers_ascend_by_key_and_by_what_they_collect(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        for hard in (False, True):
            assert await _collect(group, (2, 5), (1, 10), hard=hard) is Status.OK
            assert await _collect(group, (2, 5), (1, 10), hard=hard) is Status.OK
            assert await _collect(group, (2, 5), (1, 11), hard=hard) is Status.ERROR
            assert await _collect(group, (2, 4), (1, 11), hard=hard) is Status.ERROR
            assert await _collect(group, (1, 9), (1, 11), hard=hard) is Status.ERROR
            assert await _collect(group, (2, 6), (1, 9), hard=hard) is Status.ERROR
            assert await _collect(group, (2, 6), (1, 10), hard=hard) is Status.OK
            assert await _collect(group, (3, 0), (2, 0), hard=hard) is Status.OK
        assert await group.put(blob_at(0, 4, generation=2), b"late") is Status.ERROR
        assert await group.put(blob_at(1, 4, generation=2), b"good") is Status.OK

    run_group(erasure, scenario)


@all_kinds
def test_flags_are_applied_before_the_barrier_of_the_same_command(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(4))
        kept = blob_at(1, 1000)
        assert await _collect(group, (1, 1), (1, 2), keep=[kept]) is Status.OK
        assert [await group.get(blob_at(step, 1000)) == (Status.OK, blobs[blob_at(step, 1000)]) for step in range(4)] == [
            False,
            True,
            False,
            True,
        ]

    run_group(erasure, scenario)


@all_kinds
@pytest.mark.parametrize("together", [True, False])
def test_do_not_keep_wins_over_keep(erasure: Erasure, together: bool) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(1))
        blob_id = blob_at(0, 1000)
        assert await _collect(group, (1, 1), (1, 0), keep=[blob_id], drop=[blob_id] if together else []) is Status.OK
        if not together:
            await group.expect(blobs)
            assert await _collect(group, (1, 2), None, drop=[blob_id]) is Status.OK
        assert await group.get(blob_id) == (Status.NODATA, b"")
        await group.restart(crash=True)
        assert await group.get(blob_id) == (Status.NODATA, b"")

    run_group(erasure, scenario)


@all_kinds
def test_above_the_barrier_flags_end_nothing(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(1))
        assert await _collect(group, (1, 1), None, drop=list(blobs)) is Status.OK
        await group.expect(blobs)

    run_group(erasure, scenario)


@all_kinds
def test_a_hard_barrier_takes_no_flags_and_heeds_none(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(2))
        assert await _collect(group, (1, 1), (1, 5), keep=list(blobs)) is Status.OK
        await group.expect(blobs)
        assert await _collect(group, (1, 2), (1, 0), hard=True, keep=list(blobs)) is Status.ERROR
        assert await _collect(group, (1, 2), (1, 0), hard=True, drop=list(blobs)) is Status.ERROR
        await group.expect(blobs)
        assert await _collect(group, (1, 2), (1, 0), hard=True) is Status.OK
        assert [(await group.get(blob_id))[0] for blob_id in blobs] == [Status.NODATA, Status.OK]
        assert await _collect(group, (1, 3), MAX_BARRIER, hard=True) is Status.OK
        assert [(await group.get(blob_id))[0] for blob_id in blobs] == [Status.NODATA, Status.NODATA]

    run_group(erasure, scenario)


@all_kinds
def test_a_flag_for_another_channel_is_refused(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        assert await _collect(group, (1, 1), None, keep=[blob_at(0, 1, channel=1)]) is Status.ERROR
        assert await _collect(group, (1, 1), None, drop=[blob_at(0, 1, tablet=2)]) is Status.ERROR

    run_group(erasure, scenario)


@all_kinds
@pytest.mark.parametrize("hard", [False, True])
def test_a_put_below_a_barrier_is_refused(erasure: Erasure, hard: bool) -> None:
    async def scenario(group: SimGroup) -> None:
        assert await _collect(group, (1, 1), (1, 5), hard=hard) is Status.OK
        reply: Reply = await group.do(group.proxy.put(blob_at(5, 4), b"late"))
        assert reply.status is Status.ERROR
        assert "below a barrier" in reply.reason
        assert await group.put(blob_at(5, 4, channel=1), b"good") is Status.OK
        assert await group.put(blob_at(6, 4), b"good") is Status.OK

    run_group(erasure, scenario)


@all_kinds
@pytest.mark.parametrize("seed", range(30))
def test_a_blob_vanishes_exactly_when_a_quorum_is_known_to_hold_the_barrier(erasure: Erasure, seed: int) -> None:
    """In whatever order a disk hears of its sisters' barriers, of which there are two, one after the other."""
    random = Random(seed)
    disks = erasure.shape.disks
    index = DiskIndex(random.randrange(disks), disks, lambda mask: group_quorum(erasure, mask), codec_for(erasure).part_size)
    moments = [blob_at(step, 1).pack()[9:17] for step in (1, 2)]
    for step in (1, 2, 3):
        index.add_part(blob_at(step, 100).pack_part(1), 1, step)
    news = [BarrierItem(CHANNEL, False, 1, counter, moments[counter], holder) for counter in (0, 1) for holder in range(disks)]
    random.shuffle(news)
    holding = [0, 0]
    for item in news:
        index.apply(item)
        index.collect_garbage(CHANNEL)
        for counter in range(item.counter + 1):  # a disk that holds the later barrier holds the earlier too
            holding[counter] |= 1 << item.holder
        expected = [not group_quorum(erasure, mask) for mask in holding]
        there = [blob_at(step, 100).pack()[9:21] in index.channels[CHANNEL].blobs for step in (1, 2, 3)]
        assert there == [*expected, True]


@redundant_kinds
def test_garbage_stays_readable_until_a_quorum_holds_the_barrier(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(2))
        request = CollectRequest(CHANNEL, 1, 1, blob_at(0, 1).pack()[9:17], False, (), ())
        for order in (0, 1):
            assert (await group.do(group.life.vdisks[order].collect(1, request))).status is Status.OK
        await group.expect(blobs)
        await group.settle()
        assert [(await group.get(blob_id))[0] for blob_id in blobs] == [Status.NODATA, Status.OK]

    run_group(erasure, scenario)


# Range and discover.


@all_kinds
def test_a_range_is_of_one_channel(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        answer = await group.do(group.proxy.range(blob_at(0, 0), blob_at(9, 0, channel=1)))
        assert answer.status is Status.ERROR
        assert answer.reason

    run_group(erasure, scenario)


def test_a_range_goes_over_more_ids_than_a_disk_lists_at_once_in_both_directions() -> None:
    count = 8_200

    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(count), size=1)
        first, last = blob_at(0, 0), blob_at(count, 0)
        up = await group.do(group.proxy.range(first, last))
        down = await group.do(group.proxy.range(last, first))
        assert (up.status, down.status) == (Status.OK, Status.OK)
        assert [blob_id for blob_id, _ in up.blobs] == list(blobs)
        assert [blob_id for blob_id, _ in down.blobs] == list(reversed(blobs))

    run_group(Erasure.NONE, scenario)


@redundant_kinds
def test_a_listing_asks_only_for_the_parts_that_are_there_and_writes_only_those_that_are_missing(
    erasure: Erasure, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []  # disk and part
    written: list[tuple[int, int]] = []

    async def scenario(group: SimGroup) -> None:
        first, second, *_ = group.subgroup(blob_at(0, 0))
        await group.do(group.life.take_out(first))
        (blob_id,) = await group.store(range(1), size=1)
        await group.do(group.life.put_in(first))
        await group.take_out(second)
        for order, vdisk in group.life.vdisks.items():
            monkeypatch.setattr(vdisk, "get", _noting(vdisk.get, asked, order))
            monkeypatch.setattr(vdisk, "put_replica", _noting(vdisk.put_replica, written, order))
        holders = await group.holders(blob_id)
        found = await group.do(group.proxy.range(blob_at(0, 0), blob_at(1, 0)))
        assert [listed for listed, _ in found.blobs] == [blob_id]
        await group.do(group.life.group.drain())
        assert written, "it was not whole"
        assert not any(holders.get(order, 0) >> part - 1 & 1 for order, part in written)
        if erasure.is_mirror:
            ((order, part),) = asked
            assert holders[order] >> part - 1 & 1

    run_group(erasure, scenario)


def _noting(
    call: Callable[..., Coroutine[Any, Any, T]], noted: list[tuple[int, int]], order: int
) -> Callable[..., Coroutine[Any, Any, T]]:
    async def noting(generation: int, blob_id: bytes, *rest: Any) -> T:
        noted.append((order, blob_id[-1] & 0xF))
        return await call(generation, blob_id, *rest)

    return noting


def test_a_listing_reads_no_more_at_once_than_links_and_memory_hold() -> None:
    def sizes(*blobs: int) -> list[list[int]]:
        listed = [ListedBlob(blob_at(step, size), (), 0) for step, size in enumerate(blobs)]
        return [[seen.blob_id.size for seen in window] for window in windows(listed)]

    mib = 1 << 20
    assert sizes() == []
    assert sizes(8 * mib, 8 * mib, 1, 1, mib, 3 * mib) == [[8 * mib], [8 * mib], [1, 1, mib], [3 * mib]]
    assert [len(window) for window in sizes(*[1] * 130)] == [64, 64, 2]


def test_a_listing_completes_many_blobs_at_a_time() -> None:
    """A tablet starts after the only disk that has the end of its log beside one that lags was lost: it must not take a sync for
    each entry."""

    async def scenario(group: SimGroup) -> None:
        await group.settle()
        await group.do(group.life.take_out(0))
        blobs = await group.store(range(640))
        await group.do(group.life.put_in(0))
        await group.take_out(1)
        began = current_loop().time()
        found = await group.do(group.proxy.range(blob_at(0, 0), blob_at(640, 0)))
        assert (found.status, [blob_id for blob_id, _ in found.blobs]) == (Status.OK, list(blobs))
        assert current_loop().time() - began < 0.1, "one after another they take more than a second"
        await group.take_out(2)
        await group.put_in(1)
        await group.expect(blobs)

    run_group(Erasure.MIRROR_3, scenario)


@kinds_with_handoffs
def test_pages_of_disks_that_hold_different_blobs_are_merged_in_order(erasure: Erasure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.blob.range_operation.PAGE", 7)

    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(20))
        await group.take_out(0, 1)
        blobs |= await group.store(range(20, 40))
        await group.put_in(0)
        await group.settle()
        for first, last in [(0, 40), (40, 0), (13, 13), (39, 7), (5, 26)]:
            ends = blob_at(first, 0), blob_at(last, 5000)
            answer = await group.do(group.proxy.range(*ends, with_data=True))
            assert answer.status is Status.OK, answer.reason
            expected = sorted((blob_id for blob_id in blobs if min(ends) <= blob_id <= max(ends)), reverse=first > last)
            assert [(blob_id, bytes(data or b"")) for blob_id, data in answer.blobs] == [(each, blobs[each]) for each in expected]

    run_group(erasure, scenario)
