"""Placement of the tablets of topics on nodes, decided by the leader (the seed's Hive)."""

from penstock.placement.cluster_view import CatalogTablet, GroupNodes, Inventory, Reachability
from penstock.placement.group_choice import GroupRoom, choose_groups
from penstock.placement.node_tablets import HostOrder, NodeTablets, PlacedTablet, TabletState
from penstock.placement.placement import Placement
from penstock.placement.plan import Move, MoveReason, NodeState, NodeView, Plan, TabletView, Takeover, choose, plan
from penstock.placement.probe import PlacementProbe
from penstock.placement.requests import (
    DRAIN_NODE,
    MAINTENANCE,
    MOVE_TABLET,
    UNDRAIN_NODE,
    Answer,
    PlacementRequests,
    described,
)
from penstock.placement.tablet_loads import TabletLoads

__all__ = [
    "DRAIN_NODE",
    "MAINTENANCE",
    "MOVE_TABLET",
    "UNDRAIN_NODE",
    "Answer",
    "CatalogTablet",
    "GroupNodes",
    "GroupRoom",
    "HostOrder",
    "Inventory",
    "Move",
    "MoveReason",
    "NodeState",
    "NodeTablets",
    "NodeView",
    "PlacedTablet",
    "Placement",
    "PlacementProbe",
    "PlacementRequests",
    "Plan",
    "Reachability",
    "TabletLoads",
    "TabletState",
    "TabletView",
    "Takeover",
    "choose",
    "choose_groups",
    "described",
    "plan",
]
