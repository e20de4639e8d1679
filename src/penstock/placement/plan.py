"""Decides which node should own which tablet. No I/O: the same view of the cluster gives the same plan.

A tablet is taken over from a node only if that is lost; from any other it moves by an orderly hand-over, or not at all. Tablets
count by their partitions, and a move for balance leaves its source with no less than its target, so that none is moved back. All
survivors start tablets of a lost node at the same time, even if one has far fewer than the others; balance moves some later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final, NamedTuple

TOLERANCE: Final = 0.1
"""Differences between nodes below this share of the mean are not worth a move."""
STARTS_AHEAD: Final = 16
"""How many tablets beyond its even share a node may start: those of a lost node are back sooner if all survivors start some."""


class NodeState(Enum):
    """Whether a node can be called."""

    ALIVE = "alive"
    UNREACHED = "unreached"  # by the leader; others may reach it, so that nothing is taken from it
    LOST = "lost"  # given up: its lease has ended, or most nodes do not reach it


class MoveReason(Enum):
    """Why a tablet changes its owner by a hand-over."""

    FAILING = "failing"
    PINNED = "pinned"
    DRAIN = "drain"
    BALANCE = "balance"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node. One that is not settled was away or lost a moment ago, and gets no tablets of others for balance; one that is not a
    member has no lease: it is starting, or has lost it."""

    node_id: int
    state: NodeState = NodeState.ALIVE
    is_draining: bool = False
    is_settled: bool = True
    is_member: bool = True

    @property
    def can_take(self) -> bool:
        """Whether it can be given tablets."""
        return self.state is NodeState.ALIVE and self.is_member and not self.is_draining


@dataclass(frozen=True, slots=True)
class TabletView:
    """A tablet. `disk_nodes` have a disk of its storage group; one that is pinned cannot run on others."""

    tablet_id: int
    owner: int | None = None
    topic: str = ""
    partitions: int = 1
    load: float = 0.0  # bytes a second; infinite for what the leader itself uses
    disk_nodes: frozenset[int] = frozenset()
    is_pinned: bool = False
    strikes: int = 0  # how many nodes died while it started there
    is_failing: bool = False  # it has not run for long on its owner, which can be reached
    is_moving: bool = False  # a hand-over is in flight; `owner` is its target, and it is left alone
    is_kept: bool = False  # an operator has put it there: it is not moved for balance
    is_starting: bool = False  # its owner has been asked to start it, and has not answered yet


class Takeover(NamedTuple):
    """Give a tablet without an owner, or that of a lost node, to a node."""

    tablet_id: int
    node_id: int


class Move(NamedTuple):
    """Hand a tablet over, from a node that can be reached."""

    tablet_id: int
    source: int
    target: int
    reason: MoveReason


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do next: take-overs in order of urgency, hand-overs, and tablets that no node can run now."""

    takeovers: tuple[Takeover, ...] = ()
    moves: tuple[Move, ...] = ()
    homeless: tuple[int, ...] = ()


class Loads:
    """How many partitions each node has that can take tablets, how many tablets of each topic, and how many tablets it starts."""

    def __init__(self, nodes: Iterable[NodeView], tablets: Iterable[TabletView]) -> None:
        self.partitions = {node.node_id: 0 for node in nodes if node.can_take}
        self._topics: Counter[tuple[int, str]] = Counter()
        self._starts: Counter[int] = Counter()
        for tablet in tablets:
            if tablet.owner in self.partitions:
                self.add(tablet.owner, tablet)
                self._starts[tablet.owner] += tablet.is_starting

    def add(self, node_id: int, tablet: TabletView) -> None:
        """A node has a tablet from now on."""
        self.partitions[node_id] += tablet.partitions
        self._topics[node_id, tablet.topic] += 1

    def move(self, tablet: TabletView, source: int, target: int) -> None:
        """A tablet moves from one node to another; the first may be one that takes none."""
        if source in self.partitions:
            self.partitions[source] -= tablet.partitions
            self._topics[source, tablet.topic] -= 1
        self.add(target, tablet)

    def least(self, tablet: TabletView, exclude: Collection[int] = ()) -> int | None:
        """The node with the fewest partitions that can run a tablet; of equal ones, one with a disk of its group, then the one
        with the fewest tablets of its topic. None if there is none."""
        able = [node_id for node_id in self.partitions if node_id not in exclude and can_run(tablet, node_id)]
        return min(able, key=lambda node_id: self._rank(tablet, node_id), default=None)

    def take_over(self, tablet: TabletView) -> int | None:
        """Choose the node that starts a tablet which runs nowhere: of those that start few so far, the one with the fewest
        partitions. None if no node can run it."""
        starts_max = (self._starts.total() + 1) / max(1, len(self.partitions)) + STARTS_AHEAD
        busy = [node_id for node_id, starts in self._starts.items() if starts >= starts_max]
        target = self.least(tablet, exclude=busy)
        if target is None and busy:
            target = self.least(tablet)
        if target is not None:
            self.add(target, tablet)
            self._starts[target] += 1
        return target

    def gain(self, tablet: TabletView, source: int, target: int) -> tuple[int, bool, int]:
        """How good it is to move just this tablet; larger is better."""
        spread = self._topics[source, tablet.topic] - self._topics[target, tablet.topic]
        return (tablet.partitions, target in tablet.disk_nodes or source not in tablet.disk_nodes, spread)

    def _rank(self, tablet: TabletView, node_id: int) -> tuple[int, bool, int, int]:
        here = self._topics[node_id, tablet.topic]
        return (self.partitions[node_id], node_id not in tablet.disk_nodes, here, node_id)


def can_run(tablet: TabletView, node_id: int) -> bool:
    """Whether a node can run a tablet at all."""
    return not tablet.is_pinned or node_id in tablet.disk_nodes


def plan(
    nodes: Sequence[NodeView],
    tablets: Sequence[TabletView],
    *,
    moves_max: int,
    balance_max: int | None = None,
    is_maintained: bool = False,
) -> Plan:
    """What to do next, with at most so many moves in all, and for balance. In maintenance only tablets without an owner are
    placed, and draining nodes are emptied."""
    by_id = {node.node_id: node for node in nodes}
    loads = Loads(nodes, tablets)
    takeovers, homeless = _take_over(by_id, tablets, loads, is_maintained=is_maintained)
    moves: list[Move] = []
    if not is_maintained:
        moves += _move_failing(by_id, tablets, loads)
    moves += _move_misplaced(by_id, tablets, loads)
    moves += _drain(by_id, tablets, loads)
    is_calm = not takeovers and not moves and all(node.state is not NodeState.UNREACHED for node in nodes)
    is_calm = is_calm and not any(tablet.is_starting and not tablet.is_moving for tablet in tablets)
    if is_calm and not is_maintained:
        moves += _balance(by_id, tablets, loads, moves_max if balance_max is None else min(moves_max, balance_max))
    return Plan(tuple(takeovers), tuple(moves[:moves_max]), tuple(homeless))


def choose(nodes: Sequence[NodeView], tablets: Sequence[TabletView], new: Sequence[TabletView]) -> dict[int, int]:
    """Owners of new tablets; those that no node can run are missing."""
    loads = Loads(nodes, tablets)
    chosen: dict[int, int] = {}
    for tablet in new:
        target = loads.least(tablet)
        if target is not None:
            loads.add(target, tablet)
            chosen[tablet.tablet_id] = target
    return chosen


def move_trouble(tablet: TabletView, nodes: Mapping[int, NodeView], node_id: int) -> str:
    """Why a tablet cannot be moved to a node; empty if it can."""
    target = nodes.get(node_id)
    if target is None:
        return f"there is no node {node_id}; `penstock node list` shows them"
    if not target.can_take:
        return f"node {node_id} " + ("drains; undrain it first" if target.is_draining else "cannot be reached")
    if not can_run(tablet, node_id):
        follows_leader = tablet.load == inf
        why = "it follows the leader" if follows_leader else f"its data is only on node {min(tablet.disk_nodes, default=0)}"
        return f"tablet {tablet.tablet_id} cannot run on node {node_id}: {why}"
    return ""


def _take_over(
    nodes: Mapping[int, NodeView], tablets: Sequence[TabletView], loads: Loads, *, is_maintained: bool
) -> tuple[list[Takeover], list[int]]:
    """Tablets whose owner is lost or was never chosen: first those that the leader itself uses, then the busiest, and last those
    that nodes died of."""
    orphans = [tablet for tablet in tablets if _is_orphan(nodes, tablet, is_maintained=is_maintained)]
    orphans.sort(key=lambda tablet: (tablet.strikes, -tablet.load, tablet.tablet_id))
    takeovers: list[Takeover] = []
    homeless: list[int] = []
    for tablet in orphans:
        target = loads.take_over(tablet)
        if target is None:
            homeless.append(tablet.tablet_id)
            continue
        takeovers.append(Takeover(tablet.tablet_id, target))
    return takeovers, homeless


def _is_orphan(nodes: Mapping[int, NodeView], tablet: TabletView, *, is_maintained: bool) -> bool:
    if tablet.is_moving:
        return False
    if tablet.owner is None:
        return True
    owner = nodes.get(tablet.owner)
    if owner is None:
        return True  # removed from the cluster
    return owner.state is NodeState.LOST and not is_maintained


def _move_failing(nodes: Mapping[int, NodeView], tablets: Sequence[TabletView], loads: Loads) -> list[Move]:
    return [
        Move(tablet.tablet_id, owner.node_id, target, MoveReason.FAILING)
        for tablet in tablets
        if tablet.is_failing and (owner := _reached_owner(nodes, tablet)) is not None
        if (target := _reserve(loads, tablet, owner.node_id)) is not None
    ]


def _move_misplaced(nodes: Mapping[int, NodeView], tablets: Sequence[TabletView], loads: Loads) -> list[Move]:
    """Tablets on nodes that cannot run them: they follow what they are pinned to."""
    return [
        Move(tablet.tablet_id, owner.node_id, target, MoveReason.PINNED)
        for tablet in tablets
        if tablet.is_pinned and not tablet.is_failing
        if (owner := _reached_owner(nodes, tablet)) is not None and not can_run(tablet, owner.node_id)
        if (target := _reserve(loads, tablet, owner.node_id)) is not None
    ]


def _drain(nodes: Mapping[int, NodeView], tablets: Sequence[TabletView], loads: Loads) -> list[Move]:
    return [
        Move(tablet.tablet_id, owner.node_id, target, MoveReason.DRAIN)
        for tablet in tablets
        if (owner := _reached_owner(nodes, tablet)) is not None and owner.is_draining
        if not tablet.is_failing and can_run(tablet, owner.node_id)
        if (target := _reserve(loads, tablet, owner.node_id)) is not None
    ]


def _reached_owner(nodes: Mapping[int, NodeView], tablet: TabletView) -> NodeView | None:
    owner = None if tablet.owner is None or tablet.is_moving else nodes.get(tablet.owner)
    return owner if owner is not None and owner.state is NodeState.ALIVE else None


def _reserve(loads: Loads, tablet: TabletView, source: int) -> int | None:
    """The node for a tablet that leaves its owner."""
    target = loads.least(tablet, exclude=(source,))
    if target is not None:
        loads.move(tablet, source, target)
    return target


def _balance(nodes: Mapping[int, NodeView], tablets: Sequence[TabletView], loads: Loads, moves_max: int) -> list[Move]:
    """Moves from nodes with many partitions to those with few, the largest tablets that fit first."""
    movable: dict[int, list[TabletView]] = {}
    for tablet in tablets:
        if tablet.owner in loads.partitions and not (tablet.is_moving or tablet.is_kept or tablet.is_failing):
            movable.setdefault(tablet.owner, []).append(tablet)
    moves: list[Move] = []
    while len(moves) < moves_max:
        move = _best_move(nodes, movable, loads)
        if move is None:
            break
        tablet = next(tablet for tablet in movable[move.source] if tablet.tablet_id == move.tablet_id)
        movable[move.source].remove(tablet)
        loads.move(tablet, move.source, move.target)
        moves.append(move)
    return moves


def _best_move(nodes: Mapping[int, NodeView], movable: Mapping[int, Sequence[TabletView]], loads: Loads) -> Move | None:
    partitions = loads.partitions
    enough = TOLERANCE * sum(partitions.values()) / max(1, len(partitions))
    for source in sorted(movable, key=lambda node_id: (-partitions[node_id], node_id)):
        for target in sorted(partitions, key=lambda node_id: (partitions[node_id], node_id)):
            difference = partitions[source] - partitions[target]
            if difference < enough or difference < 2:
                break
            if not nodes[target].is_settled:
                continue
            fitting = [tablet for tablet in movable[source] if 2 * tablet.partitions <= difference and can_run(tablet, target)]
            if fitting:
                best = max(fitting, key=lambda tablet: (loads.gain(tablet, source, target), -tablet.load, -tablet.tablet_id))
                return Move(best.tablet_id, source, target, MoveReason.BALANCE)
    return None
