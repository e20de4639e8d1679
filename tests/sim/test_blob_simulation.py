"""A fixed number of runs of the fault simulation for each kind of group; `make sim` runs as many more as one likes."""

from __future__ import annotations

import pytest

from penstock.blob import Erasure
from penstock.testing.simulate_blob import run_seed

# `make sim` runs as many as wanted.
SEEDS = {Erasure.NONE: range(4), Erasure.BLOCK_4_2: range(2), Erasure.MIRROR_3_DC: range(2), Erasure.MIRROR_3: range(2)}


@pytest.mark.slow
@pytest.mark.parametrize(("erasure", "seed"), [(erasure, seed) for erasure, seeds in SEEDS.items() for seed in seeds])
def test_promises_hold_under_faults(erasure: Erasure, seed: int) -> None:
    assert run_seed(seed, erasure).counts["put OK"]


@pytest.mark.parametrize("erasure", list(Erasure))
def test_a_seed_replays_exactly(erasure: Erasure) -> None:
    assert run_seed(77, erasure) == run_seed(77, erasure)
