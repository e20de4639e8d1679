"""What became of one test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """Passed, failed or skipped, with the reason that was given."""

    verdict: str
    reason: str = ""
