"""Loads of tablets, from counters."""

from __future__ import annotations

import pytest

from penstock.placement import TabletLoads


def test_the_load_is_the_growth_of_the_counter_and_fades() -> None:
    loads = TabletLoads()
    for second in range(60):
        loads.update(float(second), {1: 1000 * second, 2: 10 * second, 3: 5})
    assert loads.rate(1) == pytest.approx(1000, rel=0.01)
    assert loads.rate(2) == pytest.approx(10, rel=0.01)
    assert loads.rate(3) == 0.0
    for second in range(60, 120):
        loads.update(float(second), {1: 59_000, 2: 590})
    assert loads.rate(1) < 10
    assert loads.rate(3) == 0.0


def test_looks_that_are_too_close_to_each_other_and_counters_that_begin_again_tell_nothing() -> None:
    loads = TabletLoads()
    loads.update(0.0, {1: 0})
    loads.update(0.1, {1: 1_000_000})
    assert loads.rate(1) == 0.0
    loads.update(1.0, {1: 1000})
    before = loads.rate(1)
    assert 0 < before <= 1000
    loads.update(2.0, {1: 0})  # the node has started again
    assert 0 < loads.rate(1) < before


def test_a_tablet_that_is_new_here_has_no_load_yet() -> None:
    loads = TabletLoads()
    loads.update(0.0, {})
    loads.update(1.0, {1: 5_000_000})
    assert loads.rate(1) == 0.0


def test_the_busiest_are_told_first_and_idle_ones_are_left_out() -> None:
    loads = TabletLoads()
    for second in range(20):
        loads.update(float(second), {1: 10 * second, 2: 1000 * second, 3: 5, 4: 100 * second})
    assert list(loads.busiest(10)) == [2, 4, 1]
    assert list(loads.busiest(2)) == [2, 4]
