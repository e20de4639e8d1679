"""Keeps tablets of topics running on this node: each is booted, watched, and rebooted when it stops.

In a cluster a tablet that another node has taken over is not booted again: it is dropped, and `on_fenced` is told. Which tablets
run here is for the leader to say. They outlive the broker: a node that becomes the leader, or stops being it, keeps them running.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from penstock.blob import BlobStorage, ChannelHistory, Status, TabletInfo, TabletStorage
from penstock.broker.errors import PartitionDamagedError, PartitionUnavailableError
from penstock.broker.probe import BrokerProbe
from penstock.core.clock import Clock
from penstock.core.errors import CorruptionError, FencedError, PenstockError, UnavailableError
from penstock.queue import (
    BlobCache,
    LostOffsets,
    Partition,
    PartitionConfig,
    QueueProbe,
    QueueTablet,
    SalvagePlan,
    appends_as_keys,
    plan_salvage,
    stored_partitions,
)
from penstock.tablet import CHANNELS, KvTablet

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 5.0
DAMAGED_RETRY_S = 60.0  # a disk that comes back may restore the lost data
FIRST_GENERATION = 1
ERASES_AT_ONCE = 64
HANDED_OVER_ENTRIES = 200  # of log, at most, that another node has to replay


def tablet_info(tablet_id: int, group: int) -> TabletInfo:
    """A tablet all of whose channels are in one group."""
    return TabletInfo(tablet_id, tuple(ChannelHistory([(0, group)]) for _ in range(CHANNELS)))


class TabletDamage(NamedTuple):
    """What is lost of a tablet: of its log, in sentences, and of each of its partitions, in offsets."""

    log: tuple[str, ...]
    offsets: dict[int, tuple[LostOffsets, ...]]

    @classmethod
    def of_all(cls, several: Sequence[TabletDamage]) -> TabletDamage:
        """Merge the damage of several tablets with different partitions of one topic."""
        offsets = {number: lost for damage in several for number, lost in damage.offsets.items()}
        return cls(tuple(loss for damage in several for loss in damage.log), offsets)

    @property
    def is_none(self) -> bool:
        """Whether nothing is lost."""
        return not self.log and not any(self.offsets.values())


class _HostedTablet:
    """A tablet of this node with its partitions and their configuration."""

    def __init__(self, storage: TabletStorage, partitions: set[int], config: PartitionConfig) -> None:
        self.storage = storage
        self.partitions = partitions
        self.config = config
        self.tablet: QueueTablet | None = None
        self.keeper: asyncio.Task[None] | None = None
        self.up = asyncio.Event()
        self.tried = asyncio.Event()  # set once the first attempt to boot it has ended, well or not
        self.trouble: PenstockError | None = None  # why the last attempt failed
        self.boots = 0  # attempts
        self.is_new = False  # whether it was never started, anywhere


class TabletState(NamedTuple):
    """How a tablet of this node is: `boots` counts the attempts to boot it here, `trouble` says why it does not run."""

    tablet: int
    is_up: bool
    generation: int
    boots: int
    trouble: str


class Tablets:
    """The queue tablets of this node, by tablet id."""

    def __init__(
        self,
        storage: BlobStorage,
        group: int,
        *,
        cache_bytes: int,
        clock: Clock,
        random: Random,
        on_fenced: Callable[[int], None] | None = None,
    ) -> None:
        self.storage = storage
        self.group = group  # of tablets for which none is named
        self.cache = BlobCache(cache_bytes)
        self.probe = BrokerProbe(clock)
        self._watchers: list[Callable[[], None]] = []
        self._on_fenced = on_fenced  # None: no other node can take a tablet over
        self._probes: dict[int, QueueProbe] = {}
        self._clock = clock
        self._random = random
        self.changes = 0  # how often a tablet came up or went down
        self._hosted: dict[int, _HostedTablet] = {}

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call a function whenever a tablet starts or stops."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Call it no more."""
        self._watchers.remove(watcher)

    async def host(
        self,
        tablet_id: int,
        partitions: set[int],
        config: PartitionConfig,
        group: int | None = None,
        *,
        is_new: bool = False,
    ) -> None:
        """Keep a tablet running here with these partitions. Returns after the first attempt to boot it; a tablet that `is_new`
        was never started, and this waits until it runs."""
        hosted = self._hosted.get(tablet_id)
        if hosted is None:
            hosted = _HostedTablet(self._storage_of(tablet_id, group), set(), config)
            hosted.is_new = is_new
            self._hosted[tablet_id] = hosted
        hosted.partitions |= partitions
        hosted.config = config
        if hosted.keeper is None:
            self._start_keeper(tablet_id, hosted)
        await (hosted.up if is_new else hosted.tried).wait()
        if is_new and isinstance(hosted.trouble, FencedError):
            raise PartitionUnavailableError(f"another node runs tablet {tablet_id} by now; ask that one")

    def generations(self) -> dict[int, int]:
        """The generation of every tablet that serves now."""
        return {
            tablet_id: hosted.tablet.generation
            for tablet_id, hosted in self._hosted.items()
            if hosted.tablet is not None and not hosted.tablet.stopped.is_set()
        }

    async def release(self, tablet_id: int) -> None:
        """Stop a tablet, if it runs here, so that another node can run it. While it still serves, its log is made short, so that
        it starts there soon."""
        hosted = self._hosted.get(tablet_id)
        if hosted is not None and hosted.tablet is not None and not hosted.tablet.stopped.is_set():
            try:
                await hosted.tablet.tablet.shorten_log(HANDED_OVER_ENTRIES)
            except PenstockError as error:
                log.info("tablet %d is handed over with a long log: %s", tablet_id, error)
        if hosted is not None and self._hosted.get(tablet_id) is hosted:
            del self._hosted[tablet_id]
            self._tell()
            await self._stop(hosted)

    def hosts(self, tablet_id: int) -> bool:
        """Whether a tablet runs here, or is to."""
        return tablet_id in self._hosted

    def states(self) -> list[TabletState]:
        """How the tablets of this node are."""
        return [_state_of(tablet_id, hosted) for tablet_id, hosted in self._hosted.items()]

    def state(self, tablet_id: int) -> TabletState | None:
        """How a tablet is; None if it is not hosted here."""
        hosted = self._hosted.get(tablet_id)
        return None if hosted is None else _state_of(tablet_id, hosted)

    def configure(self, tablet_id: int, config: PartitionConfig) -> None:
        """Apply a new configuration of the topic, if the tablet is hosted here."""
        hosted = self._hosted.get(tablet_id)
        if hosted is not None and hosted.config != config:
            hosted.config = config
            if hosted.tablet is not None:
                hosted.tablet.set_config(config)

    def partition(self, tablet_id: int, number: int, topic: str = "") -> Partition:
        """A partition that is served now. PartitionUnavailableError while its tablet is not up, PartitionDamagedError if it never
        will be as it is."""
        hosted = self._hosted.get(tablet_id)
        tablet = None if hosted is None else hosted.tablet
        if tablet is not None and not tablet.stopped.is_set() and number in tablet.partitions:
            return tablet.partitions[number]
        name = f"partition {number} of topic {topic!r}" if topic else f"partition {number}"
        trouble = None if hosted is None else hosted.trouble
        if tablet is not None and number in tablet.damaged:
            trouble = tablet.damaged[number]
        if isinstance(trouble, CorruptionError):
            raise PartitionDamagedError(
                f"{name} is damaged: {trouble}; penstock topic repair tells what is lost, and gives it up"
            )
        if tablet is not None and not tablet.stopped.is_set():
            return tablet.partition(number)
        why = "" if trouble is None else f" ({trouble})"
        raise PartitionUnavailableError(f"{name} is starting{why}; try again in a moment")

    def partitions(self) -> list[Partition]:
        """Every partition that is served now."""
        tablets = [hosted.tablet for hosted in self._hosted.values() if hosted.tablet is not None]
        return [partition for tablet in tablets for partition in tablet.partitions.values()]

    def running(self) -> list[KvTablet]:
        """The tablets that serve now."""
        tablets = (hosted.tablet for hosted in self._hosted.values())
        return [tablet.tablet for tablet in tablets if tablet is not None and not tablet.stopped.is_set()]

    def traffic(self) -> dict[int, int]:
        """Bytes written to and read from each tablet that is hosted here, since this node started."""
        probes = {tablet_id: self._probes.get(tablet_id) for tablet_id in self._hosted}
        return {tablet_id: 0 if probe is None else probe.bytes_in + probe.bytes_out for tablet_id, probe in probes.items()}

    def probe_of(self, tablet_id: int) -> QueueProbe:
        """The counters of a tablet across its generations."""
        probe = self._probes.get(tablet_id)
        if probe is None:
            probe = self._probes[tablet_id] = QueueProbe()
        return probe

    @property
    def serves(self) -> bool:
        """Whether any tablet serves, or none exists that could. Damaged tablets are not counted: they report their own errors."""
        could = [hosted.tablet for hosted in self._hosted.values() if not isinstance(hosted.trouble, CorruptionError)]
        return not could or any(tablet is not None and not tablet.stopped.is_set() for tablet in could)

    def counts(self) -> tuple[int, int]:
        """How many tablets there are, and how many of them serve."""
        tablets = [hosted.tablet for hosted in self._hosted.values()]
        return len(tablets), sum(tablet is not None and not tablet.stopped.is_set() for tablet in tablets)

    async def examine(self, tablet_id: int) -> TabletDamage:
        """Read all stored data of a tablet and report what is lost. UnavailableError if the storage cannot answer now."""
        hosted = self._hosted[tablet_id]
        losses: list[str] = []
        if hosted.tablet is not None and not hosted.tablet.stopped.is_set():
            tablet = hosted.tablet.tablet
        else:
            tablet, losses = await KvTablet.look_into(hosted.storage, appends_as_keys)
        served = {} if hosted.tablet is None else hosted.tablet.partitions
        plans: dict[int, SalvagePlan] = {}
        for number in sorted(stored_partitions(tablet)):
            keyed_to = served[number].keyed_to if number in served else None
            plans[number] = await plan_salvage(tablet, number, keyed_to)
        return TabletDamage(tuple(losses), {number: plan.lost for number, plan in plans.items()})

    async def give_up_lost(self, tablet_id: int) -> None:
        """Restart a tablet without its lost data. Raises the error if it does not start."""
        hosted = self._hosted[tablet_id]
        await self._stop(hosted)
        try:
            hosted.tablet = await self._boot(hosted, give_up=True)
            hosted.trouble = None
        finally:
            self._tell()
            self._start_keeper(tablet_id, hosted)

    async def erase(self, tablet_id: int, group: int | None = None) -> None:
        """Stop a tablet and delete all its data."""
        hosted = self._hosted.pop(tablet_id, None)
        self._tell()
        if hosted is not None:
            await self._stop(hosted)
        self._probes.pop(tablet_id, None)
        reply = await self._storage_of(tablet_id, group).erase()
        if reply.status is not Status.OK:
            raise UnavailableError(f"the data of tablet {tablet_id} cannot be deleted now: {reply.reason}; try again")

    async def erase_all(self, tablets: Sequence[tuple[int, int | None]]) -> None:
        """Erase tablets of these groups, some at a time. Raises the first error after the concurrent ones have finished."""
        for begin in range(0, len(tablets), ERASES_AT_ONCE):
            erasing = (self.erase(*tablet) for tablet in tablets[begin : begin + ERASES_AT_ONCE])
            for outcome in await asyncio.gather(*erasing, return_exceptions=True):
                if outcome is not None:
                    raise outcome

    async def stop(self) -> None:
        """Stop every tablet."""
        await asyncio.gather(*(self._stop(hosted) for hosted in self._hosted.values()))
        self._hosted.clear()

    def _tell(self) -> None:
        self.changes += 1
        for watcher in self._watchers:
            watcher()

    def _storage_of(self, tablet_id: int, group: int | None) -> TabletStorage:
        return self.storage.tablet(tablet_info(tablet_id, self.group if group is None else group))

    async def _stop(self, hosted: _HostedTablet) -> None:
        if hosted.keeper is not None:
            hosted.keeper.cancel()
            await asyncio.gather(hosted.keeper, return_exceptions=True)
        if hosted.tablet is not None:
            await hosted.tablet.stop()
            hosted.tablet = None
        hosted.tried.set()
        hosted.up.set()  # a caller that waits for that finds it gone

    def _start_keeper(self, tablet_id: int, hosted: _HostedTablet) -> None:
        hosted.keeper = asyncio.create_task(self._keep(tablet_id, hosted), name=f"tablet-{tablet_id}-keeper")

    async def _keep(self, tablet_id: int, hosted: _HostedTablet) -> None:
        """Boot the tablet, and reboot it with a new generation whenever it has stopped, until another node runs it."""
        pause = RETRY_FIRST_S
        while True:
            was_new = hosted.is_new
            try:
                if hosted.tablet is None:
                    hosted.tablet = await self._boot(hosted)
            except PenstockError as error:
                # A tablet that was thought to be new and is not: the next attempt looks up its generation.
                if isinstance(error, FencedError) and self._on_fenced is not None and not was_new:
                    self._drop(tablet_id, hosted, error)
                    return
                is_damaged = isinstance(error, CorruptionError)
                pause = DAMAGED_RETRY_S if is_damaged else min(pause, RETRY_MAX_S)
                if not is_damaged or str(error) != str(hosted.trouble):
                    level = logging.ERROR if is_damaged else logging.WARNING
                    log.log(level, "tablet %d does not start, trying again in %.2f s: %s", tablet_id, pause, error)
                hosted.trouble = error
                hosted.tried.set()
                await asyncio.sleep(pause)
                pause *= 2
                continue
            pause = RETRY_FIRST_S
            hosted.trouble = None
            for number, trouble in hosted.tablet.damaged.items():
                log.error("partition %d of tablet %d is damaged and not served: %s", number, tablet_id, trouble)
            self._tell()
            hosted.up.set()
            hosted.tried.set()
            await hosted.tablet.stopped.wait()
            self._tell()
            stop_cause, stopped = hosted.tablet.tablet.stop_cause, hosted.tablet
            if isinstance(stop_cause, FencedError) and self._on_fenced is not None:
                self._drop(tablet_id, hosted, stop_cause)
                await stopped.stop()
                return
            log.warning("tablet %d has stopped in generation %d; starting it again", tablet_id, stopped.generation)
            await stopped.stop()
            hosted.tablet = None

    def _drop(self, tablet_id: int, hosted: _HostedTablet, error: FencedError) -> None:
        """Another node runs the tablet by now: it is not hosted here any more."""
        assert self._on_fenced is not None
        log.info("tablet %d is run by another node by now: %s", tablet_id, error)
        hosted.trouble = error
        hosted.tried.set()
        hosted.up.set()  # it never will be, here
        if self._hosted.get(tablet_id) is hosted:
            del self._hosted[tablet_id]
        self._tell()
        self._on_fenced(tablet_id)

    async def _boot(self, hosted: _HostedTablet, *, give_up: bool = False) -> QueueTablet:
        # If a new tablet turns out not to be new, blocking its first generation fails, and the next attempt looks it up.
        generation = FIRST_GENERATION if hosted.is_new else await hosted.storage.next_generation()
        new = sorted(hosted.partitions) if hosted.is_new else ()
        hosted.is_new = False
        hosted.boots += 1
        tablet = await QueueTablet.boot(
            hosted.storage,
            generation,
            hosted.config,
            cache=self.cache,
            clock=self._clock,
            random=self._random,
            probe=self.probe_of(hosted.storage.info.tablet),
            tablet_probe=self.probe.tablets,
            new=new,
            give_up=give_up,
        )
        self.probe.tablet_starts += 1
        try:
            missing = sorted(hosted.partitions - tablet.partitions.keys() - tablet.damaged.keys())
            if missing:
                await tablet.add_partitions(missing)
        except BaseException:
            await tablet.stop()
            raise
        return tablet


def _state_of(tablet_id: int, hosted: _HostedTablet) -> TabletState:
    tablet = hosted.tablet
    is_up = tablet is not None and not tablet.stopped.is_set()
    generation = 0 if tablet is None else tablet.generation
    return TabletState(tablet_id, is_up, generation, hosted.boots, "" if hosted.trouble is None else str(hosted.trouble))
