"""Tasks and futures of a simulation, which hash by serial number."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from penstock.testing.sim_loop import SimLoop, SimProcess

_T = TypeVar("_T")


class SimFuture(asyncio.Future[_T]):
    """A future whose place in a set does not depend on its address."""

    def __init__(self, serial: int, loop: SimLoop) -> None:
        self.serial = serial
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.serial


class SimTask(asyncio.Task[_T]):
    """A task with a serial number for its hash, and the process it dies with."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, _T],
        *,
        serial: int,
        loop: SimLoop,
        name: str,
        context: contextvars.Context | None,
        process: SimProcess | None,
    ) -> None:
        self.serial = serial
        self.process = process
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.serial

    @property
    def frozen(self) -> bool:
        """Whether the task belongs to a crashed process and will never run again."""
        return self.process is not None and self.process.crashed
