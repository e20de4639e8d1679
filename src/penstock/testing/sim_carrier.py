"""What carries calls to a VDisk of another simulated node: late, held up, lost on the way there or back, or refused at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from penstock.blob.link import DiskLink
from penstock.testing.sim_loop import SimProcess


@dataclass(slots=True)
class RouteFaults:
    """What is wrong with the way from one node to another; a test changes it while calls are in flight."""

    refused: bool = False  # calls fail at once, as when the other process is dead
    lost: bool = False  # what is sent into this direction never arrives
    held: asyncio.Event | None = None  # what is sent waits for this, as in the buffers of a frozen process
    loss_rate: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0

    def mend(self) -> None:
        """Let everything pass again, what is held up too."""
        if self.held is not None:
            self.held.set()
        self.refused = self.lost = False
        self.held, self.loss_rate, self.delay_s, self.jitter_s = None, 0.0, 0.0, 0.001


@dataclass(slots=True)
class ServedDisk:
    """Where a call arrives: the VDisk, and the process that it runs in, if it is not the caller's."""

    vdisk: DiskLink
    process: SimProcess | None = field(default=None)


class SimCarrier:
    """Carries the calls of a DiskLink to the VDisk that `serve` gives, over one route there and one back.

    A call that is lost is silent: its caller must have a deadline. A call whose answer is lost has been carried out.
    """

    is_remote = True

    def __init__(self, serve: Callable[[], ServedDisk | None], there: RouteFaults, back: RouteFaults, random: Random) -> None:
        self._serve = serve
        self._there = there
        self._back = back
        self._random = random

    def piece(self, *_: object) -> None:
        """No file of another node can be sent from here."""

    def part_at_hand(self, *_: object) -> None:
        """Another node is always waited for."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._travel(self._there)
            served = self._serve()
            if served is None:
                raise ConnectionRefusedError("there is no such VDisk")
            work = getattr(served.vdisk, name)(*args, **kwargs)
            answer = await (work if served.process is None else served.process.call(work))
            await self._travel(self._back)
            return answer

        return call

    async def _travel(self, route: RouteFaults) -> None:
        if route.refused:
            raise ConnectionResetError("the connection is gone")
        if route.delay_s or route.jitter_s:
            await asyncio.sleep(route.delay_s + self._random.uniform(0, route.jitter_s))
        if route.held is not None:
            await route.held.wait()
        if route.lost or (route.loss_rate and self._random.random() < route.loss_rate):
            await asyncio.get_running_loop().create_future()
