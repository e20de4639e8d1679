"""Asks nodes to host and release tablets, a bounded number at a time, and keeps what they told last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from penstock.placement.node_tablets import HostOrder, NodeTablets, TabletState

TABLETS_PER_CALL: Final = 32  # they start in step with each other: the first are up sooner if they are few
CALLS_AT_ONCE: Final = 2  # to one node
ARRIVALS_AT_ONCE: Final = 3  # at one node: two start, and one is being stopped elsewhere
ANSWER_S: Final = 1.0
HOST_S: Final = 10.0
RELEASE_S: Final = 10.0


class Hosting:
    """What runs where, as far as nodes have told, and the calls that change it. `loads` are what was known of tablets before."""

    def __init__(self, nodes: NodeTablets, loads: Mapping[int, float]) -> None:
        self._nodes = nodes
        self._states: dict[int, dict[int, TabletState]] = {}  # of nodes that answered last time
        self._limits: dict[int, asyncio.Semaphore] = {}
        self._arrivals: dict[int, asyncio.Semaphore] = {}
        self.asked: dict[int, int] = {}  # nodes that are being asked to host, by tablet
        self._changes: dict[int, int] = {}  # calls to each node so far
        self._loads = dict(loads)  # as the owners of tablets told last; a lost node's are what its tablets are worth

    def state(self, node_id: int | None, tablet_id: int) -> TabletState | None:
        """A tablet as a node hosts it; None if it does not, or has not told."""
        return None if node_id is None else self._states.get(node_id, {}).get(tablet_id)

    def load(self, tablet_id: int) -> float:
        """Bytes a second of a tablet, as the last node that hosted it told; 0 if none has."""
        return self._loads.get(tablet_id, 0.0)

    def forget_loads(self, existing: set[int]) -> None:
        """All other tablets are deleted."""
        for tablet_id in self._loads.keys() - existing:
            del self._loads[tablet_id]

    def has_told(self, node_id: int) -> bool:
        """Whether a node has answered last time."""
        return node_id in self._states

    def strays(self, owner_of: Callable[[int], int | None]) -> dict[int, list[int]]:
        """Tablets that nodes host which do not own them, with these nodes."""
        strays: dict[int, list[int]] = {}
        for node_id, states in self._states.items():
            for tablet_id in states:
                if owner_of(tablet_id) != node_id:
                    strays.setdefault(tablet_id, []).append(node_id)
        return strays

    def running(self) -> set[int]:
        """All tablets that run."""
        return {tablet_id for states in self._states.values() for tablet_id, state in states.items() if state.is_up}

    def forget(self, node_id: int) -> None:
        """What a node told counts no more."""
        self._states.pop(node_id, None)

    async def poll(self, nodes: Sequence[int]) -> None:
        """Ask nodes what they host. An answer that crosses a call which changes that is not used."""
        await asyncio.gather(*map(self._poll, nodes))

    async def _poll(self, node_id: int) -> None:
        changes = self._changes.get(node_id, 0)
        states = await self._nodes.states(node_id)
        if states is None:
            self._states.pop(node_id, None)
        elif changes == self._changes.get(node_id, 0):
            self._states[node_id] = {state.tablet_id: state for state in states}
            self._loads.update((state.tablet_id, state.load) for state in states if state.is_up)

    async def answers(self, node_id: int) -> bool:
        """Whether a node answers a call now."""
        return await self._nodes.host(node_id, (), ANSWER_S) is not None

    async def host(self, node_id: int, orders: Sequence[HostOrder]) -> list[TabletState]:
        """Ask a node to host tablets. Returns those that it told about."""
        for order in orders:
            self.asked[order.tablet_id] = node_id
        begins = range(0, len(orders), TABLETS_PER_CALL)
        try:
            told = await asyncio.gather(*(self._host(node_id, orders[at : at + TABLETS_PER_CALL]) for at in begins))
        finally:
            for order in orders:
                self.asked.pop(order.tablet_id, None)
        return [state for states in told for state in states]

    async def _host(self, node_id: int, orders: Sequence[HostOrder]) -> list[TabletState]:
        async with self._limit(node_id):
            states = await self._nodes.host(node_id, orders, HOST_S)
        self._changes[node_id] = self._changes.get(node_id, 0) + 1
        if states is None:
            return []
        if node_id in self._states:
            self._states[node_id].update({state.tablet_id: state for state in states})
        return states

    async def release(self, node_id: int, tablet_ids: Iterable[int]) -> set[int]:
        """Ask a node to release tablets. Returns those that do not run there any more for certain."""
        wanted = list(tablet_ids)
        async with self._limit(node_id):
            released = await self._nodes.release(node_id, wanted, RELEASE_S)
        self._changes[node_id] = self._changes.get(node_id, 0) + 1
        gone = set(wanted) & set(released or ())
        for tablet_id in gone:
            self._states.get(node_id, {}).pop(tablet_id, None)
        return gone

    def arrival(self, node_id: int) -> asyncio.Semaphore:
        """To be held while a tablet is handed over to a node, so that no more are stopped elsewhere than it can start soon."""
        return self._arrivals.setdefault(node_id, asyncio.Semaphore(ARRIVALS_AT_ONCE))

    def _limit(self, node_id: int) -> asyncio.Semaphore:
        return self._limits.setdefault(node_id, asyncio.Semaphore(CALLS_AT_ONCE))
