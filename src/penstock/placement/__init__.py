"""Placement of the tablets of topics on nodes, decided by the leader (the seed's Hive)."""

from penstock.placement.cluster_view import CatalogTablet, GroupNodes, Inventory, Reachability
from penstock.placement.node_tablets import HostOrder, NodeTablets, TabletState
from penstock.placement.placement import Placement
from penstock.placement.plan import Move, MoveReason, NodeState, NodeView, Plan, TabletView, Takeover, choose, plan

__all__ = [
    "CatalogTablet",
    "GroupNodes",
    "HostOrder",
    "Inventory",
    "Move",
    "MoveReason",
    "NodeState",
    "NodeTablets",
    "NodeView",
    "Placement",
    "Plan",
    "Reachability",
    "TabletState",
    "TabletView",
    "Takeover",
    "choose",
    "plan",
]
