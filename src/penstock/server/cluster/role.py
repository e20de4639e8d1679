"""Decides whether this node runs the broker. The leader does: it starts the system tablets with a higher generation, which
fences the previous leader.

A fenced node stops its broker and becomes a follower. Without coordination, the node that runs the broker continues. Tablets of
topics run in both roles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.coordination import Coordination
from penstock.core.errors import ConfigError, PenstockError
from penstock.server.broker_host import BrokerHost
from penstock.server.cluster.peers import Peers

log = logging.getLogger(__name__)

ACTIVE: Final = "active"
STANDBY: Final = "standby"

LOOK_S: Final = 0.1
UNCONFIRMED_S: Final = 3.0  # without a confirmation for so long another node may have taken over, and what is read here be old
DOUBTS_MAX: Final = 20  # looks that may find it so: a process that was stopped is confirmed again before them
CHALLENGE_S: Final = 0.2  # between two attempts to replace a leader that cannot be reached
RETRY_S: Final = 0.3

StartBroker = Callable[[Callable[[], None]], Awaitable[BrokerHost]]
"""Starts a broker with its listeners; the function that it gets is called when another node has taken over a tablet."""


class BrokerRole:
    """Starts and stops the broker of this node as its role changes. `unconfirmed_s` returns for how long the storage has not
    confirmed that no other node runs it; `on_standby` is called when this one is a standby again."""

    def __init__(
        self,
        node_id: int,
        coordination: Coordination,
        peers: Peers,
        *,
        can_start: Callable[[], bool],
        start: StartBroker,
        unconfirmed_s: Callable[[], float],
        on_standby: Callable[[], Awaitable[None]],
    ) -> None:
        self._node_id = node_id
        self._coordination = coordination
        self._peers = peers
        self._can_start = can_start
        self._start = start
        self._unconfirmed_s = unconfirmed_s
        self._on_standby = on_standby
        self._host: BrokerHost | None = None
        self._fenced = asyncio.Event()
        self._doubts = 0  # looks since it was confirmed that no other node runs the broker
        self._challenged_at = 0.0
        self._trouble = ""  # why the broker did not start last
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def role(self) -> str:
        """What this node is."""
        return STANDBY if self._host is None else ACTIVE

    @property
    def active_node(self) -> int | None:
        """The node that runs the broker, or soon will; None if that is not known."""
        return self._node_id if self._host is not None else self._coordination.owner_of(0)

    async def run(self) -> None:
        """Follow the role for as long as the node runs."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                if self._host is None:
                    await self._watch_leader(loop.time())
                else:
                    await self._watch_fence()
            except ConfigError as error:
                if not self.failure.done():
                    self.failure.set_exception(error)
                return
            except PenstockError as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.warning("the broker does not start here, trying again: %s", error)
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        """Stop the broker, if it runs here."""
        host, self._host = self._host, None
        if host is not None:
            await host.stop()

    async def _watch_leader(self, now: float) -> None:
        """Start the broker if this node leads; otherwise see whether the leader is lost."""
        if self._coordination.leadership is not None:
            if self._can_start():
                await self._take_over()
            return
        leader = self._coordination.leader
        if leader is None or leader.record.node_id == self._node_id or now - self._challenged_at < CHALLENGE_S:
            return
        node_id = leader.record.node_id
        if not self._peers.is_doubtful(node_id) or not self._coordination.status.is_usable:
            return
        self._challenged_at = now
        if await self._peers.is_given_up(node_id) and await self._coordination.challenge(leader):
            log.warning("node %d cannot be reached; this node leads in its place", node_id)

    async def _take_over(self) -> None:
        self._fenced.clear()
        began = asyncio.get_running_loop().time()
        try:
            self._host = await self._start(self._fenced.set)
        except BaseException:
            await self._on_standby()
            raise
        self._trouble = ""
        log.info("this node runs the broker; it started in %.2f s", asyncio.get_running_loop().time() - began)

    async def _watch_fence(self) -> None:
        self._doubts = self._doubts + 1 if self._unconfirmed_s() >= UNCONFIRMED_S else 0
        if self._fenced.is_set() or (self._doubts >= DOUBTS_MAX and self._may_be_replaced):
            log.warning("another node runs the broker by now, or the storage cannot tell; this one is a standby")
            await self.stop()
            await self._on_standby()

    @property
    def _may_be_replaced(self) -> bool:
        """Whether another node may run the broker, by coordination. While none does, the broker stays: writes whose outcome is
        open are settled by its next one, and by a restart they would count, though clients were told that they failed."""
        coordination = self._coordination
        return not coordination.status.is_usable or coordination.owner_of(0) != self._node_id
