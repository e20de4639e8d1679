"""The coordinator of groups that it assigns partitions to: batches, timers, failures of the store, changes of kind."""

from __future__ import annotations

import asyncio
from random import Random
from uuid import UUID

import pytest

from penstock.broker import TopicPartition
from penstock.broker.groups import (
    ConsumerCoordinator,
    ConsumerGroupOptions,
    CoordinatorUnavailableError,
    GroupError,
    Heartbeat,
    HeartbeatResponse,
    InvalidGroupNameError,
    NonEmptyGroupError,
    NotCoordinatorError,
    StaleGenerationError,
    StaleMemberError,
    UnknownGroupError,
    UnknownMemberError,
)
from penstock.broker.groups.consumer_records import key_of
from penstock.broker.groups.subscriptions import Topics, TopicShape
from penstock.tablet import Command, DeleteRange, KvTablet, Request, Write
from tests.sim_tablet import ERROR, FINE, LOG, Fate, SimNode, on_node

TOPICS = Topics(1, {"a": TopicShape(UUID(int=1), 2)})
BOTH = frozenset({TopicPartition(UUID(int=1), 0), TopicPartition(UUID(int=1), 1)})
OLD_KEY = b"x-old"


class Names:
    """Groups of another kind: a test says which are there."""

    def __init__(self) -> None:
        self.empty: set[str] = set()
        self.busy: set[str] = set()

    def take(self, name: str, kind: str) -> tuple[Command, ...]:
        if name in self.busy:
            raise NonEmptyGroupError(f"group {name!r} has other members")
        erased = (DeleteRange(OLD_KEY, OLD_KEY + b"\0"),) if name in self.empty else ()
        self.empty.discard(name)
        return erased


def coordinator(node: SimNode, tablet: KvTablet, names: Names | None = None) -> ConsumerCoordinator:
    groups = ConsumerCoordinator(
        tablet, ConsumerGroupOptions(), names=names or Names(), topics=lambda: TOPICS, clock=node.clock, random=Random(1)
    )
    groups.load()
    return groups


def joining(member: str) -> Heartbeat:
    return Heartbeat(member, 0, owned=frozenset(), names=frozenset({"a"}), rebalance_timeout_ms=60_000)


def log_writes(node: SimNode) -> int:
    return sum(blob.channel == LOG for blob in node.hooked.puts)


def test_heartbeats_that_wait_share_a_write_and_an_idle_one_needs_none() -> None:
    async def scenario(node: SimNode) -> None:
        groups = coordinator(node, await node.kv(1))
        before = log_writes(node)
        answers = await asyncio.gather(*(groups.heartbeat("g", joining(f"member-{number}")) for number in range(10)))
        assert log_writes(node) - before == 1
        await asyncio.gather(*(groups.heartbeat("g", Heartbeat(one.member_id, one.epoch)) for one in answers))
        assert log_writes(node) - before == 1
        await groups.stop()

    on_node(scenario)


def test_nobody_is_answered_before_it_is_durable() -> None:
    async def scenario(node: SimNode) -> None:
        groups = coordinator(node, await node.kv(1))
        gate = asyncio.Event()
        node.hooked.fate = lambda _: Fate(gate=gate)
        waiting = asyncio.create_task(groups.heartbeat("g", joining("one")))
        await asyncio.sleep(5)
        assert not waiting.done()
        gate.set()
        assert await waiting == HeartbeatResponse("one", 1, 5000, BOTH)
        await groups.stop()

    on_node(scenario)


def test_what_the_store_refuses_has_not_happened() -> None:
    async def scenario(node: SimNode) -> None:
        groups = coordinator(node, await node.kv(1))
        node.hooked.fate = lambda _: ERROR
        with pytest.raises(CoordinatorUnavailableError):
            await groups.heartbeat("g", joining("one"))
        assert not groups.has("g")
        node.hooked.fate = lambda _: FINE
        assert await groups.heartbeat("g", joining("one")) == HeartbeatResponse("one", 1, 5000, BOTH)
        await groups.stop()

    on_node(scenario)


def test_a_group_that_breaks_down_goes_on_from_what_was_stored(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: SimNode) -> None:
        groups = coordinator(node, await node.kv(1))
        await groups.heartbeat("g", joining("one"))
        broken = groups.group("g")
        assert broken is not None
        broken._owners.clear()  # as no state of a group ever is
        with pytest.raises(CoordinatorUnavailableError):
            await groups.heartbeat("g", Heartbeat("one", -1))
        assert "continues from what was stored last" in caplog.text
        assert (await groups.heartbeat("g", Heartbeat("one", 1))).epoch == 1
        await groups.stop()

    on_node(scenario)


def test_a_late_member_is_removed_for_good() -> None:
    async def scenario(node: SimNode) -> None:
        groups = coordinator(node, await node.kv(1))
        await groups.heartbeat("g", joining("one"))
        await asyncio.sleep(46)
        assert groups.summary("g").state == "Empty"
        emptied_ms = groups.empty_since_ms("g")
        assert emptied_ms is not None
        await groups.stop()
        again = coordinator(node, await node.kv(2))
        assert again.summary("g").state == "Empty"
        assert again.empty_since_ms("g") == emptied_ms
        await again.stop()

    on_node(scenario)


def test_a_late_member_that_cannot_be_removed_is_removed_later() -> None:
    async def scenario(node: SimNode) -> None:
        groups = coordinator(node, await node.kv(1))
        await groups.heartbeat("g", joining("one"))
        node.hooked.fate = lambda _: ERROR
        await asyncio.sleep(46)
        assert groups.summary("g").state == "Stable"
        node.hooked.fate = lambda _: FINE
        await asyncio.sleep(46)
        assert groups.summary("g").state == "Empty"
        await groups.stop()

    on_node(scenario)


def test_an_empty_group_of_another_kind_is_taken_over_whole() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await tablet.execute(Request((Write(OLD_KEY, b"what was kept of it"),)))
        names = Names()
        names.empty.add("g")
        groups = coordinator(node, tablet, names)
        node.hooked.fate = lambda _: ERROR
        with pytest.raises(CoordinatorUnavailableError):
            await groups.heartbeat("g", joining("one"))
        node.hooked.fate = lambda _: FINE
        await groups.heartbeat("g", joining("one"))
        assert tablet.head(OLD_KEY) is None, "what could not be erased the first time is not forgotten"
        await groups.stop()

    on_node(scenario)


def test_a_group_with_members_of_another_kind_is_none_of_this_one() -> None:
    async def scenario(node: SimNode) -> None:
        names = Names()
        names.busy.add("g")
        groups = coordinator(node, await node.kv(1), names)
        for beat in (joining("one"), Heartbeat("one", 1), Heartbeat("one", -1)):
            with pytest.raises(UnknownGroupError):
                await groups.heartbeat("g", beat)
        assert list(groups.names()) == []
        await groups.stop()

    on_node(scenario)


def test_a_group_that_is_forgotten_leaves_nothing() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        groups = coordinator(node, tablet)
        for name in ("g", "gg"):
            await groups.heartbeat(name, joining("one"))
        await groups.heartbeat("g", Heartbeat("one", -1))
        await tablet.execute(Request(groups.forget("g")))
        assert list(groups.names()) == ["gg"]
        prefix = key_of("gg")
        assert all(key.startswith(prefix) for key in tablet.keys(b"h", b"i"))
        assert await groups.heartbeat("g", joining("one")) == HeartbeatResponse("one", 1, 5000, BOTH)
        await groups.stop()

    on_node(scenario)


def test_who_waits_when_the_broker_stops_is_told() -> None:
    async def scenario(node: SimNode) -> None:
        groups = coordinator(node, await node.kv(1))
        gate = asyncio.Event()
        node.hooked.fate = lambda _: Fate(gate=gate)
        waiting = [asyncio.create_task(groups.heartbeat("g", joining(name))) for name in ("one", "two")]
        await asyncio.sleep(1)
        waiting.append(asyncio.create_task(groups.heartbeat("g", joining("three"))))
        await asyncio.sleep(1)
        await groups.stop()
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, NotCoordinatorError)
        with pytest.raises(NotCoordinatorError):
            await groups.heartbeat("g", joining("four"))
        gate.set()

    on_node(scenario)


def test_positions_in_transactions_are_refused_in_their_own_terms() -> None:
    async def scenario(node: SimNode) -> None:
        groups = coordinator(node, await node.kv(1))
        await groups.heartbeat("g", joining("one"))
        groups.check_commit("g", "one", 1, None, in_transaction=True)
        groups.check_commit("g", "", -1, None, in_transaction=True)
        with pytest.raises(StaleGenerationError):
            groups.check_commit("g", "one", 0, None, in_transaction=True)
        with pytest.raises(StaleMemberError):
            groups.check_commit("g", "one", 0, None, in_transaction=False)
        with pytest.raises(UnknownMemberError):
            groups.check_commit("g", "", -1, None, in_transaction=False)
        await groups.stop()

    on_node(scenario)


@pytest.mark.parametrize("name", ["", "x" * 1001, "a\0b"])
def test_names_that_groups_cannot_have(name: str) -> None:
    async def scenario(node: SimNode) -> None:
        groups = coordinator(node, await node.kv(1))
        with pytest.raises(InvalidGroupNameError):
            await groups.heartbeat(name, joining("one"))
        await groups.stop()

    on_node(scenario)


def test_texts_that_are_too_long_are_refused() -> None:
    async def scenario(node: SimNode) -> None:
        groups = coordinator(node, await node.kv(1))
        for beat in (joining("x" * 1001), joining("one")._replace(names=frozenset({"t" * 250}))):
            with pytest.raises(GroupError):
                await groups.heartbeat("g", beat)
        await groups.stop()

    on_node(scenario)
