"""What a VDisk does for itself: checkpoints when they are due, and chunks given back once nothing in them is wanted."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from penstock.blob import BlobId, Erasure, Status
from penstock.blob.channel import place_of
from penstock.blob.checkpoint import SUFFIX as CHECKPOINT_SUFFIX
from penstock.blob.journal import CHUNK_SUFFIX, chunk_name
from penstock.blob.record import HEADER_SIZE
from tests.sim_group import SMALL, SimGroup, blob_at, options, payload, run_group

KINDS = list(Erasure)
BLOB_SIZE = 10_000
FILLING = {Erasure.NONE: 10_000, Erasure.BLOCK_4_2: 50_000, Erasure.MIRROR_3_DC: 30_000, Erasure.MIRROR_3: 10_000}
"""Sizes of which sixty blobs fill several chunks of each disk."""
COUNT = 60


def _files(group: SimGroup, suffix: str, order: int = 0) -> list[str]:
    return [name for name in group.platters[order].names() if name.endswith(suffix)]


def _bytes_in_chunks(group: SimGroup) -> int:
    return sum(platter.size(name) for order, platter in enumerate(group.platters) for name in _files(group, CHUNK_SUFFIX, order))


async def _collect(group: SimGroup, counter: int, step: int, keep: list[BlobId] | None = None) -> None:
    reply = await group.do(group.proxy.collect_garbage(1, 0, 1, counter, barrier=(1, step), keep=keep or []))
    assert reply.status is Status.OK
    await group.settle()


async def _tend(group: SimGroup, times: int = 12) -> None:
    for _ in range(times):
        await group.do(group.life.tend())


@pytest.mark.parametrize("erasure", KINDS)
def test_chunks_below_a_barrier_are_given_back(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(COUNT), FILLING[erasure])
        before = _bytes_in_chunks(group)
        await _tend(group)
        assert _bytes_in_chunks(group) >= before * 0.9
        await _collect(group, 1, COUNT - 5)
        await _tend(group)
        # An open chunk on each disk stays, and one that holds the rest.
        assert _bytes_in_chunks(group) <= len(group.orders) * 2 * SMALL.chunk_size
        left = dict(list(blobs.items())[-4:])
        await group.expect(left)
        await group.restart(crash=True)
        assert [vdisk.recovered.losses for vdisk in group.life.vdisks.values()] == [[]] * len(group.orders)
        await group.expect(left)
        for gone in list(blobs)[:-4]:
            assert await group.get(gone) == (Status.NODATA, b"")

    run_group(erasure, scenario)


@pytest.mark.parametrize("erasure", KINDS)
def test_a_sparse_chunk_is_rewritten_and_given_back(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(COUNT), FILLING[erasure])
        kept = {blob_id: data for blob_id, data in blobs.items() if blob_id.step % 20 == 3}
        assert all(len(_files(group, CHUNK_SUFFIX, order)) > 2 for order in group.orders)
        await _collect(group, 1, COUNT, list(kept))
        await _tend(group)
        assert _bytes_in_chunks(group) <= len(group.orders) * 2 * SMALL.chunk_size
        await group.expect(kept)
        await group.restart(crash=True)
        await group.expect(kept)
        assert [await group.get(blob_id) for blob_id in blobs if blob_id not in kept] == [(Status.NODATA, b"")] * (
            COUNT - len(kept)
        )

    run_group(erasure, scenario)


async def _leave_a_third(group: SimGroup) -> dict[BlobId, bytes]:
    """Fill several chunks, of which a third stays alive."""
    blobs = await group.store(range(COUNT), BLOB_SIZE)
    kept = {blob_id: data for blob_id, data in blobs.items() if blob_id.step % 3 == 0}
    await _collect(group, 1, COUNT, list(kept))
    return kept


def _sparse(group: SimGroup) -> set[int]:
    """The chunks of the first disk of which less than half is alive."""
    uses = group.life.vdisks[0].index.chunks.items()
    return {number for number, use in uses if use.sealed and 0 < use.live < use.size / 2}


def test_a_sparse_chunk_is_rewritten_when_no_more_is_written() -> None:
    async def scenario(group: SimGroup) -> None:
        kept = await _leave_a_third(group)
        before = _sparse(group)
        for step in range(COUNT + 1, COUNT + 4):
            await group.store(range(step, step + 1), 2_000)
            await _tend(group, 1)
        assert len(before) > 2
        assert before <= _sparse(group)
        await _tend(group)
        assert not before & _sparse(group)
        await group.restart(crash=True)
        await group.expect(kept)

    run_group(Erasure.NONE, scenario, options(replace(SMALL, busy_bytes=2_000)))


def test_a_sparse_chunk_is_rewritten_at_once_where_there_is_little_room() -> None:
    async def scenario(group: SimGroup) -> None:
        await _leave_a_third(group)
        before = _sparse(group)
        group.faults[0].capacity = group.platters[0].used * 10 // 9
        await group.store(range(COUNT + 1, COUNT + 2), 2_000)
        await _tend(group, 1)
        assert before - _sparse(group)

    run_group(Erasure.NONE, scenario, options(replace(SMALL, busy_bytes=2_000)))


def test_a_chunk_that_is_nearly_dead_is_rewritten_while_more_is_written() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(COUNT), BLOB_SIZE)
        await _collect(group, 1, COUNT, [blob_id for blob_id in blobs if blob_id.step % 10 == 3])
        before = _sparse(group)
        await group.store(range(COUNT + 1, COUNT + 2), 2_000)
        await _tend(group, 1)
        assert before - _sparse(group)

    run_group(Erasure.NONE, scenario, options(replace(SMALL, busy_bytes=2_000)))


def test_a_damaged_part_in_a_sparse_chunk_is_reported_and_not_moved() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(COUNT), BLOB_SIZE)
        hurt = list(blobs)[3]
        index = group.life.vdisks[0].index
        entry = index.entry_of(hurt.pack_part(1))
        assert entry is not None
        place = place_of(entry)
        group.platters[0].rot(Random(1), chunk_name(place.chunk), place.offset + HEADER_SIZE)
        await _collect(group, 1, COUNT, [hurt])
        await _tend(group)
        assert chunk_name(place.chunk) in _files(group, CHUNK_SUFFIX)
        assert (await group.get(hurt))[0] is Status.ERROR

    run_group(Erasure.NONE, scenario)


def test_no_chunk_goes_while_a_kept_checkpoint_needs_the_log_in_it() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.store(range(20), 100)
        await _collect(group, 1, 20)
        await group.restart()
        await _tend(group, 3)
        assert _files(group, CHECKPOINT_SUFFIX) == []
        assert chunk_name(1) in _files(group, CHUNK_SUFFIX)
        await group.restart(crash=True)
        assert await group.put(BlobId(1, 0, 1, 20, 0, 1), b"x") is Status.ERROR

    run_group(Erasure.NONE, scenario)


def test_a_checkpoint_is_due_after_so_many_records_and_two_are_kept() -> None:
    async def scenario(group: SimGroup) -> None:
        # The disk's own state is the first record.
        await group.store(range(8), 10)
        await _tend(group, 1)
        assert _files(group, CHECKPOINT_SUFFIX) == []
        for round_number in range(1, 5):
            await group.store(range(10 * round_number, 10 * round_number + 10), 10)
            await _tend(group, 3)
            assert len(_files(group, CHECKPOINT_SUFFIX)) == min(round_number, 2)
        await group.restart(crash=True)
        assert group.life.vdisks[0].recovered.records_replayed <= 10
        assert group.life.vdisks[0].index.parts == 48

    run_group(Erasure.NONE, scenario, options(replace(SMALL, checkpoint_records=10, checkpoint_bytes=1 << 30)))


def test_a_checkpoint_is_due_after_so_many_bytes() -> None:
    async def scenario(group: SimGroup) -> None:
        await group.store(range(9), BLOB_SIZE)
        await _tend(group, 3)
        assert _files(group, CHECKPOINT_SUFFIX) == []
        await group.store(range(9, 10), BLOB_SIZE)
        await _tend(group, 3)
        assert len(_files(group, CHECKPOINT_SUFFIX)) == 1

    run_group(Erasure.NONE, scenario, options(replace(SMALL, checkpoint_bytes=10 * BLOB_SIZE)))


def test_many_small_chunks_of_short_lives_are_brought_together() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs: dict[BlobId, bytes] = {}
        for opening in range(15):
            blobs |= await group.store(range(opening, opening + 1), 100)
            await group.restart()
        before = len(_files(group, CHUNK_SUFFIX))
        assert before >= 15
        for _ in range(20):
            await _tend(group)
            await group.do(group.life._members[0].upkeep.checkpoint())
        assert len(_files(group, CHUNK_SUFFIX)) < before
        await group.expect(blobs)
        await group.restart(crash=True)
        await group.expect(blobs)

    run_group(Erasure.NONE, scenario)


def test_what_failed_writes_leave_behind_does_not_pile_up_on_a_full_disk() -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(3), BLOB_SIZE)
        group.faults[0].capacity = group.platters[0].used + 3_000
        before = len(_files(group, CHUNK_SUFFIX))
        for step in range(100, 130):
            await group.do(group.proxy.put(blob_at(step, BLOB_SIZE), payload(BLOB_SIZE, step), from_reserve=True))
        assert group.life.vdisks[0].journal.failures > 10
        await _tend(group, 1)
        assert len(_files(group, CHUNK_SUFFIX)) <= before + 1, "the last write that succeeded may have begun a chunk"
        await group.restart(crash=True)
        await group.expect(blobs)

    run_group(Erasure.NONE, scenario)
