"""Finding blobs by order of id: the indexes of all disks merged, each blob judged by the parts that are seen of it.

A blob that enough parts are seen of is there, and is written out in full before it is reported, so that it cannot be lost
later. One of which too few can exist was never acknowledged: it is passed over. Where neither is certain, the answer is ERROR;
so it is where the disks that give no page, or cannot tell what they lack, could hold a finished put that no other disk shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple

from penstock.blob.blob_id import BlobId
from penstock.blob.group import HEDGE_S, Group
from penstock.blob.link import IndexedBlob, Page
from penstock.blob.quorum import absence_shown, fits_fail_model, put_done, put_excluded, recoverable
from penstock.blob.status import Status

PAGE = 4096
READS_AT_ONCE = 64
READ_BYTES_AT_ONCE = 4 << 20  # or a single blob: links and memory hold several such readers


class ListedBlob(NamedTuple):
    """A blob and what is seen of it: masks of parts by subgroup index, and the indices that cannot tell."""

    blob_id: BlobId
    parts: tuple[int, ...]
    unknown: int


class ListingError(Exception):
    """A listing cannot be completed; carries the status to answer, and whether that is for a blob that can be read, of which no
    put can have been acknowledged."""

    def __init__(self, status: Status, reason: str, *, is_unfinished: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.is_unfinished = is_unfinished


class MergedListing:
    """The blobs of one channel over all disks of a group, in order of key."""

    def __init__(
        self,
        group: Group,
        channel_key: bytes,
        *,
        reverse: bool,
        may_miss: bool = False,
        hedge_s: float = HEDGE_S,
        page_blobs: int = PAGE,
    ) -> None:
        """With `may_miss`, blobs that only `silent` disks hold may be missing: who asks minds that himself."""
        self._group = group
        self._generation = group.generation
        self._channel_key = channel_key
        self._reverse = reverse
        self._may_miss = may_miss
        self._hedge_s = hedge_s
        self._page_blobs = page_blobs  # of a disk, at a time
        self._failed = 0
        self._unproven = 0
        self._late = 0  # disks that did not answer in time: they are not asked again

    @property
    def silent(self) -> int:
        """The disks (order numbers) that gave no page, or one that proves no absence."""
        return self._failed | self._unproven

    async def blobs(self, begin: bytes, end: bytes | None) -> AsyncIterator[ListedBlob]:
        """Blobs with begin <= key < end. ListingError if the fail model is exceeded or the group changed."""
        while True:
            pages = await self._pages(begin, end)
            full = [page[-1].key for page in pages.values() if len(page) == self._page_blobs]
            bound = (max(full) if self._reverse else min(full)) if full else None
            by_key: dict[bytes, dict[int, IndexedBlob]] = {}
            for order, page in pages.items():
                for listed in page:
                    if bound is None or (listed.key >= bound if self._reverse else listed.key <= bound):
                        by_key.setdefault(listed.key, {})[order] = listed
            for key in sorted(by_key, reverse=self._reverse):
                yield self._seen(key, by_key[key])
            if bound is None:
                return
            await asyncio.sleep(0)  # a disk in memory answers at once: others get their turn between two pages
            if self._reverse:
                end = bound
            else:
                begin = bound + b"\0"

    async def _pages(self, begin: bytes, end: bytes | None) -> dict[int, Sequence[IndexedBlob]]:
        links = self._group.links
        asks = {
            order: link.listing(self._generation, self._channel_key, begin, end, reverse=self._reverse, limit=self._page_blobs)
            for order, link in enumerate(links)
            if link is not None and not self._late >> order & 1
        }
        if len(links) == 1:
            replies = {order: await ask for order, ask in asks.items()}
        else:
            replies = await self._group.ask(asks, self._suffices, hedge_s=self._hedge_s)
        pages: dict[int, Sequence[IndexedBlob]] = {}
        for order, page in replies.items():
            if page.status is Status.RACE:
                raise ListingError(Status.RACE, "the group changed")
            if page.status is Status.OK:
                pages[order] = page.blobs
        self._late |= sum(1 << order for order in asks if order not in replies)
        self._failed, self._unproven = self._gone(replies)
        self._check_enough()
        return pages

    def _gone(self, replies: dict[int, Page]) -> tuple[int, int]:
        """The disks that gave no page by now, and those whose pages prove no absence."""
        failed, unproven = self._failed, self._unproven
        for order in range(len(self._group.links)):
            page = replies.get(order)
            if page is None or page.status is not Status.OK:
                failed |= 1 << order
            elif not page.proves_absence:
                unproven |= 1 << order
        return failed, unproven

    def _suffices(self, replies: dict[int, Page]) -> bool:
        """Whether the pages that have come would do without the others."""
        if any(page.status is Status.RACE for page in replies.values()):
            return True
        failed, unproven = self._gone(replies)
        erasure = self._group.erasure
        return fits_fail_model(erasure, failed) and (self._may_miss or absence_shown(erasure, failed | unproven))

    def _check_enough(self) -> None:
        erasure = self._group.erasure
        if not fits_fail_model(erasure, self._failed):
            raise ListingError(Status.ERROR, f"too few disks of group {self._group.id:08x} answer")
        # A lone disk has no sister to compare itself with: what it lists is all there is, and it reports what it has lost.
        if len(self._group.links) > 1 and not self._may_miss and not absence_shown(erasure, self.silent):
            raise ListingError(Status.ERROR, f"too few disks of group {self._group.id:08x} can tell what they lack")

    def _seen(self, key: bytes, by_order: dict[int, IndexedBlob]) -> ListedBlob:
        prefix = self._channel_key + key
        sizes = [listed.size for listed in by_order.values()]
        size = max(set(sizes), key=sizes.count)
        parts: list[int] = []
        unknown = 0
        for index, order in enumerate(self._group.subgroup(prefix)):
            listed = by_order.get(order)
            parts.append(listed.parts if listed is not None and listed.size == size else 0)
            cannot_tell = (self._failed if listed is not None else self.silent) >> order & 1
            if cannot_tell or (listed is not None and listed.damaged):
                unknown |= 1 << index
        return ListedBlob(BlobId.unpack(prefix + (size << 4).to_bytes(4, "big")), tuple(parts), unknown)


def judge(group: Group, seen: ListedBlob) -> bool | None:
    """True: the blob is there; False: it never was, to anyone's knowledge; None: neither is certain."""
    if recoverable(group.erasure, seen.parts):
        return True
    return False if put_excluded(group.erasure, seen.parts, seen.unknown) else None


def is_whole(group: Group, seen: ListedBlob) -> bool:
    """Whether the blob has all the parts that an acknowledged put leaves."""
    return put_done(group.erasure, seen.parts)


def windows(listed: Sequence[ListedBlob]) -> Iterator[list[ListedBlob]]:
    """Cuts a listing into stretches of blobs that are read at once."""
    window: list[ListedBlob] = []
    size = 0
    for seen in listed:
        size += seen.blob_id.size
        if len(window) == READS_AT_ONCE or (window and size > READ_BYTES_AT_ONCE):
            yield window
            window, size = [], seen.blob_id.size
        window.append(seen)
    if window:
        yield window
