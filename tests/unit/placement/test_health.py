"""How the leader judges nodes and tablets over time."""

from __future__ import annotations

from penstock.coordination import TabletRange
from penstock.placement import NodeState
from penstock.placement.node_health import ABSENT_S, LEASELESS_S, SETTLE_S, NodeHealth
from penstock.placement.owners import unused_ranges
from penstock.placement.tablet_health import FAILING_S, HOLD_S, STEADY_S, TabletHealth


def test_a_node_that_has_just_got_its_lease_back_settles_as_one_that_came_back() -> None:
    health = NodeHealth(0.0)

    def is_settled(now: float, *, is_member: bool) -> bool:
        health.update(2, now, is_member=is_member, is_connected=True, is_given_up=False)
        return health.view(2, now, is_draining=False).is_settled

    assert [is_settled(now, is_member=True) for now in (0.0, SETTLE_S - 1, SETTLE_S)] == [False, False, True]
    is_settled(20.0, is_member=False)
    assert [is_settled(30.0 + later, is_member=True) for later in (0.0, SETTLE_S - 1, SETTLE_S)] == [False, False, True]


def test_a_node_that_keeps_getting_lost_settles_later_each_time() -> None:
    health, now = NodeHealth(0.0), 0.0
    waits = []
    for _ in range(4):
        health.update(2, now, is_member=True, is_connected=True, is_given_up=False)
        back_at = now
        while not health.view(2, now, is_draining=False).is_settled:
            now += 1.0
        waits.append(now - back_at)
        health.update(2, now, is_member=True, is_connected=False, is_given_up=True)
    assert waits == [SETTLE_S * factor for factor in (1, 2, 4, 8)]


def test_a_new_leader_waits_a_little_for_nodes_that_it_never_saw() -> None:
    health = NodeHealth(0.0)
    absent = {"is_member": False, "is_connected": False, "is_given_up": False}
    assert health.update(2, 0.1, **absent) is NodeState.UNREACHED
    assert health.update(2, ABSENT_S, **absent) is NodeState.LOST
    assert health.update(3, 0.1, is_member=True, is_connected=True, is_given_up=False) is NodeState.ALIVE
    assert health.update(3, 0.2, **absent) is NodeState.LOST


def test_a_node_that_is_reached_without_a_lease_gets_nothing_and_is_drained_after_a_while() -> None:
    health = NodeHealth(0.0)
    for now, is_draining in ((0.0, False), (LEASELESS_S - 0.1, False), (LEASELESS_S, True)):
        health.update(2, now, is_member=False, is_connected=True, is_given_up=False)
        view = health.view(2, now, is_draining=False)
        assert (view.can_take, view.is_draining) == (False, is_draining)


def test_a_tablet_that_does_not_run_is_moved_after_longer_and_longer_times() -> None:
    health, now = TabletHealth(), 0.0
    for factor in (1, 2, 4):
        health.given(7, 1, now, is_failing=factor > 1)
        health.observe(7, 1, now, is_up=False)
        assert not health.is_failing(7, now + FAILING_S * factor - 0.1)
        now += FAILING_S * factor
        assert health.is_failing(7, now)
    health.observe(7, 1, now, is_up=True)
    assert not health.is_failing(7, now + 1000)
    health.observe(7, 1, now + STEADY_S * 4, is_up=True)
    assert health.watched() == set()


def test_the_tablet_that_nodes_die_of_is_soon_alone() -> None:
    """Of eight tablets one kills its node: the others run after a few trials, and that one waits longer each time."""
    health, now, culprit = TabletHealth(), 0.0, 5
    tablets, deaths = set(range(8)), 0
    for tablet_id in tablets:
        health.given(tablet_id, 1, now)
    while health.watched() - {culprit}:
        now += 1.0
        health.begin_trial(now)
        started = {tablet_id for tablet_id in health.watched() if not health.is_held(tablet_id)}
        if culprit in started:
            deaths += 1
            assert started == set(health.lost(1, now))
            continue
        for tablet_id in started:
            health.observe(tablet_id, 1, now, is_up=True)
    assert deaths <= 5
    assert health.watched() == {culprit}
    assert now < 10 * STEADY_S
    died_at = now
    while health.is_held(culprit):
        now += 1.0
        health.begin_trial(now)
    health.lost(1, now)
    assert health.is_held(culprit)
    health.begin_trial(now + HOLD_S)
    assert health.is_held(culprit)
    assert now - died_at < 2**deaths * HOLD_S


def test_only_ids_without_a_tablet_lose_their_owner() -> None:
    ranges = [TabletRange(0, 1003, 1), TabletRange(1004, 1009, 2), TabletRange(1010, 1 << 40, 3)]
    assert list(unused_ranges(ranges, [1001, 1002, 1004, 1009, 1010])) == [
        (1000, 1000),
        (1003, 1003),
        (1005, 1008),
        (1011, 1 << 40),
    ]
