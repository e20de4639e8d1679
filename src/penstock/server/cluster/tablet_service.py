"""What a node does with its tablets of topics for others: the leader has it host, release and erase them, asks how they and their
partitions are, and ends transactions in them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import IntEnum
from typing import Final
from uuid import UUID

import msgspec

from penstock.broker import PartitionBroker, PartitionStatus, Tablets, Topic, TopicPartition
from penstock.broker.errors import PartitionUnavailableError
from penstock.coordination import Coordination
from penstock.core.errors import UnavailableError
from penstock.interconnect import Handler, Interconnect, Parts, ServedCall
from penstock.placement import HostOrder, TabletLoads, TabletState
from penstock.queue import Partition, SourceWrite
from penstock.server.scrub import Scrub
from penstock.server.storage_report import storage_report

log = logging.getLogger(__name__)

TABLETS_DESTINATION: Final = 4
UNKNOWN_S: Final = 5.0  # how long an order waits for the catalog of this node to know its tablet
LOOK_S: Final = 0.02
LOADS_TOLD: Final = 1000  # to other nodes: the order in which more tablets than these start matters little

encode: Final = msgspec.msgpack.encode


class TabletMethod(IntEnum):
    """Calls to a node about its tablets."""

    HOST = 1
    RELEASE = 2
    STATES = 3
    ERASE = 4
    MARK = 5
    STATUSES = 6
    SETTLE = 7
    STORAGE = 8
    SCRUB = 9


class HostCall(msgspec.Struct, frozen=True, array_like=True):
    """Orders of the leader; `revision` is that of its leader key."""

    revision: int
    orders: list[HostOrder]


class ReleaseCall(msgspec.Struct, frozen=True, array_like=True):
    """Tablets to stop."""

    revision: int
    tablet_ids: list[int]


class EraseCall(msgspec.Struct, frozen=True, array_like=True):
    """Tablets to delete, with their storage groups."""

    revision: int
    tablets: list[tuple[int, int | None]]


class PlaceCall(msgspec.Struct, frozen=True, array_like=True):
    """A partition."""

    topic_id: bytes
    partition: int


class MarkCall(msgspec.Struct, frozen=True, array_like=True):
    """The end of a transaction for a partition."""

    topic_id: bytes
    partition: int
    marker: bytes
    source: bytes
    seqno: int
    epoch: int
    contiguous: bool


class TabletService:
    """Serves these calls. `broker` is what this node runs; None while it has no catalog."""

    def __init__(self, interconnect: Interconnect, coordination: Coordination, tablets: Tablets) -> None:
        self._coordination = coordination
        self._tablets = tablets
        self._loads = TabletLoads()
        self.scrub = Scrub(tablets.storage)
        self._revision = 0  # of the leader key of the last leader that called
        self.broker: PartitionBroker | None = None
        self.refresh_floors: Callable[[], Awaitable[None]] | None = None  # while this node follows
        handlers: dict[int, Handler] = {
            TabletMethod.HOST: self._serve_host,
            TabletMethod.RELEASE: self._serve_release,
            TabletMethod.STATES: self._serve_states,
            TabletMethod.ERASE: self._serve_erase,
            TabletMethod.MARK: self._serve_mark,
            TabletMethod.STATUSES: self._serve_statuses,
            TabletMethod.SETTLE: self._serve_settle,
            TabletMethod.STORAGE: self._serve_storage,
            TabletMethod.SCRUB: self._serve_scrub,
        }
        # None of them may stop midway: a tablet that was being stopped would run on unknown to all.
        interconnect.service.register(TABLETS_DESTINATION, handlers, cancels=False)

    async def host(self, orders: Sequence[HostOrder], timeout_s: float) -> list[TabletState]:
        """Host tablets; their states after the first attempt to boot each, or when the time is up."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        known: dict[bool, dict[int, Topic]] = {}  # by whether they are new
        for order in orders:
            topic = await self._topic_of(order.tablet_id, min(timeout_s, UNKNOWN_S))
            if topic is not None and not topic.deleting:
                known.setdefault(order.is_new, {})[order.tablet_id] = topic
        broker = self.broker
        work = [
            asyncio.create_task(start)
            for are_new, tablets in known.items()
            if broker is not None
            for start in broker.starts(tablets, are_new=are_new)
        ]
        if work:
            # Those that are not done go on: a boot must not be stopped midway.
            done, _ = await asyncio.wait(work, timeout=max(deadline - asyncio.get_running_loop().time(), 0.0))
            for task in done:
                if (error := task.exception()) is not None:
                    log.warning("a tablet does not run here: %s", error)
        return [self._state_of(order.tablet_id) for order in orders]

    async def release(self, tablet_ids: Iterable[int]) -> list[int]:
        """Stop tablets; those that are not hosted here any more."""
        released = list(tablet_ids)
        await asyncio.gather(*(self._tablets.release(tablet_id) for tablet_id in released))
        return released

    def states(self) -> list[TabletState]:
        """All tablets that are hosted here, with their load since they were asked for last."""
        self._loads.update(asyncio.get_running_loop().time(), self._tablets.traffic())
        return [TabletState(*state, self._loads.rate(state.tablet)) for state in self._tablets.states()]

    def loads(self) -> dict[int, float]:
        """Bytes a second of the busiest tablets that are hosted here, as the leader heard of them last."""
        return self._loads.busiest(LOADS_TOLD)

    def statuses(self) -> list[PartitionStatus]:
        """All partitions that are served here."""
        return [PartitionStatus.of(partition) for partition in self._tablets.partitions()]

    async def _topic_of(self, tablet_id: int, wait_s: float) -> Topic | None:
        """The topic of a tablet, once the catalog here knows it."""
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            topic = None if self.broker is None else self.broker.catalog.topic_of_tablet(tablet_id)
            if topic is not None or asyncio.get_running_loop().time() >= deadline:
                return topic
            await asyncio.sleep(LOOK_S)

    def _state_of(self, tablet_id: int) -> TabletState:
        state = self._tablets.state(tablet_id)
        if state is not None:
            return TabletState(*state)
        is_known = self.broker is not None and self.broker.catalog.topic_of_tablet(tablet_id) is not None
        trouble = "another node runs it" if is_known else "that node has not heard of its topic yet"
        return TabletState(tablet_id, is_up=False, trouble=trouble)

    def _check_leader(self, revision: int) -> None:
        """UnavailableError for orders of a leader that was replaced."""
        leader = self._coordination.leader
        self._revision = max(self._revision, 0 if leader is None else leader.revision)
        if revision < self._revision:
            raise UnavailableError("the order is from a leader that was replaced")
        self._revision = revision

    # Calls.

    async def _serve_host(self, call: ServedCall) -> Parts:
        asked = msgspec.msgpack.decode(call.body or b"", type=HostCall)
        self._check_leader(asked.revision)
        left_s = call.deadline - asyncio.get_running_loop().time()
        return (encode(await self.host(asked.orders, max(left_s - LOOK_S, 0.0))),)

    async def _serve_release(self, call: ServedCall) -> Parts:
        asked = msgspec.msgpack.decode(call.body or b"", type=ReleaseCall)
        self._check_leader(asked.revision)
        return (encode(await self.release(asked.tablet_ids)),)

    def _serve_states(self, call: ServedCall) -> Parts:
        return (encode(self.states()),)

    async def _serve_erase(self, call: ServedCall) -> Parts:
        asked = msgspec.msgpack.decode(call.body or b"", type=EraseCall)
        self._check_leader(asked.revision)
        await self._tablets.erase_all(asked.tablets)
        return ()

    async def _serve_mark(self, call: ServedCall) -> Parts:
        asked = msgspec.msgpack.decode(call.body or b"", type=MarkCall)
        partition = self._partition(asked.topic_id, asked.partition)
        await partition.mark(asked.marker, SourceWrite(asked.source, asked.seqno, asked.epoch, contiguous=asked.contiguous))
        return ()

    async def _serve_settle(self, call: ServedCall) -> Parts:
        asked = msgspec.msgpack.decode(call.body or b"", type=PlaceCall)
        partition = self._partition(asked.topic_id, asked.partition)
        if self.refresh_floors is None:
            raise UnavailableError("this node does not follow the leader yet; try again in a moment")
        await self.refresh_floors()
        return (encode(await partition.trim(0)),)

    def _partition(self, topic_id: bytes, number: int) -> Partition:
        if self.broker is None:
            raise PartitionUnavailableError("this node starts; try again in a moment")
        return self.broker.partition(self.broker.catalog.topic_by_id(UUID(bytes=topic_id)), number)

    def _serve_statuses(self, call: ServedCall) -> Parts:
        return (encode(self.statuses()),)

    async def _serve_storage(self, call: ServedCall) -> Parts:
        return (encode(await storage_report(self._tablets.storage)),)

    async def _serve_scrub(self, call: ServedCall) -> Parts:
        return (encode(await self.scrub.begin()),)


def mark_call(place: TopicPartition, marker: bytes, source: SourceWrite) -> MarkCall:
    """The call for a marker."""
    return MarkCall(
        place.topic_id.bytes, place.partition, marker, source.source, source.seqno, source.epoch, contiguous=source.contiguous
    )
