"""Bringing a KV tablet up: what its log and snapshot say, and how much of them counts.

One commit is under way at a time, so only the very last entry can be in doubt: it counts if all the data it wrote is there. Any
other was acknowledged or declared aborted by a later one. Each generation begins by noting where the one before it ended, so that
an entry which comes to light afterwards changes nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from penstock.blob import COOKIE_MAX, GENERATION_MAX, SIZE_FIELD_MAX, STEP_MAX, BlobId, Status, TabletStorage
from penstock.core.errors import UnavailableError
from penstock.tablet.key_index import KeyIndex, refs_of
from penstock.tablet.log_format import LogEntry, Place, SnapshotMark, decode_entry, decode_page

LOG, DATA, PAGES = 0, 1, 2
CHANNELS = 3


@dataclass(slots=True)
class BootState:
    """What a tablet knows when it starts: its keys, the barrier of its data, and the last entry that counts."""

    index: KeyIndex = field(default_factory=KeyIndex)
    barrier: Place = (0, 0)
    last: Place = (0, 0)
    entries_replayed: int = 0


async def read_state(storage: TabletStorage) -> BootState:
    """The state that the log and the newest snapshot give."""
    log = _valid(await _read_log(storage))
    state = BootState()
    mark = next((entry.snapshot for _, entry in sorted(log.items(), reverse=True) if entry.snapshot is not None), None)
    start = mark.taken_at if mark is not None else (0, 0)
    if mark is not None:
        await _load_pages(storage, mark, state)
    counted = await _whole(storage, {place: entry for place, entry in log.items() if place > start})
    for entry in counted.values():
        state.index.load(entry.changes)
        if entry.collected is not None:
            state.barrier = max(state.barrier, entry.collected)
    state.index.count_references()
    state.entries_replayed = len(counted)
    state.last = max([start, *counted])
    return state


async def _read_log(storage: TabletStorage) -> dict[Place, LogEntry]:
    tablet = storage.info.tablet
    first = BlobId(tablet, LOG, 0, 0, 0, 0)
    last = BlobId(tablet, LOG, GENERATION_MAX, STEP_MAX, COOKIE_MAX, SIZE_FIELD_MAX)
    found = await storage.range(first, last, with_data=True)
    if found.status is not Status.OK:
        raise UnavailableError(f"the log of tablet {tablet} cannot be read: {found.status.value}: {found.reason}")
    log: dict[Place, LogEntry] = {}
    for blob, data in found.blobs:
        place = (blob.generation, blob.step)
        log[place] = decode_entry(data or b"", place)
    return log


def _valid(log: dict[Place, LogEntry]) -> dict[Place, LogEntry]:
    """The log without entries that were aborted, or that came to light after a later generation had begun without them. From the
    last entry back: what is not valid has no say about those before it."""
    valid: dict[Place, LogEntry] = {}
    aborted: set[Place] = set()
    end = (GENERATION_MAX, STEP_MAX)
    for place, entry in sorted(log.items(), reverse=True):
        if place in aborted or place > end:
            continue
        valid[place] = entry
        aborted.update((place[0], step) for step in entry.aborted)
        if entry.boot is not None:
            end = min(end, entry.boot)
    return dict(sorted(valid.items()))


async def _load_pages(storage: TabletStorage, mark: SnapshotMark, state: BootState) -> None:
    state.barrier = mark.barrier
    pages = await asyncio.gather(*(storage.get(page) for page in mark.pages))
    for page, result in zip(mark.pages, pages, strict=True):
        if result.status is not Status.OK:
            raise UnavailableError(f"snapshot page {page} cannot be read: {result.status.value}: {result.reason}")
        state.index.load(decode_page(result.data, str(page)))


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
    found = await storage.range(first, last)
    if found.status is not Status.OK:
        raise UnavailableError(f"the data of tablet {tablet} cannot be listed: {found.status.value}: {found.reason}")
    return {blob for blob, _ in found.blobs}
