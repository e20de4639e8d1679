"""What a broker allows its groups."""

from __future__ import annotations

from dataclasses import dataclass

WEEK_S = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Limits of groups and of what is kept of them; None is without limit."""

    session_timeout_ms_min: int = 1000
    session_timeout_ms_max: int = 1_800_000
    members_max: int | None = None
    initial_rebalance_delay_ms: int = 100  # how long a new group waits after each member for another, so that they start together
    offsets_retention_s: float = WEEK_S  # how long a group without members keeps its positions
    expiry_interval_s: float = 600.0  # how often positions are looked through for that
