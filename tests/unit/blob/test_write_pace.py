"""When writes are done on the event loop, and when by a thread."""

from __future__ import annotations

from penstock.blob.write_pace import SLOW_FOR_S, SLOW_S, SYNC_MEAN_MAX_S, WritePace

QUICK_S = SYNC_MEAN_MAX_S / 10


def _writes(pace: WritePace, now: float, took_s: float, count: int = 1) -> float:
    for _ in range(count):
        pace.note(now, now + took_s)
        now += took_s
    return now


def test_a_disk_with_syncs_is_slow_until_some_were_quick() -> None:
    pace = WritePace(slow_max=1, mean_max_s=SYNC_MEAN_MAX_S)
    assert pace.quick_from > 0.0
    now = _writes(pace, 0.0, QUICK_S, 40)
    assert now >= pace.quick_from


def test_one_slow_sync_gives_the_next_second_to_the_thread() -> None:
    pace = WritePace(slow_max=1, mean_max_s=SYNC_MEAN_MAX_S)
    now = _writes(pace, 0.0, QUICK_S, 40)
    now = _writes(pace, now, SLOW_S)
    assert now < pace.quick_from
    assert now + SLOW_FOR_S * 0.9 < pace.quick_from
    now = _writes(pace, now + SLOW_FOR_S, QUICK_S, 10)
    assert now >= pace.quick_from


def test_a_disk_whose_syncs_are_slow_on_the_whole_stays_with_the_thread() -> None:
    pace = WritePace(slow_max=1, mean_max_s=SYNC_MEAN_MAX_S)
    now = _writes(pace, 0.0, QUICK_S, 40)
    now = _writes(pace, now, SYNC_MEAN_MAX_S * 2, 60)
    assert now + 10 * SLOW_FOR_S < pace.quick_from


def test_a_rare_sync_of_some_milliseconds_changes_nothing() -> None:
    pace = WritePace(slow_max=1, mean_max_s=SYNC_MEAN_MAX_S)
    now = _writes(pace, 0.0, QUICK_S, 40)
    now = _writes(pace, now, SLOW_S / 2)
    assert now >= pace.quick_from


def test_without_syncs_one_slow_write_changes_nothing_and_two_in_a_row_do() -> None:
    pace = WritePace(slow_max=2)
    assert pace.quick_from <= 0.0
    now = _writes(pace, 0.0, 2 * SLOW_S)
    assert now >= pace.quick_from
    now = _writes(pace, now, QUICK_S)
    now = _writes(pace, now, 2 * SLOW_S)
    assert now >= pace.quick_from
    now = _writes(pace, now, 2 * SLOW_S)
    assert now < pace.quick_from
    assert now + SLOW_FOR_S >= pace.quick_from
