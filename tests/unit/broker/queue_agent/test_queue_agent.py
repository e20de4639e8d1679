"""The decisions of the Queue Agent: rates over windows, and up to where a partition may be trimmed."""

from __future__ import annotations

import pytest

from penstock.broker.queue_agent.rates import DAY_S, HOUR_S, Rate
from penstock.broker.queue_agent.statuses import Disposition, disposition, shown_time
from penstock.broker.queue_agent.trimming import Holder, TrimConfig, decide

ON = TrimConfig(enable=True)


def vital(*offsets: int | None) -> list[Holder]:
    return [Holder(f"c{at}", offset, "gone") for at, offset in enumerate(offsets)]


@pytest.mark.parametrize(
    ("config", "offsets", "young_from", "expected"),
    [
        (TrimConfig(), (50,), None, None),
        (ON, (50,), None, 50),
        (ON, (50, 30, 70), None, 30),
        (ON, (10,), None, None),
        (ON, (5,), None, None),
        (ON, (1000,), None, 100),
        (ON, (), None, None),
        (ON, (50, None), None, None),
        (TrimConfig(True, retained_rows=60), (50,), None, 40),
        (TrimConfig(True, retained_rows=10), (50,), None, 50),
        (TrimConfig(True, retained_rows=1000), (50,), None, None),
        (TrimConfig(True, retained_lifetime_ms=1000), (50,), 35, 35),
        (TrimConfig(True, retained_lifetime_ms=1000), (50,), None, None),
        (TrimConfig(True, retained_rows=75, retained_lifetime_ms=1000), (50,), 35, 25),
    ],
)
def test_a_partition_is_trimmed_up_to_what_somebody_needs(
    config: TrimConfig, offsets: tuple[int | None, ...], young_from: int | None, expected: int | None
) -> None:
    retained_from = None if config.retained_rows is None else 100 - config.retained_rows
    decision = decide(config, start=10, end=100, vital=vital(*offsets), young_from=young_from, retained_from=retained_from)
    assert decision.offset == expected


def test_an_export_is_waited_for_as_a_vital_consumer_is() -> None:
    vital, config = [Holder("consumer", 8)], TrimConfig(enable=True)
    assert decide(config, start=0, end=10, vital=vital, exports=[Holder("export", 3)]).offset == 3
    assert decide(config, start=3, end=10, vital=vital, exports=[Holder("export", 3)]).offset is None
    failed = decide(config, start=0, end=10, vital=vital, exports=[Holder("export 'main'", None, "no directory")])
    assert failed.offset is None
    assert failed.alert == "nothing is trimmed: export 'main' is in error: no directory"
    # By itself it is no reason to trim.
    assert decide(config, start=0, end=10, vital=[], exports=[Holder("export", 3)]).offset is None


def test_an_alert_says_why_nothing_is_trimmed() -> None:
    assert decide(TrimConfig(), start=0, end=9, vital=[]).alert is None
    assert "no vital consumer" in (decide(ON, start=0, end=9, vital=[]).alert or "")
    assert "c1 is in error: gone" in (decide(ON, start=0, end=9, vital=vital(5, None)).alert or "")


def test_a_steady_counter_has_the_same_rate_in_every_window() -> None:
    rate = Rate()
    for second in range(0, int(3 * DAY_S), 60):
        rate.update(float(second), second * 5)
    shown = rate.shown()
    assert shown["current"] == 5
    for window in ("1m_raw", "1m", "1h", "1d"):
        assert shown[window] == pytest.approx(5, rel=0.02)


def test_a_window_that_is_longer_than_was_watched_tells_of_what_was() -> None:
    rate = Rate()
    # 600 in ten minutes, all of it in the first.
    for second in range(601):
        rate.update(float(second), min(second * 10, 600))
    shown = rate.shown()
    assert shown["1m"] == pytest.approx(0, abs=0.001)
    assert shown["1h"] == pytest.approx(1, rel=0.2)
    assert shown["1d"] == pytest.approx(1, rel=0.02)
    for second in range(601, int(HOUR_S) + 1):
        rate.update(float(second), 600)
    assert rate.shown()["1d"] == pytest.approx(600 / HOUR_S, rel=0.1)


def test_a_counter_that_goes_back_does_not_spoil_its_rates() -> None:
    rate = Rate()
    for second in range(100):
        rate.update(float(second), second * 10)
    before = rate.shown()["1m"]
    rate.update(100.0, 0)
    assert 0 < rate.shown()["1m"] < before == pytest.approx(10)


def test_rates_fade_when_nothing_comes_and_begin_anew_when_a_counter_goes_back() -> None:
    rate = Rate()
    assert rate.shown() == {"current": 0.0, "1m_raw": 0.0, "1m": 0.0, "1h": 0.0, "1d": 0.0}
    rate.update(0.0, 1000)
    assert rate.shown()["current"] == 0
    rate.update(1.0, 1100)
    peak = rate.shown()["1m_raw"]
    rate.update(31.0, 1100)
    assert 0 < rate.shown()["1m_raw"] < peak
    assert rate.shown()["current"] == 0
    rate.update(32.0, 5)
    assert rate.shown()["current"] == 0


@pytest.mark.parametrize(
    ("next_row", "unread", "expected"),
    [
        (4, 5, Disposition.EXPIRED),
        (5, 5, Disposition.PENDING),
        (9, 1, Disposition.PENDING),
        (9, 0, Disposition.UP_TO_DATE),  # only a marker follows
        (10, 0, Disposition.UP_TO_DATE),
        (11, -1, Disposition.AHEAD),
    ],
)
def test_where_a_consumer_stands(next_row: int, unread: int, expected: Disposition) -> None:
    assert disposition(next_row, 5, unread) is expected


def test_times_are_written_as_the_seed_does() -> None:
    assert shown_time(0) == "1970-01-01T00:00:00.000000Z"
    assert shown_time(1687428662813) == "2023-06-22T10:11:02.813000Z"


def is_still(rate: Rate) -> bool:
    return rate.is_still


def test_a_counter_is_still_once_its_growth_is_minutes_ago_and_counts_on_after() -> None:
    rate = Rate()
    for second in range(1, 11):
        rate.update(float(second), second * 100)
    assert not is_still(rate)
    rate.update(11.0, 1000)
    assert not is_still(rate)
    rate.update(700.0, 1000)
    assert is_still(rate)
    # It was not looked at for five seconds; what came is spread over them.
    rate.update(705.0, 1050)
    assert rate.shown()["current"] == 10.0
    assert not is_still(rate)
