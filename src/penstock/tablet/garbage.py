"""Garbage collection of a KV tablet's data: which blobs BlobStorage must keep below the barrier, and which it may drop.

A blob that dies before the barrier reaches it needs no flag at all. One that lives when the barrier passes it is flagged Keep,
and DoNotKeep when it dies. Where it is not certain whether a blob was flagged Keep, it is taken to be. What is still
to be flagged is known in memory alone: a tablet that starts finds it by comparing its keys with what is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.blob import STEP_MAX, BlobId, Reply, Status, TabletStorage
from penstock.tablet.boot import DATA, LOG, PAGES
from penstock.tablet.log_format import Place

FLAGS_AT_ONCE = 2_000  # in one command: each disk of the group works through them in one turn of the loop


class Garbage:
    """Keeps account of a tablet's data blobs and tells BlobStorage about them, one command at a time."""

    def __init__(self, storage: TabletStorage, generation: int, barrier: Place, live: Collection[BlobId]) -> None:
        self._storage = storage
        self._generation = generation
        self._counter = 0
        self.barrier = barrier
        self._live = live  # those that keys refer to, at any time
        # Blobs above the barrier, and whether they may have been flagged Keep: the last generation may have got that far.
        self._young = {blob: True for blob in live if blob[2:4] > barrier}
        self._dead: list[BlobId] = []
        self._dead_young = 0
        self.dead_bytes = 0

    @property
    def waiting(self) -> int:
        """How many blobs are dead and not yet given up."""
        return len(self._dead) + self._dead_young

    def born(self, blob: BlobId) -> None:
        """Note a blob whose log entry is durable."""
        self._young[blob] = False

    def died(self, blobs: Iterable[BlobId]) -> None:
        """Note blobs that nothing refers to any more."""
        for blob in blobs:
            self.dead_bytes += blob.size
            if self._young.pop(blob, True):
                self._dead.append(blob)
            else:
                self._dead_young += 1

    def abandoned(self, blobs: int, size: int) -> None:
        """Note how many blobs, with how many bytes, aborted entries may have left; they are deleted once the barrier has passed
        them."""
        self._dead_young += blobs
        self.dead_bytes += size

    async def find_leftovers(self, live: Iterable[BlobId]) -> Status:
        """After a start: whatever earlier generations stored that no key refers to is dead."""
        tablet = self._storage.info.tablet
        first = BlobId(tablet, DATA, 0, 0, 0, 0)
        last = BlobId(tablet, DATA, self._generation - 1, STEP_MAX, 0, 0)
        # One that cannot be read is left: if nothing refers to it, the barrier ends it, unless it was flagged Keep.
        listing = await self._storage.range(first, last, with_unreadable=True)
        if listing.status is Status.OK:
            known = set(live)
            self.died(blob for blob, _ in listing.blobs if blob not in known)
        return listing.status

    async def collect(self, upto: Place) -> Reply:
        """Flag what needs it and move the barrier over all data up to a place that is settled."""
        assert self.barrier <= upto, "a barrier never moves back"
        assert not any(blob in self._live for blob in self._dead), "no blob is dropped that a key refers to"
        keep = [blob for blob in self._young if blob[2:4] <= upto]
        self._young.update((blob, True) for blob in keep)
        dead, self._dead = self._dead, []
        dead_young, self._dead_young = self._dead_young, 0
        dead_bytes, self.dead_bytes = self.dead_bytes, 0
        flagged = [(blob, True) for blob in keep] + [(blob, False) for blob in dead]
        reply = await self._flag(flagged[:-FLAGS_AT_ONCE])
        if reply is None or reply.status is Status.OK:
            reply = await self._send(DATA, flagged[-FLAGS_AT_ONCE:], upto)
        if reply.status is Status.OK:
            self.barrier = upto
            for blob in keep:
                self._young.pop(blob, None)
            return reply
        self._dead = dead + self._dead
        self._dead_young += dead_young
        self.dead_bytes += dead_bytes
        return reply

    async def drop_log(self, snapshot_at: Place) -> Reply:
        """A snapshot is complete: the log it covers and the pages of older ones are not needed any more."""
        reply = await self._send(LOG, [], snapshot_at)
        generation, step = snapshot_at
        before = (generation, step - 1) if step else (generation - 1, STEP_MAX)
        return await self._send(PAGES, [], before) if reply.status is Status.OK else reply

    async def _flag(self, flagged: list[tuple[BlobId, bool]]) -> Reply | None:
        reply = None
        for begin in range(0, len(flagged), FLAGS_AT_ONCE):
            reply = await self._send(DATA, flagged[begin : begin + FLAGS_AT_ONCE], None)
            if reply.status is not Status.OK:
                break
        return reply

    async def _send(self, channel: int, flagged: list[tuple[BlobId, bool]], barrier: Place | None) -> Reply:
        self._counter += 1
        return await self._storage.collect_garbage(
            channel,
            self._generation,
            self._counter,
            barrier=barrier,
            keep=[blob for blob, is_kept in flagged if is_kept],
            do_not_keep=[blob for blob, is_kept in flagged if not is_kept],
        )
