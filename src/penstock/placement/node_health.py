"""Which nodes live, as the leader sees them over time. No I/O.

A node that was lost and came back gets no tablets of others for a while, longer each time it is lost again. Nor does one that has
just got its lease: until it follows the leader it serves no clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.placement.plan import NodeState, NodeView

SETTLE_S: Final = 5.0
DOUBLINGS_MAX: Final = 6
FORGIVE_S: Final = 600.0  # after so long without a loss the earlier ones count no more
LEASELESS_S: Final = 5.0
"""A node that is reached and has had no lease for so long hands its tablets over: one that starts gets its lease sooner."""
ABSENT_S: Final = 3.0
"""How long a new leader waits for nodes that it never saw: all may be starting."""


@dataclass(slots=True)
class _Seen:
    state: NodeState
    since: float
    losses: int = 0
    was_alive: bool = False
    is_member: bool = False
    member_since: float = 0.0
    leaseless_since: float | None = None  # though it is reached


class NodeHealth:
    """The state of each node since this node leads."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._seen: dict[int, _Seen] = {}

    def update(self, node_id: int, now: float, *, is_member: bool, is_connected: bool, is_given_up: bool) -> NodeState:
        """Take what is known of a node by now. Returns its state."""
        seen = self._seen.get(node_id)
        if is_connected:
            state = NodeState.ALIVE
        elif is_given_up:
            state = NodeState.LOST
        elif is_member or ((seen is None or not seen.was_alive) and now - self._began < ABSENT_S):
            state = NodeState.UNREACHED
        else:
            state = NodeState.LOST
        if seen is None:
            seen = self._seen[node_id] = _Seen(state, now)
        elif seen.state is not state:
            self._change(seen, state, now)
        if is_member and not seen.is_member:
            seen.member_since = now
        seen.is_member = is_member
        if is_member or state is not NodeState.ALIVE:
            seen.leaseless_since = None
        elif seen.leaseless_since is None:
            seen.leaseless_since = now
        seen.was_alive = seen.was_alive or state is NodeState.ALIVE
        return state

    def view(self, node_id: int, now: float, *, is_draining: bool) -> NodeView:
        """A node that was updated, for the planner."""
        seen = self._seen[node_id]
        settle_s = SETTLE_S * (1 << min(seen.losses, DOUBLINGS_MAX))
        is_settled = seen.state is NodeState.ALIVE and now - max(seen.since, seen.member_since) >= settle_s
        since = seen.leaseless_since
        has_lost_lease = since is not None and now - since >= LEASELESS_S
        return NodeView(
            node_id,
            seen.state,
            is_draining=is_draining or has_lost_lease,
            is_settled=is_settled,
            is_member=seen.is_member,
        )

    def away_s(self, node_id: int, now: float) -> float | None:
        """How long a node has not been alive, as far as this leader has seen; None if it is."""
        seen = self._seen.get(node_id)
        return None if seen is None or seen.state is NodeState.ALIVE else now - seen.since

    def forget(self, kept: set[int]) -> None:
        """Forget nodes that were removed from the cluster."""
        for node_id in self._seen.keys() - kept:
            del self._seen[node_id]

    @staticmethod
    def _change(seen: _Seen, state: NodeState, now: float) -> None:
        if state is NodeState.LOST:
            seen.losses = 1 if now - seen.since >= FORGIVE_S else seen.losses + 1
        seen.state, seen.since = state, now
