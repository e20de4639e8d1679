"""Serves followers from the leader: the tables of the system tablet, and the offsets that retention must keep for consumers."""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import Final

import msgspec

from penstock.broker import Broker, TopicPartition
from penstock.broker.table_feed import TableFeed, TablePosition
from penstock.interconnect import Handler, Interconnect, Parts, ServedCall

LEADER_DESTINATION: Final = 5
FOLLOW_WAIT_S: Final = 1.0  # how long a follower waits for changes, at most

encode: Final = msgspec.msgpack.encode


class LeaderMethod(IntEnum):
    """Calls to the leader."""

    FOLLOW = 1
    FLOORS = 2


class Floor(msgspec.Struct, frozen=True, array_like=True):
    """What must be kept of a partition: from which offset on consumers and leases need it, and leases alone; None is nothing."""

    tablet_id: int
    number: int
    needed_from: int | None
    leased_from: int | None


class LeaderService:
    """Serves these calls from when it is created until `close`."""

    def __init__(self, interconnect: Interconnect, broker: Broker) -> None:
        self._interconnect = interconnect
        self._broker = broker
        self._feed = TableFeed(broker.system_tablets.system)
        handlers: dict[int, Handler] = {LeaderMethod.FOLLOW: self._serve_follow, LeaderMethod.FLOORS: self._serve_floors}
        interconnect.service.register(LEADER_DESTINATION, handlers)

    @property
    def position(self) -> TablePosition:
        """Where a follower is that has every change of the tables."""
        return self._feed.position

    def close(self) -> None:
        """Refuse further calls."""
        self._interconnect.service.unregister(LEADER_DESTINATION)

    async def _serve_follow(self, call: ServedCall) -> Parts:
        position = msgspec.msgpack.decode(call.body or b"", type=TablePosition)
        left_s = call.deadline - asyncio.get_running_loop().time()
        return (encode(await self._feed.next_page(position, min(left_s / 2, FOLLOW_WAIT_S))),)

    def _serve_floors(self, call: ServedCall) -> Parts:
        """The floors of all partitions of some tablets that have one."""
        broker = self._broker
        floors: list[Floor] = []
        for tablet_id in msgspec.msgpack.decode(call.body or b"", type=list[int]):
            topic = broker.catalog.topic_of_tablet(tablet_id)
            if topic is None:
                continue
            for number, of_partition in enumerate(topic.tablets):
                if of_partition == tablet_id:
                    leased_from = broker.leases.needed_from(TopicPartition(topic.id, number))
                    needed_from = broker.needed_from(topic, number)
                    if needed_from is not None or leased_from is not None:
                        floors.append(Floor(tablet_id, number, needed_from, leased_from))
        return (encode(floors),)
