"""The readers of each consumer, and the balancer between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

from penstock.broker import Broker, TopicPartition, UnknownTopicError
from penstock.gateway.ydb.balancer import Balancer, Effect, Start, Wants


class Reader(Protocol):
    """A stream that reads for a consumer."""

    id: str

    def give(self, queue: TopicPartition) -> None:
        """It has a partition from now on."""
        ...

    def take(self, queue: TopicPartition) -> None:
        """It is to let go of a partition."""
        ...

    def committed(self, queue: TopicPartition, offset: int) -> None:
        """What it reads of a partition was committed up to an offset, outside of its stream."""
        ...


class Readers:
    """All readers of a node, by consumer."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._balancers: dict[str, Balancer] = {}
        self._readers: dict[str, Reader] = {}
        self._version = broker.catalog.version

    def join(self, consumer: str, reader: Reader, wants: Wants) -> None:
        """A reader begins."""
        self._readers[reader.id] = reader
        balancer = self._balancers.setdefault(consumer, Balancer())
        self._carry_out(balancer.join(reader.id, wants, self._partitions(wants)))

    def leave(self, consumer: str, reader: Reader) -> None:
        """A reader has ended."""
        self._readers.pop(reader.id, None)
        balancer = self._balancers.get(consumer)
        if balancer is None:
            return
        self._carry_out(balancer.leave(reader.id))
        if balancer.is_idle:
            self._balancers.pop(consumer, None)

    def released(self, consumer: str, reader: Reader, queue: TopicPartition) -> None:
        """A reader has let go of a partition."""
        balancer = self._balancers.get(consumer)
        if balancer is not None:
            self._carry_out(balancer.released(reader.id, queue))

    def owner(self, consumer: str, queue: TopicPartition) -> Reader | None:
        """Who reads a partition for a consumer now."""
        balancer = self._balancers.get(consumer)
        name = None if balancer is None else balancer.owner(queue)
        return None if name is None else self._readers.get(name)

    def shares(self, consumer: str) -> dict[str, list[TopicPartition]]:
        """Who reads for a consumer, and the partitions each has."""
        balancer = self._balancers.get(consumer)
        return {} if balancer is None else balancer.shares()

    def committed(self, consumer: str, queue: TopicPartition, offset: int) -> None:
        """A position of a consumer was set outside of the stream of whoever reads there."""
        owner = self.owner(consumer, queue)
        if owner is not None:
            owner.committed(queue, offset)

    def follow_topics(self) -> None:
        """Give out partitions that were added to topics since the last time."""
        if self._version == self._broker.catalog.version:
            return
        self._version = self._broker.catalog.version
        for balancer in list(self._balancers.values()):
            self._carry_out(balancer.resize(self._partitions(balancer.topics)))

    def _partitions(self, topics: Iterable[UUID]) -> dict[UUID, int]:
        found: dict[UUID, int] = {}
        for topic_id in topics:
            try:
                found[topic_id] = self._broker.catalog.topic_by_id(topic_id).partitions
            except UnknownTopicError:
                found[topic_id] = 0  # it is gone, and its readers are about to learn of it
        return found

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            reader = self._readers.get(effect.reader)
            if reader is None:
                continue
            if isinstance(effect, Start):
                reader.give(effect.queue)
            else:
                reader.take(effect.queue)
