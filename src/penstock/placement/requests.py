"""What operators ask of placement, by the name of the request: the leader answers in words, or in JSON for lists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from penstock.coordination import Coordination
from penstock.core.errors import InvalidRequestError, UnavailableError
from penstock.placement.node_tablets import PlacedTablet
from penstock.placement.placement import Placement

DRAIN_NODE: Final = "drain-node"
UNDRAIN_NODE: Final = "undrain-node"
AWAIT_DRAINED: Final = "await-drained"
MAINTENANCE: Final = "maintenance"
MOVE_TABLET: Final = "move-tablet"
LIST_TABLETS: Final = "list-tablets"
TABLETS_PER_PAGE: Final = 1000
"""An answer has to fit into one value of the store."""

Answer = Callable[[Mapping[str, str]], Awaitable[str]]


class PlacementRequests:
    """Carries requests out. Those about tablets need the placement, which runs as soon as the leader's broker does."""

    def __init__(self, coordination: Coordination, placement: Callable[[], Placement | None]) -> None:
        self._coordination = coordination
        self._placement = placement
        self.answers: dict[str, Answer] = {
            DRAIN_NODE: self._drain,
            UNDRAIN_NODE: self._undrain,
            AWAIT_DRAINED: self._await_drained,
            MAINTENANCE: self._maintain,
            MOVE_TABLET: self._move,
            LIST_TABLETS: self._list,
        }

    async def _drain(self, arguments: Mapping[str, str]) -> str:
        node_id = int(arguments["node"])
        others = self._coordination.staying() - {node_id}
        if not others:
            raise InvalidRequestError(f"no other node runs that does not drain; nothing could take the tablets of node {node_id}")
        await self._coordination.set_draining(node_id, is_draining=True)
        return f"node {node_id} drains: its tablets move to other nodes, and it gets no more"

    async def _undrain(self, arguments: Mapping[str, str]) -> str:
        node_id = int(arguments["node"])
        await self._coordination.set_draining(node_id, is_draining=False)
        return f"node {node_id} gets tablets again"

    async def _await_drained(self, arguments: Mapping[str, str]) -> str:
        node_id = int(arguments["node"])
        if node_id not in self._coordination.nodes():
            raise InvalidRequestError(f"there is no node {node_id}; `penstock node list` shows them")
        if not self._coordination.nodes()[node_id].is_draining:
            raise InvalidRequestError(f"node {node_id} does not drain any more")
        owned = self._running.owned_by(node_id)
        if owned:
            raise UnavailableError(f"node {node_id} still owns {len(owned)} tablets")
        leader = self._coordination.leadership
        if leader is not None and leader.record.node_id == node_id:
            raise UnavailableError(f"node {node_id} still leads the cluster")
        return f"node {node_id} owns no tablets"

    async def _maintain(self, arguments: Mapping[str, str]) -> str:
        is_on = arguments["mode"] == "on"
        await self._coordination.set_maintenance(is_on=is_on)
        if is_on:
            return "maintenance: tablets of lost nodes wait for them, and none moves for balance"
        return "no maintenance: tablets of lost nodes are taken over, and tablets move for balance"

    async def _move(self, arguments: Mapping[str, str]) -> str:
        tablet_id, node_id = int(arguments["tablet"]), int(arguments["node"])
        if not await self._running.advance_move(tablet_id, node_id):
            raise UnavailableError(f"tablet {tablet_id} is on its way to node {node_id}")
        return f"tablet {tablet_id} runs on node {node_id}"

    async def _list(self, arguments: Mapping[str, str]) -> str:
        """A page of tablets after an id, perhaps those of a node or a topic only."""
        after = int(arguments.get("after", "0"))
        node = int(arguments["node"]) if "node" in arguments else None
        wanted = [
            tablet
            for tablet in self._running.tablets()
            if tablet.tablet_id > after
            and (node is None or tablet.owner == node)
            and arguments.get("topic", tablet.tablet.topic) == tablet.tablet.topic
        ]
        page = wanted[:TABLETS_PER_PAGE]
        return msgspec.json.encode({"tablets": [described(tablet) for tablet in page], "more": len(wanted) > len(page)}).decode()

    @property
    def _running(self) -> Placement:
        placement = self._placement()
        if placement is None or not placement.nodes:
            raise UnavailableError("the leader is starting; it is waited for")
        return placement


def described(placed: PlacedTablet) -> dict[str, Any]:
    """A tablet, as commands and the HTTP API show it."""
    state = placed.state
    return {
        "tablet": placed.tablet_id,
        "topic": placed.tablet.topic,
        "partitions": placed.tablet.partitions,
        "group": f"{placed.tablet.group:08x}",
        "node": placed.owner,
        "state": "moving" if placed.target is not None else "unknown" if state is None else "up" if state.is_up else "down",
        "to": placed.target,
        "generation": None if state is None else state.generation,
        "trouble": "" if state is None else state.trouble,
    }
