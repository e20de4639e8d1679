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
    def is_usable(self) -> bool:
        """Whether something new may start: a tablet, a take-over, a change of configuration."""
        return self.state is StoreState.CONNECTED
