"""What the leader asks of nodes about the tablets of topics: to host them, to release them, and how they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from penstock.placement.cluster_view import CatalogTablet


class HostOrder(msgspec.Struct, frozen=True, array_like=True):
    """A tablet to host. One that `is_new` was never started, anywhere."""

    tablet_id: int
    is_new: bool = False


class TabletState(msgspec.Struct, frozen=True, array_like=True):
    """A tablet as the node that hosts it has it."""

    tablet_id: int
    is_up: bool
    generation: int = 0
    boots: int = 0
    """Attempts to boot it since this node hosts it."""
    trouble: str = ""
    """Why it does not run."""
    load: float = 0.0
    """Bytes a second that are written and read, averaged over some seconds; told by `states` alone."""


class PlacedTablet(NamedTuple):
    """A tablet with its owner, the node that it moves to, and how it is; None if that is not known."""

    tablet: CatalogTablet
    owner: int | None
    target: int | None
    state: TabletState | None

    @property
    def tablet_id(self) -> int:
        """Its id."""
        return self.tablet.tablet_id


class NodeTablets(Protocol):
    """The tablets of all nodes, this one included, as the leader reaches them. Each call returns None if the node does not answer
    in time: then it may have done what was asked, or may do it later."""

    async def host(self, node_id: int, orders: Sequence[HostOrder], timeout_s: float) -> list[TabletState] | None:
        """Host tablets. Returns their states after the first attempt to boot each; new ones are waited for until they run."""
        ...

    async def release(self, node_id: int, tablet_ids: Sequence[int], timeout_s: float) -> list[int] | None:
        """Stop tablets after their writes in flight. Returns those that the node does not host any more, or never did."""
        ...

    async def states(self, node_id: int) -> list[TabletState] | None:
        """All tablets of topics that the node hosts, whether they run or not."""
        ...
