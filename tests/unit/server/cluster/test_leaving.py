"""How long a node that leaves waits for others to take its tablets."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.coordination import MemberRecord
from penstock.core.errors import UnavailableError
from penstock.server.cluster.leaving import PATIENCE_MAX_S, PATIENCE_S, hand_over
from penstock.testing.sim_loop import current_loop, run_simulation

LEAVING = MemberRecord(node_id=1, name="n1", directory_id="", instance_id="", is_leaving=True)


def waited_s(count: Callable[[float], int], *, leads_until_s: float = 0.0, staying: frozenset[int] = frozenset({1, 2})) -> float:
    """How long it waits while the others take its tablets like this: `count` tells how many are left after a time."""

    async def scenario() -> float:
        told: list[MemberRecord] = []

        async def update_member(record: MemberRecord) -> None:
            told.append(record)

        coordination = SimpleNamespace(update_member=update_member, staying=lambda: set(staying), is_maintained=False)
        time = current_loop().time
        began = time()
        await hand_over(
            cast("Any", coordination), LEAVING, lambda: count(time() - began), has_lead=lambda: time() - began < leads_until_s
        )
        assert told == [LEAVING]
        return time() - began

    return run_simulation(scenario())


def test_it_ends_as_soon_as_it_has_neither_tablets_nor_the_lead() -> None:
    assert waited_s(lambda passed_s: 3 if passed_s < 1 else 0) == pytest.approx(1, abs=0.1)
    assert waited_s(lambda _: 0, leads_until_s=2) == pytest.approx(2, abs=0.1)


def test_it_waits_for_as_long_as_tablets_leave() -> None:
    assert waited_s(lambda passed_s: max(0, 12 - int(passed_s / 1.5))) == pytest.approx(18, abs=0.1)
    assert waited_s(lambda passed_s: 1000 - int(passed_s)) == pytest.approx(PATIENCE_MAX_S, abs=0.1)
    assert waited_s(lambda passed_s: 5 if passed_s < 2 else 4) == pytest.approx(2 + PATIENCE_S, abs=0.1)


def test_it_does_not_wait_where_nobody_could_take_them() -> None:
    assert waited_s(lambda _: 5, staying=frozenset({1})) == 0


def test_it_does_not_wait_where_the_others_cannot_be_told() -> None:
    async def refuse(_: MemberRecord) -> None:
        raise UnavailableError("etcd is away")

    async def scenario() -> None:
        await hand_over(cast("Any", SimpleNamespace(update_member=refuse)), LEAVING, lambda: 5, has_lead=lambda: True)
        assert current_loop().time() == pytest.approx(0)

    run_simulation(scenario())
