"""The follower of the store goes on after a defect of what it tells changes to: it lists all keys again, and reports it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from penstock.coordination import ClusterIdentity, Coordination, KeyChange, KeyTable, MemberRecord, MemoryStore
from penstock.coordination.follower import CANNOT_FOLLOW, RETRY_S_MAX
from penstock.testing.sim_loop import SimulationError, current_loop, run_simulation

IDENTITY = ClusterIdentity(cluster_id="c", name="tested", kind="mirror-3")


class _SharedStore(MemoryStore):
    async def close(self) -> None:
        """Leave it to the other node."""


def test_changes_are_followed_after_one_that_nothing_could_take() -> None:
    heard: list[int] = []

    async def scenario() -> None:
        store = _SharedStore(KeyTable("s"), current_loop().time)
        first, second = Coordination(store), Coordination(store)
        await first.create_cluster(IDENTITY)
        await first.open()
        await second.open()
        failing = True

        def take(_: Sequence[KeyChange]) -> None:
            nonlocal failing
            if failing:
                failing = False
                raise ZeroDivisionError("unexpected")
            heard.append(len(second.members()))

        second.listen(take)
        await first.register(_record(1))
        await asyncio.sleep(2 * RETRY_S_MAX)
        assert [member.node_id for member in second.members()] == [1], "what it was told is not lost"
        await second.register(_record(2))
        await asyncio.sleep(RETRY_S_MAX)
        assert sorted(member.node_id for member in second.members()) == [1, 2]
        assert heard, "and changes after it are told"
        await first.close()
        await second.close()

    with pytest.raises(SimulationError, match=CANNOT_FOLLOW) as told:
        run_simulation(scenario())
    assert isinstance(told.value.__cause__, ZeroDivisionError)
    assert heard


def _record(node_id: int) -> MemberRecord:
    return MemberRecord(node_id=node_id, name=f"n{node_id}", directory_id=str(node_id), instance_id=str(node_id), addresses={})
