"""Quantiles of durations from histogram buckets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from penstock.core.probe import DURATION_BOUNDS_S, Durations


def summed_counts(many: Iterable[Durations]) -> list[int]:
    """The counts of several together."""
    total = [0] * (len(DURATION_BOUNDS_S) + 1)
    for durations in many:
        for at, count in enumerate(durations.counts):
            total[at] += count
    return total


def quantile_s(counts: Sequence[int], share: float) -> float:
    """The duration that this share of all does not exceed, with an even flow within two bounds; NaN if there are none. What is
    beyond the last bound is taken to be there."""
    wanted = sum(counts) * share
    if not wanted:
        return math.nan
    below = 0
    for at, count in enumerate(counts):
        if count and below + count >= wanted:
            if at == len(DURATION_BOUNDS_S):
                break
            begin = DURATION_BOUNDS_S[at - 1] if at else 0.0
            return begin + (DURATION_BOUNDS_S[at] - begin) * (wanted - below) / count
        below += count
    return DURATION_BOUNDS_S[-1]
