"""What an operator should know of nodes and tablets, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.placement.node_tablets import PlacedTablet
from penstock.placement.plan import NodeState, NodeView

DOWN_S: Final = 10.0
"""A tablet that does not run for so long is a trouble."""


def troubles_of(
    nodes: Mapping[int, NodeView],
    tablets: Sequence[PlacedTablet],
    homeless: Sequence[int],
    down: Sequence[int],
    *,
    is_maintained: bool,
) -> list[str]:
    """Lost nodes that still own tablets, tablets that no node can run or that none owns, and those that are down for long."""
    counts = Counter(tablet.owner for tablet in tablets)
    found = [
        f"node {node_id} is lost and owns {counts[node_id]} tablets" + (" (maintenance)" if is_maintained else "")
        for node_id, node in nodes.items()
        if node.state is NodeState.LOST and counts[node_id]
    ]
    if homeless:
        found.append(f"{_some(homeless)} cannot run on any node that is there")
    ownerless = [tablet.tablet_id for tablet in tablets if tablet.owner is None and tablet.tablet_id not in homeless]
    if ownerless:
        found.append(f"{_some(ownerless)} has no owner yet")
    if down:
        found.append(f"{_some(down)} has not run for {DOWN_S:g} s or more")
    return found


def _some(tablet_ids: Sequence[int]) -> str:
    others = f" and {len(tablet_ids) - 1} more" if len(tablet_ids) > 1 else ""
    return f"tablet {tablet_ids[0]}{others}"
