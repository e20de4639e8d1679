"""A node that wants to lead: watches the leader key, campaigns when it is free, and knows whether it leads for certain."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from penstock.coordination.election import Leader, LeaderRecord, Step, campaign, leader_of, next_step
from penstock.coordination.guarded_store import GuardedStore
from penstock.coordination.key_layout import LEADER
from penstock.coordination.port import NO_LEASE, Delete, Outcome
from penstock.coordination.session import Session
from penstock.core.errors import PenstockError

log = logging.getLogger(__name__)

LOOK_S: Final = 0.25
"""How often to look whether to campaign, besides each change of the leader key: leases are granted again in between."""


class Candidate:
    """Campaigns in the background. `seen` tells the leader as the watch last saw it, which may be late."""

    def __init__(
        self,
        store: GuardedStore,
        session: Session,
        mine: LeaderRecord,
        *,
        seen: Callable[[], Leader | None],
        revision: Callable[[], int],
        is_eligible: Callable[[], bool],
    ) -> None:
        self._store = store
        self._session = session
        self._mine = mine
        self._seen = seen
        self._revision = revision
        self._is_eligible = is_eligible
        self._read: tuple[int, Leader | None] = (0, None)  # what we read or wrote ourselves, and the revision of that
        self._look = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Campaign from now on."""
        self._task = asyncio.create_task(self._run(), name="coordination-candidate")

    async def close(self) -> None:
        """Campaign no more, and give up the leader key if we hold it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            await self.resign()
        except PenstockError as error:
            log.info("leadership was not given up and ends with the lease: %s", error)

    async def resign(self) -> None:
        """Give up the leader key, if we hold it."""
        leader = self.leadership()
        if leader is not None:
            await self._store.commit([leader.compare()], [Delete(LEADER)])

    def look(self) -> None:
        """The leader key changed."""
        self._look.set()

    def forget(self) -> None:
        """Forget what we read: the store was rolled back, and will give the same revisions to other changes."""
        self._read = (0, None)

    def leader(self) -> Leader | None:
        """Who leads, by the newest that we know."""
        revision, leader = self._read
        return leader if revision > self._revision() else self._seen()

    def leadership(self) -> Leader | None:
        """The token of our writes; None unless we lead for certain."""
        leader = self.leader()
        return leader if next_step(leader, self._mine, self._session.lease) is Step.LEAD else None

    async def challenge(self, leader: Leader) -> bool:
        """Replace a leader that is the one we know; whether we lead now."""
        if self._session.lease == NO_LEASE:
            return False
        await self._commit(leader)
        return self.leadership() is not None

    async def _run(self) -> None:
        while True:
            self._look.clear()
            leader = self.leader()
            if next_step(leader, self._mine, self._session.lease) is Step.CAMPAIGN and self._is_eligible():
                try:
                    await self._commit(leader)
                except PenstockError as error:
                    log.debug("cannot campaign: %s", error)
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._look.wait()
            except TimeoutError:
                continue

    async def _commit(self, leader: Leader | None) -> None:
        """Try to put the leader key in place of the one we know, and learn who leads then."""
        lease = self._session.lease
        compare, put = campaign(leader, self._mine, lease)
        result = await self._store.commit([compare], [put])
        if result.outcome is Outcome.DONE:
            self._read = (result.revision, Leader(self._mine, result.revision, lease))
            log.info("node %d leads the cluster (revision %d)", self._mine.node_id, result.revision)
            return
        snapshot = await self._store.get(LEADER)
        self._read = (snapshot.position.revision, leader_of(snapshot.entry))
