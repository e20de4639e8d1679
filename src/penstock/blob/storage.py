"""The BlobStorage of a node: every group it knows, each proxy started on first use, and tablets' data found by their history."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import TypeVar

from penstock.blob.blob_id import COOKIE_MAX, GENERATION_MAX, MAX_BARRIER, SIZE_FIELD_MAX, STEP_MAX, BlobId
from penstock.blob.channel_history import TabletInfo
from penstock.blob.config import GroupConfig
from penstock.blob.confirmation import Confirmations
from penstock.blob.disk import Disk, FilePiece
from penstock.blob.disk_threads import DISK_TIMEOUT_S
from penstock.blob.get_operation import GetResult
from penstock.blob.local_disk import LocalDisk
from penstock.blob.local_group import LocalGroup
from penstock.blob.meta import HistoryItem
from penstock.blob.options import GroupOptions
from penstock.blob.proxy import DiscoverResult, GroupProxy, RangeResult
from penstock.blob.status import OK, Reply, Status, Submitted, worst_reply
from penstock.blob.topology import Erasure
from penstock.blob.vdisk_host import OnFormed, VDiskHost
from penstock.blob.vector import Content
from penstock.core.clock import Clock
from penstock.core.errors import ClosedError, ConfigError, InvalidRequestError, UnavailableError

log = logging.getLogger(__name__)

COUNTER_MAX = (1 << 32) - 1
RACE_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 2.0)  # how long a command answered RACE waits for the newer membership

OpenVDisk = Callable[[GroupConfig, int], Awaitable[Disk]]
Answer = TypeVar("Answer", Reply, GetResult, RangeResult, DiscoverResult)

log = logging.getLogger(__name__)


class BlobStorage:
    """All groups of this node. Groups are added by configuration or by the controller; a group opens when it is first used."""

    def __init__(
        self,
        groups: Iterable[GroupConfig] = (),
        *,
        clock: Clock,
        random: Random,
        durable: bool = True,
        options: GroupOptions | None = None,
        open_vdisk: OpenVDisk | None = None,
    ) -> None:
        self._clock = clock
        self._random = random
        self._options = options
        self._open_vdisk = open_vdisk or functools.partial(open_local_vdisk, durable=durable)
        self._configs: dict[int, GroupConfig] = {}
        self._on_formed: dict[int, OnFormed] = {}
        self._lives: dict[int, asyncio.Future[VDiskHost]] = {}
        self._closed = False
        self.confirmations: Confirmations | None = None  # set where another node may take tablets over
        for config in groups:
            self.add_group(config)

    def add_group(self, config: GroupConfig, on_formed: OnFormed | None = None) -> None:
        """Make a group known; its disks are not touched before it is used. A group that is new comes with `on_formed`, which
        notes durably that it is so no more (see LocalGroup)."""
        if config.id in self._configs:
            raise InvalidRequestError(f"group {config.id:08x} is there already")
        self._configs[config.id] = config
        if on_formed is not None:
            self._on_formed[config.id] = on_formed

    def adopt(self, config: GroupConfig, host: VDiskHost) -> None:
        """Make a group known that is open already, with VDisks on other nodes; or the disks that it has by now. It is closed with
        the others."""
        if config.id not in self._configs:
            self._lives[config.id] = opened = asyncio.get_running_loop().create_future()
            opened.set_result(host)
        self._configs[config.id] = config

    def groups(self) -> list[GroupConfig]:
        """Every group that is known."""
        return list(self._configs.values())

    async def life(self, group_id: int) -> VDiskHost:
        """The group itself, opened on first use. ConfigError if its disks are not what they should be."""
        if self._closed:
            raise ClosedError("the storage is closed")
        if group_id not in self._configs:
            raise InvalidRequestError(f"there is no group {group_id:08x}")
        starting = self._lives.get(group_id)
        if starting is None:
            starting = self._lives[group_id] = asyncio.create_task(self._start(self._configs[group_id]))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            raise
        except BaseException:
            # The next caller tries again: the cause may have been fixed.
            if self._lives.get(group_id) is starting:
                del self._lives[group_id]
            raise

    async def proxy(self, group_id: int) -> GroupProxy:
        """The proxy of a group."""
        return (await self.life(group_id)).proxy

    def tablet(self, info: TabletInfo) -> TabletStorage:
        """A tablet's own view: its commands go to the groups of its history."""
        return TabletStorage(self, info)

    def unconfirmed_s(self, group_id: int) -> float:
        """For how long it has not been confirmed that no other node has taken over tablets of a group; 0 where none may."""
        return 0.0 if self.confirmations is None else self.confirmations.unconfirmed_s(group_id)

    async def move_vdisk(self, config: GroupConfig, order: int) -> None:
        """Take a new configuration of a group, in which VDisk `order` is on another disk."""
        self._configs[config.id] = config
        if config.id in self._lives:
            life = await self.life(config.id)
            await life.move(order, lambda moved: self._open_vdisk(config, moved))

    async def wipe_vdisk(self, config: GroupConfig, order: int) -> None:
        """Delete whatever is left where a VDisk lives by this configuration. OSError or ConfigError if that cannot be done."""
        disk = await self._open_vdisk(config, order)
        try:
            for name in await disk.files():
                await disk.delete(name)
        finally:
            await disk.close()

    async def close(self) -> None:
        """Close every group that was opened."""
        self._closed = True
        for starting in self._lives.values():
            done = await asyncio.gather(starting, return_exceptions=True)
            for life in done:
                if isinstance(life, VDiskHost):
                    await life.stop()
        self._lives.clear()

    async def _start(self, config: GroupConfig) -> VDiskHost:
        note_formed = self._on_formed.get(config.id)

        async def on_formed() -> None:
            if note_formed is not None:
                await note_formed()
                del self._on_formed[config.id]

        life = LocalGroup(
            config.id,
            config.generation,
            config.erasure,
            lambda order: self._open_vdisk(config, order),
            clock=self._clock,
            random=self._random,
            options=self._options,
            on_formed=None if note_formed is None else on_formed,
        )
        await life.start()
        return life


class TabletStorage:
    """The commands of BlobStorage for one tablet. RACE is dealt with here: the same command is sent again."""

    def __init__(self, storage: BlobStorage, info: TabletInfo) -> None:
        self._storage = storage
        self._proxies: dict[int, GroupProxy] = {}
        self._groups: dict[tuple[int, int], int] = {}  # by channel and generation, as far as they were asked for
        self._submitted: set[asyncio.Task[None]] = set()
        self.info = info
        self.tablet = info.tablet
        self.log_group = _log_group(info)

    @property
    def confirmations(self) -> Confirmations | None:
        """What confirms that no other node has started a newer generation; None where none can."""
        return self._storage.confirmations

    async def block(self, generation: int, issuer: int) -> Reply:
        """Start a generation: block all older ones in every group the tablet has written to. If a group knows of a newer channel
        history than this tablet was started with, it starts again with that."""
        while True:
            version = self.info.version
            for group_id in self.info.groups():
                proxy = await self._proxy(group_id)
                send = functools.partial(proxy.block, self.info.tablet, generation, issuer, history=self.info.item())
                reply = await through_races(proxy, send)
                self._learn(reply.history)
                if reply.status is not Status.OK:
                    return reply
            if self.info.version == version:
                return OK

    def _learn(self, history: HistoryItem | None) -> None:
        """Take a newer channel history: this tablet was started with one that a move to another group has ended."""
        if history is not None and history.version > self.info.version:
            log.warning("tablet %d was started with an old channel history; it goes on with the newest", self.info.tablet)
            self.info = TabletInfo.of_item(history)
            self.log_group = _log_group(self.info)
            self._groups.clear()

    async def next_generation(self) -> int:
        """A generation that was never started, for who starts the tablet next. UnavailableError if that cannot be told now."""
        found = await self.discover(limit=0)
        if found.status not in (Status.OK, Status.NODATA):
            raise UnavailableError(f"tablet {self.info.tablet} cannot be looked up: {found.status.value}: {found.reason}")
        # Blocked up to one generation means that the one after it was started.
        return max(found.log_generation, found.blocked_generation + 1) + 1

    async def erase(self) -> Reply:
        """Delete everything the tablet has in any channel, for good: no generation of it can be started again."""
        for channel in range(len(self.info.channels)):
            reply = await self.collect_garbage(channel, GENERATION_MAX, COUNTER_MAX, barrier=MAX_BARRIER, hard=True)
            if reply.status is not Status.OK:
                return reply
        return OK

    async def put(self, blob_id: BlobId, data: Content, *, deadline_s: float | None = None, from_reserve: bool = False) -> Reply:
        """Write a blob to the group of its channel and generation; see GroupProxy.put."""
        proxy = await self._proxy(self._group_of(blob_id))
        reply = await proxy.put(blob_id, data, deadline_s=deadline_s, from_reserve=from_reserve)
        if reply.status is not Status.RACE:
            return reply
        return await through_races(proxy, lambda: proxy.put(blob_id, data, deadline_s=deadline_s, from_reserve=from_reserve))

    async def put_all(self, blobs: Sequence[tuple[BlobId, Content]], *, from_reserve: bool = False) -> list[Reply]:
        """Write several blobs at the same time; each has an answer of its own."""
        group_id = self._group_of(blobs[0][0])
        if len(blobs) > 1 and not self._is_one_group(blobs, group_id):
            return await asyncio.gather(*(self.put(blob_id, data, from_reserve=from_reserve) for blob_id, data in blobs))
        replies = await (await self._proxy(group_id)).put_all(blobs, from_reserve=from_reserve)
        for at, (blob_id, data) in enumerate(blobs):
            if replies[at].status is Status.RACE:
                replies[at] = await self.put(blob_id, data, from_reserve=from_reserve)
        return replies

    def submit(self, blobs: list[tuple[BlobId, Content]], done: Submitted, *, from_reserve: bool = False) -> None:
        """Write several blobs at the same time. `done` is called later, once, with None when all of them are durable, otherwise
        with the reply that decides: BLOCKED before all others. The data must not change until then."""
        first = blobs[0][0]
        group_id = self._groups.get(first[1:3])
        if group_id is None or first[0] != self.tablet:
            group_id = self._group_of(first)
        proxy = self._proxies.get(group_id)
        is_one_group = len(blobs) == 1 or self._is_one_group(blobs, group_id)
        if proxy is None or not is_one_group or not proxy.submit(blobs, done):
            self._submit_by_task(blobs, done, from_reserve=from_reserve)

    def _is_one_group(self, blobs: Sequence[tuple[BlobId, Content]], group_id: int) -> bool:
        return all(self._group_of(blob_id) == group_id for blob_id, _ in blobs[1:])

    def _submit_by_task(self, blobs: Sequence[tuple[BlobId, Content]], done: Submitted, *, from_reserve: bool) -> None:
        self._submitted.add(task := asyncio.create_task(self._put_all_for(blobs, done, from_reserve=from_reserve)))
        task.add_done_callback(self._submitted.discard)

    async def _put_all_for(self, blobs: Sequence[tuple[BlobId, Content]], done: Submitted, *, from_reserve: bool) -> None:
        try:
            trouble = worst_reply(await self.put_all(blobs, from_reserve=from_reserve))
        except Exception as error:
            log.exception("blobs of tablet %d could not be written", self.info.tablet)
            trouble = Reply(Status.ERROR, f"unexpected {type(error).__name__}: {error}")
        done(trouble)

    def at_turn_end(self, compose: Callable[[], None]) -> None:
        """Call back at the end of this turn of the loop, or as soon as the disk of the tablet's log is free to take more: what is
        submitted then goes out in one write with all others."""
        proxy = self._proxies.get(self.log_group)
        local = None if proxy is None else proxy.local()
        if local is None:
            asyncio.get_running_loop().call_soon(compose)
        else:
            local.before_flush(compose)

    async def get(
        self, blob_id: BlobId, offset: int = 0, length: int | None = None, *, deadline_s: float | None = None
    ) -> GetResult:
        """Read a blob, or a range of it."""
        proxy = await self._proxy(self._group_of(blob_id))
        return await through_races(proxy, lambda: proxy.get(blob_id, offset, length, deadline_s=deadline_s))

    async def get_many(self, blobs: Sequence[BlobId]) -> list[GetResult]:
        """Read several whole blobs at the same time; each has an answer of its own."""
        if len({self._group_of(blob_id) for blob_id in blobs}) != 1:
            return await asyncio.gather(*map(self.get, blobs))
        proxy = await self._proxy(self._group_of(blobs[0]))
        results = await proxy.get_many([(blob_id, 0, None) for blob_id in blobs])
        for at, blob_id in enumerate(blobs):
            if results[at].status is Status.RACE:
                results[at] = await self.get(blob_id)
        return results

    async def collect_garbage(
        self,
        channel: int,
        generation: int,
        counter: int,
        *,
        barrier: tuple[int, int] | None = None,
        hard: bool = False,
        keep: Iterable[BlobId] = (),
        do_not_keep: Iterable[BlobId] = (),
    ) -> Reply:
        """Set flags and a barrier in every group of the channel's history, each blob's flags in its own group."""
        keep, do_not_keep = tuple(keep), tuple(do_not_keep)
        history = self.info.history(channel)
        for group_id in dict.fromkeys(interval.group for interval in history.intervals()):
            proxy = await self._proxy(group_id)
            send = functools.partial(
                proxy.collect_garbage,
                self.info.tablet,
                channel,
                generation,
                counter,
                barrier=barrier,
                hard=hard,
                keep=[blob for blob in keep if history.group(blob.generation) == group_id],
                do_not_keep=[blob for blob in do_not_keep if history.group(blob.generation) == group_id],
            )
            reply = await through_races(proxy, send)
            if reply.status is not Status.OK:
                return reply
        return OK

    async def range(
        self,
        first: BlobId,
        last: BlobId,
        *,
        with_data: bool = False,
        with_unreadable: bool = False,
        limit: int | None = None,
    ) -> RangeResult:
        """Blobs of one channel from `first` to `last`, over all groups of its history, in the order asked for, at most `limit`;
        see GroupProxy.range."""
        reverse = first > last
        low, high = (last, first) if reverse else (first, last)
        intervals = list(self.info.history(low.channel).intervals())
        found: list[tuple[BlobId, bytes | memoryview | None]] = []
        unreadable: list[BlobId] = []
        unfinished: list[BlobId] = []
        for interval in reversed(intervals) if reverse else intervals:
            begin = max(low, BlobId(low.tablet, low.channel, interval.first, 0, 0, 0))
            end = min(high, BlobId(low.tablet, low.channel, interval.last, STEP_MAX, COOKIE_MAX, SIZE_FIELD_MAX))
            if begin > end:
                continue
            proxy = await self._proxy(interval.group)
            bounds = (end, begin) if reverse else (begin, end)
            rest = None if limit is None else limit - len(found) - len(unreadable)
            if rest == 0:
                break
            asked = functools.partial(proxy.range, *bounds, with_data=with_data, with_unreadable=with_unreadable, limit=rest)
            part = await through_races(proxy, asked)
            if part.status is not Status.OK:
                return part
            found.extend(part.blobs)
            unreadable.extend(part.unreadable)
            unfinished.extend(part.unfinished)
        return RangeResult(Status.OK, tuple(found), "", tuple(unreadable), tuple(unfinished))

    async def discover(self, *, min_generation: int = 0, limit: int = 1, with_data: bool = True) -> DiscoverResult:
        """The newest blobs of the tablet's log, from the newest group of channel 0 back, and what it is blocked to in any of its
        groups: a starter may have died between blocking one group and the next."""
        while True:
            version = self.info.version
            found = await self._discover(min_generation, limit, with_data=with_data)
            if self.info.version == version:
                return found

    async def _discover(self, min_generation: int, limit: int, *, with_data: bool) -> DiscoverResult:
        blocked = log_generation = -1
        found: list[tuple[BlobId, bytes | memoryview | None]] = []
        of_log = [interval.group for interval in reversed(list(self.info.history(0).intervals()))]
        for group_id in dict.fromkeys((*of_log, *self.info.groups())):
            proxy = await self._proxy(group_id)
            rest = limit - len(found) if group_id in of_log else 0
            asked = functools.partial(
                proxy.discover, self.info.tablet, min_generation=min_generation, limit=rest, with_data=with_data
            )
            part = await through_races(proxy, asked)
            self._learn(part.history)
            if part.status not in (Status.OK, Status.NODATA):
                return part
            blocked = max(blocked, part.blocked_generation)
            log_generation = max(log_generation, part.log_generation)
            found.extend(part.blobs)
        found.sort(key=lambda blob: blob[0], reverse=True)
        return DiscoverResult(Status.OK if found else Status.NODATA, blocked, tuple(found), log_generation=log_generation)

    def pieces(self, blob_id: BlobId, offset: int, length: int) -> list[FilePiece] | None:
        """A range of a blob as pieces of open files, for sendfile; None where it cannot be had so."""
        proxy = self._proxies.get(self._group_of(blob_id))
        return None if proxy is None else proxy.pieces(blob_id, offset, length)

    def _group_of(self, blob_id: BlobId) -> int:
        if blob_id.tablet != self.info.tablet:
            raise InvalidRequestError(f"{blob_id} is not of tablet {self.info.tablet}")
        group = self._groups.get(blob_id[1:3])
        if group is None:
            group = self._groups[blob_id[1:3]] = self.info.group(blob_id.channel, blob_id.generation)
        return group

    async def _proxy(self, group_id: int) -> GroupProxy:
        proxy = self._proxies.get(group_id)
        if proxy is None:
            proxy = self._proxies[group_id] = await self._storage.proxy(group_id)
        return proxy


async def through_races(proxy: GroupProxy, send: Callable[[], Awaitable[Answer]]) -> Answer:
    """Send a command again while the group changes under it, each time after this node has heard of the change or a while has
    passed: the disk that said RACE may be ahead of this node, or behind it."""
    group = proxy.group
    for pause_s in RACE_PAUSES_S:
        generation = group.generation
        answer = await send()
        if answer.status is not Status.RACE:
            return answer
        await group.wait_newer(generation, pause_s)
    return await send()


async def open_local_vdisk(config: GroupConfig, order: int, *, durable: bool, timeout_s: float = DISK_TIMEOUT_S) -> Disk:
    """The directory of a VDisk as its disk. OSError if it cannot be used and the group has others; otherwise ConfigError."""
    try:
        return await LocalDisk.open(
            config.vdisk_directory(order), durable=durable, is_only=config.erasure is Erasure.NONE, timeout_s=timeout_s
        )
    except ConfigError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and not isinstance(cause, BlockingIOError) and config.erasure is not Erasure.NONE:
            raise cause from error  # the group tolerates a failed disk and opens without this one
        raise


def _log_group(info: TabletInfo) -> int:
    """The group that a tablet's log is written to."""
    return info.channels[0].entries[-1][1]
