"""Placement with one rule broken at a time: each mutant must be caught by the simulation, or its checks see too little."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from penstock.broker import tablets as broker_tablets
from penstock.placement import hosting, node_health, owners, placement
from penstock.placement.node_tablets import HostOrder
from penstock.placement.plan import Loads, Move, MoveReason, NodeState, NodeView, Plan, TabletView, plan
from penstock.tablet import KvTablet

plan_module = import_module("penstock.placement.plan")  # the package has a function of this name
Mutate = Callable[[pytest.MonkeyPatch], None]


def take_from_nodes_that_others_reach(patch: pytest.MonkeyPatch) -> None:
    """A node that the leader alone does not reach loses its tablets."""

    def is_orphan(nodes: Mapping[int, NodeView], tablet: TabletView, *, is_maintained: bool) -> bool:
        if tablet.is_moving:
            return False
        owner = None if tablet.owner is None else nodes.get(tablet.owner)
        return owner is None or (owner.state is not NodeState.ALIVE and not is_maintained)

    patch.setattr(plan_module, "_is_orphan", is_orphan)


def start_before_the_owner_has_stopped(patch: pytest.MonkeyPatch) -> None:
    """A hand-over does not wait until the old owner has released the tablet."""

    async def release(self: hosting.Hosting, node_id: int, tablet_ids: Iterable[int]) -> set[int]:
        return set(tablet_ids)

    patch.setattr(hosting.Hosting, "release", release)


def start_what_a_stray_still_runs(patch: pytest.MonkeyPatch) -> None:
    """A repair does not ask the node that runs a tablet without owning it to stop first."""

    async def host(self: Any, node_id: int, orders: Sequence[HostOrder], _: Mapping[int, Sequence[int]]) -> None:
        try:
            await self._host(node_id, orders)
        finally:
            for order in orders:
                self._hosting.asked.pop(order.tablet_id, None)

    patch.setattr(placement.Placement, "_host_after_release", host)


def answer_from_memory_unconfirmed(patch: pytest.MonkeyPatch) -> None:
    """An owner that was fenced and does not know it answers readers from memory."""

    async def confirm(self: KvTablet) -> None:
        return

    patch.setattr(KvTablet, "confirm", confirm)
    patch.setattr(KvTablet, "confirm_now", confirm)


def forget_an_owner(patch: pytest.MonkeyPatch) -> None:
    """Of several owners to write, the last is not."""
    assign = owners.Owners.assign

    async def forgetful(self: owners.Owners, wanted: Mapping[int, int]) -> None:
        await assign(self, dict(list(wanted.items())[:-1]) if len(wanted) > 1 else wanted)

    patch.setattr(owners.Owners, "assign", forgetful)


def start_before_the_owner_is_written(patch: pytest.MonkeyPatch) -> None:
    """A hand-over tells the target to start, and writes it as the owner only in memory."""

    async def assign(self: owners.Owners, wanted: Mapping[int, int]) -> None:
        return

    patch.setattr(owners.Owners, "assign", assign)


def move_back_and_forth(patch: pytest.MonkeyPatch) -> None:
    """Balance moves the largest tablet, whether or not that leaves the source with less than the target."""

    def best_move(nodes: Mapping[int, NodeView], movable: Mapping[int, Sequence[TabletView]], loads: Loads) -> Move | None:
        partitions = loads.partitions
        for source in sorted(movable, key=lambda node_id: (-partitions[node_id], node_id)):
            target = min(partitions, key=lambda node_id: (partitions[node_id], node_id))
            if movable[source] and partitions[source] > partitions[target]:
                return Move(movable[source][0].tablet_id, source, target, MoveReason.BALANCE)
        return None

    patch.setattr(plan_module, "_best_move", best_move)


def boot_again_after_being_fenced(patch: pytest.MonkeyPatch) -> None:
    """A fenced owner starts its tablet again by itself, with a higher generation."""
    init = broker_tablets.Tablets.__init__

    def unfenced(self: broker_tablets.Tablets, *args: Any, **named: Any) -> None:
        init(self, *args, **{**named, "on_fenced": None})

    patch.setattr(broker_tablets.Tablets, "__init__", unfenced)


def give_up_without_waiting_for_the_lease(patch: pytest.MonkeyPatch) -> None:
    """A node that the leader does not reach counts as lost, whatever others say."""
    update = node_health.NodeHealth.update

    def hasty(self: node_health.NodeHealth, node_id: int, now: float, **seen: bool) -> NodeState:
        return update(self, node_id, now, is_member=seen["is_member"], is_connected=seen["is_connected"], is_given_up=True)

    patch.setattr(node_health.NodeHealth, "update", hasty)


def ignore_maintenance(patch: pytest.MonkeyPatch) -> None:
    """Tablets are taken over and balanced though an operator works on the cluster."""

    def busy(nodes: Sequence[NodeView], tablets: Sequence[TabletView], **options: Any) -> Plan:
        return plan(nodes, tablets, **{**options, "is_maintained": False})

    patch.setattr(placement, "plan", busy)


def forget_what_operators_moved(patch: pytest.MonkeyPatch) -> None:
    """A tablet that an operator has moved is moved back for balance."""
    view = placement.Placement._view

    def unkept(self: placement.Placement, *args: Any, **named: Any) -> TabletView:
        return replace(view(self, *args, **named), is_kept=False)

    patch.setattr(placement.Placement, "_view", unkept)


def leave_drained_nodes_alone(patch: pytest.MonkeyPatch) -> None:
    """A node that drains keeps its tablets."""
    patch.setattr(plan_module, "_drain", lambda *_: [])


MUTANTS: tuple[Mutate, ...] = (
    take_from_nodes_that_others_reach,
    start_before_the_owner_has_stopped,
    start_what_a_stray_still_runs,
    answer_from_memory_unconfirmed,
    forget_an_owner,
    start_before_the_owner_is_written,
    move_back_and_forth,
    boot_again_after_being_fenced,
    give_up_without_waiting_for_the_lease,
    ignore_maintenance,
    forget_what_operators_moved,
    leave_drained_nodes_alone,
)
