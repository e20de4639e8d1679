"""Alerts: each is told from facts, says what to do, and is gone with its cause."""

from __future__ import annotations

import pytest

from penstock.server.metrics.alerts import (
    CRITICAL,
    EACH_MAX,
    WARNING,
    ClusterTrouble,
    DamagedDisk,
    DiskFacts,
    Facts,
    LagFacts,
    alerts_of,
)
from penstock.server.metrics.lag_trend import STEP_S, STEPS, LagTrend
from penstock.server.metrics.loop_watch import LoopWatch
from penstock.server.metrics.loop_watchdog import LoopWatchdog
from penstock.server.metrics.survey import Lag

NOW_MS = 1_700_000_000_000
GIB = 1 << 30


def disk(order: int = 0, *, up: bool = True, full: bool = False, free: int = 50 * GIB) -> DiskFacts:
    return DiskFacts(order, f"/disks/{order}", up, full, free, 100 * GIB)


def lag(*, share: float = 0.0, growing: bool = False, idle_s: float = 0.0) -> LagFacts:
    return LagFacts("shop/app", "orders", 5000, 90.0, share, growing, idle_s)


def told(facts: Facts) -> list[tuple[str, str]]:
    return [(alert.level, alert.code) for alert in alerts_of(facts)]


def test_a_node_that_is_well_has_none() -> None:
    assert told(Facts(now_ms=NOW_MS, disks=[disk()], lags=[lag(share=0.5)], loop_lag_max_s=0.1)) == []


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        (Facts(group_state="degraded", disks=[disk(up=False)]), (WARNING, "storage_degraded")),
        (Facts(group_state="read-only"), (CRITICAL, "storage_read_only")),
        (Facts(cluster_troubles=[ClusterTrouble("node", "node 2 is away")]), (WARNING, "node_lost")),
        (Facts(cluster_troubles=[ClusterTrouble("group", "group 1 can lose nothing more")]), (WARNING, "group_at_risk")),
        (Facts(cluster_troubles=[ClusterTrouble("group", "group 1 is lost", is_critical=True)]), (CRITICAL, "group_at_risk")),
        (Facts(cluster_troubles=[ClusterTrouble("tablets", "tablet 7", is_critical=True)]), (CRITICAL, "tablets_not_served")),
        (Facts(cluster_troubles=[ClusterTrouble("store", "etcd does not answer")]), (WARNING, "etcd_away")),
        (Facts(group_state="lost", disks=[disk(up=False)]), (CRITICAL, "storage_lost")),
        (Facts(disks=[disk(free=9 * GIB)]), (WARNING, "disk_nearly_full")),
        (Facts(disks=[disk(free=4 * GIB)]), (CRITICAL, "disk_nearly_full")),
        (Facts(disks=[disk(full=True)]), (CRITICAL, "disk_nearly_full")),
        (Facts(lags=[lag(share=0.85)]), (WARNING, "consumer_near_retention")),
        (Facts(lags=[lag(share=1.4)]), (CRITICAL, "consumer_near_retention")),
        (Facts(lags=[lag(growing=True)]), (WARNING, "lag_growing")),
        (Facts(unknown_losses=["chunk 1 is unreadable from byte 7 to byte 9"]), (CRITICAL, "disk_damaged")),
        (Facts(group_state="degraded", disks=[disk(up=False)], unknown_losses=["chunk 1"]), (CRITICAL, "disk_damaged")),
        (Facts(damaged_disks=[DamagedDisk("[1:1:0:0:0]", "/disks/0", 2)]), (CRITICAL, "disk_damaged")),
        (Facts(damaged_disks=[DamagedDisk("[1:1:0:0:0]", "/disks/0", 2, has_copies=True)]), (WARNING, "parts_not_restored")),
        (Facts(damaged={("orders", 0): "partition 0 of topic 'orders' is damaged"}), (CRITICAL, "partition_damaged")),
        (Facts(blocked={"orders": "a consumer stands still"}), (WARNING, "trimming_blocked")),
        (Facts(pipelines=[{"name": "p", "state": "failed", "last_error": "no"}]), (CRITICAL, "pipeline_failed")),
        (Facts(pipelines=[{"name": "p", "state": "fenced"}]), (WARNING, "pipeline_failed")),
        (Facts(pipelines=[{"name": "p", "state": "restarting"}]), (WARNING, "pipeline_restarting")),
        (
            Facts(now_ms=NOW_MS, pipelines=[{"name": "p", "state": "running", "updated_ms": NOW_MS - 61_000}]),
            (WARNING, "pipeline_silent"),
        ),
        (Facts(clock_jump_s=-30.0), (WARNING, "clock_jump")),
        (Facts(age_clock_behind_s=8 * 86400.0), (WARNING, "retention_behind_clock")),
        (Facts(loop_lag_max_s=0.7), (WARNING, "event_loop_lag")),
        (Facts(locked_out=1), (WARNING, "password_guessing")),
        (Facts(silent_listeners={"ydb": "refused"}), (CRITICAL, "listener_down")),
        (Facts(loop_lag_max_s=7.0), (CRITICAL, "event_loop_lag")),
        (Facts(loop_block_s=1.5), (WARNING, "event_loop_blocked")),
        (Facts(lacks_descriptors=True), (CRITICAL, "file_descriptors")),
        (Facts(loop_block_s=15.0), (CRITICAL, "event_loop_blocked")),
    ],
)
def test_each_trouble_is_told_with_what_to_do(facts: Facts, wanted: tuple[str, str]) -> None:
    (alert,) = alerts_of(facts)
    assert (alert.level, alert.code) == wanted
    assert len(alert.what_to_do) > 20
    assert alert.link.startswith("/")


def test_running_pipelines_are_no_trouble() -> None:
    pipelines = [{"name": state, "state": state, "updated_ms": NOW_MS} for state in ("running", "waiting", "finished", "stopped")]
    assert told(Facts(now_ms=NOW_MS, pipelines=pipelines)) == []


def test_the_worst_come_first_and_of_one_kind_only_some() -> None:
    facts = Facts(disks=[disk(number, free=9 * GIB) for number in range(9)], loop_lag_max_s=9.0)
    found = told(facts)
    assert found[0] == (CRITICAL, "event_loop_lag")
    assert len(found) == 1 + EACH_MAX


def test_links_and_rights_go_by_what_it_is_about() -> None:
    (alert,) = alerts_of(Facts(lags=[lag(growing=True)]))
    assert (alert.link, alert.about, alert.name) == ("/consumers/shop%2Fapp", "consumer", "shop/app")


def test_a_damaged_disk_is_named_with_the_topics_that_lost_data_and_how_to_repair_them() -> None:
    disk = DamagedDisk("[1:1:0:0:0]", "/disks/0", 3, ("partition 2 of topic 'orders'",), ("orders",))
    (alert,) = alerts_of(Facts(damaged_disks=[disk]))
    assert "VDisk [1:1:0:0:0] at /disks/0 has 3 parts" in alert.message
    assert "partition 2 of topic 'orders'" in alert.message
    assert "penstock topic repair orders" in alert.what_to_do
    assert (alert.about, alert.link) == ("cluster", "/storage")


def test_a_group_without_members_is_not_told_to_add_some() -> None:
    for facts in (lag(growing=True, idle_s=3600.0), lag(share=0.9, idle_s=3600.0)):
        (alert,) = alerts_of(Facts(lags=[facts]))
        assert "start its members, or delete it" in alert.what_to_do
        assert "add members" not in alert.what_to_do


def test_an_abandoned_group_is_not_told_of_for_ever() -> None:
    days_s = 3 * 86_400.0
    assert told(Facts(lags=[lag(growing=True, idle_s=days_s)])) == []
    assert told(Facts(lags=[lag(share=1.5, idle_s=days_s)])) == []
    assert told(Facts(lags=[lag(share=0.96, idle_s=days_s)])) == [(CRITICAL, "consumer_near_retention")], "it can still be saved"


def test_a_lag_grows_when_it_does_so_every_minute() -> None:
    trend = LagTrend()
    now_s = 0.0
    for messages in (1000, 1100, 1200, 1300, 1400):
        trend.note(now_s, [Lag("c", "t", messages, 80.0)])
        now_s += STEP_S
    assert not trend.is_growing(Lag("c", "t", 1400, 80.0)), f"{STEPS} minutes are not over"
    trend.note(now_s, [Lag("c", "t", 1500, 80.0)])
    assert trend.is_growing(Lag("c", "t", 1500, 80.0))
    assert not trend.is_growing(Lag("c", "t", 1500, 3.0)), "it is not old"
    assert not trend.is_growing(Lag("other", "t", 1500, 80.0))
    trend.note(now_s + STEP_S, [Lag("c", "t", 1200, 80.0)])
    assert not trend.is_growing(Lag("c", "t", 1200, 80.0))


class SetClock:
    """Two clocks that a test sets."""

    def __init__(self) -> None:
        self.monotonic_s = 100.0
        self.wall_s = 1_700_000_000.0

    def monotonic(self) -> float:
        return self.monotonic_s

    def wall(self) -> float:
        return self.wall_s

    def pass_time(self, seconds: float, jump_s: float = 0.0) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds + jump_s


def test_a_clock_that_is_set_is_noticed() -> None:
    clock = SetClock()
    watch = LoopWatch(clock)
    clock.pass_time(1.0, 0.2)
    watch.turn_second()
    assert watch.jumps == 0, "it is slewed all the time"
    clock.pass_time(1.0, -3600.0)
    watch.turn_second()
    assert watch.jumps == 1
    assert watch.last_jump is not None
    assert watch.last_jump[1] == pytest.approx(-3600.0)
    clock.pass_time(1.0)
    watch.turn_second()
    assert watch.jumps == 1


def test_a_blocked_loop_is_reported_with_its_stack_and_not_too_often(caplog: pytest.LogCaptureFixture) -> None:
    clock = SetClock()
    watch = LoopWatch(clock)
    watch.serve()
    watchdog = LoopWatchdog(watch, clock)

    def reports_of(seconds: float) -> int:
        before = len(caplog.records)
        for _ in range(int(seconds * 4)):
            clock.pass_time(0.25)
            watchdog.look()
        return len(caplog.records) - before

    assert reports_of(0.75) == 0
    assert reports_of(0.25) == 1
    assert "test_a_blocked_loop_is_reported" in caplog.messages[-1], "this thread is the one that is watched"
    assert reports_of(9) == 0
    assert reports_of(600) == 12, "less and less often while it lasts"
    for _ in range(3):
        watch.turned_s = clock.monotonic()
        assert reports_of(2) == 0
    reports_of(60)
    assert any("2 blocks before this one were not reported" in message for message in caplog.messages)
