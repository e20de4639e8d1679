"""Whether a chunk is sound: short records and long ones, damage anywhere, and the loop is not held meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.blob.chunk_scan import CHECKED_BYTES, RECORDS_AT_ONCE, ScannedRecord, is_sound, scan_chunk, scan_slowly
from penstock.blob.journal import chunk_name
from penstock.blob.local_disk import LocalDisk
from penstock.blob.record import BLOCK_SIZE, NO_ID, RecordKind, encode

NUMBER = 3
LENGTHS = (0, 10, 2000, BLOCK_SIZE, BLOCK_SIZE + 1, 3000, CHECKED_BYTES * 2, 5, CHECKED_BYTES - 64, 100)


@asynccontextmanager
async def chunk(directory: Path, lengths: tuple[int, ...], damage_at: int | None = None) -> AsyncIterator[tuple[LocalDisk, int]]:
    """A disk with a chunk of records of these lengths, and its size."""
    data = bytearray()
    for length in lengths:
        data += b"".join(encode(RecordKind.PART, NO_ID, b"b" * length, (NUMBER, len(data)), (0, 0)))
    if damage_at is not None:
        data[damage_at] ^= 1
    disk = await LocalDisk.open(directory)
    try:
        disk.append(chunk_name(NUMBER), [bytes(data)])
        await disk.flush(chunk_name(NUMBER))
        yield disk, len(data)
    finally:
        await disk.close()


def test_records_of_all_lengths_are_sound(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with chunk(tmp_path, LENGTHS) as (disk, size):
            assert await is_sound(disk, NUMBER, size)
            assert not await is_sound(disk, NUMBER, size - 1), "the last record is cut"

    asyncio.run(scenario())


@pytest.mark.parametrize("at", [0, 70, 2200, 64 + 10 + 64, BLOCK_SIZE * 2, 300_000, 700_000, -1])
def test_damage_is_found_wherever_it_is(tmp_path: Path, at: int) -> None:
    async def scenario() -> None:
        async with chunk(tmp_path, LENGTHS, at) as (disk, size):
            assert not await is_sound(disk, NUMBER, size)

    asyncio.run(scenario())


@pytest.mark.parametrize("at", [None, 0, 70, 2200, BLOCK_SIZE * 2, 300_000, 500_000, 700_000, -1])
def test_records_are_sound_or_not_whether_others_have_their_turns_or_not(tmp_path: Path, at: int | None) -> None:
    async def scenario() -> None:
        async with chunk(tmp_path, LENGTHS, at) as (disk, size):
            in_turns = [item async for item in scan_slowly(disk, NUMBER, size)]
            at_once = [item async for item in scan_chunk(disk, NUMBER, size)]
            assert in_turns == at_once
            sound = [item for item in in_turns if isinstance(item, ScannedRecord) and item.sound]
            assert (len(sound) == len(LENGTHS)) == (at is None)

    asyncio.run(scenario())


class Turns:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.count = 0

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        """Count meanwhile."""
        counting = asyncio.create_task(self._run())
        await asyncio.sleep(0)
        yield
        counting.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1


def test_others_have_their_turns_while_small_records_are_looked_at(tmp_path: Path) -> None:
    async def scenario() -> None:
        turns = Turns()
        async with chunk(tmp_path, (40,) * 20_000) as (disk, size), turns.counted():
            before = turns.count
            assert await is_sound(disk, NUMBER, size)
            assert turns.count - before >= size // CHECKED_BYTES
            before, found = turns.count, 0
            async for item in scan_slowly(disk, NUMBER, size):
                found += isinstance(item, ScannedRecord)
            assert (found, turns.count - before >= 20_000 // RECORDS_AT_ONCE) == (20_000, True)

    asyncio.run(scenario())


def test_others_have_their_turns_while_a_long_record_is_looked_at(tmp_path: Path) -> None:
    async def scenario() -> None:
        turns = Turns()
        async with chunk(tmp_path, (0, 32 * CHECKED_BYTES)) as (disk, size), turns.counted():
            scan = scan_slowly(disk, NUMBER, size)
            await anext(scan)
            before = turns.count
            record = await anext(scan)
            assert isinstance(record, ScannedRecord)
            assert (record.sound, turns.count - before >= 32) == (True, True)

    asyncio.run(scenario())
