"""Which reader of a consumer reads which partition: divided evenly, and moved as little as that allows. Pure.

A partition is with one reader at a time. One that is to move is first taken from its reader, who says when it has let go; only
then is it given to the next. A reader that leaves has let go of everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.broker import TopicPartition

Wants = Mapping[UUID, frozenset[int] | None]
"""The topics a reader wants, and which of their partitions; None for all of them."""


class Start(NamedTuple):
    """A reader is given a partition."""

    reader: str
    queue: TopicPartition


class Stop(NamedTuple):
    """A reader is asked to let go of a partition."""

    reader: str
    queue: TopicPartition


Effect = Start | Stop


class Balancer:
    """The readers of one consumer."""

    def __init__(self) -> None:
        self._wants: dict[str, Wants] = {}
        self._partitions: dict[UUID, int] = {}
        self._owners: dict[TopicPartition, str] = {}
        self._stopping: set[TopicPartition] = set()

    @property
    def is_idle(self) -> bool:
        """Whether nobody reads."""
        return not self._wants

    @property
    def topics(self) -> set[UUID]:
        """Topics that somebody wants."""
        return {topic for wants in self._wants.values() for topic in wants}

    def owner(self, queue: TopicPartition) -> str | None:
        """Who reads a partition now."""
        return self._owners.get(queue)

    def shares(self) -> dict[str, list[TopicPartition]]:
        """Every reader, and the partitions it has."""
        found: dict[str, list[TopicPartition]] = {reader: [] for reader in self._wants}
        for queue, owner in self._owners.items():
            found.setdefault(owner, []).append(queue)
        return found

    def join(self, reader: str, wants: Wants, partitions: Mapping[UUID, int]) -> list[Effect]:
        """A reader comes; `partitions` are how many the topics have that it wants."""
        self._wants[reader] = wants
        self._partitions.update(partitions)
        return self._settle()

    def leave(self, reader: str) -> list[Effect]:
        """A reader is gone, and has let go of all it had."""
        if self._wants.pop(reader, None) is None:
            return []
        for queue in [queue for queue, owner in self._owners.items() if owner == reader]:
            del self._owners[queue]
            self._stopping.discard(queue)
        return self._settle()

    def released(self, reader: str, queue: TopicPartition) -> list[Effect]:
        """A reader has let go of a partition."""
        if self._owners.get(queue) != reader:
            return []
        del self._owners[queue]
        self._stopping.discard(queue)
        return self._settle()

    def resize(self, partitions: Mapping[UUID, int]) -> list[Effect]:
        """Topics have this many partitions now."""
        self._partitions.update(partitions)
        return self._settle()

    def _settle(self) -> list[Effect]:
        """Give out what is free, and ask for what is to move."""
        effects: list[Effect] = []
        for topic in sorted(self.topics, key=str):
            for queue, reader in self._target(topic).items():
                owner = self._owners.get(queue)
                if owner is None:
                    self._owners[queue] = reader
                    effects.append(Start(reader, queue))
                elif owner != reader and queue not in self._stopping:
                    self._stopping.add(queue)
                    effects.append(Stop(owner, queue))
        return effects

    def _target(self, topic: UUID) -> dict[TopicPartition, str]:
        """Who should read each partition of a topic."""
        takers = {reader: wants[topic] for reader, wants in self._wants.items() if topic in wants}
        total = Counter(self._owners.values())
        load = dict.fromkeys(takers, 0)
        target: dict[TopicPartition, str] = {}
        free: list[TopicPartition] = []
        for number in range(self._partitions.get(topic, 0)):
            queue = TopicPartition(topic, number)
            owner = self._owners.get(queue)
            if owner is not None and queue not in self._stopping:
                target[queue] = owner
                load[owner] += 1
            else:
                free.append(queue)
        for queue in free:
            able = _able(takers, queue.partition)
            if able:
                chosen = min(able, key=lambda reader: (load[reader], total[reader], reader))
                target[queue] = chosen
                load[chosen] += 1
        _level(target, load, takers)
        return target


def _able(takers: Mapping[str, frozenset[int] | None], partition: int) -> list[str]:
    return [reader for reader, some in takers.items() if some is None or partition in some]


def _level(target: dict[TopicPartition, str], load: dict[str, int], takers: Mapping[str, frozenset[int] | None]) -> None:
    """Move partitions from who has two more to who has fewer, as long as there is such a pair."""
    moved = True
    while moved:
        moved = False
        for queue, owner in _of_the_busiest_first(target.items(), load):
            able = _able(takers, queue.partition)
            least = min(able, key=lambda reader: (load[reader], reader))
            if load[owner] >= load[least] + 2:
                target[queue] = least
                load[owner] -= 1
                load[least] += 1
                moved = True


def _of_the_busiest_first(
    items: Iterable[tuple[TopicPartition, str]], load: Mapping[str, int]
) -> list[tuple[TopicPartition, str]]:
    return sorted(items, key=lambda item: (-load[item[1]], -item[0].partition))
