"""Tablets that do not start, and those that nodes may have died of, as the leader sees them over time. No I/O.

A tablet that does not run on a node that can be reached is moved to another one, but each time after twice as long. One that was
starting when its node died gets a strike: it is taken over after the others. From the second strike on it waits for a trial, each
time after twice as long: half of those with the fewest strikes are started, and the rest when these run. So the tablet that nodes
die of is soon alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FAILING_S: Final = 30.0
STEADY_S: Final = 10.0  # a tablet that has run for so long has started well
HOLD_S: Final = 5.0
DOUBLINGS_MAX: Final = 6
RETRY_S: Final = 0.5


@dataclass(slots=True)
class _Watched:
    """A tablet that has not run for long since it was given to a node."""

    node_id: int
    since: float  # when the node was asked to host it
    up_since: float | None = None
    strikes: int = 0
    moves: int = 0  # because it did not run
    held_until: float = 0.0
    on_trial: bool = False
    asks: int = 0
    ask_at: float = 0.0


class TabletHealth:
    """What is watched of tablets; one that runs steadily takes no memory."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}

    def given(self, tablet_id: int, node_id: int, now: float, *, is_failing: bool = False) -> None:
        """A node is given a tablet; because it did not run elsewhere, if it `is_failing`."""
        watched = self._watched.get(tablet_id)
        if watched is None:
            watched = self._watched[tablet_id] = _Watched(node_id, now)
        watched.moves += is_failing
        watched.node_id, watched.since, watched.up_since = node_id, now, None
        watched.asks, watched.ask_at = 0, 0.0

    def observe(self, tablet_id: int, node_id: int, now: float, *, is_up: bool) -> None:
        """A node that can be reached tells whether a tablet that it owns runs there."""
        watched = self._watched.get(tablet_id)
        if watched is None:
            if is_up:
                return
            watched = self._watched[tablet_id] = _Watched(node_id, now)
        if not is_up:
            if watched.up_since is not None:
                watched.since, watched.up_since = now, None
        elif watched.up_since is None:
            watched.up_since = now
        elif now - watched.up_since >= STEADY_S * (1 << min(watched.moves, DOUBLINGS_MAX)):
            del self._watched[tablet_id]

    def lost(self, node_id: int, now: float) -> list[int]:
        """A node is lost. Returns the tablets that may be the cause, since they were starting there."""
        suspects: list[int] = []
        for tablet_id, watched in self._watched.items():
            is_young = watched.up_since is None or now - watched.up_since < STEADY_S
            if watched.node_id == node_id and is_young and not self.is_held(tablet_id):
                watched.strikes += 1
                watched.on_trial = False
                if watched.strikes > 1:
                    watched.held_until = now + HOLD_S * (1 << min(watched.strikes - 2, DOUBLINGS_MAX))
                suspects.append(tablet_id)
        return suspects

    def may_ask(self, tablet_id: int, node_id: int, now: float) -> bool:
        """Whether to ask the owner of a tablet, which does not host it, to do so; each time after twice as long."""
        watched = self._watched.get(tablet_id)
        if watched is None or watched.node_id != node_id:
            self.given(tablet_id, node_id, now)
            watched = self._watched[tablet_id]
        if now < watched.ask_at:
            return False
        watched.ask_at = now + RETRY_S * (1 << min(watched.asks, DOUBLINGS_MAX))
        watched.asks += 1
        return True

    def begin_trial(self, now: float) -> None:
        """Let some of the suspects start, unless others are at it."""
        suspects = [watched for watched in self._watched.values() if watched.strikes > 1]
        if not suspects or any(watched.on_trial for watched in suspects):
            return
        fewest = min(watched.strikes for watched in suspects)
        ready = [watched for watched in suspects if watched.strikes == fewest and now >= watched.held_until]
        for watched in ready[: (len(ready) + 1) // 2]:
            watched.on_trial = True

    def is_held(self, tablet_id: int) -> bool:
        """Whether a tablet waits, so that no other node dies of it soon."""
        watched = self._watched.get(tablet_id)
        return watched is not None and watched.strikes > 1 and not watched.on_trial

    def strikes(self, tablet_id: int) -> int:
        """How many nodes died while it was starting there."""
        watched = self._watched.get(tablet_id)
        return 0 if watched is None else watched.strikes

    def is_failing(self, tablet_id: int, now: float) -> bool:
        """Whether a tablet has not run for so long that another node should try."""
        watched = self._watched.get(tablet_id)
        if watched is None or watched.up_since is not None:
            return False
        return now - watched.since >= FAILING_S * (1 << min(watched.moves, DOUBLINGS_MAX))

    def down(self, now: float, for_s: float) -> list[int]:
        """Tablets that have not run for so long on a node that can be reached."""
        watched = self._watched.items()
        return [tablet_id for tablet_id, one in watched if one.up_since is None and now - one.since >= for_s]

    def forget(self, gone: Iterable[int]) -> None:
        """These tablets are deleted."""
        for tablet_id in gone:
            self._watched.pop(tablet_id, None)

    def watched(self) -> set[int]:
        """The tablets that are watched."""
        return set(self._watched)
