"""How long what became clean stays: by the passes that covered it."""

from __future__ import annotations

from penstock.queue.clean_state import PASSES_MAX, CleanPass, CleanState


def test_what_a_pass_covered_ripens_when_its_delay_is_over() -> None:
    state = CleanState().after(10, 0, 1000, is_waiting=True).after(20, 0, 2000, is_waiting=True)
    assert (state.clean_to, state.ripe_to) == (20, 0)
    assert [state.ripened(now_ms, 500) for now_ms in (1499, 1500, 2499, 2500)] == [0, 10, 10, 20]
    assert [state.is_ripe(now_ms, 500) for now_ms in (2499, 2500)] == [False, True]


def test_a_pass_that_went_no_further_does_not_make_anything_wait_anew() -> None:
    state = CleanState().after(10, 0, 1000, is_waiting=True).after(10, 0, 9000, is_waiting=True)
    assert state.passes == (CleanPass(10, 1000),)


def test_what_was_ripe_is_forgotten_and_stays_ripe() -> None:
    state = CleanState().after(10, 0, 1000, is_waiting=True).after(20, 10, 5000, is_waiting=True)
    assert state == CleanState(20, 10, (CleanPass(20, 5000),))
    assert state.ripened(0, 1 << 40) == 10


def test_nothing_is_remembered_where_nothing_waits() -> None:
    state = CleanState().after(10, 0, 1000, is_waiting=False)
    assert state == CleanState(10, 0)
    assert not state.is_ripe(1 << 60, 0)


def test_many_passes_are_thinned_out_and_nothing_goes_too_early() -> None:
    state = CleanState()
    times: dict[int, int] = {}
    for number in range(1, 500):
        times[number] = number * 100
        state = state.after(number, 0, number * 100, is_waiting=True)
        assert len(state.passes) <= PASSES_MAX
        assert state.passes[-1] == CleanPass(number, number * 100)
        for now_ms in (number * 50, number * 100):
            assert times.get(state.ripened(now_ms, 10), 0) + 10 <= now_ms or state.ripened(now_ms, 10) == 0
    assert CleanState.unpack(state.pack()) == state
