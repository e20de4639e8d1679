"""How a node follows the leader: it keeps a copy of the tables of the system tablet, and asks what retention must keep."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from penstock.broker import Topic
from penstock.broker.table_feed import FollowedTable, TablePage
from penstock.coordination import Coordination
from penstock.core.clock import Clock
from penstock.core.errors import UnavailableError
from penstock.interconnect import CallStatus, Reply
from penstock.server.cluster.leader_service import FOLLOW_WAIT_S, LEADER_DESTINATION, Floor, LeaderMethod, encode
from penstock.server.cluster.peers import Peers

log = logging.getLogger(__name__)

CALL_S: Final = 3.0
RETRY_S: Final = 0.1
REPLY_BYTES: Final = 1 << 20  # those of all nodes that follow share a window of 32 MiB on the leader
FLOORS_S: Final = 5.0  # between two questions
FLOORS_STALE_S: Final = 20.0  # older floors do not count: everything may be needed


class LeaderClient:
    """Calls to the leader of now."""

    def __init__(self, node_id: int, coordination: Coordination, peers: Peers) -> None:
        self._node_id = node_id
        self._coordination = coordination
        self._peers = peers

    async def follow(self, table: FollowedTable) -> None:
        """Keep a copy of the leader's tables up to date until cancelled. While no leader answers, it stays as it is."""
        assert CALL_S > FOLLOW_WAIT_S
        while True:
            reply = await self._call(LeaderMethod.FOLLOW, encode(table.position), reply_bytes=REPLY_BYTES)
            if reply.status is CallStatus.OK:
                table.take(msgspec.msgpack.decode(reply.body, type=TablePage))
            else:
                log.debug("the leader does not tell its tables: %s", reply.reason)
                await asyncio.sleep(RETRY_S)

    async def floors(self, tablet_ids: Sequence[int]) -> list[Floor]:
        """What must be kept of the partitions of some tablets. UnavailableError if no leader answers."""
        reply = await self._call(LeaderMethod.FLOORS, encode(list(tablet_ids)), reply_bytes=REPLY_BYTES)
        if reply.status is not CallStatus.OK:
            raise UnavailableError(f"the leader does not tell what consumers need: {reply.reason}")
        return msgspec.msgpack.decode(reply.body, type=list[Floor])

    async def _call(self, method: LeaderMethod, body: bytes, *, reply_bytes: int) -> Reply:
        leader = self._coordination.leader
        if leader is None or leader.record.node_id == self._node_id:
            return Reply(CallStatus.UNREACHABLE, reason="no other node leads")
        link = self._peers.link(leader.record.node_id)
        return await link.call(method, LEADER_DESTINATION, (body,), timeout_s=CALL_S, reply_bytes=reply_bytes)


class FollowedFloors:
    """The offsets that retention must keep for partitions of this node, as the leader reported them last."""

    def __init__(self, client: LeaderClient, tablet_ids: Callable[[], Sequence[int]], clock: Clock) -> None:
        self._client = client
        self._tablet_ids = tablet_ids
        self._clock = clock
        self._floors: dict[tuple[int, int], Floor] = {}
        self._asked: frozenset[int] = frozenset()  # the tablets that the answer is about
        self._asked_at = -FLOORS_STALE_S

    async def run(self) -> None:
        """Ask now and then, until cancelled."""
        while True:
            try:
                await self.refresh()
            except UnavailableError as error:
                log.debug("%s", error)
            await asyncio.sleep(FLOORS_S)

    async def refresh(self) -> None:
        """Ask now. UnavailableError if there is no answer."""
        asked_at, tablet_ids = self._clock.monotonic(), self._tablet_ids()
        floors = await self._client.floors(tablet_ids)
        self._floors = {(floor.tablet_id, floor.number): floor for floor in floors}
        self._asked, self._asked_at = frozenset(tablet_ids), asked_at

    def needed_from(self, topic: Topic, number: int) -> int | None:
        """The first offset that a consumer or lease needs; None if there is none."""
        floor = self._floor(topic, number)
        return floor.needed_from if isinstance(floor, Floor) else floor

    def leased_from(self, topic: Topic, number: int) -> int | None:
        """The first offset that a lease protects; None if there is none."""
        floor = self._floor(topic, number)
        return floor.leased_from if isinstance(floor, Floor) else floor

    def _floor(self, topic: Topic, number: int) -> Floor | int | None:
        """Offset 0 if it is not known: then everything may be needed."""
        tablet_id = topic.tablets[number]
        if tablet_id not in self._asked or self._clock.monotonic() - self._asked_at > FLOORS_STALE_S:
            return 0
        return self._floors.get((tablet_id, number))
