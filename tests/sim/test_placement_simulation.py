"""Placement on simulated nodes: a few runs with faults by seed, and what each fault must and must not lead to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.placement.hosting import ARRIVALS_AT_ONCE
from penstock.placement.placement import TAKEN_OVER_S
from penstock.testing.batches import make_batch
from penstock.testing.placement_world import PlacementWorld
from penstock.testing.sim_limits import RunLimits
from penstock.testing.sim_loop import current_loop, run_simulation
from penstock.testing.simulate_placement import (
    Clients,
    Operator,
    leader_of,
    owners_of,
    placement_of,
    run_seed,
    started,
    unsettled,
    until,
)

Story = Callable[[PlacementWorld], Awaitable[None]]
TABLETS = 9


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])
def test_promises_hold_under_faults(seed: int) -> None:
    assert run_seed(seed).counts["write"]


def test_time_passes_while_everything_an_operator_asks_for_is_refused_at_once() -> None:
    async def refused() -> None:
        pass

    async def main() -> None:
        loop = current_loop()
        world = PlacementWorld(loop, loop.fork_random("story"), 3)
        operator = Operator(world, Clients(world, loop.random), loop.random)
        operator.faults = {"drain": refused, "move": refused}
        await operator.torment(30)
        assert 30 <= loop.time() < 40

    run_simulation(main(), limits=RunLimits(instant_steps=10_000))


def tell(story: Story, count: int = 3, tablets: int = TABLETS) -> None:
    """Run a story on nodes that have some tablets each."""

    async def main() -> None:
        loop = current_loop()
        world = PlacementWorld(loop, loop.fork_random("story"), count)
        async with started(world):
            tablet_ids = world.new_tablets(tablets, partitions=1)
            leader = leader_of(world)
            assert leader.process is not None
            await leader.process.call(placement_of(world).place(tablet_ids))
            await until(world, 20, lambda: not unsettled(world), "the tablets are placed")
            await asyncio.sleep(15)  # nothing was wrong for a while
            await story(world)

    run_simulation(main(), seed=1, limits=RunLimits(time_s=3600))


def follower(world: PlacementWorld) -> int:
    """A node that does not lead."""
    return next(number for number, member in world.members.items() if member.placement is None)


def serving(world: PlacementWorld, tablet_id: int) -> list[int]:
    """The running nodes that run a tablet."""
    return [number for number, member in world.members.items() if member.runs and tablet_id in member.tablets.generations()]


def test_tablets_of_a_killed_node_run_elsewhere_within_a_second_and_some_return_with_it() -> None:
    async def story(world: PlacementWorld) -> None:
        lost = follower(world)
        owned = [tablet_id for tablet_id, owner in owners_of(world).items() if owner == lost]
        assert owned
        world.members[lost].kill()
        await until(
            world, 1, lambda: all(serving(world, tablet_id) for tablet_id in owned), "others run its tablets", look_s=0.05
        )
        await world.members[lost].start()
        await until(world, 60, lambda: not unsettled(world), "its share is back")
        assert lost in owners_of(world).values()

    tell(story)


def test_nothing_moves_while_the_store_is_away() -> None:
    async def story(world: PlacementWorld) -> None:
        lost = follower(world)
        before = owners_of(world)
        world.store.stop()
        await asyncio.sleep(0.5)
        world.members[lost].kill()
        hosted = world.counts["host"]
        await asyncio.sleep(30)
        assert world.counts["host"] == hosted
        for tablet_id, owner in before.items():
            assert serving(world, tablet_id) == ([] if owner == lost else [owner])
        world.store.start()
        await until(world, 30, lambda: all(serving(world, tablet_id) for tablet_id in before), "others run its tablets")

    tell(story)


def test_a_node_that_only_the_leader_does_not_reach_keeps_its_tablets() -> None:
    async def story(world: PlacementWorld) -> None:
        cut = follower(world)
        before = owners_of(world)
        world.cut.add(frozenset({cut, leader_of(world).number}))
        await asyncio.sleep(30)
        assert owners_of(world) == before
        assert all(serving(world, tablet_id) == [owner] for tablet_id, owner in before.items())

    tell(story, count=5)


def test_a_tablet_stays_where_it_runs_if_its_next_node_was_cut_off_from_the_leader_a_moment_ago() -> None:
    async def story(world: PlacementWorld) -> None:
        leader = leader_of(world)
        source, target = (number for number, member in world.members.items() if member is not leader)
        moved = next(tablet_id for tablet_id, owner in owners_of(world).items() if owner == source)
        world.cut.add(frozenset({leader.number, target}))  # which neither has noticed yet
        assert leader.process is not None
        await leader.process.call(placement_of(world).advance_move(moved, target))
        for _ in range(300):
            await asyncio.sleep(0.1)
            assert serving(world, moved) == [source]

    tell(story)


def test_a_tablet_that_is_on_the_move_when_the_store_goes_away_runs_where_it_was() -> None:
    async def story(world: PlacementWorld) -> None:
        leader = leader_of(world)
        source, target = (number for number, member in world.members.items() if member is not leader)
        moved = next(tablet_id for tablet_id, owner in owners_of(world).items() if owner == source)
        assert leader.process is not None
        await leader.process.call(placement_of(world).advance_move(moved, target))
        await until(world, 1, lambda: not serving(world, moved), "it is stopped to be moved", look_s=0.0001)
        world.store.stop()
        await until(world, 10, lambda: serving(world, moved) == [source], "it runs again where it was")
        await asyncio.sleep(30)
        assert serving(world, moved) == [source]
        world.store.start()
        await until(world, 60, lambda: not unsettled(world), "all run where they belong")

    tell(story)


def test_maintenance_keeps_tablets_where_they_are() -> None:
    async def story(world: PlacementWorld) -> None:
        lost = follower(world)
        before = owners_of(world)
        leader = leader_of(world)
        await leader.coordination.set_maintenance(is_on=True)
        world.members[lost].kill()
        await asyncio.sleep(20)
        assert owners_of(world) == before
        assert f"node {lost} is lost" in placement_of(world).troubles()[0]
        await world.members[lost].start()
        await until(world, 30, lambda: not unsettled(world), "it runs its own tablets again")
        assert owners_of(world) == before

    tell(story)


def test_a_drained_leader_is_emptied_and_leads_no_more() -> None:
    async def story(world: PlacementWorld) -> None:
        leader = leader_of(world)
        await leader.coordination.set_draining(leader.number, is_draining=True)

        def is_done() -> bool:
            others = [member for member in world.members.values() if member.coordination.leadership is not None]
            return bool(others) and leader not in others and leader.number not in owners_of(world).values()

        await until(world, 30, is_done, "another leads and has the tablets")
        assert all(len(serving(world, tablet_id)) == 1 for tablet_id in owners_of(world))

    tell(story)


def test_tablets_of_a_drained_node_serve_until_the_other_node_can_start_them() -> None:
    async def story(world: PlacementWorld) -> None:
        drained = follower(world)
        world.wire.delay_s = 0.02  # a start takes long enough to be seen
        await leader_of(world).coordination.set_draining(drained, is_draining=True)
        away_max = 0

        def is_done() -> bool:
            nonlocal away_max
            away_max = max(away_max, sum(not serving(world, tablet_id) for tablet_id in world.ledgers))
            return drained not in owners_of(world).values()

        await until(world, 60, is_done, "it is drained", look_s=0.01)
        assert away_max <= ARRIVALS_AT_ONCE

    tell(story, count=2, tablets=40)


def test_a_node_that_returns_gets_its_share_only_a_while_after_the_take_over() -> None:
    async def story(world: PlacementWorld) -> None:
        lost = follower(world)
        killed_at = current_loop().time()
        world.members[lost].kill()
        await until(world, 5, lambda: lost not in owners_of(world).values(), "others own its tablets", look_s=0.05)
        await world.members[lost].start()
        await until(world, 60, lambda: lost in owners_of(world).values(), "it gets tablets again", look_s=0.05)
        assert current_loop().time() - killed_at >= TAKEN_OVER_S
        await until(world, 60, lambda: not unsettled(world), "its share is back")

    tell(story)


def test_a_tablet_that_kills_nodes_is_tried_less_and_less_often() -> None:
    async def story(world: PlacementWorld) -> None:
        tablet_id = min(world.ledgers)
        owner = owners_of(world)[tablet_id]
        assert owner is not None
        world.poison.add(tablet_id)
        world.members[owner].kill()
        for _ in range(60):
            await asyncio.sleep(1)
            for member in world.members.values():
                if not member.is_up:
                    await member.start()
        # The first two are at once; then 5, 10, 20 s pass. A leader that dies of it has forgotten, and the next one begins again.
        assert 2 <= world.counts["poisoned"] <= 12
        world.poison.clear()
        await until(world, 120, lambda: not unsettled(world), "all run again")

    tell(story, count=5)


def test_tablets_stay_where_an_operator_put_them_though_another_node_leads() -> None:
    async def story(world: PlacementWorld) -> None:
        leader, target = leader_of(world), follower(world)
        assert leader.process is not None
        moved = [tablet_id for tablet_id, owner in owners_of(world).items() if owner != target]
        for tablet_id in moved:
            await leader.process.call(placement_of(world).move(tablet_id, target))
        leader.kill()
        await asyncio.sleep(1)
        await leader.start()
        await asyncio.sleep(60)
        assert all(owners_of(world)[tablet_id] == target for tablet_id in moved)
        await leader_of(world).coordination.set_draining(target, is_draining=True)
        await until(world, 30, lambda: target not in owners_of(world).values(), "it is drained")
        await leader_of(world).coordination.set_draining(target, is_draining=False)
        await until(world, 60, lambda: target in owners_of(world).values() and not unsettled(world), "all is even again")

    tell(story)


def test_nothing_moves_between_nodes_that_are_even_enough() -> None:
    async def story(world: PlacementWorld) -> None:
        before = owners_of(world)
        released = world.counts.get("release", 0)
        await asyncio.sleep(60)
        assert owners_of(world) == before
        assert world.counts.get("release", 0) == released

    tell(story, tablets=TABLETS + 1)  # one node has one more than the others


def test_the_busiest_tablets_of_a_killed_node_are_started_first() -> None:
    async def story(world: PlacementWorld) -> None:
        lost = follower(world)
        owned = sorted(tablet_id for tablet_id, owner in owners_of(world).items() if owner == lost)
        assert len(owned) == 3
        member = world.members[lost]
        assert member.process is not None
        for _ in range(20):
            for weight, tablet_id in enumerate(owned):  # the last is the busiest
                write = member.tablets.partition(tablet_id, 0).write
                await member.process.call(write(make_batch([bytes(1000 * weight + 10)])))
            await asyncio.sleep(1)
        before = len(world.log)
        member.kill()
        await until(world, 1, lambda: all(serving(world, tablet_id) for tablet_id in owned), "others run them", look_s=0.05)
        started_tablets = [line.split()[-4:] for line in world.log[before:] if " hosts tablet " in line]
        by_node: dict[str, list[int]] = {}
        for node, _, _, number in started_tablets:
            by_node.setdefault(node, []).append(int(number))
        assert sorted(map(len, by_node.values())) == [1, 2]
        assert all(ids == sorted(ids, reverse=True) for ids in by_node.values())  # the busier one first

    tell(story)
