"""Which disks are enough, checked against slower definitions over all or many cases."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations

import pytest

from penstock.blob.quorum import (
    absence_proven,
    effective_replicas,
    fits_fail_model,
    group_quorum,
    put_done,
    put_excluded,
    put_possible,
    recoverable,
)
from penstock.blob.topology import Erasure, allowed_parts, subgroup

BLOCK = Erasure.BLOCK_4_2
MIRROR = Erasure.MIRROR_3_DC
NONE = Erasure.NONE
FULL_BLOCK = (1, 2, 4, 8, 16, 32, 0, 0)


def masks(erasure: Erasure) -> range:
    return range(1 << erasure.shape.disks)


def tolerated(erasure: Erasure) -> list[int]:
    return [failed for failed in masks(erasure) if fits_fail_model(erasure, failed)]


def to_indices(erasure: Erasure, hashed: int, disks: int) -> int:
    """The mask over the blob's subgroup indices for a mask over order numbers."""
    return sum(1 << index for index, order in enumerate(subgroup(erasure, hashed)) if disks >> order & 1)


def mirror_parts(replicas: int) -> list[int]:
    return [1 << index % 3 if replicas >> index & 1 else 0 for index in range(9)]


def random_block_parts(seed: int) -> list[list[int]]:
    """Placements that a block-4-2 group may hold, from empty to crowded."""
    dice = random.Random(seed)
    return [
        [(1 << index) * (dice.random() < density) for index in range(6)]
        + [dice.getrandbits(6) & dice.getrandbits(6) for _ in "67"]
        for density in (0.0, 0.3, 0.6, 0.8, 1.0)
        for _ in range(300)
    ]


def without(parts: Sequence[int], indices: int) -> list[int]:
    """What is left of a placement to be seen with disks out."""
    return [0 if indices >> index & 1 else held for index, held in enumerate(parts)]


def brute_force_replicas(parts: Sequence[int]) -> int:
    """The most parts that stand on disks of their own, by trying every pair of parts on the handoffs."""
    in_place = {index + 1 for index in range(6) if parts[index] >> index & 1}
    choices = [
        {part for place, part in ((6, first), (7, second)) if parts[place] >> part - 1 & 1}
        for first, second in permutations(range(1, 7), 2)
    ]
    return max(len(in_place | chosen) for chosen in choices)


def brute_force_mirror_done(replicas: int) -> bool:
    """A replica in three realms, or four replicas that are two and two, by realm of each index."""
    realms = Counter(index % 3 for index in range(9) if replicas >> index & 1)
    return len(realms) == 3 or sorted(realms.values())[-2:] in ([2, 2], [2, 3], [3, 3])


def test_none_tolerates_no_failure() -> None:
    assert tolerated(NONE) == [0]


def test_block_tolerates_any_two_failures_and_no_three() -> None:
    assert all(fits_fail_model(BLOCK, failed) == (bin(failed).count("1") <= 2) for failed in masks(BLOCK))


def test_mirror_tolerates_the_known_number_of_failure_sets_of_each_size() -> None:
    sizes = Counter(failed.bit_count() for failed in tolerated(MIRROR))
    assert [sizes[size] for size in range(10)] == [1, 9, 36, 57, 18, 0, 0, 0, 0, 0]


def test_mirror_tolerates_just_the_subsets_of_a_realm_and_one_more_disk() -> None:
    worst = [0b111 << 3 * realm | 1 << disk for realm in range(3) for disk in range(9)]
    assert tolerated(MIRROR) == [failed for failed in masks(MIRROR) if any(failed & ~most == 0 for most in worst)]


@pytest.mark.parametrize("erasure", Erasure)
def test_a_group_quorum_is_all_disks_but_tolerated_failures(erasure: Erasure) -> None:
    everyone = masks(erasure)[-1]
    assert {ok for ok in masks(erasure) if group_quorum(erasure, ok)} == {everyone ^ failed for failed in tolerated(erasure)}


@pytest.mark.parametrize("erasure", Erasure)
def test_any_two_group_quorums_share_a_disk(erasure: Erasure) -> None:
    quorums = [ok for ok in masks(erasure) if group_quorum(erasure, ok)]
    assert all(one & other for one in quorums for other in quorums)


def test_effective_replicas_agree_with_trying_every_matching() -> None:
    for parts in random_block_parts(seed=1):
        assert effective_replicas(parts) == brute_force_replicas(parts), parts


def test_a_handoff_with_several_missing_parts_counts_once() -> None:
    assert effective_replicas([0, 0, 4, 8, 16, 32, 0b11, 0]) == 5


def test_two_handoffs_with_the_same_missing_part_count_once() -> None:
    assert effective_replicas([0, 0, 4, 8, 16, 32, 0b01, 0b01]) == 5


def test_a_part_on_another_parts_main_place_does_not_count() -> None:
    assert effective_replicas([2, 1, 4, 8, 16, 32, 0, 0]) == 4


def test_a_block_put_is_done_with_all_mains() -> None:
    assert put_done(BLOCK, FULL_BLOCK)


def test_a_block_put_is_done_with_two_handoffs_for_two_mains() -> None:
    assert put_done(BLOCK, [0, 2, 4, 0, 16, 32, 0b001000, 0b000001])


def test_a_block_put_is_not_done_with_five_parts() -> None:
    assert not put_done(BLOCK, [0, 2, 4, 8, 16, 32, 0, 0])


@pytest.mark.parametrize("replicas", range(1, 512))
def test_a_mirror_put_is_done_as_the_slow_definition_says(replicas: int) -> None:
    assert put_done(MIRROR, mirror_parts(replicas)) == brute_force_mirror_done(replicas)


def test_a_mirror_put_is_not_done_with_a_part_of_another_column() -> None:
    assert not put_done(MIRROR, [1, 2, 2, 0, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("held", [0, 1])
def test_a_put_to_a_group_of_one_is_done_with_its_part(held: int) -> None:
    assert put_done(NONE, [held]) == bool(held)


def survivable(erasure: Erasure) -> Iterator[tuple[int, int]]:
    """Every tolerated failure set with every way to place a blob."""
    return ((hashed, failed) for hashed in range(erasure.shape.disks) for failed in tolerated(erasure))


@pytest.mark.parametrize("erasure", Erasure)
def test_a_put_can_be_done_under_every_tolerated_failure(erasure: Erasure) -> None:
    nothing = [0] * erasure.shape.disks
    assert all(put_possible(erasure, nothing, to_indices(erasure, hashed, failed)) for hashed, failed in survivable(erasure))


def test_a_block_put_cannot_be_done_with_three_disks_lost() -> None:
    assert not any(put_possible(BLOCK, [0] * 8, lost) for lost in masks(BLOCK) if lost.bit_count() == 3)


def test_a_put_to_a_group_of_one_cannot_be_done_with_its_disk_lost() -> None:
    assert not put_possible(NONE, [0], 1)


def test_what_a_lost_disk_holds_already_counts_for_the_put() -> None:
    assert put_possible(BLOCK, FULL_BLOCK, 0xFF)


def test_a_mirror_put_is_possible_while_the_disks_left_would_do() -> None:
    for lost in masks(MIRROR):
        assert put_possible(MIRROR, [0] * 9, lost) == brute_force_mirror_done(511 ^ lost), lost


def test_a_block_blob_is_recoverable_from_four_different_parts_wherever_they_are() -> None:
    for parts in random_block_parts(seed=2):
        distinct = {part for part in range(1, 7) if any(held >> part - 1 & 1 for held in parts)}
        assert recoverable(BLOCK, parts) == (len(distinct) >= 4), parts


@pytest.mark.parametrize("replicas", range(512))
def test_a_mirror_blob_is_recoverable_from_any_replica(replicas: int) -> None:
    assert recoverable(MIRROR, mirror_parts(replicas)) == (replicas != 0)


def test_a_done_block_put_is_recoverable_under_every_tolerated_failure() -> None:
    done = [parts for parts in random_block_parts(seed=3) if put_done(BLOCK, parts)]
    assert done
    assert all(recoverable(BLOCK, without(parts, failed)) for parts in done for failed in tolerated(BLOCK))


def test_a_done_mirror_put_is_recoverable_under_every_tolerated_failure() -> None:
    done = [parts for parts in map(mirror_parts, range(512)) if put_done(MIRROR, parts)]
    failures = [to_indices(MIRROR, 0, failed) for failed in tolerated(MIRROR)]
    assert all(recoverable(MIRROR, without(parts, failed)) for parts in done for failed in failures)


@pytest.mark.parametrize("erasure", Erasure)
def test_absence_is_proven_when_all_answered_and_nobody_has_a_part(erasure: Erasure) -> None:
    assert absence_proven(erasure, [0] * erasure.shape.disks, 0)


def test_absence_of_a_block_blob_agrees_with_trying_every_part_on_every_unknown_disk() -> None:
    for parts in random_block_parts(seed=4):
        for unknown in tolerated(BLOCK):
            seen = without(parts, unknown)
            assert absence_proven(BLOCK, seen, unknown) == (not any_completion_recoverable(seen, unknown)), (seen, unknown)


def any_completion_recoverable(parts: Sequence[int], unknown: int) -> bool:
    """Whether some way to give each unknown disk one part it may hold makes a block-4-2 blob readable."""
    for index in range(8):
        if unknown >> index & 1:
            filled = [[*parts[:index], 1 << part - 1, *parts[index + 1 :]] for part in allowed_parts(BLOCK, index)]
            return any(any_completion_recoverable(choice, unknown & ~(1 << index)) for choice in filled)
    return recoverable(BLOCK, parts)


def test_absence_of_a_block_blob_is_never_proven_beyond_the_fail_model() -> None:
    assert not any(absence_proven(BLOCK, [0] * 8, unknown) for unknown in masks(BLOCK) if unknown.bit_count() > 2)


def test_an_unknown_main_adds_nothing_when_a_handoff_has_its_part() -> None:
    assert absence_proven(BLOCK, [0, 2, 4, 0, 0, 0, 0b000001, 0], 0b00000001)


@pytest.mark.parametrize("erasure", [NONE, MIRROR])
def test_one_unknown_disk_leaves_the_absence_of_a_whole_copy_open(erasure: Erasure) -> None:
    disks = erasure.shape.disks
    assert not any(absence_proven(erasure, [0] * disks, 1 << index) for index in range(disks))


def test_a_mirror_blob_that_is_seen_is_not_absent() -> None:
    assert not any(absence_proven(MIRROR, mirror_parts(1 << index), 0) for index in range(9))


@pytest.mark.parametrize("erasure", [BLOCK, MIRROR])
def test_a_put_is_excluded_when_nobody_but_a_tolerated_few_can_have_it(erasure: Erasure) -> None:
    nothing = [0] * erasure.shape.disks
    assert all(put_excluded(erasure, nothing, to_indices(erasure, hashed, failed)) for hashed, failed in survivable(erasure))


def test_a_done_block_put_is_never_excluded() -> None:
    done = [parts for parts in random_block_parts(seed=5) if put_done(BLOCK, parts)]
    assert not any(put_excluded(BLOCK, without(parts, unknown), unknown) for parts in done for unknown in masks(BLOCK))


def test_a_done_mirror_put_is_never_excluded() -> None:
    done = [parts for parts in map(mirror_parts, range(512)) if put_done(MIRROR, parts)]
    failures = [to_indices(MIRROR, 0, failed) for failed in tolerated(MIRROR)]
    assert not any(put_excluded(MIRROR, without(parts, unknown), unknown) for parts in done for unknown in failures)


def test_a_proven_absence_excludes_a_put() -> None:
    for parts in random_block_parts(seed=6):
        for unknown in tolerated(BLOCK):
            seen = without(parts, unknown)
            assert put_excluded(BLOCK, seen, unknown) or not absence_proven(BLOCK, seen, unknown), (seen, unknown)
