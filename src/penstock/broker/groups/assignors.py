"""Server-side assignors: distribute partitions to the members of a group. Pure functions of subscriptions and current
assignments.

`uniform` gives everyone as nearly the same number as their subscriptions allow and moves as little as it can. `range` gives each
member neighbouring numbers, the same ones in every topic of equal size, so that partitions that belong together meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple
from uuid import UUID

from penstock.broker.consumers import TopicPartition


class Candidate(NamedTuple):
    """A member as an assignor sees it: the topics it wants, and what it was given last time."""

    subscribed: frozenset[UUID]
    held: frozenset[TopicPartition] = frozenset()
    instance_id: str | None = None


Target = dict[str, frozenset[TopicPartition]]
Assignor = Callable[[Mapping[str, Candidate], Mapping[UUID, int]], Target]


class _Share(NamedTuple):
    """Topics with the same subscribers, and which member has which of their partitions. Partitions stay with their previous
    owner first."""

    subscribers: list[str]
    topics: list[UUID]
    given: dict[str, list[TopicPartition]]


def uniform(members: Mapping[str, Candidate], partitions: Mapping[UUID, int]) -> Target:
    """Assign partitions evenly. Members keep their partitions as far as balance allows."""
    shares = _shares(members, partitions)
    loads = dict.fromkeys(members, 0)
    for share in shares:
        _keep(share, members, partitions, loads)
    for share in sorted(shares, key=lambda share: len(share.subscribers)):
        _fill(share, partitions, loads)
    # Levelling one share may unbalance another; every move lowers the sum of squares of the loads, so that this ends.
    moving = True
    while moving:
        moving = sum(_level(share, loads) for share in shares) > 0
    target: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for share in shares:
        for member, queues in share.given.items():
            target[member] += queues
    return {member: frozenset(queues) for member, queues in target.items()}


def range_(members: Mapping[str, Candidate], partitions: Mapping[UUID, int]) -> Target:
    """Runs of neighbouring partitions, in the order of the members' instance ids or, without one, of their own."""
    target: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for share in _shares(members, partitions):
        order = sorted(share.subscribers, key=lambda member: (members[member].instance_id or member, member))
        for topic in share.topics:
            size, longer = divmod(partitions[topic], len(order))
            first = 0
            for position, member in enumerate(order):
                end = first + size + (position < longer)
                target[member] += (TopicPartition(topic, number) for number in range(first, end))
                first = end
    return {member: frozenset(queues) for member, queues in target.items()}


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": uniform, "range": range_}


def _shares(members: Mapping[str, Candidate], partitions: Mapping[UUID, int]) -> list[_Share]:
    """Group topics by their subscribers, in an order that depends only on the arguments."""
    alike: dict[frozenset[UUID], list[str]] = {}
    for member in sorted(members):
        alike.setdefault(members[member].subscribed, []).append(member)
    kinds = list(alike)
    by_kinds: dict[tuple[int, ...], list[UUID]] = {}
    for topic in sorted(partitions):
        wanted_by = tuple(number for number, kind in enumerate(kinds) if topic in kind)
        if wanted_by:
            by_kinds.setdefault(wanted_by, []).append(topic)
    shares = []
    for wanted_by, topics in by_kinds.items():
        subscribers = sorted(member for number in wanted_by for member in alike[kinds[number]])
        shares.append(_Share(subscribers, topics, {member: [] for member in subscribers}))
    return shares


def _keep(share: _Share, members: Mapping[str, Candidate], partitions: Mapping[UUID, int], loads: dict[str, int]) -> None:
    topics = set(share.topics)
    taken: set[TopicPartition] = set()
    for member in share.subscribers:
        for queue in sorted(members[member].held):
            if queue.topic_id in topics and queue.partition < partitions[queue.topic_id] and queue not in taken:
                taken.add(queue)
                share.given[member].append(queue)
        loads[member] += len(share.given[member])


def _fill(share: _Share, partitions: Mapping[UUID, int], loads: dict[str, int]) -> None:
    """Give each unassigned partition to the member with the fewest."""
    held = {queue for queues in share.given.values() for queue in queues}
    lightest = [(loads[member], member) for member in share.subscribers]
    heapify(lightest)
    for topic in share.topics:
        for number in range(partitions[topic]):
            queue = TopicPartition(topic, number)
            if queue not in held:
                load, member = lightest[0]
                share.given[member].append(queue)
                loads[member] = load + 1
                heapreplace(lightest, (load + 1, member))


def _level(share: _Share, loads: dict[str, int]) -> bool:
    """Move partitions of one share from who has most to who has least, until they differ by one; whether any was moved.

    A giver never becomes the lightest and a taker never the heaviest while they differ by more, so that each heap need only
    follow its own side.
    """
    lightest = [(loads[member], member) for member in share.subscribers]
    heaviest = [(-loads[member], member) for member, queues in share.given.items() if queues]
    heapify(lightest)
    heapify(heaviest)
    moved = False
    while heaviest:
        surplus, giver = heappop(heaviest)
        load, taker = lightest[0]
        if -surplus - load < 2:
            break
        share.given[taker].append(share.given[giver].pop())
        loads[giver] -= 1
        loads[taker] += 1
        heapreplace(lightest, (load + 1, taker))
        if share.given[giver]:
            heappush(heaviest, (surplus + 1, giver))
        moved = True
    return moved
