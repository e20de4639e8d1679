"""The history in memory: what is kept at which resolution, what is asked of it, and that it stays within its bounds."""

from __future__ import annotations

import math
from typing import Any

import pytest

from penstock.core.errors import InvalidRequestError
from penstock.server.metrics.history import LEVELS, SERIES_MAX, History, Key, SeriesQuery

START_MS = 1_700_000_040_000
NODE = Key("produce_bytes")


def filled(seconds: int, *keys: Key) -> tuple[History, int]:
    """A history in which each series has the number of the second as its value."""
    history = History()
    history.keep(keys or (NODE,))
    for second in range(seconds):
        history.tick(START_MS + second * 1000, dict.fromkeys(keys or (NODE,), float(second)))
    return history, START_MS + (seconds - 1) * 1000


def asked(history: History, now_ms: int, **fields: Any) -> tuple[list[int], dict[str, list[float | None]]]:
    found: Any = history.query(SeriesQuery(**{"metric": "produce_bytes", **fields}), now_ms)
    return found["times"], found["series"]


def test_the_last_minutes_are_there_second_by_second() -> None:
    history, now_ms = filled(30)
    times, series = asked(history, now_ms, from_ms=now_ms - 9000)
    assert times == list(range(now_ms - 9000, now_ms + 1, 1000))
    assert series == {"produce_bytes": [float(second) for second in range(20, 30)]}


def test_older_times_are_means_of_longer_steps() -> None:
    history, now_ms = filled(3600)
    times, series = asked(history, now_ms, from_ms=now_ms - 1_800_000)
    values = series["produce_bytes"]
    assert times[1] - times[0] == 10_000
    assert values[-1] == pytest.approx(3594.5), "the mean of the last ten seconds"
    day, series = asked(history, now_ms, from_ms=now_ms - 20 * 3600 * 1000)
    assert day[1] - day[0] == 60_000
    assert series["produce_bytes"][-1] == pytest.approx(3569.5)


def test_of_the_slowest_the_worst_stays() -> None:
    key = Key("request_ms_p99")
    history = History()
    history.keep([key])
    for second in range(20):
        history.tick(START_MS + second * 1000, {key: 100.0 if second == 13 else 1.0})
    found: Any = history.query(SeriesQuery("request_ms_p99", from_ms=START_MS - 700_000), START_MS + 20_000)
    assert found["series"]["request_ms_p99"] == [1.0, 100.0]


def test_points_are_no_more_than_asked_for_and_lie_on_a_grid() -> None:
    history, now_ms = filled(600)
    times, series = asked(history, now_ms, from_ms=now_ms - 599_000, to_ms=now_ms, points=60)
    assert 60 <= len(times) <= 61
    assert all(time % (times[1] - times[0]) == 0 for time in times)
    assert len(series["produce_bytes"]) == len(times)


def test_a_gap_is_none() -> None:
    history, now_ms = filled(3)
    history.tick(now_ms + 1000, {})
    _, series = asked(history, now_ms + 1000)
    assert series["produce_bytes"] == [0.0, 1.0, 2.0, None]


def test_series_of_topics_and_consumers_are_found_by_them() -> None:
    keys = (
        NODE,
        Key("produce_bytes", "a"),
        Key("produce_bytes", "b"),
        Key("lag_messages", "a", "c"),
        Key("lag_messages", "b", "c"),
    )
    history, now_ms = filled(2, *keys)
    assert asked(history, now_ms, topic="a")[1] == {"a": [0.0, 1.0]}
    assert asked(history, now_ms, topic="unknown")[1] == {}
    assert set(asked(history, now_ms, metric="lag_messages", consumer="c")[1]) == {"a", "b"}
    assert set(asked(history, now_ms, metric="lag_messages", consumer="c", topic="b")[1]) == {"b"}


def test_what_is_kept_keeps_its_past_and_what_is_not_is_forgotten() -> None:
    history, now_ms = filled(5, NODE, Key("produce_bytes", "a"))
    history.keep([NODE])
    history.keep([NODE, Key("produce_bytes", "a")])
    history.tick(now_ms + 1000, {NODE: 5.0, Key("produce_bytes", "a"): 5.0})
    assert asked(history, now_ms + 1000)[1]["produce_bytes"] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert asked(history, now_ms + 1000, topic="a")[1]["a"] == [None] * 5 + [5.0]


def test_it_never_takes_more_than_it_should() -> None:
    history, _ = filled(1, *(Key("produce_bytes", f"t{number}") for number in range(10_000)))
    levels = history._levels
    assert {len(level.series) for level in levels} == {SERIES_MAX}
    size = sum(len(ring) * ring.itemsize for level in levels for ring in level.series.values())
    assert size < 9 << 20
    assert [level.step_s * level.capacity for level in levels] == [600, 6 * 3600, 48 * 3600] == [a * b for a, b in LEVELS]


def test_a_ring_goes_round() -> None:
    history, now_ms = filled(1500)
    times, series = asked(history, now_ms, from_ms=now_ms - 599_000)
    assert (len(times), series["produce_bytes"][0], series["produce_bytes"][-1]) == (600, 900.0, 1499.0)
    assert history.since(NODE, 3) == [1497.0, 1498.0, 1499.0]
    assert not any(math.isnan(value) for value in history.since(NODE, 600))


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"metric": "speed"}, "produce_bytes"),
        ({"metric": "loop_lag_ms", "topic": "t"}, "leave out topic"),
        ({"consumer": "c"}, "lag_messages"),
        ({"points": 0}, "points"),
        ({"points": 100_000}, "points"),
        ({"from_ms": 5, "to_ms": 4}, "after to"),
    ],
)
def test_wrong_questions_are_refused_with_a_hint(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidRequestError, match=word):
        asked(filled(1)[0], START_MS, **fields)
