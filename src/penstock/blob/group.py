"""A group as its members see it: its id, its generation, its code, and a link to each of its disks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.blob.erasure import Codec, codec_for
from penstock.blob.link import DiskLink
from penstock.blob.topology import Erasure, VDiskId, blob_hash, subgroup

PACE_WEIGHT = 0.1
PACE_FLOOR_S = 0.002


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
        self.disorders = 0  # how often a disk was seen to lack a part or to hold one too many
        self._tasks: set[asyncio.Task[Any]] = set()

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
        """Wait for all requests in flight; each ends in time, since every call to a disk does."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
