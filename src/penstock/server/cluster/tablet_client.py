"""How the leader reaches the tablets of topics on all nodes, its own included, and what it knows of their partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from penstock.broker import PartitionStatus, TopicPartition
from penstock.coordination import Coordination
from penstock.core.errors import UnavailableError
from penstock.interconnect import CallStatus, Reply
from penstock.placement import HostOrder, TabletState
from penstock.queue import SourceWrite, StaleEpochError
from penstock.server.cluster.peers import Peers
from penstock.server.cluster.tablet_service import (
    TABLETS_DESTINATION,
    EraseCall,
    HostCall,
    PlaceCall,
    ReleaseCall,
    TabletMethod,
    TabletService,
    encode,
    mark_call,
)
from penstock.server.storage_report import GroupReport

log = logging.getLogger(__name__)

STATES_S: Final = 2.0
ERASE_S: Final = 30.0
MARK_S: Final = 10.0
POLL_S: Final = 1.0
POLLED_PARTITIONS: Final = 5000  # a second, at most
REPLY_BYTES: Final = 4 << 20

Answer = TypeVar("Answer")

_STATES: Final = msgspec.msgpack.Decoder(list[TabletState])
_ANSWER: Final = msgspec.msgpack.Decoder(bool)
_IDS: Final = msgspec.msgpack.Decoder(list[int])
_REPORTS: Final = msgspec.msgpack.Decoder(list[GroupReport])
_STATUSES: Final = msgspec.msgpack.Decoder(list[PartitionStatus])


class TabletClient:
    """Calls to the tablets of nodes (`NodeTablets` of placement). `statuses` are of the partitions of all other nodes."""

    def __init__(self, node_id: int, coordination: Coordination, peers: Peers, own: TabletService) -> None:
        self._node_id = node_id
        self._coordination = coordination
        self._peers = peers
        self._own = own
        self.statuses: dict[tuple[int, int], PartitionStatus] = {}  # by tablet and number

    async def host(self, node_id: int, orders: Sequence[HostOrder], timeout_s: float) -> list[TabletState] | None:
        """See NodeTablets."""
        if node_id == self._node_id:
            return await self._own.host(orders, timeout_s)
        call = HostCall(self._revision, list(orders))
        return _decoded(await self._call(node_id, TabletMethod.HOST, call, timeout_s), _STATES)

    async def release(self, node_id: int, tablet_ids: Sequence[int], timeout_s: float) -> list[int] | None:
        """See NodeTablets."""
        if node_id == self._node_id:
            return await self._own.release(tablet_ids)
        call = ReleaseCall(self._revision, list(tablet_ids))
        return _decoded(await self._call(node_id, TabletMethod.RELEASE, call, timeout_s), _IDS)

    async def states(self, node_id: int) -> list[TabletState] | None:
        """See NodeTablets."""
        if node_id == self._node_id:
            return self._own.states()
        return _decoded(await self._call(node_id, TabletMethod.STATES, None, STATES_S), _STATES)

    async def erase(self, node_id: int, tablets: Sequence[tuple[int, int | None]]) -> None:
        """Stop tablets on another node and delete their data. UnavailableError if it does not say that it has done so."""
        reply = await self._call(node_id, TabletMethod.ERASE, EraseCall(self._revision, list(tablets)), ERASE_S)
        if reply.status is not CallStatus.OK:
            raise UnavailableError(f"node {node_id} has not deleted the data of {len(tablets)} tablets yet: {reply.reason}")

    async def mark(self, node_id: int, place: TopicPartition, marker: bytes, source: SourceWrite) -> None:
        """Write the end of a transaction to a partition on another node."""
        reply = await self._call(node_id, TabletMethod.MARK, mark_call(place, marker, source), MARK_S)
        if reply.code == StaleEpochError.code:
            raise StaleEpochError(reply.reason)
        if reply.status is not CallStatus.OK:
            raise UnavailableError(f"node {node_id} has not written the marker: {reply.reason}")

    async def settled_start(self, node_id: int, place: TopicPartition) -> int:
        """Where a partition of another node begins, once that knows what leases need now."""
        reply = await self._call(node_id, TabletMethod.SETTLE, PlaceCall(place.topic_id.bytes, place.partition), MARK_S)
        if reply.status is not CallStatus.OK:
            raise UnavailableError(f"node {node_id} does not tell where the partition begins: {reply.reason}")
        return msgspec.msgpack.decode(reply.body, type=int)

    async def storage_reports(self) -> dict[int, list[GroupReport]]:
        """The storage of all other nodes that answer."""
        nodes = [member.node_id for member in self._coordination.members() if member.node_id != self._node_id]
        replies = await asyncio.gather(*(self._call(node, TabletMethod.STORAGE, None, STATES_S) for node in nodes))
        told = {node: _decoded(reply, _REPORTS) for node, reply in zip(nodes, replies, strict=True)}
        return {node: groups for node, groups in told.items() if groups is not None}

    async def begin_scrubs(self) -> bool:
        """Have all other nodes verify what is stored on them. Returns whether one has begun."""
        nodes = [member.node_id for member in self._coordination.members() if member.node_id != self._node_id]
        replies = await asyncio.gather(*(self._call(node, TabletMethod.SCRUB, None, STATES_S) for node in nodes))
        begun: list[bool | None] = [_decoded(reply, _ANSWER) for reply in replies]
        return any(begun)

    async def poll_statuses(self) -> None:
        """Keep `statuses` up to date until cancelled."""
        while True:
            nodes = [member.node_id for member in self._coordination.members() if member.node_id != self._node_id]
            answers = await asyncio.gather(*(self._call(node, TabletMethod.STATUSES, None, STATES_S) for node in nodes))
            statuses: dict[tuple[int, int], PartitionStatus] = {}
            for answer in answers:
                for status in _decoded(answer, _STATUSES) or ():
                    statuses[status.tablet_id, status.number] = status
            # What was heard of a node that does not answer now is kept until its tablets run elsewhere.
            self.statuses = {**self.statuses, **statuses} if len(statuses) < len(self.statuses) else statuses
            await asyncio.sleep(max(POLL_S, len(statuses) / POLLED_PARTITIONS))

    def forget(self, tablet_ids: set[int]) -> None:
        """Forget partitions of tablets that are no more."""
        self.statuses = {key: status for key, status in self.statuses.items() if key[0] not in tablet_ids}

    @property
    def _revision(self) -> int:
        leadership = self._coordination.leadership
        return 0 if leadership is None else leadership.revision

    def _call(self, node_id: int, method: TabletMethod, body: msgspec.Struct | None, timeout_s: float) -> asyncio.Future[Reply]:
        parts = () if body is None else (encode(body),)
        return self._peers.link(node_id).call(
            method, TABLETS_DESTINATION, parts, timeout_s=timeout_s, reply_bytes=REPLY_BYTES if body is None else 0
        )


def _decoded(reply: Reply, decoder: msgspec.msgpack.Decoder[Answer]) -> Answer | None:
    """The answer of a node; None if it gave none."""
    if reply.status is not CallStatus.OK:
        log.debug("a node does not answer about its tablets: %s", reply.reason)
        return None
    return decoder.decode(reply.body)
