"""Every history of a small group, by the rules alone: who acknowledged, who was wiped, who was away when, and what is said then.

A history is a block and a put, each acknowledged by some set of disks; then a disk is wiped and takes part again or not, by what
it hears from those that are not away; then more are away, and somebody asks. Only largest sets of failures are gone through, and
smallest sets that acknowledge: with fewer failures, or more that know, no answer gets worse.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from penstock.blob.quorum import absence_shown, fits_fail_model, group_quorum, put_done
from penstock.blob.topology import Erasure, allowed_parts, subgroup

REDUNDANT = [erasure for erasure in Erasure if erasure.shape.disks > 1]
PUTS_MAX = 60  # sets of disks that hold a finished put, of each kind

redundant_kinds = pytest.mark.parametrize("erasure", REDUNDANT)


def _disks(erasure: Erasure) -> range:
    return range(erasure.shape.disks)


def _everyone(erasure: Erasure) -> int:
    return (1 << erasure.shape.disks) - 1


@cache
def _worst_failures(erasure: Erasure) -> tuple[int, ...]:
    """Sets of disks that may be out, to which none can be added."""
    fits = [mask for mask in range(1 << erasure.shape.disks) if fits_fail_model(erasure, mask)]
    return tuple(mask for mask in fits if not any(mask != other and mask & other == mask for other in fits))


@cache
def _holders(erasure: Erasure) -> tuple[int, ...]:
    """Least sets of disks (order numbers) on which a put of some blob can be finished."""
    orders = subgroup(erasure, 0)
    found: list[int] = []
    for mask in sorted(range(1 << erasure.shape.disks), key=int.bit_count):
        if any(mask & known == known for known in found):
            continue
        indices = [index for index, order in enumerate(orders) if mask >> order & 1]
        parts = [0] * len(orders)
        for index in indices:
            parts[index] = sum(1 << part - 1 for part in allowed_parts(erasure, index))
        if put_done(erasure, parts):
            found.append(mask)
    return tuple(found[:: max(1, len(found) // PUTS_MAX)])


def _refills(erasure: Erasure) -> Iterator[tuple[int, int, bool, int]]:
    """All ways in which one disk is wiped and tries to come back: (acknowledging set of a block, the disk, whether it takes part
    again, the disks that know the block afterwards)."""
    for out in _worst_failures(erasure):
        acknowledged = _everyone(erasure) & ~out
        for wiped in _disks(erasure):
            for away in range(1 << erasure.shape.disks):
                heard = _everyone(erasure) & ~away & ~(1 << wiped)
                takes_part = group_quorum(erasure, heard)
                knows = acknowledged & ~(1 << wiped)
                if takes_part and heard & knows:
                    knows |= 1 << wiped
                yield acknowledged, wiped, takes_part, knows


@redundant_kinds
def test_a_disk_takes_part_again_only_with_all_that_was_ever_blocked(erasure: Erasure) -> None:
    for acknowledged, wiped, takes_part, knows in _refills(erasure):
        assert not takes_part or knows >> wiped & 1, f"acknowledged by {acknowledged:b}, wiped {wiped}"


@redundant_kinds
def test_no_fenced_put_is_finished_after_a_wipe_whoever_is_away(erasure: Erasure) -> None:
    """A put is finished on disks that take part and do not know of the block; the others say BLOCKED."""
    seen: set[int] = set()
    for _, wiped, takes_part, knows in _refills(erasure):
        unaware = _everyone(erasure) & ~knows & ~(0 if takes_part else 1 << wiped)
        seen.add(unaware)
    finished = _holders(erasure)
    assert not [(bin(unaware), bin(holders)) for unaware in seen for holders in finished if holders & ~unaware == 0]


@redundant_kinds
def test_the_disk_itself_must_not_be_counted(erasure: Erasure) -> None:
    """What the rule is for: were a wiped disk to count itself, some history would let it forget a block."""
    forgets = [
        wiped
        for out in _worst_failures(erasure)
        for wiped in _disks(erasure)
        for away in _worst_failures(erasure)
        if not away >> wiped & 1 and not (_everyone(erasure) & ~out & ~(1 << wiped)) & ~away
    ]
    assert bool(forgets) == erasure.is_mirror  # in block-4-2 two quorums share more than one disk


@redundant_kinds
def test_nothing_acknowledged_is_called_absent_after_a_wipe_whoever_is_away_at_the_refill_and_at_the_question(
    erasure: Erasure,
) -> None:
    wrong = []
    everyone = _everyone(erasure)
    for holders in _holders(erasure):
        for wiped in (order for order in _disks(erasure) if holders >> order & 1):
            rest = holders & ~(1 << wiped)
            for away_then in range(1 << erasure.shape.disks):
                silent = away_then | 1 << wiped
                ends = group_quorum(erasure, everyone & ~silent) and absence_shown(erasure, silent)
                # It ends its refill having seen nothing of the blob: then from now on it says that it holds nothing.
                lacks = ends and not rest & ~away_then
                has = rest | (0 if lacks or not ends else 1 << wiped)
                for away_now in _worst_failures(erasure):
                    doubtful = away_now | (0 if ends else 1 << wiped)
                    if absence_shown(erasure, doubtful) and not has & ~doubtful:
                        wrong.append((bin(holders), wiped, bin(away_then), bin(away_now)))
    assert wrong == []


@redundant_kinds
def test_disks_that_can_be_done_without_never_hold_a_finished_put_between_them(erasure: Erasure) -> None:
    assert all(absence_shown(erasure, failed) for failed in _worst_failures(erasure))
    assert not absence_shown(erasure, _everyone(erasure))
    assert not any(absence_shown(erasure, holders) for holders in _holders(erasure))
