"""Files of a VDisk that are deleted or cut between two openings: refused where they are the only copy, restored elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from penstock.blob.journal import chunk_name
from penstock.blob.options import VDiskOptions
from penstock.blob.status import Status
from penstock.blob.topology import Erasure, VDiskId
from penstock.blob.upkeep import Upkeep
from penstock.blob.vdisk import VDisk
from penstock.core.errors import DataMissingError
from penstock.testing.sim_disk import SimDisk, SimPlatter
from penstock.testing.sim_loop import run_simulation
from tests.sim_group import SMALL, SimGroup, blob_at, payload, run_group

SIZE = 20
REDUNDANT = [Erasure.BLOCK_4_2, Erasure.MIRROR_3_DC]


async def _open(platter: SimPlatter, options: VDiskOptions = SMALL) -> VDisk:
    return await VDisk.open(VDiskId(1, 1, 0, 0, 0), Erasure.NONE, SimDisk(platter, Random(1)), random=Random(2), options=options)


async def _put(vdisk: VDisk, *steps: int) -> None:
    for step in steps:
        reply = await vdisk.put(1, blob_at(step, SIZE).pack_part(1), payload(SIZE, step))
        assert reply.status is Status.OK, reply.reason


async def _statuses(vdisk: VDisk, steps: range) -> list[Status]:
    """The status of each read, whose data if any must be right."""
    replies = [await vdisk.get(1, blob_at(step, SIZE).pack_part(1), 0, SIZE) for step in steps]
    for step, reply in zip(steps, replies, strict=True):
        assert reply.status is not Status.OK or bytes(reply.parts[0][1]) == payload(SIZE, step)
    return [reply.status for reply in replies]


def _copy(files: dict[str, bytes]) -> SimPlatter:
    platter = SimPlatter()
    for name, data in files.items():
        platter.write(name, data)
    return platter


def _run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_simulation(scenario())


async def _with_three_openings(platter: SimPlatter) -> None:
    """Steps 0-8, three in each of the chunks 1 to 3, without a checkpoint."""
    for opening in range(3):
        vdisk = await _open(platter)
        await _put(vdisk, *range(3 * opening, 3 * opening + 3))
        await vdisk.close()


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("left", [None, 0, 0.5], ids=["deleted", "emptied", "cut in half"])
def test_a_chunk_of_the_only_copy_that_is_missing_or_cut_is_refused_until_it_is_restored(number: int, left: float | None) -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        await _with_three_openings(platter)
        files = platter.snapshot()
        name = chunk_name(number)
        hurt = {other: data for other, data in files.items() if other != name}
        if left is not None:
            hurt[name] = files[name][: int(len(files[name]) * left)]
        refused = _copy(hurt)
        with pytest.raises(DataMissingError, match=f"{name} (is missing|has only)"):
            await _open(refused)
        assert refused.snapshot() == hurt
        restored = await _open(_copy({**hurt, name: files[name]}))
        assert await _statuses(restored, range(9)) == [Status.OK] * 9
        await restored.close()
        # Told to, it goes on without, and knows the loss no more at the next opening.
        damaged = _copy(hurt)
        accepted = await _open(damaged, options=replace(SMALL, accept_loss=True))
        lost = {step for step, status in enumerate(await _statuses(accepted, range(9))) if status is not Status.OK}
        assert lost
        assert lost <= set(range(3 * number - 3, 3 * number))
        await Upkeep(accepted).accept_losses()
        await accepted.close()
        await (await _open(damaged)).close()

    _run(scenario)


def test_zeros_in_the_place_of_a_tail_that_was_acknowledged_are_damage() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        await _with_three_openings(platter)
        files = platter.snapshot()
        name = chunk_name(3)
        half = len(files[name]) // 2
        reopened = await _open(_copy({**files, name: files[name][:half] + bytes(len(files[name]) - half)}))
        assert any("chunk 3 is" in loss or "in chunk 3" in loss for loss in reopened.recovered.losses)
        assert not reopened.proves_absence
        await reopened.close()

    _run(scenario)


@pytest.mark.parametrize("left", [None, 0.5], ids=["deleted", "cut in half"])
def test_a_chunk_in_a_checkpoint_that_is_cut_has_its_parts_damaged_and_no_others(left: float | None) -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        await _with_three_openings(platter)
        vdisk = await _open(platter)
        assert await Upkeep(vdisk).checkpoint()
        await _put(vdisk, 9)
        await vdisk.close()
        files = platter.snapshot()
        name = chunk_name(2)
        hurt = {other: data for other, data in files.items() if other != name}
        if left is not None:
            hurt[name] = files[name][: int(len(files[name]) * left)]
        with pytest.raises(DataMissingError, match=f"parts lay in chunk files that are missing or cut .{name}"):
            await _open(_copy(hurt))
        platter_of_losses = _copy(hurt)
        reopened = await _open(platter_of_losses, options=replace(SMALL, accept_loss=True))
        lost = [step for step, status in enumerate(await _statuses(reopened, range(10))) if status is Status.ERROR]
        assert lost == [3, 4, 5][-len(lost) :]
        assert reopened.proves_absence
        await Upkeep(reopened).accept_losses()
        await reopened.close()
        again = await _open(platter_of_losses)
        assert [step for step, status in enumerate(await _statuses(again, range(10))) if status is Status.ERROR] == lost
        await again.close()

    _run(scenario)


def test_ends_that_were_not_synced_hold_only_until_the_machine_starts_anew() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        disk = SimDisk(platter, Random(1))
        disk.outlives_power_loss, disk.boot = False, 7
        vdisk = await VDisk.open(VDiskId(1, 1, 0, 0, 0), Erasure.NONE, disk, random=Random(2), options=SMALL)
        await _put(vdisk, 0, 1)
        await vdisk.close()
        files = platter.snapshot()
        cut = {**files, chunk_name(1): files[chunk_name(1)][:100]}
        for boot in (7, 8):
            disk = SimDisk(_copy(cut), Random(1))
            disk.boot = boot
            opening = VDisk.open(VDiskId(1, 1, 0, 0, 0), Erasure.NONE, disk, random=Random(2), options=SMALL)
            if boot == 7:
                with pytest.raises(DataMissingError):
                    await opening
            else:
                await (await opening).close()

    _run(scenario)


@pytest.mark.parametrize("erasure", REDUNDANT)
def test_a_missing_chunk_is_restored_from_the_other_disks(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(10))
        before = {blob_id: await group.holders(blob_id) for blob_id in blobs}
        await group.do(group.life.stop())
        group.platters[2].remove(chunk_name(1))
        await group.start()
        assert group.life.vdisks[2].recovered.missing
        await group.expect(blobs)
        # However often it is opened before it is whole again, also from a checkpoint that is behind the missing chunk.
        vdisk = group.life.vdisks[2]
        vdisk.proves_absence = False
        upkeep = group.life._members[2].upkeep
        assert await upkeep.checkpoint()
        await group.do(upkeep.note_ends())
        group.process.crash()
        platter = group.platters[2]
        disk = SimDisk(platter, Random(1))
        reopened = await VDisk.open(vdisk.id, erasure, disk, random=Random(2), options=SMALL)
        assert not reopened.proves_absence
        disk.crash()
        await group.start()
        await group.refill()
        assert {blob_id: await group.holders(blob_id) for blob_id in blobs} == before

    run_group(erasure, scenario)


@pytest.mark.parametrize("left", [None, 0.5], ids=["deleted", "cut in half"])
def test_a_chunk_that_is_deleted_or_cut_under_the_running_group_is_noticed_and_restored(left: float | None) -> None:
    async def scenario(group: SimGroup) -> None:
        blobs = await group.store(range(10))
        before = {blob_id: await group.holders(blob_id) for blob_id in blobs}
        await group.restart()  # so that the first chunks are complete
        content = group.platters[2].read(chunk_name(1), 0, 1 << 20)
        group.platters[2].remove(chunk_name(1))
        if left is not None:
            group.platters[2].write(chunk_name(1), content[: int(len(content) * left)])
        await asyncio.sleep(6)
        await group.do(group.life.tend())
        assert group.life.probe.damaged_found > 0
        await group.expect(blobs)
        await group.refill()
        assert {blob_id: await group.holders(blob_id) for blob_id in blobs} == before

    run_group(Erasure.BLOCK_4_2, scenario)


def test_a_chunk_of_the_only_copy_that_is_deleted_under_the_running_disk_answers_error_and_not_nodata() -> None:
    async def scenario() -> None:
        platter = SimPlatter()
        await _with_three_openings(platter)
        vdisk = await _open(platter)
        platter.remove(chunk_name(2))
        assert await Upkeep(vdisk).check_files() == 3
        assert await Upkeep(vdisk).check_files() == 0
        assert await _statuses(vdisk, range(9)) == [Status.OK] * 3 + [Status.ERROR] * 3 + [Status.OK] * 3
        await vdisk.close()

    _run(scenario)
