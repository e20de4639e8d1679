"""What nodes get from coordination, whichever store it works on."""

from __future__ import annotations

import asyncio
import dataclasses
from operator import ne

import msgspec
import pytest

from penstock.coordination import (
    ClusterExistsError,
    ClusterMark,
    Coordination,
    DuplicateMemberError,
    NoClusterError,
    NodeNameTakenError,
    NotLeaderError,
    Outcome,
    Position,
    RolledBackError,
    StoreState,
    TabletRange,
    WrongClusterError,
)
from tests.e2e.coordination.nodes import IDENTITY, joined, opened, record, until
from tests.e2e.coordination.stores import StoreUnderTest


def test_a_cluster_is_created_once_whoever_is_first(store: StoreUnderTest) -> None:
    async def test() -> None:
        rivals = [Coordination(store.client(), now=store.now) for _ in range(4)]
        created = await asyncio.gather(
            *(
                rival.create_cluster(msgspec.structs.replace(IDENTITY, cluster_id=f"c{number}"))
                for number, rival in enumerate(rivals)
            )
        )
        assert len({identity.cluster_id for identity in created}) == 1
        with pytest.raises(ClusterExistsError, match="choose another name"):
            await rivals[0].create_cluster(msgspec.structs.replace(IDENTITY, kind="block-4-2"))
        for rival in rivals:
            await rival.close()

    store.run(test())


def test_a_store_that_is_empty_or_of_another_cluster_or_older_is_refused(store: StoreUnderTest) -> None:
    async def test() -> None:
        view = Coordination(store.client(), now=store.now)
        with pytest.raises(NoClusterError, match="cluster init"):
            await view.open()
        await view.create_cluster(IDENTITY)
        await view.open()
        mark = view.mark
        await view.close()
        stranger = dataclasses.replace(mark, cluster_id="another")
        older = dataclasses.replace(mark, position=Position(mark.position.store_id, mark.position.revision + 1000))
        replaced = dataclasses.replace(mark, position=Position("another", 1))
        unrecovered = dataclasses.replace(mark, recoveries=1)
        for wrong, error, text in (
            (stranger, WrongClusterError, "belongs to cluster another"),
            (older, RolledBackError, "restored from an old copy"),
            (replaced, RolledBackError, "replaced or restored"),
            (unrecovered, RolledBackError, "rebuilt 1 times"),
        ):
            node = Coordination(store.client(), now=store.now)
            with pytest.raises(error, match=text):
                await node.open(wrong)
            await node.close()
        node = Coordination(store.client(), now=store.now)
        assert await node.open(mark) == IDENTITY
        assert node.status.state is StoreState.CONNECTED
        await node.close()

    store.run(test())


def test_members_are_seen_while_they_run(store: StoreUnderTest) -> None:
    async def test() -> None:
        watcher = await opened(store)
        first, second = await joined(store, 1), await joined(store, 2)
        await until(lambda: [member.node_id for member in watcher.members()] == [1, 2])
        assert watcher.members()[0] == record(1)
        assert await watcher.read_members() == [record(1), record(2)]
        await first.update_member(msgspec.structs.replace(record(1), rack="r1"))
        await until(lambda: watcher.members()[0].rack == "r1")
        assert first.is_registered
        await first.close()
        await until(lambda: [member.node_id for member in watcher.members()] == [2])
        await second.close()
        await watcher.close()

    store.run(test())


def test_a_second_node_with_the_same_id_is_refused_and_a_restarted_one_is_not(store: StoreUnderTest) -> None:
    async def test() -> None:
        first = await joined(store, 1)
        second, restarted = await opened(store), await opened(store)
        with pytest.raises(DuplicateMemberError, match=r"node-1 \(kafka 10\.0\.0\.1:9092\) with another data directory"):
            await second.register(record(1, directory="another"), 30.0)
        await restarted.register(record(1, instance="2"), 30.0)
        await until(lambda: [member.instance_id for member in second.members()] == ["1-2"])
        for node in (second, restarted, first):
            await node.close()

    store.run(test())


def test_a_member_that_stops_renewing_is_gone_and_returns(store: StoreUnderTest) -> None:
    async def test() -> None:
        watcher = await opened(store)
        node = await joined(store, 1, ttl_s=store.lease_s)
        await until(lambda: len(watcher.members()) == 1)
        gone = asyncio.Event()
        watcher.listen(lambda changes: gone.set() if any(change.after is None for change in changes) else None)
        assert node._session is not None
        await node._store.inner.revoke(node._session._lease)
        await gone.wait()
        await until(lambda: len(watcher.members()) == 1 and node.is_registered)
        await node.close()
        await watcher.close()

    store.run(test())


def test_there_is_one_leader_and_another_after_it(store: StoreUnderTest) -> None:
    async def test() -> None:
        nodes = [await joined(store, number, candidate=True) for number in (1, 2, 3)]
        await until(lambda: sum(node.leadership is not None for node in nodes) == 1)
        leader = next(node for node in nodes if node.leadership is not None)
        others = [node for node in nodes if node is not leader]
        await until(lambda: all(node.leader == leader.leadership for node in others))
        for node in others:
            with pytest.raises(NotLeaderError):
                await node.change_group(1, b"configuration", 0)
        await leader.close()
        await until(lambda: sum(node.leadership is not None for node in others) == 1)
        for node in others:
            await node.close()

    store.run(test())


def test_a_challenger_replaces_the_leader_who_then_changes_nothing(store: StoreUnderTest) -> None:
    async def test() -> None:
        old, new = await joined(store, 1, candidate=True), await joined(store, 2)
        await until(lambda: old.leadership is not None and new.leader is not None)
        assert (await old.change_group(1, b"first", 0)).outcome is Outcome.DONE
        await old.take_system_tablets()
        token = old.leadership
        assert token is not None
        new.campaign()
        assert await new.challenge(token)
        assert new.leadership is not None
        assert not await new.challenge(token) or new.leadership is not None
        with pytest.raises(NotLeaderError):
            await old.take_system_tablets()
        with pytest.raises(NotLeaderError):
            await old.change_group(1, b"second", 2)
        await until(lambda: old.leadership is None)
        await new.take_system_tablets()
        await until(lambda: old.owner_of(2) == 2)
        entry = await new.read_group(1)
        assert entry is not None
        assert entry.value == b"first"
        await old.close()
        await new.close()

    store.run(test())


def test_group_configurations_change_by_compare_and_swap(store: StoreUnderTest) -> None:
    async def test() -> None:
        node, watcher = await joined(store, 1, candidate=True), await opened(store)
        await until(lambda: node.leadership is not None)
        first = await node.change_group(7, b"1", 0)
        assert (await node.change_group(7, b"rival", 0)).outcome is Outcome.REFUSED
        second = await node.change_group(7, b"2", first.revision)
        await until(lambda: [entry.value for entry in watcher.groups().values()] == [b"2"])
        assert (await node.change_group(7, None, second.revision)).outcome is Outcome.DONE
        await until(lambda: watcher.groups() == {})
        assert (await node.raise_feature_level(2)).outcome is Outcome.DONE
        await until(lambda: watcher.identity.feature_level == 2)
        await node.close()
        await watcher.close()

    store.run(test())


def test_owners_of_tablets_are_ranges_that_others_see(store: StoreUnderTest) -> None:
    async def test() -> None:
        node, watcher = await joined(store, 1, candidate=True), await opened(store)
        await until(lambda: node.leadership is not None)
        owners = await node.read_owners()
        assert await node.assign(owners, 1, 1000, 1) is Outcome.DONE
        for tablet in range(10, 600, 2):
            assert await node.assign(owners, tablet, tablet, 2) is Outcome.DONE
        assert await node.assign(owners, 5, 900, 3) is Outcome.DONE
        expected = [TabletRange(1, 4, 1), TabletRange(5, 900, 3), TabletRange(901, 1000, 1)]
        assert owners.ranges() == expected == (await node.read_owners()).ranges()
        await until(lambda: watcher.owner_of(900) == 3 and watcher.owner_of(599) == 3)
        assert (watcher.owner_of(0), watcher.owner_of(1), watcher.owner_of(901), watcher.owner_of(1001)) == (None, 1, 1, None)
        stale = await watcher.read_owners()
        assert await node.assign(owners, 900, 901, None) is Outcome.DONE
        assert await node.assign(stale, 900, 900, 1) is Outcome.REFUSED
        await node.close()
        await watcher.close()

    store.run(test())


def test_a_view_that_missed_too_much_lists_again(store: StoreUnderTest) -> None:
    async def test() -> None:
        node, watcher = await joined(store, 1, candidate=True), await opened(store)
        await until(lambda: node.leadership is not None)
        assert watcher._following is not None
        assert watcher._follower is not None
        await until(lambda: watcher.leader is not None)
        watcher._following.cancel()
        changes: list[str] = []
        watcher.listen(lambda seen: changes.extend(change.key for change in seen))
        first = await node.change_group(1, b"1", 0)
        await node.change_group(2, b"1", 0)
        last = await node.change_group(1, b"2", first.revision)
        store.compact(last.revision)
        watcher._following = asyncio.create_task(watcher._follower.run())
        await until(lambda: [entry.value for entry in watcher.groups().values()] == [b"2", b"1"])
        assert watcher._follower.listings == 2
        assert [key[:7] for key in changes] == ["groups/"] * 2
        await node.close()
        await watcher.close()

    store.run(test())


def test_a_node_keeps_its_id_and_no_other_gets_it(store: StoreUnderTest) -> None:
    async def test() -> None:
        view = await opened(store)
        ids = await asyncio.gather(*(view.claim_node_id(f"n{number}", f"d{number}") for number in range(4)))
        assert sorted(ids) == [1, 2, 3, 4]
        assert await view.claim_node_id("n2", "d2") == ids[2]
        with pytest.raises(NodeNameTakenError, match="choose another name"):
            await view.claim_node_id("n2", "empty")
        with pytest.raises(NodeNameTakenError, match="named n2, and not of other"):
            await view.claim_node_id("other", "d2")
        node = await joined(store, ids[2], candidate=True)
        with pytest.raises(DuplicateMemberError, match="stop it before it is replaced"):
            await view.claim_node_id("n2", "empty", replaces=True)
        await until(lambda: node.leadership is not None)
        assert (await node.remove_node(ids[2])).outcome is Outcome.REFUSED  # it runs
        assert (await node.remove_node(ids[3])).outcome is Outcome.DONE
        await node.close()
        assert await view.claim_node_id("n2", "empty", replaces=True) == ids[2]
        with pytest.raises(NodeNameTakenError, match="was removed"):
            await view.claim_node_id("n3", "d3")
        assert await view.claim_node_id("n3", "new") == 5
        await view.close()

    store.run(test())


def test_a_store_that_lost_everything_is_rebuilt_and_then_accepted(store: StoreUnderTest) -> None:
    async def test() -> None:
        mark = ClusterMark(IDENTITY.cluster_id, 0, Position("the lost one", 1_000_000))
        node = Coordination(store.client(), now=store.now)
        with pytest.raises(NoClusterError, match="cluster recover"):
            await node.open(mark)
        recovered = await node.recover_cluster(IDENTITY, mark, {1: b"one", 2: b"two"}, ne)
        assert recovered.recoveries == 1
        assert await node.open(mark) == recovered
        assert [entry.value for entry in node.groups().values()] == [b"one", b"two"]
        assert (node.mark.recoveries, node.mark.cluster_id) == (1, IDENTITY.cluster_id)
        stranger = Coordination(store.client(), now=store.now)
        with pytest.raises(WrongClusterError):
            await stranger.recover_cluster(msgspec.structs.replace(IDENTITY, cluster_id="another"), mark, {}, ne)
        await stranger.close()
        await node.close()

    store.run(test())
