"""Reading one stored part, whole or in part, and never without verifying it."""

from __future__ import annotations

from penstock.blob.channel import Place
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


async def read_part(disk: Disk, place: Place, stored: int, offset: int, length: int) -> Buffer | None:
    """A range of a part of `stored` bytes; None if what lies there is not what was written."""
    if stored > BLOCK_SIZE and length <= stored // 2:
        return await _read_blocks(disk, place, stored, offset, length)
    raw = memoryview(await disk.read(chunk_name(place.chunk), place.offset, record_size(stored)))
    header = decode_header(raw, place.chunk, place.offset)
    if header is None or header.length != stored:
        return None
    begin = HEADER_SIZE + table_size(stored)
    body = raw[begin:]
    if not body_is_sound(header, raw[HEADER_SIZE:begin], body):
        return None
    return body if length == stored else body[offset : offset + length]


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
