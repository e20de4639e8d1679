"""Scans a chunk from front to back: whether all of it is sound, or its records one by one, skipping what is damaged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from penstock.blob.disk import Disk
from penstock.blob.journal import chunk_name
from penstock.blob.record import (
    BLOCK_SIZE,
    HEADER_SIZE,
    MAGIC,
    TABLE_ENTRY_SIZE,
    Header,
    RecordKind,
    blocks_are_sound,
    body_is_sound,
    decode_header,
    mended_header,
    table_size,
)
from penstock.core.checksum import crc32c
from penstock.kernels.sound_records import sound_to

WINDOW_BYTES = 4 << 20
CHECKED_BYTES = 256 << 10  # at once: the loop is held for the time that their checksums take
RECORDS_AT_ONCE = 100


class ScannedRecord(NamedTuple):
    """A record with a sound header; `sound` tells whether its body is too."""

    header: Header
    body: memoryview
    sound: bool


class Gap(NamedTuple):
    """Bytes that are no record, from `offset` to `end`; `end` is None if no record follows in this chunk."""

    chunk: int
    offset: int
    end: int | None


class _Window:
    """A stretch of a file in memory, moved along as it is read."""

    def __init__(self, disk: Disk, name: str, size: int) -> None:
        self._disk = disk
        self._name = name
        self._size = size
        self._begin = 0
        self._data = b""
        self._view = memoryview(b"")

    def at_hand(self, offset: int, length: int) -> memoryview | None:
        """The range if all of it is in memory."""
        begin = offset - self._begin
        return self._view[begin : begin + length] if begin >= 0 and begin + length <= len(self._data) else None

    async def read(self, offset: int, length: int) -> memoryview:
        """The range, or as much of it as the file has."""
        end = min(offset + length, self._size)
        if offset < self._begin or end > self._begin + len(self._data):
            self._data = await self._disk.read(self._name, offset, min(max(length, WINDOW_BYTES), self._size - offset))
            self._begin = offset
            self._view = memoryview(self._data)
        return self._view[offset - self._begin : max(offset, end) - self._begin]


async def is_sound(disk: Disk, number: int, size: int) -> bool:
    """Whether a chunk is sound records from front to back. Others have their turns meanwhile."""
    window = _Window(disk, chunk_name(number), size)
    at = 0
    while at < size:
        data = bytes(await window.read(at, min(CHECKED_BYTES, size - at)))
        checked = sound_to(data, number, at)
        if not checked:
            # A record with a table, or one that is longer than this, or damaged.
            record = await _record_at(window, number, at)
            if record is None or not record.sound:
                return False
            checked = record.header.size
        at += checked
        await asyncio.sleep(0)
    return True


async def scan_slowly(disk: Disk, number: int, size: int) -> AsyncIterator[ScannedRecord | Gap]:
    """As `scan_chunk` from the start, with turns for others between some records, and while a long one is verified."""
    count = 0
    async for item in scan_chunk(disk, number, size, in_turns=True):
        yield item
        count += 1
        if count % RECORDS_AT_ONCE == 0:
            await asyncio.sleep(0)


async def scan_chunk(
    disk: Disk, number: int, size: int, start: int = 0, *, in_turns: bool = False
) -> AsyncIterator[ScannedRecord | Gap]:
    """Records and gaps of a chunk in order of their places, from `start`, which must be where a record begins. `in_turns` gives
    others their turns while a long record is verified."""
    window = _Window(disk, chunk_name(number), size)
    at = start
    while at < size:
        # An opening group scans a million small records; an await for each, though none blocks, would be most of the cost.
        raw = window.at_hand(at, HEADER_SIZE)
        header = decode_header(await window.read(at, HEADER_SIZE) if raw is None else raw, number, at)
        if header is None:
            mended = await _mended(window, number, at)
            if mended is not None:
                yield mended
                at += mended.header.size
                continue
            next_record = await _next_record(window, number, at + 1, size)
            yield Gap(number, at, next_record)
            if next_record is None:
                return
            at = next_record
            continue
        raw = window.at_hand(at + HEADER_SIZE, header.size - HEADER_SIZE)
        if raw is None:
            raw = await window.read(at + HEADER_SIZE, header.size - HEADER_SIZE)
        if in_turns and header.length > CHECKED_BYTES:
            yield await _scanned_in_turns(header, raw)
        else:
            yield _scanned(header, raw)
        at += header.size


async def _record_at(window: _Window, number: int, at: int) -> ScannedRecord | None:
    """The record that begins here; None if there is none."""
    header = decode_header(await window.read(at, HEADER_SIZE), number, at)
    return None if header is None else _scanned(header, await window.read(at + HEADER_SIZE, header.size - HEADER_SIZE))


def _scanned(header: Header, raw: memoryview) -> ScannedRecord:
    """A record, by its header and what follows it."""
    table_bytes = table_size(header.length)
    return ScannedRecord(header, raw[table_bytes:], body_is_sound(header, raw[:table_bytes], raw[table_bytes:]))


async def _scanned_in_turns(header: Header, raw: memoryview) -> ScannedRecord:
    """The same of a long record, with turns for others between some of its blocks."""
    table_bytes = table_size(header.length)
    table, body = raw[:table_bytes], raw[table_bytes:]
    sound = len(body) == header.length and crc32c(table) == header.checksum
    at = 0
    while sound and at < len(body):
        first = at // BLOCK_SIZE * TABLE_ENTRY_SIZE
        some = table[first : first + CHECKED_BYTES // BLOCK_SIZE * TABLE_ENTRY_SIZE]
        sound = blocks_are_sound(some, body[at : at + CHECKED_BYTES])
        at += CHECKED_BYTES
        await asyncio.sleep(0)
    return ScannedRecord(header, body, sound)


async def _mended(window: _Window, number: int, at: int) -> ScannedRecord | None:
    """The record here if its header is damaged in one byte and its body is sound. A part does not count as sound: who reads it
    later goes by what is on the disk; but which one it is must not be lost."""
    header = mended_header(bytes(await window.read(at, HEADER_SIZE)), number, at)
    if header is None or header.kind not in tuple(RecordKind):
        return None
    table_bytes = table_size(header.length)
    raw = await window.read(at + HEADER_SIZE, table_bytes + header.length)
    body = raw[table_bytes:]
    if not body_is_sound(header, raw[:table_bytes], body):
        return None
    return ScannedRecord(header, body, header.kind != RecordKind.PART)


async def _next_record(window: _Window, number: int, start: int, size: int) -> int | None:
    at = start
    while at < size:
        raw = bytes(await window.read(at, WINDOW_BYTES))
        position = raw.find(MAGIC)
        while position >= 0:
            header = decode_header(await window.read(at + position, HEADER_SIZE), number, at + position)
            if header is not None:
                return at + position
            position = raw.find(MAGIC, position + 1)
        at += max(len(raw) - len(MAGIC) + 1, len(MAGIC))
    return None
