"""How the store is, for status and alerts."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class StoreState(enum.Enum):
    """Whether the store can be used."""

    CONNECTED = "connected"
    AWAY = "away"  # it does not answer; owners continue, nothing is taken over and nothing new starts
    FULL = "full"  # it takes no more keys; what exists continues
    ROLLED_BACK = "rolled_back"  # it is older than what was seen; nothing is changed in it
    REFUSED = "refused"  # it does not accept our certificate or password


@dataclass(frozen=True, slots=True)
class CoordinationStatus:
    """The state of the store, since when (by the monotonic clock), and why in words for an operator."""

    state: StoreState
    since: float
    reason: str = ""

    @property
    def message(self) -> str:
        """What an operator should know; empty if all is well."""
        return "" if self.state is StoreState.CONNECTED else f"{_MESSAGES[self.state]}: {self.reason}"

    @property
    def is_usable(self) -> bool:
        """Whether something new may start: a tablet, a take-over, a change of configuration."""
        return self.state is StoreState.CONNECTED


_MESSAGES = {
    StoreState.AWAY: "the coordination store does not answer; owners keep their tablets, and nothing new starts until it does",
    StoreState.FULL: "the coordination store takes no more keys; owners keep their tablets, and no change is possible",
    StoreState.ROLLED_BACK: "the coordination store is not as it was; owners keep their tablets, and nothing is changed in it",
    StoreState.REFUSED: "the coordination store refuses this node; owners keep their tablets, and nothing new starts",
}
