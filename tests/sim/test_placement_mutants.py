"""The checks of the placement simulation see what they are for: each rule of placement, broken, fails a story or a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from penstock.core.errors import PenstockError
from penstock.testing.seed_runs import SeedFailedError
from penstock.testing.sim_loop import SimulationError
from penstock.testing.simulate_placement import run_seed
from tests.sim import placement_mutants as mutants
from tests.sim import test_placement_simulation as stories
from tests.sim.placement_mutants import MUTANTS, Mutate

pytestmark = pytest.mark.slow

CAUGHT_BY: dict[Mutate, Callable[[], object]] = {
    mutants.take_from_nodes_that_others_reach: stories.test_a_node_that_only_the_leader_does_not_reach_keeps_its_tablets,
    mutants.start_before_the_owner_has_stopped: stories.test_tablets_stay_where_an_operator_put_them_though_another_node_leads,
    mutants.forget_an_owner: stories.test_tablets_of_a_killed_node_run_elsewhere_within_a_second_and_some_return_with_it,
    mutants.start_before_the_owner_is_written: stories.test_a_drained_leader_is_emptied_and_leads_no_more,
    mutants.move_back_and_forth: stories.test_nothing_moves_between_nodes_that_are_even_enough,
    mutants.give_up_without_waiting_for_the_lease: stories.test_a_node_that_only_the_leader_does_not_reach_keeps_its_tablets,
    mutants.ignore_maintenance: stories.test_maintenance_keeps_tablets_where_they_are,
    mutants.forget_what_operators_moved: stories.test_tablets_stay_where_an_operator_put_them_though_another_node_leads,
    mutants.leave_drained_nodes_alone: stories.test_a_drained_leader_is_emptied_and_leads_no_more,
}
TAKES_MINUTES = {mutants.move_back_and_forth}  # so many moves are made before it is found out
SEEDS = range(1, 13)


@pytest.mark.parametrize(
    "mutate",
    [pytest.param(mutate, marks=pytest.mark.soak) if mutate in TAKES_MINUTES else mutate for mutate in CAUGHT_BY],
    ids=lambda mutate: mutate.__name__,
)
def test_a_broken_rule_fails_a_story(mutate: Mutate, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    with pytest.raises((AssertionError, SimulationError, PenstockError)):
        CAUGHT_BY[mutate]()


@pytest.mark.soak
@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
def test_a_broken_rule_fails_one_of_a_few_seeds(mutate: Mutate, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    with pytest.raises(SeedFailedError):
        run_seeds(SEEDS)


def run_seeds(seeds: Iterable[int]) -> None:
    """Run one after another, until one fails."""
    for seed in seeds:
        run_seed(seed)
