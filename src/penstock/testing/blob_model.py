"""BlobStorage without disks: what each command answers, on one page. Groups of every kind must give the same answers.

Garbage vanishes here at once; a group follows when a quorum is known to hold the barrier.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.blob import BLOB_SIZE_MAX, BlobId, Status

KEEP, DO_NOT_KEEP = 1, 2

Prefix = tuple[int, int, int, int, int]
Moment = tuple[int, int]


class BlobModel:
    """The state of a group as its clients know it."""

    def __init__(self) -> None:
        self.blobs: dict[Prefix, tuple[BlobId, bytes]] = {}
        self.flags: dict[Prefix, int] = {}
        self.blocks: dict[int, tuple[int, int]] = {}  # tablet: blocked generation, issuer
        self.barriers: dict[tuple[int, int, bool], tuple[Moment, Moment]] = {}  # (generation, counter), what it collects

    def put(self, blob_id: BlobId, data: bytes) -> Status:
        """TEvPut."""
        if len(data) != blob_id.size or blob_id.part or not 0 < blob_id.size <= BLOB_SIZE_MAX:
            return Status.ERROR
        if blob_id.generation <= self.blocked_generation(blob_id.tablet):
            return Status.BLOCKED
        if self.is_garbage(blob_id):
            return Status.ERROR
        known = self.blobs.setdefault(blob_id[:5], (blob_id, data))
        return Status.OK if known == (blob_id, data) else Status.ERROR

    def get(self, blob_id: BlobId, offset: int = 0, length: int | None = None) -> tuple[Status, bytes]:
        """TEvGet."""
        if blob_id.part or not 0 <= offset < blob_id.size or (length is not None and length <= 0):
            return Status.ERROR, b""
        known = self.blobs.get(blob_id[:5])
        if known is None or known[0] != blob_id:
            return Status.NODATA, b""
        return Status.OK, known[1][offset : None if length is None else offset + length]

    def block(self, tablet: int, generation: int, issuer: int) -> Status:
        """TEvBlock."""
        if generation < 1:
            return Status.ERROR
        blocked, holder = self.blocks.get(tablet, (-1, 0))
        if generation <= blocked:
            return Status.BLOCKED
        if generation - 1 == blocked and issuer != holder:
            return Status.ALREADY
        self.blocks[tablet] = generation - 1, issuer
        return Status.OK

    def collect_garbage(
        self,
        tablet: int,
        channel: int,
        generation: int,
        counter: int,
        *,
        barrier: Moment | None = None,
        hard: bool = False,
        keep: Iterable[BlobId] = (),
        do_not_keep: Iterable[BlobId] = (),
    ) -> Status:
        """TEvCollectGarbage."""
        flagged = [(blob_id, KEEP) for blob_id in keep] + [(blob_id, DO_NOT_KEEP) for blob_id in do_not_keep]
        if (hard and flagged) or any(blob_id[:2] != (tablet, channel) for blob_id, _ in flagged):
            return Status.ERROR
        if generation <= self.blocked_generation(tablet):
            return Status.BLOCKED
        if barrier is not None:
            key = generation, counter
            held = self.barriers.get((tablet, channel, hard))
            if held is not None and (key < held[0] or barrier < held[1] or (key == held[0] and barrier != held[1])):
                return Status.ERROR
            self.barriers[tablet, channel, hard] = key, barrier
        for blob_id, flag in flagged:
            self.flags[blob_id[:5]] = self.flags.get(blob_id[:5], 0) | flag
        self.blobs = {prefix: known for prefix, known in self.blobs.items() if not self.is_garbage(known[0])}
        return Status.OK

    def range(self, first: BlobId, last: BlobId) -> list[tuple[BlobId, bytes]]:
        """TEvRange."""
        low, high = min(first, last), max(first, last)
        return sorted((known for known in self.blobs.values() if low <= known[0] <= high), reverse=first > last)

    def discover(self, tablet: int, min_generation: int = 0, limit: int = 1) -> tuple[Status, int, list[tuple[BlobId, bytes]]]:
        """TEvDiscover."""
        log = [known for known in self.blobs.values() if known[0][:2] == (tablet, 0) and known[0].generation >= min_generation]
        newest = sorted(log, reverse=True)[:limit]
        return Status.OK if newest else Status.NODATA, self.blocked_generation(tablet), newest

    def blocked_generation(self, tablet: int) -> int:
        """The highest generation that may change nothing; -1 if none."""
        return self.blocks.get(tablet, (-1, 0))[0]

    def is_garbage(self, blob_id: BlobId) -> bool:
        """Whether a barrier has ended the blob, written or not."""
        moment = blob_id.generation, blob_id.step
        if moment <= self._collected(blob_id, hard=True):
            return True
        return moment <= self._collected(blob_id, hard=False) and self.flags.get(blob_id[:5], 0) != KEEP

    def _collected(self, blob_id: BlobId, *, hard: bool) -> Moment:
        held = self.barriers.get((blob_id.tablet, blob_id.channel, hard))
        return (-1, -1) if held is None else held[1]
