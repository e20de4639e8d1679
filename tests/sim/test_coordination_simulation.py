"""Nodes that agree through a store which loses leases, answers and history: one leader writes at a time, all views converge."""

from __future__ import annotations

import asyncio
import contextlib
import random
from operator import ne

import pytest

from penstock.coordination import (
    ClusterIdentity,
    Compare,
    Coordination,
    CoordinationUnavailableError,
    KeyChange,
    MemberRecord,
    NotLeaderError,
    Outcome,
    Put,
    RolledBackError,
    StoreState,
)
from penstock.core.errors import PenstockError
from penstock.testing.coordination_model import CoordinationFaults, SimCoordination
from penstock.testing.sim_loop import SimLoop, run_simulation

IDENTITY = ClusterIdentity(cluster_id="c1", name="sim", kind="mirror-3")
TTL_S = 5.0
FAULTS_S = 60.0
CALM_S = 30.0
COUNTER = "groups/counter"


def sim_loop() -> SimLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop


def record(node_id: int) -> MemberRecord:
    return MemberRecord(node_id=node_id, name=f"n{node_id}", directory_id=f"d{node_id}", instance_id=f"i{node_id}")


class SimNode:
    """A node that counts while it leads, and notes every change it is told."""

    def __init__(self, store: SimCoordination, node_id: int) -> None:
        self.node_id = node_id
        self.name = f"n{node_id}"
        self.coordination = Coordination(store.client(self.name), now=sim_loop().time)
        self.state: dict[str, int] = {}
        self.done = 0

    async def start(self) -> None:
        await self.coordination.create_cluster(IDENTITY)
        self.coordination.listen(self._note)
        await self.coordination.open()
        await self.coordination.register(record(self.node_id), TTL_S)
        self.coordination.campaign()

    def _note(self, changes: list[KeyChange]) -> None:
        for change in changes:
            assert (change.before.revision if change.before else None) == self.state.get(change.key)
            if change.after is None:
                del self.state[change.key]
            else:
                is_newer = change.after.revision > self.state.get(change.key, 0)
                assert is_newer or self.coordination.identity.recoveries > 0
                self.state[change.key] = change.after.revision

    async def count(self, rng: random.Random) -> None:
        """Add one now and then while leading; what was not answered is read back by the compare of the next one."""
        coordination = self.coordination
        while True:
            await asyncio.sleep(rng.uniform(0.01, 0.3))
            try:
                entry = (await coordination._store.get(COUNTER)).entry
                value = int(entry.value) if entry is not None else 0
                compare = Compare(COUNTER, entry.revision if entry is not None else 0)
                result = await coordination.commit_as_leader([compare], [Put(COUNTER, str(value + 1).encode())])
                self.done += result.outcome is Outcome.DONE
            except (CoordinationUnavailableError, NotLeaderError, RolledBackError):
                continue

    async def rival(self, rng: random.Random) -> None:
        """Challenge a leader now and then, as one would that cannot be reached."""
        while True:
            await asyncio.sleep(rng.uniform(5, 20))
            leader = self.coordination.leader
            if leader is not None and leader.record.node_id != self.node_id:
                with contextlib.suppress(PenstockError):
                    await self.coordination.challenge(leader)


async def break_things(store: SimCoordination, names: list[str], rng: random.Random) -> None:
    """One fault after the other, then none."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + FAULTS_S
    while loop.time() < ends_at:
        store.faults = CoordinationFaults(
            delay_s_max=rng.choice([0.01, 0.2]),
            lost_rate=rng.choice([0.0, 0.1, 0.3]),
            unanswered_rate=rng.choice([0.0, 0.1, 0.3]),
            watch_delay_s_max=rng.choice([0.01, 1.0]),
            watch_break_rate=rng.choice([0.0, 0.2]),
        )
        match rng.randrange(5):
            case 0:
                store.cut_off = set(rng.sample(names, rng.randint(1, len(names))))
            case 1:
                store.stop()
            case 2:
                await store.lose_lease()
            case 3:
                store.compact()
        await asyncio.sleep(rng.uniform(0.1, 10))
        store.cut_off = set()
        store.start()
    store.faults = CoordinationFaults()


async def roll_back(store: SimCoordination, nodes: list[SimNode], rng: random.Random) -> None:
    """Restore an old copy of the store, and bring it up to date some time after."""
    old = store.table.image()
    revision = store.table.revision
    async with asyncio.timeout(60):
        while store.table.revision < revision + 10:  # noqa: ASYNC110 - until it is clearly older
            await asyncio.sleep(0.1)
    newest = max(nodes, key=lambda node: node.coordination.mark.position.revision).coordination.mark
    store.restore(old)
    await asyncio.sleep(rng.uniform(0, 20))
    mender = Coordination(store.client("mender"), now=sim_loop().time)
    while True:
        try:
            await mender.recover_cluster(IDENTITY, newest, {}, ne)
            return
        except PenstockError:
            await asyncio.sleep(0.1)


async def story(seed: int) -> None:
    loop = sim_loop()
    rng = loop.fork_random("story")
    store = SimCoordination(loop.fork_random("store"), history_max=rng.choice([20, 10_000]))
    nodes = [SimNode(store, number) for number in range(1, rng.randint(3, 6))]
    for node in nodes:
        await node.start()
    tasks = [asyncio.ensure_future(node.count(rng)) for node in nodes]
    tasks += [asyncio.ensure_future(node.rival(rng)) for node in nodes]
    tasks.append(asyncio.ensure_future(watch_belief(store, nodes)))
    await break_things(store, [node.name for node in nodes], rng)
    if rng.random() < 0.5:
        await roll_back(store, nodes, rng)
        for node in nodes:
            node.done = 0
    await asyncio.sleep(CALM_S)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.sleep(5)

    entries = {entry.key: entry.revision for entry in store.table.scan("").entries}
    entry = store.table.get(COUNTER).entry
    assert entry is not None, f"nothing was counted in seed {seed}"
    # Some counts were done without an answer, none was answered without being done.
    assert int(entry.value) >= sum(node.done for node in nodes) > 0
    leaders = [node.coordination.leadership for node in nodes if node.coordination.leadership is not None]
    assert [leader.revision for leader in leaders] == [entries["leader"]]
    for node in nodes:
        assert node.state == entries
        assert node.coordination.status.state is StoreState.CONNECTED
        assert node.coordination.is_registered
    for node in nodes:
        await node.coordination.close()
    await store.inner.close()


async def watch_belief(store: SimCoordination, nodes: list[SimNode]) -> None:
    """A node never believes in a lease that the store let end by its time; one that was taken from it is another matter."""
    while True:
        await asyncio.sleep(0.05)
        for node in nodes:
            session = node.coordination._session
            if session is not None and session.lease and session.lease not in store.lost_leases:
                assert session.lease in store.table.leases, f"node {node.node_id} believes in a lease that has ended"


@pytest.mark.parametrize("seed", range(5))
def test_nodes_agree_under_faults(seed: int) -> None:
    run_simulation(story(seed), seed=seed, timer_slack_s=0.0005, shuffle_ties=True)


def test_a_restored_store_is_not_changed_until_it_was_brought_up_to_date() -> None:
    async def scenario() -> None:
        store = SimCoordination(random.Random(1))
        node = SimNode(store, 1)
        await node.start()
        coordination = node.coordination
        await asyncio.sleep(1)
        assert (await coordination.change_group(1, b"1", 0)).outcome is Outcome.DONE
        old = store.table.image()
        for number in range(2, 6):
            assert (await coordination.change_group(number, b"1", 0)).outcome is Outcome.DONE
        store.stop()
        await asyncio.sleep(10)
        store.restore(old)
        store.start()
        await asyncio.sleep(5)
        assert coordination.status.state is StoreState.ROLLED_BACK
        assert "cluster recover" in coordination.status.message
        with pytest.raises((RolledBackError, NotLeaderError)):
            await coordination.change_group(9, b"1", 0)
        before = store.table.revision
        await asyncio.sleep(20)
        assert store.table.revision == before
        assert len(coordination.groups()) == 5  # the node still knows what it saw
        mender = Coordination(store.client("mender"), now=sim_loop().time)
        await mender.recover_cluster(IDENTITY, coordination.mark, {1: b"1", 2: b"newer", 5: b"1"}, ne)
        await asyncio.sleep(10)
        assert coordination.status.is_usable
        assert [entry.value for entry in coordination.groups().values()] == [b"1", b"newer", b"1"]
        leader = store.table.get("leader").entry
        assert leader is not None
        assert coordination.leadership is not None
        assert coordination.leadership.revision == leader.revision  # and not the one of the time before
        assert coordination.identity.recoveries == 1
        assert (await coordination.change_group(9, b"1", 0)).outcome is Outcome.DONE
        await coordination.close()
        await store.inner.close()

    run_simulation(scenario(), seed=1)


def test_a_restored_store_is_recognized_by_its_keys_when_others_have_raised_its_revision() -> None:
    async def scenario() -> None:
        store = SimCoordination(random.Random(1))
        node = SimNode(store, 1)
        await node.start()
        coordination = node.coordination
        await asyncio.sleep(1)
        first = await coordination.change_group(1, b"1", 0)
        old = store.table.image()
        assert (await coordination.change_group(1, b"2", first.revision)).outcome is Outcome.DONE
        store.stop()
        await asyncio.sleep(3)
        store.restore(old)
        store.table.revision += 1000  # other users of the same etcd
        store.start()
        await asyncio.sleep(5)
        assert coordination.status.state is StoreState.ROLLED_BACK
        assert "restored from an old copy" in coordination.status.message
        with pytest.raises((RolledBackError, NotLeaderError)):
            await coordination.change_group(9, b"1", 0)
        await coordination.close()
        await store.inner.close()

    run_simulation(scenario(), seed=1)


def test_a_leader_does_not_trust_a_revision_from_before_the_store_was_rolled_back() -> None:
    async def scenario() -> None:
        store = SimCoordination(random.Random(1))
        first, second = SimNode(store, 1), SimNode(store, 2)
        await first.start()
        await second.start()
        await asyncio.sleep(1)
        old = store.table.image()
        leader, challenger = (first, second) if first.coordination.leadership else (second, first)
        known = leader.coordination.leadership
        assert known is not None
        for number in range(10):
            await leader.coordination.change_group(number, b"", 0)
        assert await challenger.coordination.challenge(known)
        token = challenger.coordination.leadership
        assert token is not None
        store.restore(old)
        await asyncio.sleep(5)
        assert challenger.coordination.status.state is StoreState.ROLLED_BACK
        mender = Coordination(store.client("mender"), now=sim_loop().time)
        await mender.recover_cluster(IDENTITY, challenger.coordination.mark, {}, ne)
        await asyncio.sleep(2)
        entry = store.table.get("leader").entry
        for node in (first, second):
            leadership = node.coordination.leadership
            assert leadership is None or (entry is not None and leadership.revision == entry.revision)
        for node in (first, second):
            await node.coordination.close()
        await store.inner.close()

    run_simulation(scenario(), seed=1)
