"""Clients of the partition simulation: writers that resend until they are acknowledged, readers that follow, and a janitor."""

from __future__ import annotations

import asyncio
from random import Random

from penstock.blob import Buffer, FilePiece
from penstock.core.errors import ClosedError, FencedError, OutOfSpaceError, PenstockError, UnavailableError
from penstock.queue import (
    OffsetOutOfRangeError,
    Partition,
    ReadResult,
    SequenceError,
    SourceWrite,
    UnknownPartitionError,
    WriteResult,
    compact,
    in_place,
)
from penstock.testing.fault_ledger import InvariantError, require
from penstock.testing.queue_hosts import Hosts, Instance
from penstock.testing.queue_ledger import Message, PartitionLedger
from penstock.testing.sim_loop import ProcessDiedError, SimClock, current_loop

BATCH_MESSAGES_MAX = 5
RECENT_BATCHES = 5
RETRY_S = 0.05

# What a client may be told at any time, and answers by trying again.
PASSING = (UnavailableError, FencedError, OutOfSpaceError, ClosedError, ProcessDiedError, TimeoutError)

Sent = list[Message]


class Writer:
    """One source. Batches go out in windows; after a failure all that were not acknowledged are sent again, in order."""

    def __init__(self, hosts: Hosts, ledger: PartitionLedger, name: str, rng: Random, *, window_max: int) -> None:
        self._hosts = hosts
        self._ledger = ledger
        self._name = name
        self._random = rng
        self._contiguous = rng.random() < 0.3
        self._window_max = window_max
        self._pause_s = rng.choice([0.0, 0.01, 0.2])
        self._epoch = 0
        self._seqno = 0
        self._acked: list[Sent] = []

    async def run(self, batches: int) -> None:
        """Write so many batches."""
        waiting: list[Sent] = []
        while batches or waiting:
            if not waiting:  # else one that is given up again and again would fall behind what a partition remembers
                waiting = [self._new_batch() for _ in range(min(batches, self._window_max))]
                batches -= len(waiting)
            waiting = await self._send(waiting)
            if self._acked and self._random.random() < 0.1:
                await self._resend_acked()
            await asyncio.sleep(self._pause_s * self._random.random())

    def _new_batch(self) -> Sent:
        count = self._random.randint(1, BATCH_MESSAGES_MAX)
        first = self._seqno
        # Sources other than Kafka's may leave gaps.
        self._seqno += count + (0 if self._contiguous else self._random.choice([0, 0, 0, 7]))
        return [Message(self._name, self._epoch, first + at) for at in range(count)]

    async def _send(self, window: list[Sent]) -> list[Sent]:
        """Send a window at once; those that were not acknowledged."""
        instance = await self._hosts.pick()
        tasks = [asyncio.create_task(self._write(instance, batch)) for batch in window]
        if self._random.random() < 0.05:
            # The client gives one up; that must not let later ones overtake it.
            await asyncio.sleep(self._random.uniform(0, 0.01))
            self._random.choice(tasks).cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        failed = False
        left: list[Sent] = []
        for batch, answer in zip(window, answers, strict=True):
            if isinstance(answer, WriteResult):
                self._judge(batch, answer, recent=True)
                self._acked.append(batch)
                require(not failed or self._may_be_forgotten(), f"{batch[0]} was written though one before it failed")
                continue
            failed |= not isinstance(answer, asyncio.CancelledError)
            left.append(batch)
            self._judge_failure(instance, batch, answer)
        if left:
            if not self._is_stale(instance) and any(isinstance(answer, SequenceError) for answer in answers):
                left = self._restart(left)
            await asyncio.sleep(RETRY_S * self._random.random())
        return left

    async def _write(self, instance: Instance, batch: Sent) -> WriteResult:
        ledger = self._ledger
        first = batch[0]
        # The time of a batch is its own: a resent one is the same to the byte.
        raw = ledger.sizes.batch_of(ledger.number, batch, timestamp=first.seqno)
        source = SourceWrite(self._name.encode(), first.seqno, first.epoch, self._contiguous)
        return await self._hosts.change(instance, instance.partition(ledger.number).write(raw, source))

    def _judge(self, batch: Sent, answer: WriteResult, *, recent: bool) -> None:
        self._hosts.count("duplicate" if answer.duplicate else "write")
        if answer.base_offset < 0:
            require(answer.duplicate and not recent, f"{batch[0]} was acknowledged without its offset")
            return
        self._ledger.acknowledge(batch, answer.base_offset)

    def _judge_failure(self, instance: Instance, batch: Sent, answer: object) -> None:
        self._hosts.count(f"write {getattr(answer, 'code', type(answer).__name__)}")
        if isinstance(answer, (*PASSING, asyncio.CancelledError, UnknownPartitionError)):
            return
        if isinstance(answer, SequenceError) and self._contiguous:
            require(self._may_be_forgotten() or self._is_stale(instance), f"{batch[0]} was refused: {answer}")
            return
        assert isinstance(answer, BaseException)
        raise InvariantError(f"{batch[0]} was refused: {answer!r}") from answer

    def _may_be_forgotten(self) -> bool:
        """Whether the source may have been forgotten at some time: all that it had written by then was trimmed."""
        return not self._acked or any(map(self._may_be_trimmed, self._acked))

    def _may_be_trimmed(self, batch: Sent) -> bool:
        """Whether the batch may be gone; and if the source was forgotten since, no one knows where it was."""
        return self._ledger.places[batch[0]] < self._ledger.trim_bound

    def _is_stale(self, instance: Instance) -> bool:
        """Whether a newer generation has booted: this one knows nothing of what that one wrote."""
        return instance.generation < self._hosts.booted_generation

    def _restart(self, left: list[Sent]) -> list[Sent]:
        """Restart a producer whose sequence numbers the partition does not know, as Kafka's clients do."""
        self._hosts.count("producer restarted")
        self._epoch += 1
        self._seqno = 0
        fresh = []
        for batch in left:
            fresh.append([Message(self._name, self._epoch, self._seqno + at) for at in range(len(batch))])
            self._seqno += len(batch)
        return fresh

    async def _resend_acked(self) -> None:
        """A duplicate is not written again, and the writer hears where it is."""
        batch = self._random.choice(self._acked[-2 * RECENT_BATCHES :])
        # Up to a window of batches may have been written since without the writer's knowledge.
        recent = batch in self._acked[-RECENT_BATCHES:][self._window_max :]
        if self._may_be_trimmed(batch) or batch[0].epoch != self._epoch or (self._contiguous and not recent):
            return
        instance = await self._hosts.pick()
        place = self._ledger.places[
            batch[0]
        ]  # if it is written again, a reader may report another place before the writer gets its answer
        try:
            answer = await self._write(instance, batch)
        except (*PASSING, UnknownPartitionError):
            return
        except SequenceError as error:
            is_gone = place < self._ledger.trim_bound
            require(is_gone or self._is_stale(instance), f"{batch[0]} was refused as a duplicate: {error}")
            return
        is_gone = place < self._ledger.trim_bound
        require(answer.duplicate or is_gone, f"{batch[0]} was written twice")
        self._judge(batch, answer, recent=recent and not is_gone)


class AnonymousWriter:
    """Writes without a source: what fails is not sent again, and may be there or not."""

    def __init__(self, hosts: Hosts, ledger: PartitionLedger, name: str, rng: Random) -> None:
        self._hosts = hosts
        self._ledger = ledger
        self._name = name
        self._random = rng
        self._seqno = 0

    async def run(self, batches: int) -> None:
        """Write so many batches."""
        number = self._ledger.number
        for _ in range(batches):
            instance = await self._hosts.pick()
            batch = [Message(self._name, 0, self._seqno + at) for at in range(self._random.randint(1, BATCH_MESSAGES_MAX))]
            self._seqno += len(batch)
            raw = self._ledger.sizes.batch_of(number, batch, timestamp=self._seqno)
            try:
                answer = await self._hosts.change(instance, instance.partition(number).write(raw))
            except (*PASSING, UnknownPartitionError):
                await asyncio.sleep(RETRY_S * self._random.random())
                continue
            self._hosts.count("write")
            self._ledger.acknowledge(batch, answer.base_offset)


class Reader:
    """Follows a partition, goes back now and then, and commits how far it has come."""

    def __init__(self, hosts: Hosts, ledger: PartitionLedger, name: str, rng: Random) -> None:
        self._hosts = hosts
        self._ledger = ledger
        self._name = name
        self._random = rng
        self._offset = 0
        self._generation = 0  # that the offset was learned from

    async def run(self) -> None:
        """Read for as long as the task lives."""
        while True:
            instance = await self._hosts.pick()
            try:
                await self._step(instance)
            except (*PASSING, UnknownPartitionError):
                self._hosts.count("read failed")
                await asyncio.sleep(RETRY_S * self._random.random())

    async def _step(self, instance: Instance) -> None:
        own = instance.partition(self._ledger.number)
        if self._random.random() < 0.1:
            self._offset = self._random.randint(0, self._offset)
        offset = self._offset
        try:
            result = await instance.do(
                own.read(offset, self._random.choice([1, 500, 5000, 1 << 20]), files=self._random.random() < 0.3)
            )
        except OffsetOutOfRangeError as error:
            require(instance.generation < self._generation, f"a reader at {offset} was told: {error}")
            return
        self._take(instance, offset, result)
        if self._random.random() < 0.2:
            await self._commit(instance)
        if self._offset >= result.end_offset:
            await instance.do(own.wait_beyond(self._offset, self._random.choice([0.01, 0.1, 1.0])))

    def _take(self, instance: Instance, offset: int, result: ReadResult) -> None:
        self._hosts.count("read")
        self._ledger.judge_run(offset, _buffers(result.batches), result.next_offset)
        known = result.next_offset >= min(offset, result.end_offset)
        require(known, f"a read of {offset} goes on at {result.next_offset}")
        if result.next_offset >= self._offset:
            self._offset = result.next_offset
            self._generation = max(self._generation, instance.generation)

    async def _commit(self, instance: Instance) -> None:
        tried = self._ledger.positions_tried.setdefault(self._name, set())
        tried.add(self._offset)
        position = self._offset
        try:
            await self._hosts.change(instance, instance.partition(self._ledger.number).commit(self._name, position))
        except OffsetOutOfRangeError:
            require(instance.generation < self._generation, f"position {position} is out of range")
            return
        self._ledger.positions_acked[self._name] = position
        tried.intersection_update({position})


class Janitor:
    """Trims partitions and asks for retention."""

    def __init__(self, hosts: Hosts, ledger: PartitionLedger, rng: Random) -> None:
        self._hosts = hosts
        self._ledger = ledger
        self._random = rng
        self._pause_s = rng.choice([0.05, 0.5, 5.0])

    async def run(self) -> None:
        """Clear away for as long as the task lives."""
        while True:
            await asyncio.sleep(self._random.expovariate(1 / self._pause_s))
            instance = await self._hosts.pick()
            try:
                await self._clear(instance)
            except (*PASSING, UnknownPartitionError):
                self._hosts.count("trim failed")

    async def _clear(self, instance: Instance) -> None:
        ledger = self._ledger
        own = instance.partition(ledger.number)
        if own.config.is_compacted and self._random.random() < 0.7:
            trims = [self._trim_soon(instance, own)] if self._random.random() < 0.4 else []
            for answer in await asyncio.gather(self._compact(instance, own), *trims, return_exceptions=True):
                if isinstance(answer, BaseException):
                    raise answer
            return
        if self._random.random() < 0.5:
            with ledger.retention(own):
                await instance.do(own.retain())
            self._hosts.count("retain")
            return
        await self._trim(instance, own)

    async def _trim_soon(self, instance: Instance, own: Partition) -> None:
        """Trim while a pass of compaction may be at any of its steps."""
        await current_loop().jitter(self._random.choice([3, 30, 100]))
        await self._trim(instance, own)

    async def _trim(self, instance: Instance, own: Partition) -> None:
        ledger = self._ledger
        low, high = own.start_offset, own.end_offset
        offset = high if self._random.random() < 0.1 else low + self._random.randint(0, (high - low) // 2)
        ledger.trim_tried = max(ledger.trim_tried, offset)
        start = await instance.do(own.trim(offset))
        require(start >= offset, f"trimmed to {offset}, and the start is {start}")
        ledger.trim_acked = max(ledger.trim_acked, offset)
        self._hosts.count("trim")

    async def _compact(self, instance: Instance, own: Partition) -> None:
        newest = self._hosts.booted_generation
        rng = Random(self._random.getrandbits(64))
        map_bytes = self._random.choice([1, 500, 1 << 20])
        clock = SimClock(self._hosts.world.loop)
        summary = await instance.do(compact(own, clock=clock, random=rng, offload=in_place, map_bytes=map_bytes))
        if summary is None:
            return
        told = f"generation {instance.generation} compacted though {newest} had booted"
        require(newest <= instance.generation or not summary.is_complete, told)
        self._hosts.count("compact" if summary.is_complete else "compact overtaken")


async def compact_whole(instance: Instance, ledger: PartitionLedger, clock: SimClock) -> None:
    """On healthy storage, go over a partition until no pass is due any more; what is read then is still right."""
    own = instance.partition(ledger.number)
    await instance.do(own.roll_head())
    while await instance.do(compact(own, clock=clock, random=Random(1), offload=in_place)) is not None:
        pass
    await read_whole(instance, ledger)


async def read_whole(instance: Instance, ledger: PartitionLedger) -> None:
    """Read a partition from start to end and judge it as a whole; nothing may be writing."""
    own = instance.partition(ledger.number)
    ledger.judge_bounds(instance.generation, own.start_offset, own.end_offset)
    offset = own.start_offset
    present: set[int] = set()
    while offset < own.end_offset:
        result = await instance.do(own.read(offset, 1 << 20))
        require(result.next_offset > offset, f"a read at {offset} does not get on")
        present |= ledger.judge_run(offset, _buffers(result.batches), result.next_offset)
        offset = result.next_offset
    ledger.judge_whole(own.start_offset, own.end_offset, present)
    for consumer, position in ledger.positions_acked.items():
        known = own.committed(consumer)
        allowed = {position, *ledger.positions_tried[consumer]}
        require(known in allowed, f"consumer {consumer} is at {known}, not at one of {allowed}")


def _buffers(batches: tuple[Buffer | FilePiece, ...]) -> tuple[Buffer, ...]:
    buffers = tuple(batch for batch in batches if not isinstance(batch, FilePiece))
    require(len(buffers) == len(batches), "a simulated disk has no files to give pieces of")
    return buffers


__all__ = ["AnonymousWriter", "Janitor", "PenstockError", "Reader", "Writer", "compact_whole", "read_whole"]
