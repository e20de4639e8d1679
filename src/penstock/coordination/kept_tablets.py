"""The tablets that operators have moved to a node: no leader moves them from there for balance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from penstock.coordination.key_layout import KEPT, kept_key, number_in
from penstock.coordination.key_mirror import KeyMirror
from penstock.coordination.port import Change, CommitResult, Compare, Delete, Outcome, Put
from penstock.core.errors import UnavailableError

CommitAsLeader = Callable[[Sequence[Compare], Sequence[Change]], Awaitable[CommitResult]]
DROPS_PER_TRANSACTION: Final = 100


class KeptTablets:
    """A key for each of these tablets, which holds the id of the node."""

    def __init__(self, mirror: KeyMirror, commit_as_leader: CommitAsLeader) -> None:
        self._mirror = mirror
        self._commit = commit_as_leader
        self._unseen: dict[int, tuple[int, int | None]] = {}  # own writes that the mirror lacks: revision and node, by tablet

    def nodes(self) -> dict[int, int]:
        """The node that each of them is to stay on, by tablet: as last seen, and as this node has written since."""
        nodes = {number_in(entry.key): int(entry.value) for entry in self._mirror.scan(KEPT)}
        for tablet_id, (revision, node_id) in list(self._unseen.items()):
            if revision <= self._mirror.revision:
                del self._unseen[tablet_id]
            elif node_id is None:
                nodes.pop(tablet_id, None)
            else:
                nodes[tablet_id] = node_id
        return nodes

    async def keep(self, tablet_id: int, node_id: int) -> None:
        """Let a tablet stay on a node. NotLeaderError unless this node leads."""
        if self.nodes().get(tablet_id) != node_id:
            await self._write({tablet_id: node_id})

    async def keep_only(self, is_kept: Callable[[int, int], bool]) -> None:
        """Let all tablets move again but those for which this is True, given tablet and node. NotLeaderError unless it leads."""
        tablet_ids = [tablet_id for tablet_id, node_id in self.nodes().items() if not is_kept(tablet_id, node_id)]
        for begin in range(0, len(tablet_ids), DROPS_PER_TRANSACTION):
            await self._write(dict.fromkeys(tablet_ids[begin : begin + DROPS_PER_TRANSACTION]))

    async def _write(self, nodes: dict[int, int | None]) -> None:
        changes = [
            Delete(kept_key(tablet_id)) if node_id is None else Put(kept_key(tablet_id), b"%d" % node_id)
            for tablet_id, node_id in nodes.items()
        ]
        result = await self._commit([], changes)
        if result.outcome is not Outcome.DONE:
            raise UnavailableError(f"noting which tablets stay where they are is {result.outcome.value}; try again")
        self._unseen.update({tablet_id: (result.revision, node_id) for tablet_id, node_id in nodes.items()})
