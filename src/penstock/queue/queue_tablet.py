"""The PQ tablet: some partitions of one topic on one KV tablet. Partitions can be added, never taken away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import Random

from penstock.blob import TabletStorage
from penstock.core.clock import Clock
from penstock.core.errors import CorruptionError, InvalidRequestError, PenstockError
from penstock.queue import keys
from penstock.queue.cache import BlobCache
from penstock.queue.config import PartitionConfig
from penstock.queue.errors import InvalidBatchError, UnknownPartitionError
from penstock.queue.keys import Meta
from penstock.queue.partition import Partition
from penstock.queue.probe import QueueProbe
from penstock.queue.replay import appends_as_keys, write_commands
from penstock.queue.salvage import plan_salvage
from penstock.tablet import KvOptions, KvTablet, Request, TabletProbe, Write

log = logging.getLogger(__name__)

PARTITION_MAX = (1 << 32) - 2
FIRST_OFFSET_MAX = 1 << 62


class QueueTablet:
    """One generation of a PQ tablet. Make it with `boot`; when its KV tablet stops, so has it."""

    def __init__(self, tablet: KvTablet, config: PartitionConfig, cache: BlobCache, clock: Clock) -> None:
        self.tablet = tablet
        self._config = config
        self._cache = cache
        self._clock = clock
        self.partitions: dict[int, Partition] = {}
        self.damaged: dict[int, PenstockError] = {}  # partitions that are not served, and why
        self._probe = QueueProbe()
        self._loaded = asyncio.Event()
        self._adding = asyncio.Lock()  # two of one number would both write from its first offset on

    @classmethod
    async def boot(
        cls,
        storage: TabletStorage,
        generation: int,
        config: PartitionConfig,
        *,
        cache: BlobCache,
        clock: Clock,
        random: Random,
        options: KvOptions | None = None,
        probe: QueueProbe | None = None,
        tablet_probe: TabletProbe | None = None,
        new: Sequence[int] = (),
        give_up: bool = False,
    ) -> QueueTablet:
        """Start this generation and rebuild its partitions; those that are damaged are left out. Raises what KvTablet.boot
        raises. A tablet that was never started begins with those in `new`. With `give_up`, fillers replace what is lost."""
        first = _adding(new, 0) if new else None
        tablet = await KvTablet.boot(
            storage,
            generation,
            random=random,
            options=options,
            probe=tablet_probe,
            first=first,
            give_up=give_up,
            keys_of=appends_as_keys,
        )
        queue = cls(tablet, config, cache, clock)
        queue._probe = probe or queue._probe
        tablet.key_makers.append(queue._make_keys)
        queue._make(new, 0)
        if new:
            queue._loaded.set()
            return queue
        try:
            for number in sorted(stored_partitions(tablet) | set(tablet.appends)):
                if give_up:
                    await queue._give_up(number)
                await queue._load(number)
        except BaseException:
            await tablet.stop()
            raise
        queue._loaded.set()
        return queue

    @property
    def generation(self) -> int:
        """The generation of the tablet."""
        return self.tablet.generation

    @property
    def stopped(self) -> asyncio.Event:
        """Set once the tablet has stopped, by order or because a newer generation runs."""
        return self.tablet.stopped

    def partition(self, number: int) -> Partition:
        """One of the partitions. UnknownPartitionError if it is not here."""
        hosted = self.partitions.get(number)
        if hosted is None:
            raise UnknownPartitionError(f"there is no partition {number} on this tablet; it has {sorted(self.partitions)}")
        return hosted

    async def add_partition(self, number: int, first_offset: int = 0) -> Partition:
        """A new, empty partition; its first message gets `first_offset`."""
        await self.add_partitions([number], first_offset)
        return self.partitions[number]

    async def add_partitions(self, numbers: Sequence[int], first_offset: int = 0) -> None:
        """New, empty partitions, all of them or none; the first message of each gets `first_offset`."""
        for number in numbers:
            if not 0 <= number <= PARTITION_MAX or not 0 <= first_offset <= FIRST_OFFSET_MAX:
                raise InvalidRequestError(f"cannot make partition {number} from offset {first_offset}: both count from 0")
        async with self._adding:
            for number in numbers:
                if number in self.partitions:
                    raise InvalidRequestError(f"partition {number} is there already")
            await self.tablet.execute(_adding(numbers, first_offset))
            self._make(numbers, first_offset)

    def set_config(self, config: PartitionConfig) -> None:
        """Apply a new configuration of the topic."""
        self._config = config
        for partition in self.partitions.values():
            partition.configure(config)

    async def stop(self) -> None:
        """Finish requests in flight and stop."""
        await self.tablet.stop()

    def _make(self, numbers: Sequence[int], first_offset: int) -> None:
        """Create empty partitions, of which nothing is stored yet."""
        for number in numbers:
            new_partition = Partition(self.tablet, number, self._config, self._cache, self._clock)
            new_partition.start_offset = new_partition.end_offset = first_offset
            new_partition.probe = self._probe
            self.partitions[number] = new_partition

    async def _make_keys(self) -> None:
        """Before a snapshot: make keys of what is in the log only, one partition after another, so that none waits for all. Waits
        until all partitions are loaded: before that, the appends of the others have no owner."""
        await self._loaded.wait()
        for partition in list(self.partitions.values()):
            await partition.make_keys()

    async def _load(self, number: int) -> None:
        """Load a partition. One that is damaged keeps no other from being served."""
        appends = self.tablet.appends.pop(number, [])
        try:
            if self.tablet.head(keys.prefix(b"m", number)) is None:
                raise CorruptionError(f"partition {number} has data, and what says where it starts is lost")
            loaded = await Partition.load(
                self.tablet, number, self._config, cache=self._cache, clock=self._clock, appends=appends
            )
        except (CorruptionError, InvalidBatchError) as error:
            self.damaged[number] = error
            # The log may go with the next snapshot: what only the log has of this partition is kept in keys.
            kept = write_commands(appends_as_keys(self.tablet.index, appends))
            if kept:
                await self.tablet.execute(Request(kept, makes_room=True))
            return
        loaded.probe = self._probe
        self.partitions[number] = loaded

    async def _give_up(self, number: int) -> None:
        plan = await plan_salvage(self.tablet, number)
        if plan.commands:
            await self.tablet.execute(Request(plan.commands, makes_room=True))
            told = ", ".join(f"{lost.first_offset} to {lost.next_offset - 1}" for lost in plan.lost) or "none"
            log.warning("partition %d of tablet %d was made whole; offsets given up: %s", number, self.tablet.id, told)


def stored_partitions(tablet: KvTablet) -> set[int]:
    """The numbers of all partitions of which something is stored."""
    numbers = {keys.partition_of(key) for key in tablet.keys(b"m", b"n")}
    begin = b"d"
    while (key := next(iter(tablet.keys(begin, b"e")), None)) is not None:
        number = keys.partition_of(key)
        numbers.add(number)
        begin = keys.past(keys.prefix(b"d", number))
    return numbers


def _adding(numbers: Sequence[int], first_offset: int) -> Request:
    meta = Meta(first_offset, first_offset).pack()
    return Request(tuple(Write(keys.prefix(b"m", number), meta) for number in numbers))
