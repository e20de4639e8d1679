"""What is counted while tablets are placed, for as long as this node leads."""

from __future__ import annotations

from collections import Counter

from penstock.core.probe import Durations
from penstock.placement.plan import MoveReason


class PlacementProbe:
    """Hand-overs by reason, take-overs from lost nodes, orders to start a tablet, and how long tablets were not served."""

    def __init__(self) -> None:
        self.moves: Counter[MoveReason] = Counter()
        self.takeovers = 0
        self.starts = 0
        self.pauses = {"move": Durations(), "takeover": Durations()}
        self.tablets: Counter[int | None] = Counter()  # by owner, as seen last
        self.partitions: Counter[int | None] = Counter()
        self.unserved = 0  # tablets that do not run anywhere, and do not move
        self._stopped: dict[int, tuple[str, float]] = {}  # why and since when, by tablet

    def note_move(self, tablet_id: int, reason: MoveReason, stopped_at: float) -> None:
        """A tablet was stopped at this time, to run on another node."""
        self.moves[reason] += 1
        self._stopped[tablet_id] = ("move", stopped_at)

    def note_takeover(self, tablet_id: int, lost_at: float) -> None:
        """A tablet is taken from a node that has not been reached since this time."""
        self.takeovers += 1
        self._stopped.setdefault(tablet_id, ("takeover", lost_at))

    def note_up(self, tablet_id: int, now: float) -> None:
        """A tablet runs."""
        stopped = self._stopped.pop(tablet_id, None)
        if stopped is not None:
            self.pauses[stopped[0]].note(now - stopped[1])

    def forget(self, existing: set[int]) -> None:
        """All other tablets are deleted."""
        for tablet_id in self._stopped.keys() - existing:
            del self._stopped[tablet_id]
