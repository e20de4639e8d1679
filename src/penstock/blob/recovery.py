"""Opening a VDisk: the newest whole checkpoint, then the log after it, told apart from a torn tail and from damage.

What stands before the end that was known to be durable was acknowledged: if it cannot be read, that is damage, and it is reported
and left to repair. What stands after it was never acknowledged, and is dropped where it is not whole. That end is told by later
records, and by the files of chunk_ends, without which a log that lost its last chunks would look like one that never had them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from penstock.blob.blob_id import BlobId
from penstock.blob.channel import place_of
from penstock.blob.checkpoint import SUFFIX as CHECKPOINT_SUFFIX
from penstock.blob.checkpoint import checkpoint_name, load_checkpoint
from penstock.blob.chunk_ends import Ends, load_ends
from penstock.blob.chunk_scan import Gap, ScannedRecord, scan_chunk
from penstock.blob.disk import Disk
from penstock.blob.index import DiskIndex
from penstock.blob.journal import CHUNK_SUFFIX, Position, chunk_name
from penstock.blob.meta import decode_items
from penstock.blob.record import Header, RecordKind, abandoned_from, record_size
from penstock.blob.sisters import decode_marks
from penstock.core.errors import CorruptionError, DataMissingError


@dataclass(slots=True)
class Recovery:
    """What opening a disk found. `losses` are sentences for people, one for each thing that should be there and is not."""

    index: DiskIndex
    next_chunk: int = 1
    last: Position = (0, 0)  # the place of the last record, those with marks of sisters left out
    checkpoints: list[int] = field(default_factory=list)
    checkpoint_starts: dict[int, Position] = field(default_factory=dict)
    records_replayed: int = 0
    torn: int = 0
    losses: list[str] = field(default_factory=list)
    # Something is gone and it is not known what: the disk can prove no absence until it has been compared with the others.
    unknown_loss: bool = False
    # Of those losses, the files that are missing or shorter than they were: they may be restored.
    missing: list[str] = field(default_factory=list)
    missing_chunks: set[int] = field(default_factory=set)
    unreadable: list[int] = field(default_factory=list)  # checkpoints
    heads: dict[int, int] = field(default_factory=dict)  # by chunk whose head can be read, the first of those abandoned before it
    ends: Ends = field(default_factory=dict)
    ends_file: int = 0


async def recover(disk: Disk, index: DiskIndex, *, only_copy: bool = False, accept_loss: bool = False) -> Recovery:
    """Fill an empty index from the disk. DataMissingError if files of an only copy are missing and that is not accepted; then the
    disk is not changed."""
    recovery = Recovery(index)
    files = await disk.files()
    chunks = {number: files[chunk_name(number)] for number in _numbers(files, CHUNK_SUFFIX)}
    start = await _load_newest_checkpoint(disk, files, recovery)
    recovery.last = start
    recovery.ends_file, ends = await load_ends(disk, files)
    await _replay(disk, chunks, start, ends, recovery)
    _miss_checkpoints(chunks, recovery)
    for number, size in chunks.items():
        use = index.chunk_use(number)
        use.size, use.sealed = size, True
    # Garbage first: the checkpoint may know of parts whose chunk was given back since.
    for channel_key in list(index.channels):
        index.collect_garbage(channel_key)
    for number in set(index.chunks) - set(chunks):
        index.chunk_use(number).sealed = True
    short = index.short_chunks(chunks)
    if short and (lost := index.mark_missing(short, chunks)):
        names = ", ".join(chunk_name(number) for number in sorted(short)[:3])
        recovery.missing.append(f"{lost} parts lay in chunk files that are missing or cut ({names})")
        recovery.losses.append(recovery.missing[-1])
    if recovery.missing and only_copy:
        recovery.unknown_loss = False  # once it is accepted: there is no other disk to compare with
    if recovery.missing and only_copy and not accept_loss:
        raise DataMissingError(
            f"files of the only copy are missing: {'; '.join(recovery.missing[:3])}; restore them from a backup (nothing was "
            "changed here), or accept that what was in them is lost"
        )
    # Where metadata may be lost, they are what tells so, until a new one has taken their place.
    if not recovery.unknown_loss:
        for number in recovery.unreadable:
            await disk.delete(checkpoint_name(number))
        recovery.unreadable = []
    recovery.next_chunk = max([0, start[0], *chunks, *ends]) + 1
    return recovery


def _numbers(files: Iterable[str], suffix: str) -> list[int]:
    """The numbers of the files of one sort; others that only look alike are not ours and are left alone."""
    stems = (name.removesuffix(suffix) for name in files if name.endswith(suffix))
    return [int(stem) for stem in stems if stem.isascii() and stem.isdigit() and f"{int(stem):08d}" == stem]


async def _load_newest_checkpoint(disk: Disk, files: dict[str, int], found: Recovery) -> Position:
    numbers = sorted(_numbers(files, CHECKPOINT_SUFFIX), reverse=True)
    for number in numbers:
        name = checkpoint_name(number)
        raw = await disk.read(name, 0, files[name])
        try:
            start = load_checkpoint(raw, found.index)
        except CorruptionError:
            # Unfinished or damaged: an older one and more of the log say the same.
            found.index.reset()
            found.unreadable.append(number)
            continue
        found.checkpoints = sorted(n for n in numbers if n <= number)
        found.checkpoint_starts[number] = start
        return start
    return (0, 0)


def _miss_checkpoints(chunks: Iterable[int], found: Recovery) -> None:
    """Tell from the chunks whether checkpoints that cannot be read were ever finished: only then are chunks given back, and what
    their log said is in the checkpoints alone. Numbers of abandoned chunks are missing too: the head behind them says so, and one
    that cannot be read is damage, or the torn tail of a write that failed."""
    if found.checkpoints or not found.unreadable:
        return
    if any(found.heads.get(number, 0) > before + 1 for before, number in pairwise([0, *sorted(chunks)])):
        found.losses.append("no checkpoint can be read, and part of the log before it is gone: metadata may be lost")
        found.unknown_loss = True


async def _replay(disk: Disk, chunks: dict[int, int], start: Position, ends: Ends, found: Recovery) -> None:
    durable: Position = (0, 0)
    damage: list[Gap | ScannedRecord] = []
    doubtful: list[Gap | ScannedRecord] = []
    for number in sorted(number for number in {*chunks, *ends} if number >= start[0]):
        offset = start[1] if number == start[0] else 0
        end = ends.get(number, 0)
        found.ends[number] = end
        if chunks.get(number, 0) < max(end, offset):
            _report_cut(number, chunks.get(number), max(end, offset), found)
        async for item in scan_chunk(disk, number, chunks.get(number, 0), offset):
            if isinstance(item, Gap):
                (damage if item.offset < end else doubtful).append(item)
                continue
            if item.header.durable == (number, 0):
                # The log was restarted here after a failed write. What precedes is judged by what was known then: a torn tail
                # left behind does not become damage because more was written after it.
                damage += _settle(doubtful, durable, ends, found)
                doubtful = []
            durable = max(durable, item.header.durable)
            found.records_replayed += 1
            if item.header.kind == RecordKind.CHUNK_HEAD:
                found.heads[number] = abandoned_from(item.header)
            elif item.header.kind in (RecordKind.PART, RecordKind.META):
                found.last = max(found.last, (number, item.header.offset))
            if item.sound:
                _apply(found.index, item)
                found.ends[number] = max(found.ends.get(number, 0), item.header.offset + item.header.size)
            else:
                bare = item._replace(body=memoryview(b""))
                (damage if item.header.offset < end else doubtful).append(bare)
    for trouble in damage + _settle(doubtful, durable, ends, found):
        _report(trouble, chunks, found)


def _report_cut(number: int, size: int | None, end: int, found: Recovery) -> None:
    state = f"is missing, with {end} bytes" if size is None else f"has only {size} of {end} bytes"
    found.missing.append(f"{chunk_name(number)} {state} that were written")
    found.missing_chunks.add(number)
    found.losses.append(found.missing[-1])
    found.unknown_loss = True


def _settle(doubtful: list[Gap | ScannedRecord], durable: Position, ends: Ends, found: Recovery) -> list[Gap | ScannedRecord]:
    """Those that stand where everything had been acknowledged; the others are counted as torn."""
    damage = [item for item in doubtful if _place(item) < durable]
    torn = [_place(item) for item in doubtful if _place(item) >= durable]
    found.torn += len(torn)
    for number, offset in torn:
        # Whole records behind it in the chunk were never acknowledged. Counted as known to be durable they would make damage of
        # it at the next opening.
        found.ends[number] = min(found.ends[number], max(offset, ends.get(number, 0)))
    return damage


def _place(item: Gap | ScannedRecord) -> Position:
    return (item.chunk, item.offset) if isinstance(item, Gap) else (item.header.chunk, item.header.offset)


def _apply(index: DiskIndex, item: ScannedRecord) -> None:
    if item.header.kind == RecordKind.PART:
        index.add_part(item.header.blob_id, item.header.chunk, item.header.offset)
    elif item.header.kind == RecordKind.META:
        for change in decode_items(item.body):
            index.apply(change)
    elif item.header.kind == RecordKind.SISTERS:
        index.marks.update((mark.order, mark) for mark in decode_marks(item.body))


def _report(trouble: Gap | ScannedRecord, chunks: dict[int, int], found: Recovery) -> None:
    if isinstance(trouble, Gap):
        end = "its end" if trouble.end is None else f"byte {trouble.end}"
        found.losses.append(f"chunk {trouble.chunk} is unreadable from byte {trouble.offset} to {end}")
        found.unknown_loss = True
        return
    header = trouble.header
    if header.kind == RecordKind.PART:
        if _is_elsewhere(header, chunks, found.index):
            return
        entry = found.index.add_part(header.blob_id, header.chunk, header.offset)
        found.index.mark_damaged(header.blob_id, entry)
        found.losses.append(f"part {BlobId.unpack(header.blob_id)} in chunk {header.chunk} at byte {header.offset} is damaged")
    elif header.kind == RecordKind.META:
        found.losses.append(f"metadata in chunk {header.chunk} at byte {header.offset} is damaged")
        found.unknown_loss = True


def _is_elsewhere(damaged: Header, chunks: dict[int, int], index: DiskIndex) -> bool:
    """Whether a part whose record is damaged is there without it: it was written again since, or was moved, and what it was moved
    from is still there. A checkpoint from before the move tells only of that, which may have been given back."""
    entry = index.entry_of(damaged.blob_id)
    if entry is None:
        return False
    known = place_of(entry)
    if known[:2] >= (damaged.chunk, damaged.offset):
        return known[:2] > (damaged.chunk, damaged.offset)
    end = known.offset + record_size(index.part_size(known.size))
    return not known.damaged and end <= chunks.get(known.chunk, 0)
