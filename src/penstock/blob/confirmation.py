"""Confirmations: how a node knows that no other has taken over the tablets that it runs.

What a tablet has in memory is out of date as soon as a newer generation of it has begun elsewhere. Each half second the node asks
the disks of its groups up to which generation its tablets are blocked, in one call to each disk for all tablets of the group. If
answers of enough disks show no newer generation, the tablets are confirmed as of the time when the calls were *sent*, and what
they have in memory may be told for a while from then on. A tablet that is blocked stops. Each group is asked by itself: one that
does not answer keeps only its own tablets from being confirmed.

An answer from memory is checked against the clock when it is given, by the time that passes while the machine sleeps as well: a
process that was stopped finds requests in its sockets first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from penstock.blob.proxy import GroupProxy
from penstock.core.clock import boot_time
from penstock.core.errors import PenstockError, UnavailableError
from penstock.core.periodic import report_defect

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
    """The running tablets of one storage group, by id, and who waits for their confirmation."""

    def __init__(self, number: int, until: float) -> None:
        self.number = number
        self.tablets: dict[int, RunningTablet] = {}
        self.until = until
        self.added_since = float("inf")  # when the oldest of those that no round has asked for yet was confirmed by its start
        self.waiting: list[asyncio.Future[None]] = []  # for a round that has not begun
        self.waiting_now: list[asyncio.Future[None]] = []  # for the one that goes on
        self.due = asyncio.Event()

    def begin_round(self) -> None:
        """Those that wait are told by a round that begins now."""
        self.due.clear()
        self.waiting_now, self.waiting = self.waiting, []

    def end_round(self, *, is_confirmed: bool) -> None:
        """Tell those that wait if their tablets are confirmed, or stopped; otherwise they go on waiting."""
        waiting = [confirmed for confirmed in self.waiting_now if not confirmed.done()]
        self.waiting_now = []
        if not is_confirmed:
            self.waiting += waiting
            return
        for confirmed in waiting:
            confirmed.set_result(None)


class Confirmations:
    """Confirms the tablets of this node for as long as `run` does. `until` is the time, by `now`, up to which all of them are
    confirmed."""

    def __init__(self, proxy_of: Callable[[int], Awaitable[GroupProxy]], now: Callable[[], float] = boot_time) -> None:
        self.now = now
        self.until = float("inf")
        self._superseded = 0  # tablets so far
        self._proxy_of = proxy_of
        self._groups: dict[int, _GroupOfTablets] = {}
        self._changed = asyncio.Event()  # groups came or went

    def add(self, group: int, tablet: RunningTablet, started_at: float) -> None:
        """Confirm a tablet from now on. It blocked the older generations after `started_at`."""
        tablets = self._groups.get(group)
        if tablets is None:
            tablets = self._groups[group] = _GroupOfTablets(group, started_at + VALID_S)
            self._changed.set()
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
                tablets.waiting_now += tablets.waiting
                tablets.end_round(is_confirmed=True)
                self._changed.set()
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

    async def check(self, groups: Collection[int] | None = None) -> None:
        """Return at once if all tablets of these groups are confirmed, of all groups if none are named; otherwise when they are.
        UnconfirmedError if they are not in time."""
        now = self.now()
        if now >= self.until and (late := [tablets for tablets in self._chosen(groups) if now >= tablets.until]):
            await self._wait_for(late)

    def unconfirmed_s(self, group: int) -> float:
        """For how long the tablets of a group have not been confirmed; 0 if none runs here."""
        tablets = self._groups.get(group)
        return 0.0 if tablets is None else self.now() - (tablets.until - VALID_S)

    async def confirm(self, groups: Collection[int] | None = None) -> None:
        """Wait for a confirmation of the tablets of these groups, of all groups if none are named, that begins after this call.
        UnconfirmedError if it does not come in time."""
        await self._wait_for(self._chosen(groups))

    async def run(self) -> None:
        """Ask every half second, and whenever a confirmation is wanted."""
        asking: dict[_GroupOfTablets, asyncio.Task[None]] = {}
        try:
            while True:
                self._changed.clear()
                wanted = set(self._groups.values())
                for tablets in asking.keys() - wanted:
                    asking.pop(tablets).cancel()
                for tablets in wanted - asking.keys():
                    asking[tablets] = asyncio.create_task(self._keep_asking(tablets), name=f"confirm-{tablets.number:08x}")
                changed = asyncio.create_task(self._changed.wait())
                try:
                    done, _ = await asyncio.wait([changed, *asking.values()], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                for task in done:
                    task.result()
        finally:
            for task in asking.values():
                task.cancel()

    def _chosen(self, groups: Collection[int] | None) -> list[_GroupOfTablets]:
        if groups is None:
            return list(self._groups.values())
        return [tablets for group in groups if (tablets := self._groups.get(group)) is not None]

    async def _wait_for(self, groups: list[_GroupOfTablets]) -> None:
        if not groups:
            return
        loop = asyncio.get_running_loop()
        waited = [loop.create_future() for _ in groups]
        for tablets, confirmed in zip(groups, waited, strict=True):
            tablets.waiting.append(confirmed)
            tablets.due.set()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*waited)
        except TimeoutError as error:
            raise UnconfirmedError(
                "the storage does not confirm that no other node has taken over from this one; try again, there or here"
            ) from error

    async def _keep_asking(self, tablets: _GroupOfTablets) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await tablets.due.wait()
            tablets.begin_round()
            try:
                is_confirmed = await self._ask(tablets)
            except Exception as error:  # noqa: BLE001 - it is reported
                report_defect(f"group {tablets.number:08x} confirms no tablet, and is asked again in a second", error)
                is_confirmed = False
                await asyncio.sleep(ROUND_S)
            tablets.end_round(is_confirmed=is_confirmed)
            if not is_confirmed:
                await asyncio.sleep(RETRY_S)
                if tablets.waiting:
                    tablets.due.set()

    async def _ask(self, tablets: _GroupOfTablets) -> bool:
        """One round. Returns whether the tablets of the group are confirmed, or stopped."""
        asked = list(tablets.tablets.values())
        tablets.added_since = float("inf")
        sent_at = self.now()
        try:
            async with asyncio.timeout(ROUND_S):
                blocked = await (await self._proxy_of(tablets.number)).blocked_generations([tablet.id for tablet in asked])
        except (TimeoutError, PenstockError) as error:
            log.debug("group %08x confirms no tablet: %s", tablets.number, error)
            return False
        if blocked is None:
            return False
        for tablet, generation in zip(asked, blocked, strict=True):
            if generation >= tablet.generation:
                self._superseded += 1
                tablet.supersede()
        tablets.until = min(sent_at, tablets.added_since) + VALID_S
        self._sum_up()
        return True

    def _sum_up(self) -> None:
        self.until = min((tablets.until for tablets in self._groups.values()), default=float("inf"))
