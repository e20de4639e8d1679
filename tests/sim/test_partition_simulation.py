"""A fixed number of runs of the partition simulation: rival tablets on faulty groups, writers that resend, readers."""

from __future__ import annotations

import pytest

from penstock.blob import Erasure
from penstock.testing.simulate_partition import run_seed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_promises_hold_under_faults_and_rival_generations(seed: int) -> None:
    assert run_seed(seed).counts["write"]


def test_room_that_was_made_before_the_last_look_at_the_disk_is_used() -> None:
    """A run in which the disk was full, then flooded, and room was made between two looks at it."""
    assert run_seed(1007, Erasure.NONE).counts["write"]


def test_a_seed_replays_exactly() -> None:
    assert run_seed(5) == run_seed(5)
