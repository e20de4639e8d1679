"""The proxy of a group (DS_PROXY): the commands of BlobStorage, each one obvious call, answered for the group as a whole."""

from __future__ import annotations

import asyncio
import functools
import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from math import inf
from typing import NamedTuple, TypeVar

from penstock.blob.blob_id import (
    BLOB_SIZE_MAX,
    CHANNEL_KEY_SIZE,
    PREFIX_SIZE,
    BlobId,
)
from penstock.blob.disk import FilePiece
from penstock.blob.get_operation import GetOperation, GetResult, blob_at_hand
from penstock.blob.group import Group
from penstock.blob.link import BlocksReply, CollectRequest, DiskLink, DiskReply, TabletReply
from penstock.blob.meta import BlockItem, HistoryItem, newer_history
from penstock.blob.part_intake import PartIntake
from penstock.blob.put_operation import PutOperation
from penstock.blob.quorum import fits_fail_model, group_quorum, put_excluded
from penstock.blob.range_operation import PAGE, ListedBlob, ListingError, MergedListing, is_whole, judge, windows
from penstock.blob.request_checks import collect_trouble, field_trouble, get_trouble, put_trouble
from penstock.blob.status import OK, Reply, Status, Submitted
from penstock.blob.topology import Erasure
from penstock.blob.vector import Content, contiguous
from penstock.core.clock import Clock
from penstock.kernels.log_bytes import packed_id

_DECISIVE = (Status.BLOCKED, Status.RACE)  # the answer of one disk decides
_NONE = Erasure.NONE  # to look it up in the enumeration costs as much as the rest of `local`

Result = TypeVar("Result")
Given = tuple[BlobId, bytes | memoryview | None]  # a blob with its data, if that was asked for


class RangeResult(NamedTuple):
    """Blobs in the order asked for, with their data if it was asked for. `unreadable` are those that are listed, but of which it
    is not certain that they are written, or which cannot be read, or not be written out in full, so that another failure may lose
    them; only who asks for them is told. Of these, no put of the `unfinished` ones can have been acknowledged."""

    status: Status
    blobs: tuple[tuple[BlobId, bytes | memoryview | None], ...] = ()
    reason: str = ""
    unreadable: tuple[BlobId, ...] = ()
    unfinished: tuple[BlobId, ...] = ()


class DiscoverResult(NamedTuple):
    """The newest blobs of a tablet's log, latest first, the generation up to which the tablet is blocked, and the newest of which
    any part of its log was seen (-1 if none)."""

    status: Status
    blocked_generation: int = -1
    blobs: tuple[tuple[BlobId, bytes | memoryview | None], ...] = ()
    reason: str = ""
    history: HistoryItem | None = None  # the newest of the tablet's channels, if it has ever changed groups
    log_generation: int = -1


class GroupProxy:
    """Commands to one group. Bad arguments and failures alike are answered with a status; nothing is raised for them."""

    def __init__(self, group: Group, clock: Clock) -> None:
        self.group = group
        self._clock = clock
        self._known_link: DiskLink | None = None
        self._local_link: PartIntake | None = None

    def submit(self, blobs: Sequence[tuple[BlobId, Content]], done: Submitted) -> bool:
        """Write blobs of one tablet to the only disk of a group, if that is in this process; see TabletStorage.submit. Returns
        False, and does nothing, if it has to be done by `put_all`."""
        local = self.local()
        if local is None:
            return False
        parts: list[tuple[bytes, Content]] = []
        try:
            for blob_id, data in blobs:
                tablet, channel, generation, step, cookie, size, part = blob_id
                if len(data) != size or part or not 0 < size <= BLOB_SIZE_MAX:
                    return False
                # As `BlobId.pack_part` does, without a call of a Python function for every blob.
                parts.append((packed_id(tablet, channel, generation, step, cookie, size << 4 | 1), data))
        except OverflowError:
            return False
        return local.submit(self.group.generation, parts, done)

    def local(self) -> PartIntake | None:
        """The only disk of a group, if it has no other and that is in this process."""
        group = self.group
        if group.erasure is not _NONE:
            return None
        link = group.links[0]
        if link is not self._known_link:
            self._known_link = link
            candidate: object = link
            self._local_link = candidate if isinstance(candidate, PartIntake) else None
        return self._local_link

    async def put(self, blob_id: BlobId, data: Content, *, deadline_s: float | None = None, from_reserve: bool = False) -> Reply:
        """Write a blob. It is there for good once this answers OK, and may be there if it does not. The data must not change
        until then. `from_reserve` is for what makes room: it may use the space that full disks keep for that."""
        if deadline_s is not None:
            return await _within(deadline_s, self.put(blob_id, data, from_reserve=from_reserve), Reply)
        group = self.group
        if group.erasure is Erasure.NONE:
            (reply,) = await self.put_all([(blob_id, data)], from_reserve=from_reserve)
            return reply
        packed = _packed(blob_id, data)
        if isinstance(packed, Reply):
            return packed
        return await PutOperation(group, self._clock, packed, contiguous(data), from_reserve=from_reserve).run()

    async def put_all(self, blobs: Sequence[tuple[BlobId, Content]], *, from_reserve: bool = False) -> list[Reply]:
        """Write several blobs at the same time; each has an answer of its own, as `put` would give it."""
        group = self.group
        if group.erasure is not Erasure.NONE:
            return await asyncio.gather(*(self.put(blob_id, data, from_reserve=from_reserve) for blob_id, data in blobs))
        link = group.links[0]
        if link is None:
            return [Reply(Status.ERROR, f"VDisk {group.vdisk_id(0)} is out")] * len(blobs)
        packed = [_packed(blob_id, data) for blob_id, data in blobs]
        parts = [(own, data) for own, (_, data) in zip(packed, blobs, strict=True) if isinstance(own, bytes)]
        replies = iter(await link.put_all(group.generation, parts, from_reserve=from_reserve))
        return [own if isinstance(own, Reply) else _reply_of(next(replies)) for own in packed]

    async def get(
        self, blob_id: BlobId, offset: int = 0, length: int | None = None, *, deadline_s: float | None = None
    ) -> GetResult:
        """Read a blob, or `length` bytes of it from `offset` (to its end by default)."""
        trouble = get_trouble(blob_id, offset, length)
        if trouble:
            return GetResult(Status.ERROR, b"", trouble)
        count = min(blob_id.size - offset, blob_id.size if length is None else length)
        if count == 0:
            return GetResult(Status.ERROR, b"", f"offset {offset} is at or past the end of {blob_id}")
        work = self._get(blob_id, offset, count)
        return await (work if deadline_s is None else _within(deadline_s, work, GetResult))

    async def get_many(
        self, queries: Sequence[tuple[BlobId, int, int | None]], *, deadline_s: float | None = None
    ) -> list[GetResult]:
        """Read several ranges (blob, offset, length) at once, each with a status of its own. Blobs in memory cost no task."""
        known = [None if at or count is not None else blob_at_hand(self.group, blob) for blob, at, count in queries]
        missing = (query for query, result in zip(queries, known, strict=True) if result is None)
        given = iter(await asyncio.gather(*(self.get(*query, deadline_s=deadline_s) for query in missing)))
        return [next(given) if result is None else result for result in known]

    def pieces(self, blob_id: BlobId, offset: int, length: int) -> list[FilePiece] | None:
        """The range as pieces of open files, for sendfile; None unless every part it covers is local, in place and healthy.
        They are not verified."""
        if get_trouble(blob_id, offset, length) or offset + length > blob_id.size or self.group.erasure.is_mirror:
            return None
        packed = blob_id.pack()
        orders = self.group.subgroup(packed[:PREFIX_SIZE])
        pieces: list[FilePiece] = []
        for part, at, count in self.group.codec.slices(blob_id.size, offset, length):
            link = self.group.links[orders[part - 1]]
            part_id = packed[:PREFIX_SIZE] + (blob_id.size << 4 | part).to_bytes(4, "big")
            piece = None if link is None else link.piece(self.group.generation, part_id, at, count)
            if piece is None:
                return None
            pieces.append(piece)
        return pieces

    async def block(
        self,
        tablet: int,
        generation: int,
        issuer: int,
        *,
        history: HistoryItem | None = None,
        deadline_s: float | None = None,
    ) -> Reply:
        """Start generation `generation` of a tablet: all older ones may change nothing from now on. `issuer` is a number that
        the starter draws once, so that its retry is not taken for a rival."""
        trouble = field_trouble(BlobId(tablet, 0, generation, 0, 0, 0)) or ("" if generation else "generations count from 1")
        if not trouble and not 0 < issuer < 1 << 64:
            trouble = f"issuer {issuer} is out of range: it is drawn from 1..{(1 << 64) - 1}"
        if trouble:
            return Reply(Status.ERROR, f"cannot block the tablet: {trouble}")
        item = BlockItem(tablet.to_bytes(8, "big"), generation - 1, issuer)
        return await self._broadcast(lambda link: link.block(self.group.generation, item, history), deadline_s)

    async def collect_garbage(
        self,
        tablet: int,
        channel: int,
        generation: int,
        counter: int,
        *,
        barrier: tuple[int, int] | None = None,
        hard: bool = False,
        keep: Iterable[BlobId] = (),
        do_not_keep: Iterable[BlobId] = (),
        deadline_s: float | None = None,
    ) -> Reply:
        """Set keep flags, and then the barrier: blobs of the channel up to its generation and step are garbage unless kept. Give
        each command of a generation a higher counter; the same command may be repeated."""
        keep, do_not_keep = tuple(keep), tuple(do_not_keep)
        trouble = field_trouble(BlobId(tablet, channel, generation, counter, 0, 0))
        trouble = trouble or collect_trouble((tablet, channel), keep + do_not_keep, barrier, hard=hard)
        if trouble:
            return Reply(Status.ERROR, f"cannot collect garbage: {trouble}")
        channel_key = tablet.to_bytes(8, "big") + bytes([channel])
        collect = None if barrier is None else barrier[0].to_bytes(4, "big") + barrier[1].to_bytes(4, "big")
        request = CollectRequest(channel_key, generation, counter, collect, hard, _keys(keep), _keys(do_not_keep))
        return await self._broadcast(lambda link: link.collect(self.group.generation, request), deadline_s)

    async def range(
        self,
        first: BlobId,
        last: BlobId,
        *,
        with_data: bool = False,
        with_unreadable: bool = False,
        limit: int | None = None,
        deadline_s: float | None = None,
    ) -> RangeResult:
        """Blobs of one channel from `first` to `last`, both included; in descending order if `first` is the greater. One that
        cannot be read makes the answer an ERROR, unless those are asked for too. With a `limit`, the first so many of both."""
        if first[:2] != last[:2]:
            return RangeResult(Status.ERROR, (), f"a range is within one channel of one tablet, not from {first} to {last}")
        if trouble := field_trouble(first) or field_trouble(last):
            return RangeResult(Status.ERROR, (), trouble)
        work = self._range(first, last, with_data=with_data, with_unreadable=with_unreadable, limit=limit)
        return await (work if deadline_s is None else _within(deadline_s, work, RangeResult))

    async def discover(
        self, tablet: int, *, min_generation: int = 0, limit: int = 1, with_data: bool = True, deadline_s: float | None = None
    ) -> DiscoverResult:
        """The newest blobs of channel 0 that are certainly written, at most `limit`, and what the tablet is blocked to. NODATA if
        there is none; a limit of 0 asks for the generations alone."""
        if trouble := field_trouble(BlobId(tablet, 0, min_generation, 0, 0, 0)):
            return DiscoverResult(Status.ERROR, -1, (), trouble)
        work = self._discover(tablet, min_generation, limit, with_data=with_data)
        return await (work if deadline_s is None else _within(deadline_s, work, DiscoverResult))

    async def blocked_generations(self, tablets: Sequence[int]) -> list[int] | None:
        """The generation up to which each tablet is blocked (-1 if it is not), as soon as disks have answered of which one at
        least took part in any block that was acknowledged before this call; None if too few can tell."""
        group = self.group
        packed = b"".join([tablet.to_bytes(8, "big") for tablet in tablets])
        asks = {
            order: link.blocked_generations(group.generation, packed)
            for order, link in enumerate(group.links)
            if link is not None
        }

        def suffice(replies: dict[int, BlocksReply]) -> bool:
            answered = sum(1 << order for order, reply in replies.items() if reply.status is Status.OK)
            return fits_fail_model(group.erasure, (1 << len(group.links)) - 1 & ~answered)

        replies = await group.ask(asks, suffice, hedge_s=0.0)
        if any(reply.status is Status.RACE for reply in replies.values()):
            group.note_race()
        found = [reply.generations for reply in replies.values() if reply.status is Status.OK]
        if not suffice(replies) or any(len(generations) != len(tablets) for generations in found):
            return None
        return [max(each) for each in zip(*found, strict=True)]

    async def _get(self, blob_id: BlobId, offset: int, length: int, held: Sequence[int] | None = None) -> GetResult:
        group = self.group
        if group.erasure is not Erasure.NONE:
            return await GetOperation(group, self._clock, blob_id, offset, length, held=held).run()
        link = group.links[0]
        if link is None:
            return GetResult(Status.ERROR, b"", f"VDisk {group.vdisk_id(0)} is out")
        reply = await link.get(group.generation, blob_id.pack_part(1), offset, length)
        if reply.status is not Status.OK:
            return GetResult(reply.status, b"", reply.reason, reply.damaged)
        data = reply.parts[0][1]
        return GetResult(Status.OK, data if isinstance(data, bytes) else memoryview(data))

    async def _broadcast(self, call: Callable[[DiskLink], Awaitable[DiskReply]], deadline_s: float | None) -> Reply:
        """Send to every disk of the group; OK once a quorum has answered so, without waiting for the rest."""
        work = self._ask_all(call)
        return await (work if deadline_s is None else _within(deadline_s, work, Reply))

    async def _ask_all(self, call: Callable[[DiskLink], Awaitable[DiskReply]]) -> Reply:
        async def ask(order: int) -> tuple[int, DiskReply]:
            link = self.group.links[order]
            if link is None:
                return order, DiskReply(Status.ERROR, f"VDisk {self.group.vdisk_id(order)} is out")
            return order, await call(link)

        erasure = self.group.erasure
        if erasure is Erasure.NONE:
            # A single disk decides alone.
            _, reply = await ask(0)
            if reply.status is Status.OK and reply.history is None:
                return OK
            decides = reply.status in (Status.OK, Status.ALREADY, *_DECISIVE)
            return Reply(reply.status if decides else Status.ERROR, reply.reason, reply.history)
        answered = failed = 0
        status = Status.ERROR
        reasons: list[str] = []
        history: HistoryItem | None = None
        pending = {self.group.spawn(ask(order)) for order in range(len(self.group.links))}
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                order, reply = task.result()
                history = newer_history(history, reply.history)
                if reply.status in _DECISIVE and not reply.is_behind:
                    return Reply(reply.status, reply.reason, history)
                if reply.status is Status.OK:
                    answered |= 1 << order
                else:
                    failed |= 1 << order
                    reasons.append(reply.reason)
                    if reply.is_behind:
                        self.group.note_race()  # it is offered the configuration of this node
                    if reply.status in (Status.ALREADY, Status.RACE) and status is not Status.ALREADY:
                        status = reply.status
            if group_quorum(erasure, answered):
                return OK if history is None else Reply(Status.OK, "", history)
            if not fits_fail_model(erasure, failed):
                break
        return Reply(status, "too few disks agreed: " + "; ".join(dict.fromkeys(reasons)), history)

    async def _range(
        self, first: BlobId, last: BlobId, *, with_data: bool, with_unreadable: bool, limit: int | None
    ) -> RangeResult:
        reverse = first > last
        low, high = (last, first) if reverse else (first, last)
        channel_key = low.pack()[:CHANNEL_KEY_SIZE]
        begin, end = _key(low), _key(high) + b"\0"
        most = inf if limit is None else limit
        found: list[ListedBlob] = []
        given: list[Given] = []
        unreadable: list[BlobId] = []
        unfinished: list[BlobId] = []
        in_doubt = (unreadable, unfinished) if with_unreadable else None
        listing = MergedListing(self.group, channel_key, reverse=reverse, page_blobs=PAGE if limit is None else min(PAGE, limit))
        try:
            async for seen in listing.blobs(begin, end):
                verdict = judge(self.group, seen)
                if verdict is None and not with_unreadable:
                    return RangeResult(Status.ERROR, (), f"too few disks can tell whether {seen.blob_id} is written")
                if not low <= seen.blob_id <= high:
                    continue
                if verdict:
                    found.append(seen)
                elif verdict is None:
                    unreadable.append(seen.blob_id)
                if len(found) + len(given) + len(unreadable) >= most:
                    given += await self._give_out_all(found, in_doubt, with_data=with_data)
                    found.clear()
                    if len(given) + len(unreadable) >= most:  # otherwise some were collected meanwhile
                        break
            given += await self._give_out_all(found, in_doubt, with_data=with_data)
            return RangeResult(Status.OK, tuple(given), "", tuple(unreadable), tuple(unfinished))
        except ListingError as error:
            return RangeResult(error.status, (), error.reason)

    async def _give_out_all(
        self, found: Sequence[ListedBlob], in_doubt: tuple[list[BlobId], list[BlobId]] | None, *, with_data: bool
    ) -> list[Given]:
        """Blobs as they are reported, without those that were collected since they were listed. One that cannot be read or
        completed is added to those `in_doubt`, the unreadable and the unfinished ones; ListingError if that is None."""

        async def give_out(seen: ListedBlob) -> Given | None:
            try:
                return await self._give_out(seen, with_data=with_data)
            except ListingError as error:
                if in_doubt is None or error.status is Status.RACE:
                    raise
                unreadable, unfinished = in_doubt
                unreadable.append(seen.blob_id)
                if error.is_unfinished:
                    unfinished.append(seen.blob_id)
                return None

        given: list[Given | None] = []
        for window in windows(found):
            if with_data or not all(is_whole(self.group, seen) for seen in window):
                async with self.group.reading:
                    given += await asyncio.gather(*map(give_out, window))
            else:
                given += [(seen.blob_id, None) for seen in window]
        return [blob for blob in given if blob is not None]

    async def _discover(self, tablet: int, min_generation: int, limit: int, *, with_data: bool) -> DiscoverResult:
        channel_key = tablet.to_bytes(8, "big") + b"\0"
        begin = min_generation.to_bytes(4, "big")
        blobs: list[Given] = []
        try:
            known = await self._look_up(channel_key[:8])
            blocked = max(reply.blocked_generation for reply in known)
            history = functools.reduce(newer_history, (reply.history for reply in known))
            log_generation = max(reply.log_generation for reply in known)
            if limit == 0:
                return DiscoverResult(Status.NODATA, blocked, history=history, log_generation=log_generation)
            async for seen in MergedListing(self.group, channel_key, reverse=True).blobs(begin, None):
                verdict = judge(self.group, seen)
                if verdict is None and with_data:
                    reason = f"too few disks can tell whether {seen.blob_id} is written"
                    return DiscoverResult(Status.ERROR, blocked, (), reason)
                # Who asks for ids alone wants to know what was begun: one in doubt is told, though it may be damaged.
                in_doubt: Given = (seen.blob_id, None)
                given = await self._give_out(seen, with_data=with_data) if verdict else in_doubt if verdict is None else None
                if given is not None:
                    blobs.append(given)
                    if len(blobs) == limit:
                        break
        except ListingError as error:
            return DiscoverResult(error.status, -1, (), error.reason)
        return DiscoverResult(Status.OK if blobs else Status.NODATA, blocked, tuple(blobs), "", history, log_generation)

    async def _look_up(self, tablet: bytes) -> list[TabletReply]:
        """What enough disks know of the generations of a tablet: one at least took part in any that was started."""
        erasure, links = self.group.erasure, self.group.links

        def failed(replies: dict[int, TabletReply]) -> int:
            return sum(
                1 << order for order in range(len(links)) if order not in replies or replies[order].status is not Status.OK
            )

        asks = {order: link.look_up(self.group.generation, tablet) for order, link in enumerate(links) if link is not None}
        replies = await self.group.ask(asks, lambda replies: fits_fail_model(erasure, failed(replies)))
        if any(reply.status is Status.RACE for reply in replies.values()):
            raise ListingError(Status.RACE, "the group changed")
        if not fits_fail_model(erasure, failed(replies)):
            raise ListingError(Status.ERROR, f"too few disks of group {self.group.id:08x} answer")
        return [reply for reply in replies.values() if reply.status is Status.OK]

    async def _give_out(self, seen: ListedBlob, *, with_data: bool) -> Given | None:
        """A blob as it is reported: written in full first if it is not. None if it was collected since it was listed."""
        whole = is_whole(self.group, seen)
        if whole and not with_data:
            return seen.blob_id, None
        read = await self._get(seen.blob_id, 0, seen.blob_id.size, held=seen.parts)
        if read.status is Status.NODATA:
            return None
        if read.status is not Status.OK:
            raise ListingError(_listing_status(read.status), f"{seen.blob_id} is written but cannot be read: {read.reason}")
        if not whole:
            rewriting = PutOperation(self.group, self._clock, seen.blob_id.pack(), read.data, restored=seen.parts)
            rewritten = await rewriting.run()
            if rewritten.status is Status.NODATA:
                return None
            if rewritten.status is not Status.OK:
                reason = f"{seen.blob_id} cannot be completed: {rewritten.reason}"
                is_unfinished = put_excluded(self.group.erasure, seen.parts, seen.unknown)
                raise ListingError(_listing_status(rewritten.status), reason, is_unfinished=is_unfinished)
        return seen.blob_id, read.data if with_data else None


async def _within(deadline_s: float, work: Awaitable[Result], result: Callable[..., Result]) -> Result:
    try:
        async with asyncio.timeout(deadline_s):
            return await work
    except TimeoutError:
        return result(Status.DEADLINE)


def _listing_status(status: Status) -> Status:
    return Status.RACE if status is Status.RACE else Status.ERROR


def _key(blob_id: BlobId) -> bytes:
    return blob_id.pack()[CHANNEL_KEY_SIZE:PREFIX_SIZE]


def _keys(blob_ids: tuple[BlobId, ...]) -> tuple[bytes, ...]:
    return tuple(map(_key, blob_ids))


def _packed(blob_id: BlobId, data: Content) -> bytes | Reply:
    """The id of a blob's first part; if the blob cannot be put, the reply that says why."""
    size = blob_id.size
    if len(data) != size or blob_id.part or not 0 < size <= BLOB_SIZE_MAX:
        return Reply(Status.ERROR, put_trouble(blob_id, data))
    try:
        return blob_id.pack_part(1)
    except struct.error:
        return Reply(Status.ERROR, field_trouble(blob_id))


def _reply_of(reply: DiskReply) -> Reply:
    return OK if reply.status is Status.OK else Reply(reply.status, reply.reason)
