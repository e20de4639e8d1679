"""Opening a VDisk after a crash or damage: a torn tail is dropped, damage is reported, and nothing wrong is ever returned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from penstock.blob.blob_id import BlobId
from penstock.blob.channel import place_of
from penstock.blob.checkpoint import SUFFIX as CHECKPOINT_SUFFIX
from penstock.blob.checkpoint import checkpoint_name
from penstock.blob.chunk_ends import SUFFIX as ENDS_SUFFIX
from penstock.blob.journal import CHUNK_SUFFIX, chunk_name
from penstock.blob.link import CollectRequest
from penstock.blob.meta import BlockItem, DiskState
from penstock.blob.options import VDiskOptions
from penstock.blob.record import BLOCK_SIZE, HEADER_SIZE, record_size
from penstock.blob.status import Status
from penstock.blob.topology import Erasure, VDiskId
from penstock.blob.upkeep import Upkeep
from penstock.blob.vdisk import VDisk
from penstock.core.errors import DataMissingError
from penstock.testing.sim_disk import DiskFaults, SimDisk, SimPlatter
from penstock.testing.sim_loop import run_simulation
from tests.sim_group import SMALL, SimGroup, blob_at, payload, run_group

SIZE = 20
REDUNDANT = [Erasure.BLOCK_4_2, Erasure.MIRROR_3_DC]


async def _open(platter: SimPlatter, faults: DiskFaults | None = None, options: VDiskOptions = SMALL) -> VDisk:
    disk = SimDisk(platter, Random(1), faults)
    return await VDisk.open(VDiskId(1, 1, 0, 0, 0), Erasure.NONE, disk, random=Random(2), options=options)


async def _put(vdisk: VDisk, *steps: int) -> None:
    for step in steps:
        reply = await vdisk.put(1, blob_at(step, SIZE).pack_part(1), payload(SIZE, step))
        assert reply.status is Status.OK, reply.reason


async def _get(vdisk: VDisk, step: int) -> Status:
    """The status of a read, whose data if any must be right."""
    reply = await vdisk.get(1, blob_at(step, SIZE).pack_part(1), 0, SIZE)
    if reply.status is Status.OK:
        assert bytes(reply.parts[0][1]) == payload(SIZE, step)
    return reply.status


async def _statuses(vdisk: VDisk, steps: range) -> list[Status]:
    return [await _get(vdisk, step) for step in steps]


def _place(vdisk: VDisk, step: int) -> tuple[str, int]:
    entry = vdisk.index.entry_of(blob_at(step, SIZE).pack_part(1))
    assert entry is not None
    place = place_of(entry)
    return chunk_name(place.chunk), place.offset


def _copy(files: dict[str, bytes]) -> SimPlatter:
    platter = SimPlatter()
    for name, data in files.items():
        platter.write(name, data)
    return platter


def _run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_simulation(scenario())


# A torn tail.


@pytest.mark.parametrize("tail", [b"", bytes(600), b"\xa5" * 600], ids=["nothing", "zeros", "garbage"])
def test_a_torn_last_record_is_dropped_wherever_it_was_cut(tail: bytes) -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        vdisk = await _open(platter)
        await _put(vdisk, 0, 1, 2)
        name, begin = _place(vdisk, 2)
        await vdisk.close()
        # As after a crash, before it was noted that the last record is durable.
        files = {other: data for other, data in platter.snapshot().items() if not other.endswith(ENDS_SUFFIX)}
        assert begin + record_size(SIZE) == len(files[name])
        for cut in range(begin, len(files[name])):
            reopened = await _open(_copy({**files, name: files[name][:cut] + tail}))
            assert await _statuses(reopened, range(3)) == [Status.OK, Status.OK, Status.NODATA]
            assert reopened.recovered.losses == []
            assert (reopened.recovered.torn > 0) == (cut > begin or len(tail) > 0)
            await _put(reopened, 2)
            assert await _get(reopened, 2) is Status.OK
            await reopened.close()

    _run(scenario)


def test_a_hole_before_whole_records_that_were_never_acknowledged_stays_a_torn_tail_at_every_opening() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        vdisk = await _open(platter)
        await _put(vdisk, 0, 1)
        await asyncio.gather(_put(vdisk, 2), _put(vdisk, 3))  # one batch: neither is known to be durable by the other
        name, begin = _place(vdisk, 2)
        await vdisk.close()
        # As after a power failure in which the disk kept the end of the batch and not its beginning.
        files = {other: data for other, data in platter.snapshot().items() if not other.endswith(ENDS_SUFFIX)}
        after = begin + record_size(SIZE)
        platter = _copy({**files, name: files[name][:begin] + bytes(after - begin) + files[name][after:]})
        for opening in range(3):
            reopened = await _open(platter)
            assert await _statuses(reopened, range(4)) == [Status.OK, Status.OK, Status.NODATA, Status.OK]
            assert reopened.recovered.losses == []
            await _put(reopened, 4 + opening)  # with which the ends of all chunks are noted
            await reopened.close()

    _run(scenario)


def test_a_torn_tail_stays_one_however_much_is_written_after_it() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        for opening in range(4):
            vdisk = await _open(platter)
            assert vdisk.recovered.losses == []
            assert await _statuses(vdisk, range(3 * opening)) == [Status.OK] * 3 * opening
            await _put(vdisk, *range(3 * opening, 3 * opening + 3))
            assert isinstance(vdisk.disk, SimDisk)
            vdisk.disk.crash()
            await _abandon(vdisk)

    _run(scenario)


async def _abandon(vdisk: VDisk) -> None:
    """End the tasks of a VDisk whose disk has crashed."""
    if vdisk.journal._task is not None:
        vdisk.journal._task.cancel()


def test_what_a_failed_flush_left_behind_is_a_torn_tail_and_no_loss() -> None:
    async def scenario() -> None:
        for seed in range(20):
            platter, faults = SimPlatter(), DiskFaults()
            disk = SimDisk(platter, Random(seed), faults)
            vdisk = await VDisk.open(VDiskId(1, 1, 0, 0, 0), Erasure.NONE, disk, random=Random(2), options=SMALL)
            await _put(vdisk, 0)
            faults.broken = True
            failed = await vdisk.put(1, blob_at(1, SIZE).pack_part(1), payload(SIZE, 1))
            assert failed.status is Status.ERROR
            faults.broken = False
            assert await _get(vdisk, 1) is Status.NODATA
            await _put(vdisk, 2, 3)
            await vdisk.close()
            reopened = await _open(platter)
            assert reopened.recovered.losses == []
            assert await _get(reopened, 1) in (Status.OK, Status.NODATA)
            assert [await _get(reopened, step) for step in (0, 2, 3)] == [Status.OK] * 3
            await reopened.close()

    _run(scenario)


# Damage.


def test_a_damaged_body_in_the_middle_is_reported_and_never_returned() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        vdisk = await _open(platter)
        await _put(vdisk, 0, 1, 2)
        name, begin = _place(vdisk, 1)
        await vdisk.close()
        platter.rot(Random(1), name, begin + HEADER_SIZE + 5)
        reopened = await _open(platter)
        assert reopened.recovered.losses == [f"part {blob_at(1, SIZE)._replace(part=1)} in chunk 1 at byte {begin} is damaged"]
        assert await _statuses(reopened, range(3)) == [Status.OK, Status.ERROR, Status.OK]
        await reopened.close()

    _run(scenario)


@pytest.mark.parametrize("is_given_back", [True, False], ids=["gone", "kept"])
def test_a_damaged_record_of_a_part_that_was_moved_is_one_loss_unless_it_is_still_where_it_was(*, is_given_back: bool) -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        vdisk = await _open(platter, options=replace(SMALL, chunk_size=1 << 12))
        upkeep = Upkeep(vdisk)
        await _put(vdisk, *range(100))
        blob_id = blob_at(3, SIZE).pack()
        collected = CollectRequest(blob_id[:9], 1, 1, blob_at(98, SIZE).pack()[9:17], False, (blob_id[9:21],), ())
        assert (await vdisk.collect(1, collected)).status is Status.OK
        for _ in range(2):
            assert await upkeep.checkpoint()
        await (upkeep.reclaim() if is_given_back else upkeep._rewrite(1))
        name, begin = _place(vdisk, 3)
        assert name != chunk_name(1)
        assert (chunk_name(1) in platter.names()) != is_given_back
        await vdisk.close()
        platter.rot(Random(1), name, begin + HEADER_SIZE + 5)
        reopened = await _open(platter)
        assert len(reopened.recovered.losses) == is_given_back
        assert await _get(reopened, 3) is (Status.ERROR if is_given_back else Status.OK)
        assert await _get(reopened, 99) is Status.OK
        await reopened.close()

    _run(scenario)


def test_damage_to_a_part_that_a_checkpoint_has_from_behind_its_place_in_the_log_is_reported() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        vdisk = await _open(platter)
        upkeep = Upkeep(vdisk)
        await _put(vdisk, 0)
        start = vdisk.journal.durable
        await _put(vdisk, 1, 2)
        assert await upkeep._write_checkpoint(checkpoint_name(1), start, 0)
        name, begin = _place(vdisk, 1)
        await vdisk.close()
        platter.rot(Random(1), name, begin + HEADER_SIZE + 5)
        reopened = await _open(platter)
        assert len(reopened.recovered.losses) == 1
        assert await _statuses(reopened, range(3)) == [Status.OK, Status.ERROR, Status.OK]
        await reopened.close()

    _run(scenario)


@pytest.mark.parametrize("at", [20, HEADER_SIZE + 5], ids=["header", "body"])
def test_damage_to_what_an_earlier_opening_wrote_is_reported(at: int) -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        vdisk = await _open(platter)
        await _put(vdisk, 0, 1, 2)
        name, begin = _place(vdisk, 1)
        await vdisk.close()
        vdisk = await _open(platter)
        await _put(vdisk, 3, 4)
        await vdisk.close()
        platter.rot(Random(1), name, begin + at)
        reopened = await _open(platter)
        assert len(reopened.recovered.losses) == 1
        assert await _statuses(reopened, range(5)) == [Status.OK, Status.ERROR, *[Status.OK] * 3]
        await reopened.close()

    _run(scenario)


def test_a_damaged_block_of_a_long_part_is_never_returned_and_does_not_spoil_the_others() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        vdisk = await _open(platter)
        size = 5 * BLOCK_SIZE
        part_id, data = blob_at(0, size).pack_part(1), payload(size)
        assert (await vdisk.put(1, part_id, data)).status is Status.OK
        await vdisk.journal.commit()
        platter.rot(Random(1), chunk_name(1), platter.written(chunk_name(1)) - BLOCK_SIZE // 2)
        first = await vdisk.get(1, part_id, 100, BLOCK_SIZE)
        assert first.status is Status.OK
        assert bytes(first.parts[0][1]) == data[100 : 100 + BLOCK_SIZE]
        assert (await vdisk.get(1, part_id, 4 * BLOCK_SIZE - 10, 20)).status is Status.ERROR
        await vdisk.close()

    _run(scenario)


def test_an_unreadable_header_in_the_middle_is_reported_and_proves_no_absence() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        vdisk = await _open(platter)
        await _put(vdisk, 0, 1, 2)
        name, begin = _place(vdisk, 1)
        await vdisk.close()
        platter.rot(Random(1), name, begin + 20, length=20)
        reopened = await _open(platter)
        end = begin + record_size(SIZE)
        assert reopened.recovered.losses == [f"chunk 1 is unreadable from byte {begin} to byte {end}"]
        assert not reopened.proves_absence
        assert await _statuses(reopened, range(3)) == [Status.OK, Status.ERROR, Status.OK]
        await reopened.close()

    _run(scenario)


def test_damage_found_while_reading_is_never_returned() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        vdisk = await _open(platter)
        await _put(vdisk, 0, 1)
        platter.rot(Random(1), *_place_of_body(vdisk, 0))
        assert await _statuses(vdisk, range(2)) == [Status.ERROR, Status.OK]
        assert vdisk.repair_wanted.is_set()
        await vdisk.close()

    _run(scenario)


def _place_of_body(vdisk: VDisk, step: int) -> tuple[str, int]:
    name, begin = _place(vdisk, step)
    return name, begin + HEADER_SIZE + 3


def test_damaged_metadata_is_reported_and_proves_no_absence() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        vdisk = await _open(platter)
        await _put(vdisk, 0)
        begin = vdisk.journal.offset
        assert (await vdisk.block(1, BlockItem(bytes(8), 3, 1))).status is Status.OK
        await _put(vdisk, 1)
        await vdisk.close()
        platter.rot(Random(1), chunk_name(1), begin + HEADER_SIZE)
        reopened = await _open(platter)
        assert reopened.recovered.losses == [f"metadata in chunk 1 at byte {begin} is damaged"]
        assert not reopened.proves_absence
        await reopened.close()

    _run(scenario)


def test_a_missing_chunk_is_reported() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        vdisk = await _open(platter)
        await _put(vdisk, 0, 1)
        await vdisk.close()
        vdisk = await _open(platter)
        await _put(vdisk, 2)
        assert await Upkeep(vdisk).checkpoint()
        await vdisk.close()
        platter.remove(chunk_name(1))
        before = platter.snapshot()
        with pytest.raises(DataMissingError, match=r"00000001\.chunk.*restore them from a backup"):
            await _open(_copy(before))
        reopened = await _open(platter, options=replace(SMALL, accept_loss=True))
        assert reopened.recovered.losses == ["2 parts lay in chunk files that are missing or cut (00000001.chunk)"]
        assert await _statuses(reopened, range(3)) == [Status.ERROR, Status.ERROR, Status.OK]
        await reopened.close()

    _run(scenario)


@pytest.mark.parametrize("erasure", REDUNDANT)
@pytest.mark.parametrize("at", [20, HEADER_SIZE + 5], ids=["header", "body"])
def test_a_damaged_record_is_repaired_from_the_other_parts(erasure: Erasure, at: int) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(5))
        hurt = list(blobs)[2]
        full = await group.holders(hurt)
        order = group.subgroup(hurt)[0]
        entry = group.life.vdisks[order].index.entry_of(hurt.pack_part(1))
        assert entry is not None
        place = place_of(entry)
        await group.do(group.life.stop())
        group.platters[order].rot(Random(1), chunk_name(place.chunk), place.offset + at)
        await group.start()
        assert len(group.life.vdisks[order].recovered.losses) == 1
        await group.expect(blobs)
        await group.refill()
        assert await group.holders(hurt) == full
        await group.restart()
        await group.take_out(*group.subgroup(hurt)[1:3])
        await group.expect(blobs)

    run_group(erasure, scenario)


@pytest.mark.parametrize("erasure", [*REDUNDANT, Erasure.MIRROR_3])
def test_a_disk_that_was_repaired_after_an_unknown_loss_is_complete_when_it_is_opened_again(erasure: Erasure) -> None:
    """Otherwise it and a sister that is lost next wait for each other for ever."""

    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(5))
        await group.settle()
        await group.do(group.life.stop())
        group.platters[0].rot(Random(1), chunk_name(1), 120, length=60)
        await group.start()
        assert group.life.vdisks[0].recovered.unknown_loss
        await group.refill()
        assert group.life.vdisks[0].proves_absence
        await group.restart(crash=True)
        assert not any(vdisk.recovered.unknown_loss for vdisk in group.life.vdisks.values())
        await group.take_out(1)
        group.platters[1].wipe()
        await group.put_in(1)
        await group.refill()
        assert {vdisk.index.state for vdisk in group.life.vdisks.values()} == {DiskState.COMPLETE}
        await group.expect(blobs)

    run_group(erasure, scenario)


# Checkpoints.


async def _with_two_checkpoints(platter: SimPlatter) -> None:
    """Steps 0-3 in the first checkpoint, 0-7 in the second, 8-9 in the log alone; step 1 collected, generation 0 blocked."""
    vdisk = await _open(platter)
    upkeep = Upkeep(vdisk)
    await _put(vdisk, *range(4))
    assert await upkeep.checkpoint()
    channel_key = blob_at(0, SIZE).pack()[:9]
    collected = CollectRequest(channel_key, 1, 1, blob_at(1, SIZE).pack()[9:17], False, (blob_at(0, SIZE).pack()[9:21],), ())
    assert (await vdisk.collect(1, collected)).status is Status.OK
    await _put(vdisk, *range(4, 8))
    assert await upkeep.checkpoint()
    assert (await vdisk.block(1, BlockItem(blob_at(0, 1).pack()[:8], 0, 1))).status is Status.OK
    await _put(vdisk, 8, 9)
    await vdisk.close()


async def _expect_all_ten(platter: SimPlatter) -> VDisk:
    vdisk = await _open(platter)
    assert vdisk.recovered.losses == []
    assert await _statuses(vdisk, range(10)) == [Status.OK, Status.NODATA, *[Status.OK] * 8]
    assert vdisk.index.blocked_generation(blob_at(0, 1).pack()[:8]) == 0
    return vdisk


def test_the_log_before_the_newest_checkpoint_is_not_read() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        await _with_two_checkpoints(platter)
        vdisk = await _expect_all_ten(platter)
        assert vdisk.recovered.checkpoints == [1, 2]
        assert vdisk.recovered.records_replayed == 3
        await vdisk.close()

    _run(scenario)


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        await _with_two_checkpoints(platter)
        files = platter.snapshot()
        for at in range(len(files[checkpoint_name(2)])):
            hurt = _copy(files)
            hurt.rot(Random(at), checkpoint_name(2), at)
            vdisk = await _expect_all_ten(hurt)
            assert vdisk.recovered.checkpoints == [1]
            await vdisk.close()

    _run(scenario)


def test_an_unfinished_checkpoint_is_ignored_wherever_it_was_cut() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        await _with_two_checkpoints(platter)
        files = platter.snapshot()
        newest = files[checkpoint_name(2)]
        for cut in range(0, len(newest), 7):
            vdisk = await _expect_all_ten(_copy({**files, checkpoint_name(2): newest[:cut]}))
            assert vdisk.recovered.checkpoints == [1]
            await vdisk.close()

    _run(scenario)


def test_without_any_checkpoint_the_whole_log_is_read() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        await _with_two_checkpoints(platter)
        for number in (1, 2):
            platter.rot(Random(1), checkpoint_name(number), 0)
        vdisk = await _expect_all_ten(platter)
        assert vdisk.recovered.checkpoints == []
        await vdisk.close()

    _run(scenario)


ERASURES = [Erasure.NONE, Erasure.MIRROR_3, *REDUNDANT]


async def _with_abandoned_chunks(group: SimGroup) -> tuple[dict[BlobId, bytes], Upkeep]:
    """Chunks in which no write succeeded are deleted on disk 0, for a first checkpoint that fails too: it cannot be deleted."""
    blobs = await group.store(range(3))
    await group.settle()
    vdisk, faults = group.life.vdisks[0], group.faults[0]
    upkeep = Upkeep(vdisk)
    faults.error_rate = {"flush": 1.0}
    for step in range(10, 13):
        await group.do(vdisk.block(1, BlockItem(blob_at(0, 1, tablet=9).pack()[:8], step, 1)))
    faults.error_rate = {}
    await group.do(vdisk.block(1, BlockItem(blob_at(0, 1, tablet=9).pack()[:8], 13, 1)))
    faults.error_rate = {"flush": 1.0}
    for step in range(14, 16):
        await group.do(vdisk.block(1, BlockItem(blob_at(0, 1, tablet=9).pack()[:8], step, 1)))
    with pytest.raises(OSError, match="injected"):
        await group.do(upkeep.checkpoint())
    group.platters[0].write(checkpoint_name(1), b"")
    return blobs, upkeep


@pytest.mark.parametrize("erasure", ERASURES)
@pytest.mark.parametrize("is_torn", [False, True], ids=["nothing written since", "a torn chunk behind"])
def test_chunks_that_were_abandoned_are_not_missed_beside_a_first_checkpoint_that_failed(erasure: Erasure, is_torn: bool) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs, _ = await _with_abandoned_chunks(group)
        platter = group.platters[0]
        numbers = [int(name.removesuffix(CHUNK_SUFFIX)) for name in platter.names() if name.endswith(CHUNK_SUFFIX)]
        assert numbers != list(range(1, len(numbers) + 1)), "no number is missing"
        if is_torn:
            platter.write(chunk_name(max(numbers) + 3), bytes(100))
        group.faults[0].error_rate = {}
        await group.restart(crash=True)
        vdisk = group.life.vdisks[0]
        assert vdisk.recovered.losses == []
        assert vdisk.proves_absence
        assert (await group.get(blob_at(99, 1000)))[0] is Status.NODATA
        await group.expect(blobs)

    run_group(erasure, scenario)


@pytest.mark.parametrize("erasure", ERASURES)
def test_chunks_that_were_given_back_are_missed_beside_abandoned_ones_at_every_opening_until_a_checkpoint(
    erasure: Erasure,
) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs, upkeep = await _with_abandoned_chunks(group)
        group.faults[0].error_rate = {}
        assert await group.do(upkeep.checkpoint())
        platter = group.platters[0]
        platter.rot(Random(1), checkpoint_name(2), 20)
        await group.do(group.life.stop())
        platter.remove(chunk_name(1))
        platter.remove(next(name for name in platter.names() if name.endswith(ENDS_SUFFIX)))
        group.absent = set(group.orders) - {0}  # so that it is not refilled
        for _ in range(3):
            await group.start()
            assert "no checkpoint can be read" in group.life.vdisks[0].recovered.losses[0]
            group.process.crash()
        await group.start()
        assert await group.do(Upkeep(group.life.vdisks[0]).checkpoint())
        assert [name for name in platter.names() if name.endswith(CHECKPOINT_SUFFIX)] == [checkpoint_name(3)]
        group.absent = set()
        await group.restart(crash=True)
        assert group.life.vdisks[0].recovered.losses == []
        if erasure is not Erasure.NONE:
            await group.refill()
            await group.expect(blobs)

    run_group(erasure, scenario)


def test_the_only_disk_that_lost_part_of_its_log_says_so_and_waits_for_no_refill() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(5))
        await group.do(group.life.stop())
        group.platters[0].rot(Random(1), chunk_name(1), 120, length=60)
        await group.start()
        assert group.life.vdisks[0].recovered.unknown_loss
        assert group.life.refills() == {}
        await group.do(group.life.replicate())
        assert group.life.probe.to_heal.get(0, 0) == 0
        del blobs[blob_at(0, 1000)]
        await group.expect(blobs)
        for step in (0, 99):  # one that was lost, and one that never was
            result = await group.do(group.proxy.get(blob_at(step, 1000)))
            assert result.status is Status.ERROR
            assert "has lost part of its log" in result.reason

    run_group(Erasure.NONE, scenario)


def test_a_checkpoint_number_is_not_used_again_after_a_fallback() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        await _with_two_checkpoints(platter)
        platter.rot(Random(1), checkpoint_name(2), 0)
        vdisk = await _open(platter)
        assert await Upkeep(vdisk).checkpoint()
        await vdisk.close()
        await (await _expect_all_ten(platter)).close()

    _run(scenario)
