"""Confirmations: how a node knows that no other has taken over the tablets that it runs.

What a tablet has in memory is out of date as soon as a newer generation of it has begun elsewhere. Each half second the node asks
the disks of its groups up to which generation its tablets are blocked, in one call to each disk for all tablets of the group. If
answers of enough disks show no newer generation, the tablets are confirmed as of the time when the calls were *sent*, and what
they have in memory may be told for a while from then on. A tablet that is blocked stops.

An answer from memory is checked against the clock when it is given, by the time that passes while the machine sleeps as well: a
process that was stopped finds requests in its sockets first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from penstock.blob.proxy import GroupProxy
from penstock.core.clock import boot_time
from penstock.core.errors import PenstockError, UnavailableError

log = logging.getLogger(__name__)

VALID_S: Final = 1.5
INTERVAL_S: Final = 0.5
ROUND_S: Final = 1.0  # how long the answers of one round are waited for
RETRY_S: Final = 0.05
PATIENCE_S: Final = 5.0  # of who needs a confirmation
NEVER: Final = float("-inf")


class UnconfirmedError(UnavailableError):
    """It is not certain that this node still runs its tablets; another one may."""

    code = "unconfirmed"


class RunningTablet(Protocol):
    """A tablet that runs here, in one generation."""

    @property
    def id(self) -> int:
        """The tablet's number."""
        ...

    generation: int

    def supersede(self) -> None:
        """Stop: a newer generation was started elsewhere."""
        ...


class _GroupOfTablets:
    """The running tablets of one storage group, by id."""

    def __init__(self) -> None:
        self.tablets: dict[int, RunningTablet] = {}
        self.until = NEVER
        self.added_since = float("inf")  # when the oldest of those that no round has asked for yet was confirmed by its start


class Confirmations:
    """Confirms the tablets of this node for as long as `run` does. `until` is the time, by `now`, up to which all of them are
    confirmed."""

    def __init__(self, proxy_of: Callable[[int], Awaitable[GroupProxy]], now: Callable[[], float] = boot_time) -> None:
        self.now = now
        self.until = float("inf")
        self._superseded = 0  # tablets so far
        self._proxy_of = proxy_of
        self._groups: dict[int, _GroupOfTablets] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._due = asyncio.Event()

    def add(self, group: int, tablet: RunningTablet, started_at: float) -> None:
        """Confirm a tablet from now on. It blocked the older generations after `started_at`."""
        tablets = self._groups.get(group)
        if tablets is None:
            tablets = self._groups[group] = _GroupOfTablets()
            tablets.until = started_at + VALID_S
        tablets.tablets[tablet.id] = tablet
        tablets.until = min(tablets.until, started_at + VALID_S)
        tablets.added_since = min(tablets.added_since, started_at)
        self._sum_up()

    def remove(self, group: int, tablet: RunningTablet) -> None:
        """Forget a tablet that has stopped."""
        tablets = self._groups.get(group)
        if tablets is not None and tablets.tablets.get(tablet.id) is tablet:
            del tablets.tablets[tablet.id]
            if not tablets.tablets:
                del self._groups[group]
            self._sum_up()

    @asynccontextmanager
    async def answering(self, *, is_decision: bool) -> AsyncIterator[None]:
        """Begin to look at what tablets have in memory when that is confirmed; for a decision, by a confirmation that begins now.
        UnconfirmedError in the end if it may be out of date by then, because it took long and another node has taken over."""
        await (self.confirm() if is_decision else self.check())
        superseded = self._superseded
        yield
        await self.check()
        if self._superseded != superseded:
            raise UnconfirmedError("another node has taken over from this one meanwhile; ask that one")

    async def check(self) -> None:
        """Return at once if all tablets are confirmed, otherwise when they are. UnconfirmedError if they are not in time."""
        if self.now() >= self.until:
            await self.confirm()

    async def confirm(self) -> None:
        """Wait for a confirmation that begins after this call. UnconfirmedError if it does not come in time."""
        if not self._groups:
            return
        confirmed = asyncio.get_running_loop().create_future()
        self._waiting.append(confirmed)
        self._due.set()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await confirmed
        except TimeoutError as error:
            raise UnconfirmedError(
                "the storage does not confirm that no other node has taken over from this one; try again, there or here"
            ) from error

    async def run(self) -> None:
        """Ask every half second, and whenever a confirmation is wanted."""
        while True:
            try:
                async with asyncio.timeout(INTERVAL_S):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            waiting, self._waiting = self._waiting, []
            if await self._ask_all():
                for confirmed in waiting:
                    if not confirmed.done():
                        confirmed.set_result(None)
            else:
                self._waiting += [confirmed for confirmed in waiting if not confirmed.done()]
                await asyncio.sleep(RETRY_S)
                if self._waiting:
                    self._due.set()

    async def _ask_all(self) -> bool:
        """One round. Returns whether the tablets of all groups are confirmed, or stopped."""
        groups = list(self._groups.items())
        outcomes = await asyncio.gather(*(self._ask(group, tablets) for group, tablets in groups))
        self._sum_up()
        return all(outcomes)

    async def _ask(self, group: int, tablets: _GroupOfTablets) -> bool:
        asked = list(tablets.tablets.values())
        tablets.added_since = float("inf")
        sent_at = self.now()
        try:
            async with asyncio.timeout(ROUND_S):
                blocked = await (await self._proxy_of(group)).blocked_generations([tablet.id for tablet in asked])
        except (TimeoutError, PenstockError) as error:
            log.debug("group %08x confirms no tablet: %s", group, error)
            return False
        if blocked is None:
            return False
        for tablet, generation in zip(asked, blocked, strict=True):
            if generation >= tablet.generation:
                self._superseded += 1
                tablet.supersede()
        tablets.until = min(sent_at, tablets.added_since) + VALID_S
        return True

    def _sum_up(self) -> None:
        self.until = min((tablets.until for tablets in self._groups.values()), default=float("inf"))
