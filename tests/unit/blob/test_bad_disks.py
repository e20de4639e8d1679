"""A data directory that is not what it should be: a clear error, and not a byte of it changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from struct import pack

import pytest

from penstock.blob import BlobId, Erasure, LocalDisk, LocalGroup, Status
from penstock.blob.checkpoint import checkpoint_name
from penstock.blob.identity import IDENTITY_NAME
from penstock.core.checksum import crc32c
from penstock.core.clock import SystemClock
from penstock.core.errors import ConfigError
from tests.sim_group import BY_HAND, GROUP_ID

BLOB = BlobId(1, 0, 1, 1, 0, 4)


def _life(folder: Path, erasure: Erasure = Erasure.BLOCK_4_2, group: int = GROUP_ID) -> LocalGroup:
    async def open_disk(order: int) -> LocalDisk:
        return await LocalDisk.open(folder / str(order), durable=False)

    async def note_formed() -> None:
        pass

    clock = SystemClock()
    return LocalGroup(group, 1, erasure, open_disk, clock=clock, random=Random(1), options=BY_HAND, on_formed=note_formed)


async def _start_and_stop(life: LocalGroup) -> None:
    await life.start()
    await life.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The disks of a block-4-2 group that holds a blob."""

    async def run() -> None:
        life = _life(tmp_path)
        await life.start()
        assert (await life.proxy.put(BLOB, b"data")).status is Status.OK
        await life.stop()

    asyncio.run(run())
    return tmp_path


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _expect_refusal(folder: Path, match: str, make: Callable[[], LocalGroup] | None = None) -> None:
    before = _snapshot(folder)
    life = _life(folder) if make is None else make()
    with pytest.raises(ConfigError, match=match):
        asyncio.run(_start_and_stop(life))
    after = _snapshot(folder)
    assert {name: after.get(name) for name in before} == before


def _expect_sound(folder: Path) -> None:
    """Nothing was lost, and no lock was left."""

    async def run() -> None:
        life = _life(folder)
        await life.start()
        result = await life.proxy.get(BLOB)
        assert (result.status, bytes(result.data)) == (Status.OK, b"data")
        assert all(not vdisk.recovered.losses for vdisk in life.vdisks.values())
        await life.stop()

    asyncio.run(run())


def test_the_disks_of_another_group_are_refused(folder: Path) -> None:
    message = (
        r"holds VDisk \[82000000:1:0:\d:0\] of a block-4-2 group, not \[82000001:1:0:\d:0\] .* check which directory belongs"
    )
    _expect_refusal(folder, message, lambda: _life(folder, group=GROUP_ID + 1))
    _expect_sound(folder)


def test_the_disks_of_a_group_of_another_kind_are_refused(folder: Path) -> None:
    _expect_refusal(folder, "of a block-4-2 group, not .* of a none group", lambda: _life(folder, Erasure.NONE))
    _expect_refusal(folder, "of a block-4-2 group, not .* of a mirror-3-dc group", lambda: _life(folder, Erasure.MIRROR_3_DC))


def test_disks_that_changed_places_are_refused(folder: Path) -> None:
    (folder / "3").rename(folder / "x")
    (folder / "5").rename(folder / "3")
    (folder / "x").rename(folder / "5")
    _expect_refusal(folder, r"holds VDisk \[82000000:1:0:[35]:0\]")


def _with_version(raw: bytes, version: int) -> bytes:
    head = raw[:4] + pack(">H", version) + raw[6:44]
    return head + pack(">I", crc32c(head))


def test_a_disk_of_a_newer_format_is_refused(folder: Path) -> None:
    path = folder / "2" / IDENTITY_NAME
    original = path.read_bytes()
    path.write_bytes(_with_version(original, 2))
    _expect_refusal(folder, "was written in format 2, this version of Penstock reads up to 1; upgrade Penstock")
    path.write_bytes(original)
    _expect_sound(folder)


def test_a_checkpoint_of_a_newer_format_is_refused(folder: Path) -> None:
    async def checkpoint() -> None:
        life = _life(folder)
        await life.start()
        assert await life._members[0].upkeep.checkpoint()
        await life.stop()

    asyncio.run(checkpoint())
    path = folder / "0" / checkpoint_name(1)
    original = path.read_bytes()
    body = pack(">H", 2) + original[18:26]
    path.write_bytes(original[:12] + pack(">I", crc32c(body, crc32c(original[:12]))) + body + original[26:])
    _expect_refusal(folder, "the checkpoint has format 2, this version of Penstock reads format 1; upgrade it")
    path.write_bytes(original)
    _expect_sound(folder)


@pytest.mark.parametrize("at", range(0, 48, 3))
def test_a_damaged_identity_is_restored_from_the_log(folder: Path, at: int) -> None:
    path = folder / "2" / IDENTITY_NAME
    whole = path.read_bytes()
    raw = bytearray(whole)
    raw[at] ^= 1
    path.write_bytes(bytes(raw))
    _expect_sound(folder)
    assert path.read_bytes()[:28] == whole[:28]


def test_a_disk_whose_identity_cannot_be_restored_is_out_and_the_group_goes_on(folder: Path) -> None:
    path = folder / "2" / IDENTITY_NAME
    raw = bytearray(path.read_bytes())
    raw[30] ^= 1
    path.write_bytes(bytes(raw))
    for chunk in (folder / "2").glob("*.chunk"):
        chunk.write_bytes(b"?" * 200)

    async def run() -> None:
        life = _life(folder)
        await life.start()
        assert 2 not in life.vdisks
        assert bytes((await life.proxy.get(BLOB)).data) == b"data"
        await life.stop()

    asyncio.run(run())


def test_a_file_of_that_name_that_is_no_identity_is_refused(folder: Path) -> None:
    (folder / "2" / IDENTITY_NAME).write_bytes(b"#!/bin/sh\nexit 0\n" * 10)
    _expect_refusal(folder, "the file 'vdisk' is not that of a Penstock VDisk; name another directory")


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "photo.jpg").write_bytes(b"picture")
    (tmp_path / "0" / "00000001.chunk").write_bytes(b"whose?")
    _expect_refusal(
        tmp_path,
        r"holds other files \(00000001.chunk, photo.jpg\); name an empty directory",
        lambda: _life(tmp_path, Erasure.NONE),
    )


def test_a_stray_file_beside_the_ones_of_a_disk_does_no_harm(folder: Path) -> None:
    for name in ("notes.txt", "backup.chunk", "old.checkpoint"):
        (folder / "4" / name).write_bytes(b"not ours")
    _expect_sound(folder)
    assert (folder / "4" / "backup.chunk").read_bytes() == b"not ours"
    assert (folder / "4" / "old.checkpoint").read_bytes() == b"not ours"


def test_a_locked_disk_is_refused_and_the_others_are_closed(folder: Path) -> None:
    async def run() -> None:
        holder = await LocalDisk.open(folder / "6")
        before = _snapshot(folder)
        with pytest.raises(ConfigError, match=f"{folder}/6 is in use by a running process; stop it or name another directory"):
            await _start_and_stop(_life(folder))
        assert _snapshot(folder) == before
        await holder.close()

    asyncio.run(run())
    _expect_sound(folder)


def test_a_making_that_was_cut_short_is_taken_up_again(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / IDENTITY_NAME).write_bytes(b"")
    asyncio.run(_start_and_stop(_life(tmp_path, Erasure.NONE)))
    assert len((tmp_path / "0" / IDENTITY_NAME).read_bytes()) == 48
