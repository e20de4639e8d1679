"""Reading one stored part, whole or in part, and never without verifying it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.blob.blob_id import PREFIX_SIZE
from penstock.blob.channel import Entry, Place, place_of
from penstock.blob.disk import Buffer, Disk, FilePiece
from penstock.blob.journal import chunk_name
from penstock.blob.record import (
    BLOCK_SIZE,
    HEADER_SIZE,
    blocks_are_sound,
    body_is_sound,
    decode_header,
    record_size,
    table_size,
)

if TYPE_CHECKING:
    from penstock.blob.vdisk import VDisk


def part_id_of(blob_id: bytes, place: Place) -> bytes:
    """The id of the part of a blob that lies at a place."""
    return blob_id[:PREFIX_SIZE] + (place.size << 4 | place.part).to_bytes(4, "big")


async def read_stored(vdisk: VDisk, blob_id: bytes, entry: Entry, offset: int, length: int, *, whole: bool) -> Buffer | None:
    """A range of the part at an entry; None if it is damaged or the disk fails."""
    place = place_of(entry)
    part_id = part_id_of(blob_id, place)
    stored = vdisk.index.part_size(place.size)
    if whole:
        offset, length = 0, stored
    while not place.damaged:
        if place[:2] >= vdisk.journal.durable:
            await vdisk.journal.wait_durable(place[:2])
            arrived = vdisk.index.entry_of(part_id)
            if arrived is None:
                return None  # it did not become durable, even if its bytes can be read now
            entry, place = arrived, place_of(arrived)
        try:
            data = await read_part(vdisk.disk, place, stored, offset, length)
        except OSError:
            data = None
            failed = True
        else:
            failed = False
        if data is not None:
            return data
        # Upkeep may have moved the part during the read.
        current = vdisk.index.entry_of(part_id)
        if current is None:
            return None
        if current | 3 == entry | 3:
            if not failed and vdisk.index.mark_damaged(part_id, entry):
                vdisk.repair_wanted.set()
            return None
        entry, place = current, place_of(current)
    return None


async def read_part(disk: Disk, place: Place, stored: int, offset: int, length: int) -> Buffer | None:
    """A range of a part of `stored` bytes; None if what lies there is not what was written."""
    if stored > BLOCK_SIZE and length <= stored // 2:
        return await _read_blocks(disk, place, stored, offset, length)
    body = _sound_body(await disk.read(chunk_name(place.chunk), place.offset, record_size(stored)), place, stored)
    return body if body is None or length == stored else body[offset : offset + length]


def read_part_at_hand(disk: Disk, place: Place, stored: int) -> Buffer | None:
    """A whole part of `stored` bytes, if the disk has it in memory; None if not, or if it is not what was written."""
    try:
        raw = disk.read_at_hand(chunk_name(place.chunk), place.offset, record_size(stored))
    except OSError:
        return None
    return None if raw is None else _sound_body(raw, place, stored)


def _sound_body(record: bytes, place: Place, stored: int) -> memoryview | None:
    """The body of a record, which lies at a place; None if it is not what was written there."""
    raw = memoryview(record)
    header = decode_header(raw, place.chunk, place.offset)
    if header is None or header.length != stored:
        return None
    begin = HEADER_SIZE + table_size(stored)
    body = raw[begin:]
    return body if body_is_sound(header, raw[HEADER_SIZE:begin], body) else None


async def _read_blocks(disk: Disk, place: Place, stored: int, offset: int, length: int) -> Buffer | None:
    """Only the blocks that cover the range, each against its own checksum in the table."""
    name = chunk_name(place.chunk)
    first = offset // BLOCK_SIZE
    last = (offset + length + BLOCK_SIZE - 1) // BLOCK_SIZE
    table = await disk.read(name, place.offset + HEADER_SIZE + first * 4, (last - first) * 4)
    body_at = place.offset + HEADER_SIZE + table_size(stored)
    end = min(last * BLOCK_SIZE, stored)
    blocks = await disk.read(name, body_at + first * BLOCK_SIZE, end - first * BLOCK_SIZE)
    if len(blocks) != end - first * BLOCK_SIZE or not blocks_are_sound(table, blocks):
        return None
    begin = offset - first * BLOCK_SIZE
    return memoryview(blocks)[begin : begin + length]


def part_piece(disk: Disk, place: Place, stored: int, offset: int, length: int) -> FilePiece | None:
    """The same range as a piece of an open file, unverified, where the disk has files."""
    begin = place.offset + HEADER_SIZE + table_size(stored) + offset
    return disk.piece(chunk_name(place.chunk), begin, length)
