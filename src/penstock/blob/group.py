"""A group as its members see it: its id, its generation, its code, and a link to each of its disks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from penstock.blob.erasure import Codec, codec_for
from penstock.blob.link import DiskLink
from penstock.blob.topology import Erasure, VDiskId, blob_hash, subgroup

log = logging.getLogger(__name__)

PACE_WEIGHT = 0.1
PACE_FLOOR_S = 0.002
NOTICE_S = 1.0  # between two notices of disorder to a disk
HEDGE_S = 0.05  # how long a command waits for more answers once it has enough
WINDOWS_AT_ONCE = 8  # stretches of a listing that are read or completed: their bytes fit into the windows of links
DRAIN_S = 30.0  # longer than any call to a disk or over a link takes

Answer = TypeVar("Answer")


class ResponseTimes:
    """How long a disk is expected to take for a part, from its recent response times and how long it has been silent."""

    __slots__ = ("_average", "_waiting")

    def __init__(self) -> None:
        self._average = 0.0
        self._waiting: list[float] = []

    def begin(self, now: float) -> None:
        """Note that a request is sent."""
        self._waiting.append(now)

    def end(self, started: float, now: float) -> None:
        """Note that a request was answered."""
        self._waiting.remove(started)
        self._average += (now - started - self._average) * PACE_WEIGHT

    def forgive(self) -> None:
        """Decay the figures of a disk that gets no requests, so that it is tried again."""
        self._average *= 1 - PACE_WEIGHT / 4

    def predicted(self, now: float) -> float:
        """The expected response time in seconds: the average, or the age of the oldest unanswered request if that is longer."""
        return max(self._average, now - self._waiting[0] if self._waiting else 0.0)


class Group:
    """The present membership of a group. A disk that is out is None; when one moves, `links` and `generation` change together."""

    def __init__(self, group_id: int, generation: int, erasure: Erasure, links: list[DiskLink | None]) -> None:
        self.id = group_id
        self.generation = generation
        self.erasure = erasure
        self.codec: Codec = codec_for(erasure)
        self.links = links
        self.paces = [ResponseTimes() for _ in links]
        self.reading = asyncio.Semaphore(WINDOWS_AT_ONCE)  # of listings, many of which begin at once when a node takes over
        self.disorders = 0  # how often a disk was seen to lack a part or to hold one too many
        self._tasks: set[asyncio.Task[Any]] = set()
        self._notices: dict[int, asyncio.Task[None]] = {}  # to disks on other nodes, by order number
        self._generation_waiters: set[asyncio.Future[None]] = set()
        self.on_race: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    def set_generation(self, generation: int) -> None:
        """Take a newer membership; commands that were answered RACE and wait for it go on."""
        self.generation = generation
        for waiter in self._generation_waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_newer(self, generation: int, timeout_s: float) -> None:
        """Wait until the group is in another generation than this one, or until the time is over."""
        if self.generation != generation:
            return
        self.note_race()
        waiter = asyncio.get_running_loop().create_future()
        self._generation_waiters.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=timeout_s)
        finally:
            self._generation_waiters.discard(waiter)

    def note_race(self) -> None:
        """A disk is in another generation: look for the newer configuration, unless that is being done."""
        if self.on_race is not None and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = self.spawn(self.on_race())

    def note_disorder(self) -> None:
        """Some disk lacks a part or holds one too many: the disks of this process compare themselves with the others, and those
        on other nodes are told to. A notice that is lost does no harm: its link is broken, and mends with a notice."""
        self.disorders += 1
        for order, link in enumerate(self.links):
            if link is not None and link.is_remote and order not in self._notices:
                self._notices[order] = asyncio.get_running_loop().create_task(self._notice(order, link))

    async def _notice(self, order: int, link: DiskLink) -> None:
        """Tell a disk on another node of disorders, at most once in a while, until it has heard of all."""
        try:
            told = -1
            while told != self.disorders:
                told = self.disorders
                await link.note_disorder(self.generation)
                await asyncio.sleep(NOTICE_S)
        finally:
            del self._notices[order]

    async def ask(
        self,
        asks: Mapping[int, Coroutine[Any, Any, Answer]],
        suffices: Callable[[dict[int, Answer]], bool],
        *,
        hedge_s: float = HEDGE_S,
    ) -> dict[int, Answer]:
        """Run requests to several disks at once, given by order number. Returns the answers as soon as they suffice, with those
        that come within the hedge; the other requests go on, and their answers are dropped."""
        pending = {self.spawn(work): order for order, work in asks.items()}
        answers: dict[int, Answer] = {}
        while pending:
            is_enough = suffices(answers)
            when = asyncio.ALL_COMPLETED if is_enough else asyncio.FIRST_COMPLETED
            done, _ = await asyncio.wait(pending, timeout=hedge_s if is_enough else None, return_when=when)
            answers.update((pending.pop(task), task.result()) for task in done)
            if is_enough:
                break
        return answers

    def vdisk_id(self, order: int) -> VDiskId:
        """The id of the disk with this order number."""
        return VDiskId.of_order(self.erasure, self.id, self.generation, order)

    def subgroup(self, prefix: bytes) -> tuple[int, ...]:
        """Order numbers of a blob's disks, by subgroup index."""
        return subgroup(self.erasure, blob_hash(prefix))

    def slowest(self, now: float) -> int | None:
        """The disk that is expected to take more than twice as long as any other, if there is one."""
        if len(self.paces) < 2:
            return None
        ranked = sorted(((pace.predicted(now), order) for order, pace in enumerate(self.paces)), reverse=True)
        (first, order), (second, _) = ranked[:2]
        return order if first > max(2 * second, PACE_FLOOR_S) else None

    def hedge_delay(self, now: float) -> float:
        """How long to wait for an answer before asking elsewhere too."""
        ranked = sorted(pace.predicted(now) for pace in self.paces)
        return max(0.05, 4 * ranked[len(ranked) // 2])

    def spawn(self, work: Coroutine[Any, Any, Any], done: Callable[[asyncio.Task[Any]], None] | None = None) -> asyncio.Task[Any]:
        """Run a request that may outlive its command; a reference to its task is kept until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if done is not None:
            task.add_done_callback(done)
        return task

    async def drain(self) -> None:
        """Wait for all requests in flight. Each ends in time, as every call to a disk does; one that does not is cancelled."""
        notices = list(self._notices.values())
        for notice in notices:
            notice.cancel()
        await asyncio.gather(*notices, return_exceptions=True)
        overdue = asyncio.get_running_loop().time() + DRAIN_S
        while self._tasks:
            left = overdue - asyncio.get_running_loop().time()
            _, late = await asyncio.wait(list(self._tasks), timeout=max(0.0, left))
            if late and left <= 0:
                log.error("group %08x: %d requests did not end within %g s and are cancelled", self.id, len(late), DRAIN_S)
                for task in late:
                    task.cancel()
