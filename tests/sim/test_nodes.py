"""A group whose VDisks are on several nodes: configurations that only some have heard of, and runs of the fault simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import combinations, product
from random import Random
from typing import Any

import pytest

from penstock.blob import BlobId, Erasure, GroupOptions, Status, VDiskOptions
from penstock.blob.blob_id import PREFIX_SIZE
from penstock.blob.channel import place_of
from penstock.blob.configuration import Seat
from penstock.blob.link import DiskReply
from penstock.blob.meta import DiskState
from penstock.blob.topology import main_part
from penstock.blob.vdisk import VDisk
from penstock.testing.node_world import CLIENT, NodeWorld
from penstock.testing.sim_loop import current_loop, run_simulation
from penstock.testing.simulate_nodes import run_seed

SMALL = VDiskOptions(chunk_size=1 << 16, space_reserve=0, checkpoint_bytes=1 << 18, checkpoint_records=500)
OPTIONS = GroupOptions(vdisk=SMALL, sync_interval=0.2, replication_interval=0.5, scrub_interval=None)
SEEDS = {Erasure.MIRROR_3: (*range(4), 10197), Erasure.BLOCK_4_2: range(1), Erasure.MIRROR_3_DC: range(1)}
A, B, C, D, OTHER_CLIENT = 1, 2, 3, 4, 5  # nodes; the VDisks 0, 1 and 2 begin on A, B and C


def run_mirror(scenario: Callable[[NodeWorld], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario on a new mirror-3 group over nodes A, B and C."""

    async def run() -> None:
        world = NodeWorld(current_loop(), Erasure.MIRROR_3, OPTIONS, Random(0))
        await world.form()
        await scenario(world)
        await world.stop()

    run_simulation(run(), seed=0)


def _late(step: int) -> BlobId:
    return BlobId(1, 0, 5, step, 0, 4)


def _part_on(world: NodeWorld, order: int, blob_id: BlobId) -> bytes:
    """The id of the part that a VDisk holds of a blob."""
    place = world.life.group.subgroup(blob_id.pack()[:PREFIX_SIZE]).index(order)
    return blob_id.pack_part(main_part(world.erasure, place))


def test_s3_a_configuration_that_only_the_new_disk_and_one_sister_know_makes_no_second_quorum() -> None:
    async def scenario(world: NodeWorld) -> None:
        old_side = world.life.proxy
        assert (await world.do(old_side.block(1, 5, issuer=1))).status is Status.OK
        # B and D hear of the new configuration, in which D takes the place of C; A and C do not.
        moved = world.configuration.moved(2, Seat(D, "new"))
        world.cut((A, C, CLIENT), (B, D, OTHER_CLIENT))
        world.configurations.append(moved)
        for node in (B, D, OTHER_CLIENT):
            world.nodes[node].hear(moved)
        new_side = world.nodes[OTHER_CLIENT]
        await world.wait(lambda: 2 in world.nodes[D].host.vdisks, 10.0, "D has no VDisk")
        await asyncio.sleep(5.0)  # D hears from B, many times
        assert new_side.process is not None
        assert (await new_side.process.call(new_side.membership.proxy.block(1, 6, issuer=2))).status is Status.ERROR
        assert world.nodes[D].host.vdisks[2].index.state is DiskState.FRESH
        assert (await world.do(old_side.put(_late(1), b"late"))).status is Status.OK
        # Together again, all are in the new configuration, with what the old one acknowledged.
        for node in (A, B, C, D):
            world.mend(node)
        await world.wait(lambda: set(world.vdisks()) == {0, 1, 2}, 30.0, "not all VDisks are open")
        ready = {DiskState.COMPLETE}
        await world.wait(lambda: {disk.index.state for disk in world.vdisks().values()} == ready, 60.0, "D is not refilled")
        assert {disk.id.generation for disk in world.vdisks().values()} == {moved.generation}
        assert 2 not in world.nodes[C].host.vdisks
        found = await world.do(world.life.proxy.get(_late(1)))
        assert (found.status, bytes(found.data)) == (Status.OK, b"late")
        assert (await new_side.process.call(new_side.membership.proxy.block(1, 7, issuer=2))).status is Status.OK
        assert (await world.do(world.life.proxy.put(_late(2), b"late"))).status is Status.BLOCKED

    run_mirror(scenario)


def test_s3_a_vdisk_never_goes_back_to_an_older_configuration_and_refuses_another_of_the_same_number() -> None:
    async def scenario(world: NodeWorld) -> None:
        first = world.configuration
        await world.decide(first.moved(2, Seat(D, "new")), [0, 1])
        world.nodes[D].hear(world.configuration)
        second = world.configuration
        for node in (A, B):
            world.nodes[node].kill()
            await world.nodes[node].start(first)
        assert {world.nodes[node].membership.configuration for node in (A, B)} == {second}
        vdisk = world.nodes[A].host.vdisks[0]
        rival = first.moved(1, Seat(OTHER_CLIENT, "new"))
        process = world.nodes[A].process
        assert process is not None
        for offered in (rival, first):
            reply = await process.call(vdisk.configure(offered))
            assert (reply.status, reply.current) == (Status.ERROR, second), reply
        several = second._replace(generation=second.generation + 1, seats=first.seats[1:] + first.seats[:1])
        assert "one at a time" in (await process.call(vdisk.configure(several))).reason

    run_mirror(scenario)


def test_r3_the_next_vdisk_moves_only_when_the_group_can_do_without_it_and_all_that_are_not_complete() -> None:
    async def scenario(world: NodeWorld) -> None:
        client = world.nodes[CLIENT]
        await world.wait(
            lambda: client.membership.configuration.is_formed, 30.0, "the client has not heard that the group serves"
        )

        async def trouble() -> str:
            return await world.do(client.membership.trouble_with_moving(0))

        assert await trouble() == ""
        world.cut((D,), (A, B))
        await world.move_vdisk(2, D, [0, 1])
        client.hear(world.configuration)
        await world.wait(lambda: 2 in world.vdisks(), 10.0, "D has no VDisk")
        assert "[82000000:3:0:2:0] are out or being refilled" in await trouble()
        world.mend(D)
        await world.wait(lambda: world.vdisks()[2].proves_absence, 30.0, "D is not refilled")
        assert await trouble() == ""
        world.nodes[B].kill()
        assert "[82000000:3:0:1:0]" in await trouble()

    run_mirror(scenario)


def test_r3_a_node_whose_vdisk_moves_on_while_it_still_closes_it_follows_to_the_last_place() -> None:
    async def scenario(world: NodeWorld) -> None:
        node = world.nodes[C]
        assert node.process is not None
        first = world.configuration.moved(2, Seat(D, "new"))
        second = first.moved(2, Seat(OTHER_CLIENT, "newer"))
        world.configurations += [first, second]

        async def learn() -> None:
            node.membership.learn(first)
            await asyncio.sleep(0)  # it begins to close its VDisk
            node.membership.learn(second)

        await node.process.call(learn())
        for other in (A, B, D, OTHER_CLIENT, CLIENT):
            world.nodes[other].hear(second)
        await world.wait(lambda: 2 in world.nodes[OTHER_CLIENT].host.vdisks, 10.0, "the VDisk is not open")
        await world.wait(lambda: world.vdisks()[2].proves_absence, 60.0, "it is not refilled")
        assert await node.process.call(node.membership.survey()) == {0: True, 1: True, 2: True}

    run_mirror(scenario)


def test_r6_a_vdisk_that_was_cut_off_takes_no_command_before_it_has_pulled_from_a_quorum_again() -> None:
    """A node is cut off from its sisters alone, and misses a block. The link to the one that could tell it stays cut."""

    async def scenario(world: NodeWorld) -> None:
        vdisk = world.nodes[A].host.vdisks[0]
        late, generation = _late(1).pack_part(1), world.configuration.generation
        world.cut((A,), (B, C, CLIENT))
        assert (await world.do(world.life.proxy.block(1, 6, issuer=1))).status is Status.OK
        await world.wait(lambda: vdisk.is_cut_off, 5.0, "A has not noticed that its links broke")
        for node in (B, C):
            world.network.restore(world.nodes[A].name, world.nodes[node].name)  # what A sends arrives, answers do not
        await asyncio.sleep(5.0)
        process = world.nodes[A].process
        assert process is not None
        refused = await process.call(vdisk.put(generation, late, b"late"))
        assert (refused.status, "since its links to them broke" in refused.reason) == (Status.ERROR, True)
        for node in (B, C, CLIENT):
            world.mend(node)
        await world.wait(lambda: not vdisk.is_cut_off, 10.0, "A has not pulled")
        assert (await process.call(vdisk.put(generation, late, b"late"))).status is Status.BLOCKED

    run_mirror(scenario)


def test_r6_links_that_break_all_at_once_and_are_back_soon_fail_no_put() -> None:
    async def scenario(world: NodeWorld) -> None:
        names = [world.nodes[node].name for node in (A, B, C)]
        statuses: list[Status] = []

        async def put(step: int) -> None:
            await asyncio.sleep(step / 1000)
            statuses.append((await world.do(world.life.proxy.put(_late(step), b"late"))).status)

        puts = [asyncio.ensure_future(put(step)) for step in range(200)]
        await asyncio.sleep(0.1)
        for one, other in combinations(names, 2):
            world.network.lose(one, other)
        await asyncio.gather(*puts)
        assert statuses == [Status.OK] * 200

    run_mirror(scenario)


def test_r6_one_lost_node_does_not_cut_the_others_off() -> None:
    async def scenario(world: NodeWorld) -> None:
        world.nodes[C].kill(silently=True)
        for step in range(20):
            assert (await world.do(world.life.proxy.put(_late(step), b"late"))).status is Status.OK
            await asyncio.sleep(0.2)
        assert not any(vdisk.is_cut_off for vdisk in world.vdisks().values())

    run_mirror(scenario)


def test_r6_a_vdisk_compares_its_whole_list_of_parts_once_after_a_broken_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are missing on a disk, and every notice of that is lost; it looks because its links broke."""

    async def lose_notice(vdisk: VDisk, generation: int) -> DiskReply:
        return DiskReply(Status.OK)

    monkeypatch.setattr(VDisk, "note_disorder", lose_notice)

    async def scenario(world: NodeWorld) -> None:
        proxy = world.life.proxy
        for step in range(20):
            assert (await world.do(proxy.put(_late(step), b"late"))).status is Status.OK
        await asyncio.sleep(2.0)
        node = world.nodes[A]
        process = node.process
        assert process is not None
        parts = [_part_on(world, 0, _late(step)) for step in range(20)]
        vdisk = node.host.vdisks[0]
        for part in parts:
            entry = vdisk.index.entry_of(part)
            assert entry is not None
            await process.call(vdisk.drop(vdisk.id.generation, part, place_of(entry)[:2]))
        await asyncio.sleep(5.0)
        assert vdisk.index.entry_of(parts[0]) is None, "nothing tells the disk to look"
        world.network.lose(node.name)
        await asyncio.sleep(5.0)
        assert all(vdisk.index.entry_of(part) is not None for part in parts)
        rounds = node.host.probe.rounds
        await asyncio.sleep(10.0)
        assert node.host.probe.rounds == rounds, "it is done once"

    run_mirror(scenario)


def test_a_vdisk_that_was_away_has_what_it_missed_once_it_says_that_it_has_compared() -> None:
    async def scenario(world: NodeWorld) -> None:
        node = world.nodes[C]
        node.kill()
        for step in range(100):
            assert (await world.do(world.life.proxy.put(_late(step), b"late"))).status is Status.OK
        await node.start(world.configuration)
        await world.wait(lambda: node.is_up and node.host.has_compared(2), 30, "it has compared")
        vdisk = node.host.vdisks[2]
        assert all(vdisk.index.entry_of(_part_on(world, 2, _late(step))) is not None for step in range(100))

    run_mirror(scenario)


def test_a_command_that_is_told_race_waits_for_the_newer_configuration() -> None:
    async def scenario(world: NodeWorld) -> None:
        client = world.nodes[CLIENT].membership
        await world.decide(world.configuration.moved(2, Seat(D, "new")), [0, 1])
        assert client.configuration != world.configuration
        assert (await world.do(world.life.proxy.put(_late(1), b"late"))).status is Status.OK
        assert client.configuration == world.configuration

    run_mirror(scenario)


def test_a_vdisk_that_has_not_stored_the_newer_configuration_yet_holds_up_no_put() -> None:
    async def scenario(world: NodeWorld) -> None:
        proxy = world.life.proxy
        assert (await world.do(proxy.block(1, 5, issuer=1))).status is Status.OK
        world.faults[0].hung = True
        await world.decide(world.configuration.formed(), [1, 2])  # the next one, with the same seats
        world.nodes[CLIENT].hear(world.configuration)
        await asyncio.sleep(0.1)
        began = current_loop().time()
        for step in range(1, 6):
            assert (await world.do(proxy.put(_late(step), b"late"))).status is Status.OK
        assert (await world.do(proxy.block(1, 6, issuer=1))).status is Status.OK
        assert current_loop().time() - began < 0.5, "they waited for the disk that hangs"
        world.faults[0].hung = False

        def is_restored() -> bool:
            vdisk = world.vdisks().get(0)
            parts = [_part_on(world, 0, _late(step)) for step in range(1, 6)]
            return vdisk is not None and all(vdisk.index.entry_of(part) is not None for part in parts)

        await world.wait(is_restored, 60.0, "the disk has not compared itself with the others")

    run_mirror(scenario)


async def _lose_silently(world: NodeWorld, node: int) -> None:
    world.network.lose(world.nodes[A].name, world.nodes[node].name, silently=True)


async def _reset(world: NodeWorld, node: int) -> None:
    world.network.lose(world.nodes[A].name, world.nodes[node].name)


async def _delay(world: NodeWorld, node: int) -> None:
    names = world.nodes[A].name, world.nodes[node].name
    world.network.delay(*names, 3.0, 6.0)
    await asyncio.sleep(0.3)
    world.mend(A)
    assert not world.network.is_sound(*reversed(names)), "what was sent is not late"


async def _cut(world: NodeWorld, node: int) -> None:
    world.cut([A], [node], one_way=True)
    await asyncio.sleep(0.6)
    world.mend(A)
    assert not world.network.is_sound(world.nodes[node].name, world.nodes[A].name), "nothing was held"


async def _freeze(world: NodeWorld, _: int) -> None:
    process = world.nodes[A].process
    assert process is not None
    process.pause()
    await asyncio.sleep(0.6)
    process.resume()


@pytest.mark.parametrize(
    ("fault", "other"),
    [*product((_lose_silently, _reset, _delay, _cut), (B, CLIENT)), (_freeze, B)],
)
def test_the_simulation_counts_a_node_as_failed_until_the_others_can_have_noticed_its_fault(
    fault: Callable[[NodeWorld, int], Coroutine[Any, Any, None]], other: int
) -> None:
    async def scenario(world: NodeWorld) -> None:
        assert world.is_in_touch(0)
        await fault(world, other)
        assert world.is_reachable(0), "its fault was noticed at once"
        assert not world.is_in_touch(0)
        await world.wait(lambda: world.is_in_touch(0), 8.0, "it is not in touch again")

    run_mirror(scenario)


def test_the_simulation_does_not_count_a_node_as_failed_for_what_another_that_has_a_fault_may_notice() -> None:
    async def scenario(world: NodeWorld) -> None:
        world.impair(1)  # on node B
        await _lose_silently(world, B)
        assert world.is_in_touch(0)

    run_mirror(scenario)


@pytest.mark.slow
@pytest.mark.parametrize(("erasure", "seed"), [(erasure, seed) for erasure, seeds in SEEDS.items() for seed in seeds])
def test_promises_hold_over_nodes_under_faults(erasure: Erasure, seed: int) -> None:
    assert run_seed(seed, erasure).counts["put OK"]


def test_a_run_over_nodes_replays_exactly() -> None:
    assert run_seed(5, Erasure.MIRROR_3) == run_seed(5, Erasure.MIRROR_3)
