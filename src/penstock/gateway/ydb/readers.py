"""The read streams of each consumer, and the balancer that divides partitions between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.broker import Broker, TopicPartition, UnknownTopicError
from penstock.gateway.ydb.balancer import Assign, Balancer, Effect, Wants

if TYPE_CHECKING:
    from penstock.gateway.ydb.read_stream import ReadStream


class Readers:
    """All read streams of a node, by consumer."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._balancers: dict[str, Balancer] = {}
        self._readers: dict[str, ReadStream] = {}
        self._version = broker.catalog.version

    def join(self, consumer: str, reader: ReadStream, wants: Wants) -> None:
        """Add a reader, and rebalance."""
        self._readers[reader.id] = reader
        balancer = self._balancers.setdefault(consumer, Balancer())
        self._apply(balancer.join(reader.id, wants, self._partitions(wants)))

    def leave(self, consumer: str, reader: ReadStream) -> None:
        """Remove a reader, and rebalance."""
        self._readers.pop(reader.id, None)
        balancer = self._balancers.get(consumer)
        if balancer is None:
            return
        self._apply(balancer.leave(reader.id))
        if balancer.is_idle:
            self._balancers.pop(consumer, None)

    def release(self, consumer: str, reader: ReadStream, queue: TopicPartition) -> None:
        """Note that a reader has released a partition, which may now be assigned to another."""
        balancer = self._balancers.get(consumer)
        if balancer is not None:
            self._apply(balancer.release(reader.id, queue))

    def owner(self, consumer: str, queue: TopicPartition) -> ReadStream | None:
        """The stream that reads a partition for a consumer now."""
        balancer = self._balancers.get(consumer)
        name = None if balancer is None else balancer.owner(queue)
        return None if name is None else self._readers.get(name)

    def shares(self, consumer: str) -> dict[str, list[TopicPartition]]:
        """The readers of a consumer by id, and the partitions of each."""
        balancer = self._balancers.get(consumer)
        return {} if balancer is None else balancer.shares()

    def committed(self, consumer: str, queue: TopicPartition, offset: int) -> None:
        """Tell the reader of a partition that an offset was committed outside of its stream."""
        owner = self.owner(consumer, queue)
        if owner is not None:
            owner.committed(queue, offset)

    def follow_topics(self) -> None:
        """Assign partitions that were added to topics since the last call."""
        if self._version == self._broker.catalog.version:
            return
        self._version = self._broker.catalog.version
        for balancer in list(self._balancers.values()):
            self._apply(balancer.resize(self._partitions(balancer.topics)))

    def _partitions(self, topics: Iterable[UUID]) -> dict[UUID, int]:
        counts: dict[UUID, int] = {}
        for topic_id in topics:
            try:
                counts[topic_id] = self._broker.catalog.topic_by_id(topic_id).partitions
            except UnknownTopicError:
                counts[topic_id] = 0  # it was deleted; its readers are about to end
        return counts

    def _apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            reader = self._readers.get(effect.reader)
            if reader is None:
                continue
            if isinstance(effect, Assign):
                reader.assign(effect.queue)
            else:
                reader.revoke(effect.queue)
