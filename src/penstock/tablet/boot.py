"""Recovery of a KV tablet: reads its log and snapshot, and decides which entries count.

One commit is in flight at a time, so only the last entry can be in doubt: it counts if it and all the data it wrote are there,
written in full. Were it counted while too few disks hold it, one more failure would lose it, and with it all that is written
behind it. Every other entry was acknowledged, or declared aborted by a later one. Each generation begins by recording where the
last one ended, so that an entry that appears later is ignored and a lost one is detected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from penstock.blob import COOKIE_MAX, GENERATION_MAX, SIZE_FIELD_MAX, STEP_MAX, BlobId, GetResult, Status, TabletStorage
from penstock.core.errors import CorruptionError, FencedError, UnavailableError
from penstock.tablet.key_index import KeyIndex, refs_of
from penstock.tablet.log_format import Append, LogEntry, Place, SnapshotMark, decode_entry, decode_page

LOG, DATA, PAGES = 0, 1, 2
CHANNELS = 3
LOSSES_TOLD = 3
ENTRIES_AT_FIRST = 8  # a tablet that was handed over has a snapshot among its last few
ENTRIES_AT_ONCE = 64
LISTED_AT_FIRST = 64  # mostly enough; four times as many each time it is not
LISTED_AT_ONCE = 4096


class DamagedTabletError(CorruptionError):
    """Part of a tablet's log or snapshot is gone for good: it cannot tell its state, and does not start."""

    code = "damaged_tablet"


@dataclass(slots=True)
class BootState:
    """What a tablet knows when it starts: its keys, the appends of its log since the snapshot, the barrier of its data, and the
    last entry that counts. `losses` are sentences for people, one for each thing that should be there and is not."""

    index: KeyIndex = field(default_factory=KeyIndex)
    appends: list[tuple[Place, Append]] = field(default_factory=list)
    barrier: Place = (0, 0)
    last: Place = (0, 0)
    entries_replayed: int = 0
    losses: list[str] = field(default_factory=list)


async def read_state(storage: TabletStorage, generation: int, *, give_up: bool = False) -> BootState:
    """The state that the log and the newest snapshot give to a generation that has blocked the older ones. DamagedTabletError if
    any of it is lost, unless that is to be given up; FencedError if a newer generation runs, which may have deleted what is not
    there."""
    state = await salvage_state(storage)
    if state.losses:
        await check_owner(storage, generation)
    if state.losses and not give_up:
        more = f"; and {len(state.losses) - LOSSES_TOLD} more" if len(state.losses) > LOSSES_TOLD else ""
        raise DamagedTabletError(f"tablet {storage.info.tablet} is damaged: {'; '.join(state.losses[:LOSSES_TOLD])}{more}")
    return state


async def check_owner(storage: TabletStorage, generation: int) -> None:
    """Raises FencedError if a newer generation runs: it may have deleted what this one still refers to."""
    discovery = await storage.discover(limit=0)
    if discovery.status not in (Status.OK, Status.NODATA):
        raise UnavailableError(f"whether a newer generation runs cannot be told: {discovery.status.value}: {discovery.reason}")
    if discovery.blocked_generation >= generation:
        raise FencedError(f"generation {generation} cannot read what a newer one has deleted")


async def salvage_state(storage: TabletStorage) -> BootState:
    """The state as far as it can be read; lost entries and pages are left out and reported."""
    state = BootState()
    log = await _read_log(storage)
    start = log.covered
    if log.mark is not None:
        await _load_pages(storage, log.mark, state)
    lost = {place: entry for place, entry in log.valid.items() if isinstance(entry, str) and place > start}
    state.losses += (lost[place] for place in sorted(lost))
    known = {place: entry for place, entry in sorted(log.valid.items()) if place > start and isinstance(entry, LogEntry)}
    counted = await _whole(storage, _without_unfinished(storage, known, log.incomplete))
    if not lost:
        state.losses += _holes(start, counted)
    for place, entry in counted.items():
        state.index.load(entry.changes)
        state.appends += ((place, append) for append in entry.appends)
        if entry.collected is not None:
            state.barrier = max(state.barrier, entry.collected)
    state.index.count_references()
    state.entries_replayed = len(counted)
    state.last = max([start, *counted, *lost])
    return state


class _LogTail:
    """The valid entries of a log, from the last one back: without those that were aborted, or that came to light after a later
    generation had begun without them. What is not valid has no say about those before it. An entry that is lost is a sentence
    that says so: what it said is not known, but whether it counted is, since later ones say so."""

    def __init__(self) -> None:
        self.valid: dict[Place, LogEntry | str] = {}
        self.mark: SnapshotMark | None = None  # of the newest snapshot
        self.incomplete: dict[Place, bool] = {}  # entries that too few disks hold, and whether none can have been acknowledged
        self._aborted: dict[int, list[Collection[int]]] = {}  # steps, by generation; a range of them may be long
        self._end = (GENERATION_MAX, STEP_MAX)

    @property
    def covered(self) -> Place:
        """The last entry that the snapshot covers; before all of them while none was met."""
        return (0, 0) if self.mark is None else self.mark.taken_at

    def prepend(self, place: Place, entry: LogEntry | str) -> None:
        """Take the entry before those that were taken so far."""
        generation, step = place
        if place > self._end or any(step in steps for steps in self._aborted.get(generation, ())):
            return
        self.valid[place] = entry
        if isinstance(entry, str):
            return
        if entry.aborted:
            self._aborted.setdefault(generation, []).append(entry.aborted)
        if entry.boot is not None:
            self._end = min(self._end, entry.boot)
        if self.mark is None:
            self.mark = entry.snapshot


async def _read_log(storage: TabletStorage) -> _LogTail:
    """The log from its end back to the newest snapshot. What that covers is neither listed nor read: there may be thousands of
    entries for a while, since disks delete them only when they know that enough others do, and a listing writes those out in
    full that a disk which was away does not have yet."""
    tablet, tail = storage.info.tablet, _LogTail()
    end, count = BlobId(tablet, LOG, GENERATION_MAX, STEP_MAX, COOKIE_MAX, SIZE_FIELD_MAX), LISTED_AT_FIRST
    while (end.generation, end.step) > tail.covered:
        begin = BlobId(tablet, LOG, *tail.covered, 0, 0)
        listing = await storage.range(end, begin, with_unreadable=True, limit=count)
        if listing.status is not Status.OK:
            raise UnavailableError(f"the log of tablet {tablet} cannot be read: {listing.status.value}: {listing.reason}")
        tail.incomplete.update((blob[2:4], blob in listing.unfinished) for blob in listing.unreadable)
        blobs = sorted([*(blob for blob, _ in listing.blobs), *listing.unreadable], reverse=True)
        await _read_entries(storage, blobs, tail)
        if len(blobs) < count:
            break
        end, count = blobs[-1]._replace(size=0), min(4 * count, LISTED_AT_ONCE)
    return tail


async def _read_entries(storage: TabletStorage, blobs: Sequence[BlobId], tail: _LogTail) -> None:
    """Read entries, the last first, until a snapshot covers the others."""
    begin, count = 0, ENTRIES_AT_FIRST
    while begin < len(blobs):
        wanted = [blob for blob in blobs[begin : begin + count] if (blob.generation, blob.step) > tail.covered]
        begin, count = begin + count, min(2 * count, ENTRIES_AT_ONCE)
        results = await storage.get_many(wanted) if wanted else ()
        await asyncio.sleep(0)  # what is in memory is read without waiting: others get their turn
        for blob, result in zip(wanted, results, strict=True):
            entry = _entry_of(storage, blob, result)
            if entry is not None:
                tail.prepend((blob.generation, blob.step), entry)


def _entry_of(storage: TabletStorage, blob: BlobId, result: GetResult) -> LogEntry | str | None:
    """An entry, or a sentence that says why it is lost; None if it was never written. UnavailableError if that is not known."""
    if result.status is Status.OK:
        try:
            return decode_entry(result.data, (blob.generation, blob.step))
        except CorruptionError as error:
            return str(error)
    return f"log entry {blob} is damaged" if _is_lost(storage, blob, result) else None


def _is_lost(storage: TabletStorage, blob: BlobId, result: GetResult) -> bool:
    """Whether a blob that is listed and cannot be read is damaged; False if it was never written. UnavailableError if it may be
    read later."""
    if result.damaged or result.status is Status.NODATA:
        return result.damaged
    if result.status is Status.OK:
        raise UnavailableError(f"{blob} of tablet {storage.info.tablet} can be read, and not be written in full now")
    raise UnavailableError(f"{blob} of tablet {storage.info.tablet} cannot be read now: {result.status.value}: {result.reason}")


async def _load_pages(storage: TabletStorage, mark: SnapshotMark, state: BootState) -> None:
    state.barrier = mark.barrier
    pages = await storage.get_many(mark.pages) if mark.pages else ()
    for page, result in zip(mark.pages, pages, strict=True):
        if result.status is Status.NODATA or result.damaged:
            state.losses.append(f"snapshot page {page} is {'damaged' if result.damaged else 'not there'}")
        elif result.status is not Status.OK:
            raise UnavailableError(f"snapshot page {page} cannot be read: {result.status.value}: {result.reason}")
        else:
            try:
                state.index.load(decode_page(result.data, str(page)))
            except CorruptionError as error:
                state.losses.append(str(error))


def _holes(start: Place, log: dict[Place, LogEntry]) -> list[str]:
    """Which entries are missed: each follows the one before it but for steps that were aborted, and the first of a generation
    names the last of those before."""
    missed: list[str] = []
    before = start
    for place, entry in log.items():
        generation, step = place
        first = before[1] + 1 if generation == before[0] else 1
        aborted = entry.aborted if isinstance(entry.aborted, range) else frozenset(entry.aborted)
        lacking = [number for number in range(first, step) if number not in aborted]
        if lacking:
            missed.append(f"log entries {generation}:{lacking[0]} to {generation}:{lacking[-1]} are not there")
        if generation != before[0] and entry.boot != before:
            named = "one that it does not name" if entry.boot is None else f"{entry.boot[0]}:{entry.boot[1]}"
            missed.append(f"log entries after {before[0]}:{before[1]} up to {named} are not there")
        before = place
    return missed


def _without_unfinished(
    storage: TabletStorage, log: dict[Place, LogEntry], incomplete: dict[Place, bool]
) -> dict[Place, LogEntry]:
    """The entries without the last ones that can be read and not be written in full, if none of these can have been acknowledged.
    UnavailableError if one can: whether it counts is known when it is in full."""
    log = dict(log)
    while log and (place := max(log)) in incomplete:
        if not incomplete[place]:
            raise UnavailableError(
                f"log entry {place[0]}:{place[1]} of tablet {storage.info.tablet} may have been acknowledged, and too few disks "
                "hold it or take it now; the tablet starts when more of them work or have room"
            )
        del log[place]
    return log


async def _whole(storage: TabletStorage, log: dict[Place, LogEntry]) -> dict[Place, LogEntry]:
    """The entries without the very last, if the data it wrote is not there. Data of others was there, and may be gone by now."""
    if not log:
        return log
    place = max(log)
    written = {ref.blob for _, value in log[place].changes for ref in refs_of(value) if ref.blob[2:4] == place}
    if not written or written <= await _data_blobs(storage, place):
        return log
    return {other: entry for other, entry in log.items() if other != place}


async def _data_blobs(storage: TabletStorage, place: Place) -> set[BlobId]:
    tablet = storage.info.tablet
    first = BlobId(tablet, DATA, *place, 0, 0)
    last = BlobId(tablet, DATA, *place, COOKIE_MAX, SIZE_FIELD_MAX)
    listing = await storage.range(first, last, with_unreadable=True)
    if listing.status is not Status.OK:
        raise UnavailableError(f"the data of tablet {tablet} cannot be listed: {listing.status.value}: {listing.reason}")
    # One that is damaged was written; one that is unfinished never was, in full.
    in_doubt = [blob for blob in listing.unreadable if blob not in listing.unfinished]
    damaged = {blob for blob in in_doubt if _is_lost(storage, blob, await storage.get(blob))}
    return damaged | {blob for blob, _ in listing.blobs}
