"""What the disks of a group say to its proxy and to each other: requests, replies, and the calls that carry them.

A VDisk in this process answers these calls itself; one on another node is behind a stub with the same calls, in a BoundedLink.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.blob.configuration import Configuration, ConfigurationReply
from penstock.blob.disk import Buffer, FilePiece
from penstock.blob.meta import BlockItem, DiskState, HistoryItem, MetaItem
from penstock.blob.sisters import SisterMark
from penstock.blob.status import Status
from penstock.blob.vector import Content


class DiskReply(NamedTuple):
    """A VDisk's answer. `written` tells a part stored now, at `place` in the log, from one that was there; `conflict`, that other
    bytes are."""

    status: Status
    reason: str = ""
    written: bool = False
    conflict: bool = False
    place: tuple[int, int] = (0, 0)  # chunk and offset; not told by a group's only disk, which takes nothing back
    history: HistoryItem | None = None  # the newest of the tablet, if it was blocked
    is_behind: bool = False  # with RACE: this disk is in an older configuration than the command, which others may serve


class PartsReply(NamedTuple):
    """Parts read from a VDisk. ERROR here means that the disk cannot tell, or, with `damaged`, that what it holds is no
    longer what was written."""

    status: Status
    parts: tuple[tuple[int, Buffer], ...] = ()
    reason: str = ""
    damaged: bool = False


class IndexedBlob(NamedTuple):
    """A blob in a disk's index; masks have bit p-1 for part p."""

    key: bytes
    size: int
    parts: int
    damaged: int


class Page(NamedTuple):
    """A stretch of a disk's index. `proves_absence`: a part that it does not list is one that the disk should not hold."""

    status: Status
    blobs: Sequence[IndexedBlob] = ()
    proves_absence: bool = False


class ChannelsReply(NamedTuple):
    """The keys of the channels of which a disk holds parts; `proves_absence` as in a page."""

    status: Status
    keys: Sequence[bytes] = ()
    proves_absence: bool = False


class TabletReply(NamedTuple):
    """Up to which generation a tablet is blocked (-1 if it is not), the newest generation of which the disk holds a part of its
    log (-1 if none), and its newest channel history, if it has changed groups."""

    status: Status
    blocked_generation: int = -1
    log_generation: int = -1
    history: HistoryItem | None = None


class BlocksReply(NamedTuple):
    """Up to which generation each of several tablets is blocked (-1 if it is not), in the order asked for."""

    status: Status
    generations: tuple[int, ...] = ()


class PullReply(NamedTuple):
    """Metadata for a sister disk, and where it stands afterwards in this disk's sync log; `state` is FRESH if it knows none.
    `known` is what the disk knew of the sister before this call, and `disorders` the number of the last disorder it heard of."""

    status: Status
    incarnation: int = 0
    position: int = 0
    items: tuple[MetaItem, ...] = ()
    state: DiskState = DiskState.FRESH
    known: SisterMark | None = None
    disorders: int = 0


class CollectRequest(NamedTuple):
    """TEvCollectGarbage, as each disk gets it. `collect` is None where only flags are set."""

    channel: bytes
    record_generation: int
    counter: int
    collect: bytes | None
    hard: bool
    keep: tuple[bytes, ...]
    do_not_keep: tuple[bytes, ...]


class DiskLink(Protocol):
    """The calls of a VDisk. `generation` is the group's: a disk of another one answers RACE. A call ends in time and raises
    nothing: a disk that fails and a link that breaks give a status."""

    @property
    def is_remote(self) -> bool:
        """Whether the VDisk is on another node."""
        ...

    @property
    def is_failing(self) -> bool:
        """Whether its disk or the way to it did not work when it was used last."""
        ...

    async def put(self, generation: int, blob_id: bytes, body: Content, *, from_reserve: bool = False) -> DiskReply:
        """Store one part; `blob_id` is the packed id with its part. On a full disk only `from_reserve`."""
        ...

    async def put_all(
        self, generation: int, parts: Sequence[tuple[bytes, Content]], *, from_reserve: bool = False
    ) -> list[DiskReply]:
        """Store parts of different blobs, which become durable together; each has a reply of its own."""
        ...

    async def put_replica(self, generation: int, blob_id: bytes, body: Buffer) -> DiskReply:
        """Store a part that the disk should have held already: blocks do not stand in its way, barriers do."""
        ...

    async def get(self, generation: int, blob_id: bytes, offset: int, length: int) -> PartsReply:
        """Read a range of one part, or with part 0 in the id every part held there, whole."""
        ...

    def piece(self, generation: int, blob_id: bytes, offset: int, length: int) -> FilePiece | None:
        """A range of a part that is there and durable, as a piece of its file."""
        ...

    def part_at_hand(self, generation: int, blob_id: bytes) -> Buffer | None:
        """A whole part that is there, durable and sound, if it can be had without waiting; None if `get` must fetch it."""
        ...

    async def block(self, generation: int, item: BlockItem, history: HistoryItem | None = None) -> DiskReply:
        """Raise the blocked generation of a tablet to `item.generation`, and take its channel history if that is newer."""
        ...

    async def collect(self, generation: int, request: CollectRequest) -> DiskReply:
        """Set keep flags, then a barrier."""
        ...

    async def look_up(self, generation: int, tablet: bytes) -> TabletReply:
        """What the disk knows of the generations of a tablet."""
        ...

    async def blocked_generations(self, generation: int, tablets: bytes) -> BlocksReply:
        """Up to which generation many tablets are blocked: their numbers, 8 bytes each. Only a disk that has heard from its
        sisters since it was opened answers."""
        ...

    async def listing(
        self, generation: int, channel_key: bytes, begin: bytes, end: bytes | None, *, reverse: bool, limit: int
    ) -> Page:
        """Blobs of a channel with begin <= key < end of which the disk holds parts, in order, up to `limit`."""
        ...

    async def channels(self, generation: int) -> ChannelsReply:
        """The keys of all channels of which the disk holds parts."""
        ...

    async def pull(
        self, generation: int, order: int, incarnation: int, position: int, mark: SisterMark | None = None
    ) -> PullReply:
        """Metadata that sister disk `order` has not heard, given where it stood in which incarnation of the disk. `mark` is what
        the sister says of itself; a fresh one has nothing to say."""
        ...

    async def drop(self, generation: int, blob_id: bytes, place: tuple[int, int]) -> DiskReply:
        """Drop a part, because its put is undone. The place is the one that the put was answered with: a call that comes late
        drops no part that was stored since."""
        ...

    async def configure(self, offered: Configuration) -> ConfigurationReply:
        """Take a configuration of the group, if it is newer than the one that the disk is in; the answer names the newer one."""
        ...

    async def form(self, generation: int) -> DiskReply:
        """Begin as an empty disk of a group that its configuration calls new; nothing is served yet."""
        ...

    async def note_disorder(self, generation: int) -> DiskReply:
        """Some disk of the group lacks a part or holds one too many: this one compares itself with the others."""
        ...
