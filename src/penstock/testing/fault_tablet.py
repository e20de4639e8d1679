"""Clients of the fault simulation: tablets that put, read, collect and start new generations, and zombies of their old ones.

They honour the contract: ids are unique, steps and counters rise, a collect is repeated until it is acknowledged before another
follows in its channel, and nothing is written in a generation that was not started with a block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from penstock.blob import MAX_BARRIER, BlobId, Status
from penstock.testing.fault_ledger import BlobFate, Ledger, Moment, data_of
from penstock.testing.fault_world import World
from penstock.testing.sim_loop import ProcessDiedError

T = TypeVar("T")

PAUSE_S_MAX = 0.3


class Tablet:
    """One client; `run` is its life for one epoch."""

    def __init__(self, world: World, ledger: Ledger, tablet: int, rng: Random) -> None:
        self._world = world
        self._ledger = ledger
        self._mine = ledger.tablets[tablet]
        self._id = tablet
        self._random = rng
        self._steps: dict[int, int] = {}
        self._counter = 0
        self._flying: list[tuple[int, Moment]] = []  # (channel, moment) of puts in flight
        self._last_collect: tuple[int, int, int, Moment | None, bool] | None = None
        self.generation = 0

    async def run(self, bursts: int) -> None:
        """Bursts of concurrent commands, now and then a new generation."""
        if self.generation == 0:
            await self._start_generation()
        for _ in range(bursts):
            commands = [self._draw_command() for _ in range(self._random.randint(1, 6))]
            await asyncio.gather(*(command() for command in commands), self._maybe_collect())
            if self._random.random() < 0.1:
                await asyncio.gather(self._start_generation(), self._haunt(self.generation))
            await asyncio.sleep(self._random.uniform(0, PAUSE_S_MAX) ** 2)

    async def end_all(self) -> None:
        """A hard barrier above everything in every channel: the tablet is deleted."""
        for channel in self._mine.channels:
            await self._collect(channel, MAX_BARRIER, hard=True, keep=[], do_not_keep=[])

    def _draw_command(self) -> Callable[[], Coroutine[Any, Any, None]]:
        commands = [self._put, self._put, self._put, self._get, self._get_many, self._range, self._discover]
        return self._random.choices(commands, [4, 4, 4, 4, 2, 2, 1])[0]

    async def _ask(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
        """The answer, or None if the process died first."""
        await self._world.up.wait()
        try:
            return await self._world.do(make())
        except ProcessDiedError:
            return None

    def _draw_deadline(self) -> float | None:
        return self._random.choice([0.002, 0.02, 1.0]) if self._random.random() < 0.1 else None

    # Puts.

    async def _put(self) -> None:
        await self._put_blob(self._new_blob(self.generation))

    def _new_blob(self, generation: int) -> BlobId:
        if self._random.random() < 0.8 or generation not in self._steps:
            self._steps[generation] = self._steps.get(generation, 0) + 1
        draw = self._random.random()
        size = self._random.randint(1, 300 if draw < 0.6 else 5_000 if draw < 0.95 else 40_000 if draw < 0.99 else 300_000)
        channel = self._random.choice(list(self._mine.channels))
        return BlobId(self._id, channel, generation, self._steps[generation], self._random.getrandbits(32), size)

    async def _put_blob(self, blob_id: BlobId) -> None:
        flight = (blob_id.channel, (blob_id.generation, blob_id.step))
        self._flying.append(flight)
        try:
            for _ in range(self._random.randint(1, 3)):
                if await self._put_once(blob_id):
                    break
        finally:
            self._flying.remove(flight)

    async def _put_once(self, blob_id: BlobId) -> bool:
        """Whether there is no use in trying again."""
        await self._world.up.wait()
        channel = self._ledger.channel(blob_id)
        if (blob_id.generation, blob_id.step) <= max(channel.tried.values()):
            return True
        deadline_s = self._draw_deadline()
        fate = self._ledger.try_put(blob_id)
        blocked = self._mine.block_acked
        with self._world.watch(deadline=deadline_s is not None) as interval:
            reply = await self._ask(lambda: self._world.life.proxy.put(blob_id, data_of(blob_id), deadline_s=deadline_s))
        if reply is None:
            return self._random.random() < 0.5
        self._ledger.judge_put(fate, blocked, reply, interval)
        return reply.status is Status.BLOCKED or (reply.status is Status.OK and self._random.random() < 0.95)

    async def _haunt(self, generation: int) -> None:
        """What a process of an older generation may still send while the next one starts, and after it."""
        for _ in range(self._random.randint(0, 4)):
            await self._put_blob(self._new_blob(generation))
            await asyncio.sleep(self._random.uniform(0, 0.01))
        if self._last_collect is not None and self._random.random() < 0.5:
            channel, record_generation, counter, barrier, hard = self._last_collect
            blocked = self._mine.block_acked
            with self._world.watch() as interval:
                reply = await self._ask(
                    lambda: self._world.life.proxy.collect_garbage(
                        self._id, channel, record_generation, counter, barrier=barrier, hard=hard
                    )
                )
            if reply is not None and reply.status is Status.OK:
                self._ledger.judge_collect((self._id, channel, record_generation), blocked, reply, interval)

    # Reads.

    def _draw_fate(self) -> BlobFate:
        channel_id = self._random.choice(list(self._mine.channels))
        fates = list(self._mine.channels[channel_id].blobs.values())
        if not fates or self._random.random() < 0.03:
            return BlobFate(BlobId(self._id, channel_id, 0, 0, self._random.getrandbits(32), 7), gone=True)
        return self._random.choice(fates[-20:] if self._random.random() < 0.5 else fates)

    def _is_due(self, fate: BlobFate) -> bool:
        return fate.acked and not self._ledger.channel(fate.blob_id).may_be_over(fate)

    def _draw_window(self, size: int) -> tuple[int, int | None]:
        if self._random.random() < 0.5:
            return 0, None
        offset = self._random.randrange(size)
        return offset, self._random.randint(1, size - offset)

    async def _get(self) -> None:
        fate = self._draw_fate()
        offset, length = self._draw_window(fate.blob_id.size)
        deadline_s = self._draw_deadline()
        await self._world.up.wait()
        was_due = self._is_due(fate)
        with self._world.watch(deadline=deadline_s is not None) as interval:
            result = await self._ask(lambda: self._world.life.proxy.get(fate.blob_id, offset, length, deadline_s=deadline_s))
        if result is not None:
            self._ledger.judge_get(fate, was_due, (offset, length), result, interval)

    async def _get_many(self) -> None:
        await self._world.up.wait()
        fates = [self._draw_fate() for _ in range(self._random.randint(1, 8))]
        windows = [self._draw_window(fate.blob_id.size) for fate in fates]
        due = [self._is_due(fate) for fate in fates]
        queries = [(fate.blob_id, *window) for fate, window in zip(fates, windows, strict=True)]
        with self._world.watch() as interval:
            results = await self._ask(lambda: self._world.life.proxy.get_many(queries))
        for fate, was_due, window, result in zip(fates, due, windows, results or [], strict=results is not None):
            self._ledger.judge_get(fate, was_due, window, result, interval)

    async def _range(self) -> None:
        channel_id = self._random.choice(list(self._mine.channels))
        ends = [self._draw_end(channel_id), self._draw_end(channel_id)]
        await self._world.up.wait()
        with_data = self._random.random() < 0.5
        due = self._mine.channels[channel_id].due()
        with self._world.watch() as interval:
            result = await self._ask(lambda: self._world.life.proxy.range(ends[0], ends[1], with_data=with_data))
        if result is not None:
            self._ledger.judge_range(ends[0], ends[1], due, result, interval, with_data=with_data)

    def _draw_end(self, channel_id: int) -> BlobId:
        generation = self._random.randint(0, self.generation + 1)
        step = self._random.randint(0, self._steps.get(generation, 0) + 1)
        return BlobId(self._id, channel_id, generation, step, self._random.getrandbits(32), 0)

    async def _discover(self) -> None:
        min_generation = self._random.choice([0, 0, self.generation])
        limit = self._random.choice([1, 1, 3])
        await self._world.up.wait()
        due, blocked = self._mine.channels[0].due(), self._mine.block_acked
        with self._world.watch() as interval:
            result = await self._ask(
                lambda: self._world.life.proxy.discover(self._id, min_generation=min_generation, limit=limit)
            )
        if result is not None:
            self._ledger.judge_discover((self._id, min_generation, limit), due, blocked, result, interval)

    # Garbage.

    async def _maybe_collect(self) -> None:
        if self._random.random() > 0.35:
            return
        channel_id = self._random.choice(list(self._mine.channels))
        hard = self._random.random() < 0.15
        barrier = self._draw_barrier(channel_id, hard=hard)
        keep, do_not_keep = ([], []) if hard else self._draw_flags(channel_id, barrier)
        if barrier is not None or keep or do_not_keep:
            await self._collect(channel_id, barrier, hard=hard, keep=keep, do_not_keep=do_not_keep)

    def _draw_barrier(self, channel_id: int, *, hard: bool) -> Moment | None:
        """A moment below every put in flight, and not below the last barrier."""
        channel = self._mine.channels[channel_id]
        moments = sorted({fate.moment for fate in channel.blobs.values()} | {max(channel.tried[hard], (0, 0))})
        lowest = min((moment for flying, moment in self._flying if flying == channel_id), default=None)
        fitting = [m for m in moments if m >= channel.tried[hard] and (lowest is None or m < lowest)]
        if not fitting or (not hard and self._random.random() < 0.1):
            return None
        return self._random.choice(fitting)

    def _draw_flags(self, channel_id: int, barrier: Moment | None) -> tuple[list[BlobId], list[BlobId]]:
        channel = self._mine.channels[channel_id]
        ended = max(channel.tried.values())
        fates = list(channel.blobs.values())
        candidates = [fate for fate in fates if fate.acked and not fate.keep and fate.moment > ended]
        covered = [fate for fate in candidates if barrier is not None and fate.moment <= barrier]
        keep = [fate.blob_id for fate in (covered or candidates) if self._random.random() < 0.3]
        kept = [fate for fate in fates if fate.keep and not fate.unkeep_tried and fate.moment > channel.tried[True]]
        do_not_keep = [fate.blob_id for fate in kept if self._random.random() < 0.3]
        return keep, do_not_keep

    async def _collect(
        self, channel: int, barrier: Moment | None, *, hard: bool, keep: list[BlobId], do_not_keep: list[BlobId]
    ) -> None:
        self._counter += 1
        generation, counter = self.generation, self._counter
        self._ledger.try_collect(self._id, channel, barrier, hard=hard, keep=keep, do_not_keep=do_not_keep)
        while True:
            blocked = self._mine.block_acked
            with self._world.watch() as interval:
                reply = await self._ask(
                    lambda: self._world.life.proxy.collect_garbage(
                        self._id, channel, generation, counter, barrier=barrier, hard=hard, keep=keep, do_not_keep=do_not_keep
                    )
                )
            if reply is not None:
                self._ledger.judge_collect((self._id, channel, generation), blocked, reply, interval)
                if reply.status is Status.OK:
                    break
            await asyncio.sleep(self._random.uniform(0, PAUSE_S_MAX))
        self._ledger.acknowledge_collect(self._id, channel, barrier, hard=hard, do_not_keep=do_not_keep)
        if barrier not in (None, MAX_BARRIER):
            self._last_collect = (channel, generation, counter, barrier, hard)

    # Generations.

    async def _start_generation(self) -> None:
        """Block until a generation is ours; a rival may want the same one."""
        generation = self.generation + 1
        while True:
            issuer = 1 + self._random.getrandbits(32)
            rivals = [self._block(generation, issuer)]
            if self._random.random() < 0.3:
                rivals.append(self._block(generation, issuer + 1))
            if (await asyncio.gather(*rivals))[0]:
                break
            generation += 1
        self.generation, self._counter = generation, 0

    async def _block(self, generation: int, issuer: int) -> bool:
        """Whether the generation is this issuer's."""
        self._ledger.try_block(self._id, generation)
        while True:
            before = self._mine.block_acked
            with self._world.watch() as interval:
                reply = await self._ask(lambda: self._world.life.proxy.block(self._id, generation, issuer))
            if reply is not None:
                self._ledger.judge_block((self._id, generation, issuer), before, reply, interval)
                if reply.status in (Status.OK, Status.ALREADY, Status.BLOCKED):
                    return reply.status is Status.OK
            await asyncio.sleep(self._random.uniform(0, PAUSE_S_MAX))
