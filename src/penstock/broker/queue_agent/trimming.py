"""Decides up to which offset a partition may be trimmed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class TrimConfig(NamedTuple):
    """The `auto_trim_config` of a queue."""

    enable: bool = False
    retained_rows: int | None = None
    retained_lifetime_ms: int | None = None


class Holder(NamedTuple):
    """Who still needs the rows of a partition from an offset on: a vital consumer, or an export. An offset of None: it cannot be
    known."""

    name: str
    offset: int | None
    trouble: str = ""


class Decision(NamedTuple):
    """Trim to `offset`, or not at all if it is None; `alert` is for the operator."""

    offset: int | None
    alert: str | None = None


def decide(
    config: TrimConfig,
    *,
    start: int,
    end: int,
    vital: Sequence[Holder],
    exports: Sequence[Holder] = (),
    young_from: int | None = None,
    retained_from: int | None = None,
) -> Decision:
    """Up to the slowest vital consumer or export, and never into what is to be retained. `young_from` is the first row that is
    young enough to stay, and `retained_from` the first of the last so many, if the configuration asks for that."""
    if not config.enable:
        return Decision(None)
    if not vital:
        return Decision(None, "automatic trimming is enabled, but no vital consumer is registered: nothing is trimmed")
    holders = [*vital, *exports]
    unknown = next((holder for holder in holders if holder.offset is None), None)
    if unknown is not None:
        what = "vital consumer " if unknown in vital else ""
        return Decision(None, f"nothing is trimmed: {what}{unknown.name} is in error: {unknown.trouble}")
    limits = [end, *(holder.offset for holder in holders if holder.offset is not None)]
    if config.retained_rows is not None:
        limits.append(start if retained_from is None else retained_from)
    if config.retained_lifetime_ms is not None:
        limits.append(start if young_from is None else young_from)
    offset = min(limits)
    return Decision(offset if offset > start else None)
