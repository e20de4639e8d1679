"""What a VDisk tells its sister disks, and takes from them: metadata, who each of them is, and that something is out of order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random

from penstock.blob.configuration import Configuration, ConfigurationReply, refusal, store_configuration
from penstock.blob.disk import Disk
from penstock.blob.index import DiskIndex
from penstock.blob.journal import Journal
from penstock.blob.link import DiskReply, PullReply
from penstock.blob.meta import HEARSAY, BarrierItem, BlockItem, DiskState, FlagsItem, HistoryItem, MetaItem
from penstock.blob.record import NO_ID, RecordKind
from penstock.blob.recovery import Recovery
from penstock.blob.sisters import SisterMark, Sisters
from penstock.blob.status import Status
from penstock.blob.topology import Erasure, VDiskId

HEARD_WAIT_S = 1.0


class SisterSync:
    """The part of a VDisk that its sisters talk to; the rest of it is in vdisk.py."""

    is_remote = False

    id: VDiskId
    order: int
    index: DiskIndex
    journal: Journal
    sisters: Sisters
    closed: bool
    in_step: bool
    is_cut_off: bool  # links broke, and it has not heard from a quorum since
    doubts_keeps: bool
    proves_absence: bool
    failures_covered: int
    configuration: Configuration | None  # of a group over nodes
    on_configured: Callable[[Configuration], None] | None
    _configuring: asyncio.Lock
    _heard: asyncio.Event
    disk: Disk
    disorders: int  # the number of the last disorder that it was told of
    _was_behind: bool  # it has refused a command of a newer configuration than its own
    _forgetful_since: int
    _incarnation: int
    _random: Random
    _synced_to: list[int]

    def _init_sync(self, erasure: Erasure, recovered: Recovery) -> None:
        self.configuration = None
        self.on_configured = None
        self._configuring = asyncio.Lock()
        self.disorders = 0
        self._was_behind = False
        self.is_cut_off = False
        self._heard = asyncio.Event()
        self.doubts_keeps = _doubts_keeps(erasure, recovered)

    def note_cut_off(self, is_cut_off: bool) -> None:
        """Links broke, so that a quorum of the sisters is out of reach, or enough of them have been heard again."""
        self.is_cut_off = is_cut_off
        if is_cut_off:
            self._heard.clear()
        else:
            self._heard.set()

    async def wait_until_heard(self) -> None:
        """Wait until enough sisters have been heard again, but not long: links that broke are mostly back at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARD_WAIT_S):
                await self._heard.wait()

    async def pull(
        self, generation: int, order: int, incarnation: int, position: int, mark: SisterMark | None = None
    ) -> PullReply:
        """Metadata that sister disk `order` has not heard, given where it stood in which incarnation of this disk. `mark` is what
        the sister says of itself; a fresh one has nothing to say."""
        if generation != self.id.generation:
            return PullReply(Status.RACE)
        if self.closed:
            return PullReply(Status.ERROR)
        index, sisters = self.index, self.sisters
        known = sisters.known(order) if mark is None else sisters.hear(mark)
        if not self.in_step:
            # It may be an old copy, and bring back what the others have deleted and forgotten.
            told: tuple[MetaItem, ...] = (*index.blocks.values(), *index.histories.values())
            return PullReply(Status.OK, 0, 0, told, index.state, known, self.disorders)
        if self.doubts_keeps:
            # Its flags follow later with a full sync, because no disk knows incarnation 0.
            others = tuple(item for item in index.sync_all() if not isinstance(item, FlagsItem))
            return PullReply(Status.OK, 0, 0, others, index.state, known, self.disorders)
        items = index.sync_since(position) if incarnation == self._incarnation else None
        if items is not None:
            # A sister that asks from `position` on has stored everything before it.
            self._synced_to[order] = position
            index.drop_tombstones(min(to for sister, to in enumerate(self._synced_to) if sister != self.order))
        else:
            items = index.sync_all()
        return PullReply(Status.OK, self._incarnation, index.sync_end, tuple(items), index.state, known, self.disorders)

    def save_marks(self) -> None:
        """Log what is known of the sisters, if it has changed, without waiting for the write."""
        if not self.sisters.is_saved:
            self.sisters.is_saved = True
            self.journal.append(RecordKind.SISTERS, NO_ID, self.sisters.encode())

    async def begin_life(self, life: int, state: DiskState) -> DiskReply:
        """A quorum of sisters has told what this disk must know, and that it had fewer lives than this."""
        self.sisters.begin_life(self._random.randbytes(16), life)
        self.journal.append(RecordKind.SISTERS, NO_ID, self.sisters.encode())
        return await self.reach(state)

    async def start_over(self) -> DiskReply:
        """Called when this disk is an older copy of itself: keeps its parts, but trusts no metadata until synced by a quorum."""
        self.in_step = self.proves_absence = False
        self.doubts_keeps = True
        return await self.reach(DiskState.FRESH)

    async def absorb(self, items: tuple[MetaItem, ...]) -> DiskReply:
        """Make a sister disk's metadata this disk's own: flags before barriers, durable before it is answered."""
        flags = [item for item in items if isinstance(item, FlagsItem)]
        others: list[MetaItem] = [item._replace(issuer=HEARSAY) for item in items if isinstance(item, BlockItem)]
        others += (item for item in items if isinstance(item, HistoryItem))
        for item in items:
            if isinstance(item, BarrierItem):
                others += (item, item._replace(holder=self.order))
        news = [item for item in (*flags, *others) if self.index.is_news(item)]
        reply = await (self._record(news) if news else self._settle())
        if reply.status is Status.OK and self._forgetful_since > self.failures_covered:
            return DiskReply(Status.ERROR, f"VDisk {self.id} has metadata in memory only, until its next checkpoint")
        return reply

    async def believe_keeps(self, confirmed: set[bytes]) -> DiskReply:
        """Called when a quorum of sisters has said which blobs are kept: what only this disk keeps is garbage. That is logged, or
        else the flags would be back after a crash, when nothing tells any more that they are doubtful."""
        self.doubts_keeps = False
        unkept = self.index.unconfirmed_keeps(confirmed)
        return await (self._record([*unkept]) if unkept else self._settle())

    async def configure(self, offered: Configuration) -> ConfigurationReply:
        """Take a configuration, durable before it is served; one that is older, or another of the same number, is refused."""
        current = self.configuration
        if current is None or self.closed:
            return ConfigurationReply(Status.ERROR, None, f"VDisk {self.id} takes no configuration")
        async with self._configuring:
            current = self.configuration or current
            if reason := refusal(offered, current):
                return ConfigurationReply(Status.ERROR, current, reason)
            if offered != current:
                try:
                    await store_configuration(self.disk, offered)
                except OSError as error:
                    return ConfigurationReply(Status.ERROR, current, f"VDisk {self.id} cannot store its configuration: {error}")
                self.take_configuration(offered)
        if self.on_configured is not None:
            self.on_configured(offered)
        return ConfigurationReply(Status.OK, offered)

    def take_configuration(self, configuration: Configuration) -> None:
        """Serve a configuration that is durable on this disk: commands of others are answered RACE from now on."""
        self.configuration = configuration
        if self._was_behind:
            self._was_behind = False
            self.disorders += 1  # others may have done without it meanwhile: it compares itself with them
        self.id = self.id._replace(generation=configuration.generation)

    def _race(self, generation: int) -> DiskReply:
        """The reply to a command of another configuration than this disk is in."""
        is_behind = generation > self.id.generation
        self._was_behind |= is_behind
        reason = f"the group is in generation {self.id.generation}, the command in {generation}"
        return DiskReply(Status.RACE, reason, is_behind=is_behind)

    async def form(self, generation: int) -> DiskReply:
        """Begin as an empty disk of a group that its configuration calls new; nothing is served yet."""
        if generation != self.id.generation:
            return self._race(generation)
        if self.configuration is None or self.configuration.is_formed or not self.index.knows_nothing:
            return DiskReply(Status.ERROR, f"VDisk {self.id} is not one of a new group")
        return await self.reach(DiskState.COMPLETE)

    async def note_disorder(self, generation: int) -> DiskReply:
        """Some disk of the group lacks a part or holds one too many: this one compares itself with the others."""
        if generation == self.id.generation:
            self.disorders += 1
        return DiskReply(Status.OK)

    async def reach(self, state: DiskState) -> DiskReply:
        """Record durably that this disk has reached a state."""
        raise NotImplementedError

    async def _record(self, items: list[MetaItem]) -> DiskReply:
        raise NotImplementedError

    async def _settle(self) -> DiskReply:
        raise NotImplementedError


def _doubts_keeps(erasure: Erasure, recovered: Recovery) -> bool:
    """Whether a Keep known here may have been ended by a DoNotKeep that was lost: in what could not be read, or earlier, as a
    disk that is not complete cannot tell. It doubts its Keeps until it has compared them with those of its sisters."""
    index = recovered.index
    is_whole = erasure is Erasure.NONE or (index.state == DiskState.COMPLETE and not recovered.unknown_loss)
    return not is_whole and not index.knows_nothing
