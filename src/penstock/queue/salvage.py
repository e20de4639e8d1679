"""Making a partition whole after part of what is stored of it was lost: what is left stays at its offsets, and fillers stand for
what is gone.

A filler is a control batch over all offsets of a stretch. Every reader passes over it, as over the marker of a transaction, and
so comes to what follows; and no offset is given twice.
"""

from __future__ import annotations

from struct import error as struct_error
from typing import NamedTuple

from penstock.core.checksum import crc32c
from penstock.core.errors import CorruptionError
from penstock.core.record_format import BATCH_HEADER, CONTROL, CRC_FROM, HEADER_SIZE, MAGIC, packed_record
from penstock.queue import keys
from penstock.queue.clean_state import CleanState
from penstock.queue.errors import InvalidBatchError
from penstock.queue.keys import BODY, HEAD, DataKey, Description, Meta
from penstock.queue.piece import Marks, Piece
from penstock.tablet import Command, DeleteRange, KvTablet, Write

FILLER_OFFSETS_MAX = (1 << 31) - 1
_ABORT_KEY, _ABORT_VALUE = bytes(4), bytes(6)


class LostOffsets(NamedTuple):
    """Offsets of which nothing can be read any more: first_offset <= offset < next_offset."""

    first_offset: int
    next_offset: int


class SalvagePlan(NamedTuple):
    """What is lost of a partition, and what makes it whole without that."""

    lost: tuple[LostOffsets, ...]
    commands: tuple[Command, ...]


def make_filler(first_offset: int, count: int, timestamp_ms: int) -> bytes:
    """A stored batch over these offsets with nothing in it for a reader."""
    record = packed_record(count - 1, _ABORT_VALUE, key=_ABORT_KEY)
    size = HEADER_SIZE + len(record)
    batch = bytearray(
        BATCH_HEADER.pack(first_offset, size - 12, 0, MAGIC, 0, CONTROL, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, 1)
    )
    batch += record
    batch[CRC_FROM - 4 : CRC_FROM] = crc32c(memoryview(batch)[CRC_FROM:]).to_bytes(4, "big")
    return bytes(batch)


async def plan_salvage(tablet: KvTablet, number: int, keyed_to: int | None = None) -> SalvagePlan:
    """Read everything of a partition that has keys and see what is lost. Of one that is served, keys end at `keyed_to`: what
    follows is in memory. UnavailableError if that cannot be told now. Changes nothing."""
    return await _Salvage(tablet, number, keyed_to).plan()


class _Salvage:
    """The plan in the making."""

    def __init__(self, tablet: KvTablet, number: int, keyed_to: int | None) -> None:
        self._tablet = tablet
        self._number = number
        self._keyed_to = keyed_to
        self._lost: list[LostOffsets] = []
        self._commands: list[Command] = []
        self._latest_ms = 0  # of what was read so far; fillers take it

    async def plan(self) -> SalvagePlan:
        raw_meta = self._tablet.head(keys.prefix(b"m", self._number))
        raw_clean = self._tablet.head(keys.prefix(b"k", self._number))
        clean_to = 0 if raw_clean is None else CleanState.unpack(raw_clean).clean_to
        runs = self._without_leftovers()
        first = runs[0].first_offset if runs else 0
        meta = Meta(first, first) if raw_meta is None else Meta.unpack(raw_meta)
        bodies_end = max((run.first_offset for run in runs if run.kind == BODY), default=-1)
        at = meta.start_offset
        for run in runs:
            if run.first_offset > max(at, clean_to):  # within what is compacted, gaps are nothing lost
                self._fill_gap(max(at, clean_to), run.first_offset, BODY if run.first_offset <= bodies_end else HEAD)
            await self._check(run)
            at = max(at, run.first_offset + run.messages)
        end = meta.end_offset if self._keyed_to is None else min(meta.end_offset, self._keyed_to)
        if end > at:
            self._fill_gap(at, end, HEAD)
        if self._commands or raw_meta is None:
            end = max(at, meta.end_offset)
            self._commands.append(Write(keys.prefix(b"m", self._number), Meta(meta.start_offset, end).pack()))
        lost = [offsets for offsets in self._lost if offsets.next_offset > meta.start_offset]
        return SalvagePlan(tuple(_joined(lost)), tuple(self._commands))

    def _without_leftovers(self) -> list[DataKey]:
        """The data of the partition in order. What a lost log entry should have deleted, since others hold it too, goes."""
        own = keys.prefix(b"d", self._number)
        runs = [DataKey.unpack(key) for key in self._tablet.keys(own, keys.past(own))]
        runs.sort(key=lambda run: (run.first_offset, -run.messages))
        kept: list[DataKey] = []
        end = -1
        for run in runs:
            if run.first_offset < end:
                self._delete(run)
            else:
                kept.append(run)
                end = run.first_offset + run.messages
        return kept

    async def _check(self, run: DataKey) -> None:
        """Read a run; put a filler in place of what is lost of it."""
        key = run.pack()
        description = Description.unpack(self._tablet.head(key) or b"")
        size = description.data_size + description.marks_size
        try:
            raw = await self._tablet.read(key, 0, size)
            if raw is None or len(raw) != size:
                raise CorruptionError(f"it has {0 if raw is None else len(raw)} bytes, not {size}")
            Piece.parse(memoryview(raw)[: description.data_size], run.first_offset, run.messages)
        except (CorruptionError, InvalidBatchError, struct_error):
            await self._rebuild(run, description)
        self._latest_ms = max(self._latest_ms, description.max_timestamp)

    async def _rebuild(self, run: DataKey, description: Description) -> None:
        """Rewrite a run: readable ranges are copied as they are, unreadable ones become fillers."""
        parts: list[bytes] = []
        lost: list[LostOffsets] = []
        for stretch, raw in await self._stretches(run, description):
            if raw is None:
                lost.append(stretch)
                continue
            parts += self._fillers(lost, description.max_timestamp)
            lost = []
            parts.append(raw)
        parts += self._fillers(lost, description.max_timestamp)
        self._write(run, b"".join(parts))

    async def _stretches(self, run: DataKey, description: Description) -> list[tuple[LostOffsets, bytes | None]]:
        """Stretches of whole batches from mark to mark, and the bytes of those that can be read."""
        key, whole = run.pack(), LostOffsets(run.first_offset, run.first_offset + run.messages)
        if run.kind == HEAD:
            return [(whole, None)]
        try:
            marks = Marks.unpack(await self._tablet.read(key, description.data_size, description.marks_size) or b"")
        except (CorruptionError, struct_error):
            return [(whole, None)]
        pieces: list[tuple[LostOffsets, bytes | None]] = []
        offsets = [whole.first_offset, *marks.offsets[1:], whole.next_offset]
        positions = [*marks.positions, description.data_size]
        for at in range(len(positions) - 1):
            stretch = LostOffsets(offsets[at], offsets[at + 1])
            try:
                raw = await self._tablet.read(key, positions[at], positions[at + 1] - positions[at])
                Piece.parse(raw or b"", stretch.first_offset, stretch.next_offset - stretch.first_offset)
            except (CorruptionError, InvalidBatchError, struct_error, ValueError):
                raw = None
            pieces.append((stretch, None if raw is None else bytes(raw)))
        return pieces

    def _fillers(self, lost: list[LostOffsets], timestamp_ms: int) -> list[bytes]:
        if not lost:
            return []
        self._lost += lost
        fillers: list[bytes] = []
        at, end = lost[0].first_offset, lost[-1].next_offset
        while at < end:
            count = min(end - at, FILLER_OFFSETS_MAX)
            fillers.append(make_filler(at, count, timestamp_ms))
            at += count
        return fillers

    def _fill_gap(self, first_offset: int, next_offset: int, kind: bytes) -> None:
        data = b"".join(self._fillers([LostOffsets(first_offset, next_offset)], self._latest_ms))
        self._write(DataKey(self._number, first_offset, next_offset - first_offset, kind), data)

    def _write(self, run: DataKey, data: bytes) -> None:
        piece = Piece.parse(data, run.first_offset, run.messages)
        marks = piece.marks.pack() if run.kind == BODY else b""
        description = Description(len(data), len(marks), piece.min_timestamp, piece.max_timestamp)
        self._commands.append(Write(run.pack(), (data, marks), description.pack(), inline_max=0))

    def _delete(self, run: DataKey) -> None:
        key = run.pack()
        self._commands.append(DeleteRange(key, key + b"\0"))


def _joined(lost: list[LostOffsets]) -> list[LostOffsets]:
    """Neighbours as one."""
    joined: list[LostOffsets] = []
    for offsets in sorted(lost):
        if joined and joined[-1].next_offset >= offsets.first_offset:
            joined[-1] = LostOffsets(joined[-1].first_offset, max(joined[-1].next_offset, offsets.next_offset))
        else:
            joined.append(offsets)
    return joined
