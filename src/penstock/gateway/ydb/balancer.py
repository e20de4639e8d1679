"""Assigns partitions to the readers of a consumer: evenly, and with as few moves as that allows. Pure.

A partition has one reader at a time. To move it, it is revoked from its reader first; only when the reader has released it is it
assigned to the next. A reader that leaves has released everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.broker import TopicPartition

Wants = Mapping[UUID, frozenset[int] | None]
"""The topics that a reader subscribes to, and which of their partitions; None for all."""


class Assign(NamedTuple):
    """Assign a partition to a reader."""

    reader: str
    queue: TopicPartition


class Revoke(NamedTuple):
    """Ask a reader to release a partition."""

    reader: str
    queue: TopicPartition


Effect = Assign | Revoke


class Balancer:
    """The assignment of partitions to the readers of one consumer."""

    def __init__(self) -> None:
        self._wants: dict[str, Wants] = {}
        self._partitions: dict[UUID, int] = {}
        self._owners: dict[TopicPartition, str] = {}
        self._revoking: set[TopicPartition] = set()

    @property
    def is_idle(self) -> bool:
        """Whether there are no readers."""
        return not self._wants

    @property
    def topics(self) -> set[UUID]:
        """The topics that readers subscribe to."""
        return {topic for wants in self._wants.values() for topic in wants}

    def owner(self, queue: TopicPartition) -> str | None:
        """The reader of a partition now."""
        return self._owners.get(queue)

    def shares(self) -> dict[str, list[TopicPartition]]:
        """The partitions of each reader."""
        shares: dict[str, list[TopicPartition]] = {reader: [] for reader in self._wants}
        for queue, owner in self._owners.items():
            shares.setdefault(owner, []).append(queue)
        return shares

    def join(self, reader: str, wants: Wants, partitions: Mapping[UUID, int]) -> list[Effect]:
        """Add a reader. `partitions` holds the partition counts of its topics."""
        self._wants[reader] = wants
        self._partitions.update(partitions)
        return self._rebalance()

    def leave(self, reader: str) -> list[Effect]:
        """Remove a reader, which releases all its partitions."""
        if self._wants.pop(reader, None) is None:
            return []
        for queue in [queue for queue, owner in self._owners.items() if owner == reader]:
            del self._owners[queue]
            self._revoking.discard(queue)
        return self._rebalance()

    def release(self, reader: str, queue: TopicPartition) -> list[Effect]:
        """Note that a reader has released a partition."""
        if self._owners.get(queue) != reader:
            return []
        del self._owners[queue]
        self._revoking.discard(queue)
        return self._rebalance()

    def resize(self, partitions: Mapping[UUID, int]) -> list[Effect]:
        """Change the partition counts of topics."""
        self._partitions.update(partitions)
        return self._rebalance()

    def _rebalance(self) -> list[Effect]:
        """Assign free partitions, and revoke those that must move."""
        effects: list[Effect] = []
        for topic in sorted(self.topics, key=str):
            for queue, reader in self._target(topic).items():
                owner = self._owners.get(queue)
                if owner is None:
                    self._owners[queue] = reader
                    effects.append(Assign(reader, queue))
                elif owner != reader and queue not in self._revoking:
                    self._revoking.add(queue)
                    effects.append(Revoke(owner, queue))
        return effects

    def _target(self, topic: UUID) -> dict[TopicPartition, str]:
        """The reader that each partition of a topic should have."""
        subscriptions = {reader: wants[topic] for reader, wants in self._wants.items() if topic in wants}
        total = Counter(self._owners.values())
        load = dict.fromkeys(subscriptions, 0)
        target: dict[TopicPartition, str] = {}
        free: list[TopicPartition] = []
        for number in range(self._partitions.get(topic, 0)):
            queue = TopicPartition(topic, number)
            owner = self._owners.get(queue)
            if owner is not None and queue not in self._revoking:
                target[queue] = owner
                load[owner] += 1
            else:
                free.append(queue)
        for queue in free:
            candidates = _subscribers(subscriptions, queue.partition)
            if candidates:
                chosen = min(candidates, key=lambda reader: (load[reader], total[reader], reader))
                target[queue] = chosen
                load[chosen] += 1
        _even_out(target, load, subscriptions)
        return target


def _subscribers(subscriptions: Mapping[str, frozenset[int] | None], partition: int) -> list[str]:
    return [reader for reader, partitions in subscriptions.items() if partitions is None or partition in partitions]


def _even_out(
    target: dict[TopicPartition, str], load: dict[str, int], subscriptions: Mapping[str, frozenset[int] | None]
) -> None:
    """Move partitions from readers with at least two more to those with fewer, until there is no such pair."""
    moved = True
    while moved:
        moved = False
        for queue, owner in _busiest_first(target.items(), load):
            candidates = _subscribers(subscriptions, queue.partition)
            least = min(candidates, key=lambda reader: (load[reader], reader))
            if load[owner] >= load[least] + 2:
                target[queue] = least
                load[owner] -= 1
                load[least] += 1
                moved = True


def _busiest_first(items: Iterable[tuple[TopicPartition, str]], load: Mapping[str, int]) -> list[tuple[TopicPartition, str]]:
    return sorted(items, key=lambda item: (-load[item[1]], -item[0].partition))
