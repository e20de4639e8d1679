"""Which disks are enough: for a command to the group, for a put to be done, for a blob to be read or to be known absent.

Pure functions of masks. A set of disks of the group is a mask over order numbers. What is known of one blob is a list by
subgroup index, each item a mask of the part ids held there, and a set of its disks is a mask over subgroup indices:

    disks      bit i        order number i, or subgroup index i
    parts[i]   bit p - 1    the disk at subgroup index i holds part p

                  may fail at once                      put is done with
    none          nothing                               the part
    block-4-2     any 2 domains                         6 parts on 6 disks: mains, and handoffs for the missing, one part each
    mirror-3-dc   a realm, and 1 disk of another        1 replica in each of 3 realms, or 2 in each of 2
    mirror-3      any 1 domain                          2 replicas

They meet: whatever fails within the model, a blob whose put was done is readable, and any two quorums of the group share a disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from penstock.blob.topology import Erasure, allowed_parts, subgroup

_BLOCK_MAINS = 6
_BLOCK_PARTS_ALL = 0b111111
_BLOCK_DATA_PARTS = 4
_BLOCK_FAILURES_MAX = 2
_REALM_DISKS = 3
_MIRROR_REPLICAS_MIN = 2


@cache
def fits_fail_model(erasure: Erasure, failed: int) -> bool:
    """Whether the group must go on serving with these disks (order numbers) out."""
    if erasure is Erasure.BLOCK_4_2:
        return failed.bit_count() <= _BLOCK_FAILURES_MAX
    if erasure is Erasure.MIRROR_3_DC:
        failures = [(failed >> realm * _REALM_DISKS & 0b111).bit_count() for realm in range(3)]
        return sum(count >= 1 for count in failures) <= 2 and sum(count >= 2 for count in failures) <= 1
    return failed.bit_count() <= (erasure is Erasure.MIRROR_3)


@cache
def group_quorum(erasure: Erasure, answered_ok: int) -> bool:
    """Whether a command to the whole group is done: all disks (order numbers) but a tolerated few answered OK."""
    everyone = (1 << erasure.shape.disks) - 1
    return fits_fail_model(erasure, everyone & ~answered_ok)


def effective_replicas(parts: Sequence[int]) -> int:
    """How many parts of a block-4-2 blob stand on disks of their own: mains in place, and handoffs matched to missing parts."""
    # Written out, since every acknowledged part asks.
    in_place = parts[0] & 1 | parts[1] & 2 | parts[2] & 4 | parts[3] & 8 | parts[4] & 16 | parts[5] & 32
    missing = _BLOCK_PARTS_ALL & ~in_place
    first = parts[6] & missing
    second = parts[7] & missing
    # Two handoffs can be matched to different parts unless all they have is one part between them.
    matched = min((first != 0) + (second != 0), (first | second).bit_count())
    return in_place.bit_count() + matched


def put_done(erasure: Erasure, parts: Sequence[int]) -> bool:
    """Whether the blob is written so that it outlives every tolerated failure: its put may answer OK."""
    if erasure is Erasure.BLOCK_4_2:
        return effective_replicas(parts) == _BLOCK_MAINS
    if erasure is Erasure.MIRROR_3_DC:
        return _mirror_dc_done(_mirror_replicas(parts))
    if erasure is Erasure.MIRROR_3:
        return _mirror_replicas(parts).bit_count() >= _MIRROR_REPLICAS_MIN
    return parts[0] & 1 != 0


def put_possible(erasure: Erasure, parts: Sequence[int], lost: int) -> bool:
    """Whether a put can still be done without what the lost indices do not hold yet; if not, it may answer ERROR now."""
    return put_done(erasure, _supposing(erasure, parts, ~lost))


def recoverable(erasure: Erasure, parts: Sequence[int]) -> bool:
    """Whether the parts seen give the blob."""
    return _distinct(parts).bit_count() >= (_BLOCK_DATA_PARTS if erasure is Erasure.BLOCK_4_2 else 1)


def absence_proven(erasure: Erasure, parts: Sequence[int], unknown: int) -> bool:
    """Whether the blob stays unreadable whatever the unknown indices hold, within the fail model: a get may answer NODATA.

    Unknown are the disks that gave no answer and those that are being refilled. A main place may hold its part, a handoff one
    part that no other disk has. A mirror holds the whole blob, so there a single unknown disk leaves the matter open; see
    `put_excluded` for the weaker proof.
    """
    if erasure is not Erasure.BLOCK_4_2:
        return not unknown and not recoverable(erasure, parts)
    if unknown.bit_count() > _BLOCK_FAILURES_MAX:
        return False
    unknown_handoffs = unknown >> _BLOCK_MAINS
    could_be_seen = _distinct(parts) | unknown & _BLOCK_PARTS_ALL
    return could_be_seen.bit_count() + unknown_handoffs.bit_count() < _BLOCK_DATA_PARTS


@cache
def absence_shown(erasure: Erasure, silent: int) -> bool:
    """Whether disks (order numbers) that give no listing, or that may lack what they should hold, cannot hold a finished put
    between them: what no other disk lists was then never acknowledged, whichever blob it is."""
    nothing = [0] * erasure.shape.disks
    # Placement depends on the hash modulo the number of disks.
    for first in range(erasure.shape.disks):
        unknown = sum(1 << index for index, order in enumerate(subgroup(erasure, first)) if silent >> order & 1)
        if not put_excluded(erasure, nothing, unknown):
            return False
    return True


def put_excluded(erasure: Erasure, parts: Sequence[int], unknown: int) -> bool:
    """Whether no put of the blob can have answered OK, whatever the unknown indices hold.

    Weaker than `absence_proven`: what a failed put left on the unknown disks may come to light with them.
    """
    return not put_done(erasure, _supposing(erasure, parts, unknown))


def _supposing(erasure: Erasure, parts: Sequence[int], indices: int) -> list[int]:
    """The parts, were every disk at these indices to hold all that it may."""
    allowed = _allowed_masks(erasure)
    return [held | allowed[index] if indices >> index & 1 else held for index, held in enumerate(parts)]


def _distinct(parts: Sequence[int]) -> int:
    seen = 0
    for held in parts:
        seen |= held
    return seen


def _mirror_replicas(parts: Sequence[int]) -> int:
    """The subgroup indices that hold the part they may."""
    replicas = 0
    for index, held in enumerate(parts):
        replicas |= (held >> index % 3 & 1) << index
    return replicas


@cache
def _mirror_dc_done(replicas: int) -> bool:
    # In a subgroup a realm is a column, every third index.
    counts = [(replicas & 0b001001001 << column).bit_count() for column in range(3)]
    return all(count >= 1 for count in counts) or sum(count >= 2 for count in counts) >= 2


@cache
def _allowed_masks(erasure: Erasure) -> tuple[int, ...]:
    return tuple(sum(1 << part - 1 for part in allowed_parts(erasure, index)) for index in range(erasure.shape.disks))
