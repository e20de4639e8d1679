"""Classic groups on the event loop and in the store, the names that all kinds share, and positions that grow old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from struct import pack
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.catalog import Catalog
from penstock.broker.consumers import Consumers, Position, TopicPartition
from penstock.broker.groups import (
    CLASSIC,
    CONSUMER,
    GroupCoordinator,
    GroupOptions,
    Groups,
    GroupSummary,
    InconsistentProtocolError,
    InvalidGroupNameError,
    JoinRequest,
    JoinResponse,
    MemberIdRequiredError,
    NonEmptyGroupError,
    OfferedProtocol,
    SessionTimeoutError,
    StaleGenerationError,
    SubscribedTopicError,
    UnknownGroupError,
    UnknownMemberError,
)
from penstock.broker.groups.consumer_metadata import subscribed_topics
from penstock.broker.groups.expiry import Expiry
from penstock.broker.topic_config import TopicConfig
from penstock.core.errors import PenstockError
from penstock.tablet import Command, DeleteRange, KvTablet, Request, Write
from penstock.testing.sim_loop import current_loop
from tests.sim_tablet import DATA, ERROR, SimNode, on_node

GROUP = "g"
TOPIC = UUID(int=7)
SESSION_S = 10.0
OPTIONS = GroupOptions(initial_rebalance_delay_ms=0, offsets_retention_s=1000.0, expiry_interval_s=100.0)


class OtherKind:
    """Groups of another kind: one, with as many members as a test says."""

    def __init__(self, name: str) -> None:
        self.held: str | None = name
        self.members = 1

    def names(self) -> Iterable[str]:
        return [] if self.held is None else [self.held]

    def has(self, name: str) -> bool:
        return name == self.held

    def summary(self, name: str) -> GroupSummary:
        return GroupSummary(name, CONSUMER, "Stable", "consumer")

    def empty_since_ms(self, name: str) -> int | None:
        return None if self.members else 1

    def subscribes(self, name: str, topic: str) -> bool:
        return topic == "read"

    def check_commit(self, name: str, member_id: str, generation: int, instance_id: str | None, *, in_transaction: bool) -> None:
        raise StaleGenerationError("of the other kind")

    def check_fetch(self, name: str, member_id: str, epoch: int) -> None:
        raise UnknownMemberError("of the other kind")

    def forget(self, name: str) -> tuple[Command, ...]:
        self.held = None
        return (DeleteRange(b"other", b"other\0"),)

    def release(self) -> None:
        pass


class Broker:
    """What groups need of a broker, on a tablet that outlives it."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self._generation = 0
        self.tablet: KvTablet
        self.groups: Groups
        self.consumers: Consumers

    async def start(self) -> Broker:
        self._generation += 1
        self.tablet = await self.node.kv(self._generation)
        self.consumers = Consumers(self.tablet, self.node.clock)
        self.groups = Groups(self.tablet, self.consumers)
        self.groups.classic = await GroupCoordinator.start(
            self.groups, self.tablet, OPTIONS, clock=self.node.clock, random=current_loop().fork_random("ids")
        )
        return self

    async def restart(self) -> None:
        await self.groups.classic.stop()
        await self.tablet.stop()
        await self.start()

    async def join(self, name: str = GROUP, topics: tuple[str, ...] = ("read",), **fields: Any) -> JoinResponse:
        fields = {"session_timeout_ms": int(SESSION_S * 1000), "takes_id_first": False, **fields}
        offered = (OfferedProtocol("range", metadata(*topics)),)
        asked = JoinRequest("", fields.pop("protocol_type", "consumer"), offered, rebalance_timeout_ms=60_000, **fields)
        return await self.groups.classic.join(name, asked)

    async def stable(self, name: str = GROUP, topics: tuple[str, ...] = ("read",), **fields: Any) -> JoinResponse:
        joined = await self.join(name, topics, **fields)
        await self.groups.classic.sync(name, joined.member_id, joined.generation, {joined.member_id: b"x" * 5000})
        return joined

    async def commit(self, name: str, offset: int, topic: UUID = TOPIC) -> None:
        await self.consumers.commit(name, [(TopicPartition(topic, 0), Position(offset))])


def metadata(*topics: str) -> bytes:
    return pack(">hi", 3, len(topics)) + b"".join(pack(">h", len(name)) + name.encode() for name in topics) + b"the rest"


def on_broker(scenario: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
    async def run(node: SimNode) -> None:
        broker = await Broker(node).start()
        await scenario(broker)
        await broker.groups.classic.stop()

    on_node(run)


def test_a_group_goes_on_after_a_restart_and_its_members_are_put_out_if_they_do_not() -> None:
    async def scenario(broker: Broker) -> None:
        joined = await broker.stable()
        await broker.restart()
        classic = broker.groups.classic
        await asyncio.sleep(SESSION_S * 0.9)
        classic.heartbeat(GROUP, joined.member_id, joined.generation)
        answer = await classic.sync(GROUP, joined.member_id, joined.generation, {})
        assert answer.assignment == b"x" * 5000
        assert classic.describe(GROUP).members[0].metadata == metadata("read")
        await asyncio.sleep(SESSION_S + 1)
        assert classic.describe(GROUP).state == "Empty"
        await broker.restart()
        assert broker.groups.classic.describe(GROUP).state == "Empty"
        assert broker.groups.listed() == [GroupSummary(GROUP, CLASSIC, "Empty", "consumer")]

    on_broker(scenario)


def test_an_assignment_that_the_tablet_cannot_take_is_an_error() -> None:
    async def scenario(broker: Broker) -> None:
        joined = await broker.join()
        broker.node.hooked.on(DATA, ERROR)
        with pytest.raises(PenstockError) as failure:
            await broker.groups.classic.sync(GROUP, joined.member_id, joined.generation, {joined.member_id: b"x" * 5000})
        assert failure.value.retriable

    on_broker(scenario)


def test_a_name_under_which_nobody_came_is_no_group() -> None:
    async def scenario(broker: Broker) -> None:
        with pytest.raises(MemberIdRequiredError):
            await broker.join(takes_id_first=True)
        assert broker.groups.kind(GROUP) == CLASSIC
        with pytest.raises(NonEmptyGroupError):
            await broker.groups.delete(GROUP)
        await asyncio.sleep(SESSION_S + 1)
        assert broker.groups.kind(GROUP) is None
        with pytest.raises(UnknownMemberError):
            broker.groups.classic.heartbeat(GROUP, "m", 1)

    on_broker(scenario)


@pytest.mark.parametrize("name", ["", "with\0zero", "x" * 1001])
def test_a_name_that_no_group_can_have_is_refused(name: str) -> None:
    async def scenario(broker: Broker) -> None:
        with pytest.raises(InvalidGroupNameError):
            await broker.join(name)

    on_broker(scenario)


@pytest.mark.parametrize("session_timeout_ms", [999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(session_timeout_ms: int) -> None:
    async def scenario(broker: Broker) -> None:
        with pytest.raises(SessionTimeoutError):
            await broker.join(session_timeout_ms=session_timeout_ms)
        assert broker.groups.kind(GROUP) is None

    on_broker(scenario)


def test_a_deleted_group_stays_so() -> None:
    async def scenario(broker: Broker) -> None:
        joined = await broker.stable()
        await broker.commit(GROUP, 5)
        await broker.commit("other", 6)
        with pytest.raises(NonEmptyGroupError):
            await broker.groups.delete(GROUP)
        # What the departure has to write may come after the deletion.
        broker.groups.classic.leave(GROUP, joined.member_id)
        await broker.groups.delete(GROUP)
        await asyncio.sleep(1)
        await broker.restart()
        with pytest.raises(UnknownGroupError):
            await broker.groups.delete(GROUP)
        assert broker.consumers.positions(GROUP) == {}
        assert len(broker.consumers.positions("other")) == 1

    on_broker(scenario)


# One namespace for all kinds.


def test_a_group_of_another_kind_is_taken_over_when_it_is_empty() -> None:
    async def scenario(broker: Broker) -> None:
        other = OtherKind(GROUP)
        broker.groups.add_kind(CONSUMER, other)
        await broker.tablet.execute(Request((Write(b"other", b"value"),)))
        await broker.commit(GROUP, 5)
        with pytest.raises(InconsistentProtocolError):
            await broker.join()
        other.members = 0
        await broker.stable()
        assert broker.groups.kind(GROUP) == CLASSIC
        assert broker.tablet.head(b"other") is None
        assert broker.consumers.position(GROUP, TopicPartition(TOPIC, 0)) is not None
        with pytest.raises(NonEmptyGroupError):
            broker.groups.take(GROUP, CONSUMER)

    on_broker(scenario)


def test_whoever_asks_is_answered_by_the_kind_of_the_group() -> None:
    async def scenario(broker: Broker) -> None:
        broker.groups.add_kind(CONSUMER, OtherKind("theirs"))
        await broker.stable()
        await broker.commit("simple", 1)
        assert [group.name for group in broker.groups.listed()] == [GROUP, "simple", "theirs"]
        with pytest.raises(StaleGenerationError, match="other kind"):
            broker.groups.check_commit("theirs", "", -1)
        with pytest.raises(UnknownMemberError):
            broker.groups.check_commit(GROUP, "", -1)
        broker.groups.check_commit("simple", "", -1)
        with pytest.raises(StaleGenerationError):
            broker.groups.check_commit("simple", "m", 1)
        with pytest.raises(UnknownMemberError):
            broker.groups.check_fetch("theirs", "m", 1)
        broker.groups.check_fetch("theirs", "", -1)
        broker.groups.check_fetch(GROUP, "m", 1)
        with pytest.raises(SubscribedTopicError):
            broker.groups.check_topic_unused("theirs", "read")
        broker.groups.check_topic_unused("theirs", "unread")
        broker.groups.check_topic_unused("simple", "read")
        with pytest.raises(UnknownGroupError):
            broker.groups.describe_classic("theirs")
        assert broker.groups.describe_classic("simple").state == "Empty"

    on_broker(scenario)


# Old positions.


async def _expiry(broker: Broker) -> tuple[Expiry, UUID, UUID]:
    catalog = Catalog(broker.tablet, current_loop().fork_random("topics"))
    read = await catalog.create("read", 1, TopicConfig())
    unread = await catalog.create("unread", 1, TopicConfig())
    return Expiry(broker.groups, broker.consumers, catalog, OPTIONS, broker.node.clock), read.id, unread.id


def test_positions_of_a_group_grow_old_once_it_is_empty() -> None:
    async def scenario(broker: Broker) -> None:
        expiry, read, _ = await _expiry(broker)
        joined = await broker.stable()
        await broker.commit(GROUP, 5, read)
        await _live(broker, joined, 1500)
        await expiry.sweep()
        assert len(broker.consumers.positions(GROUP)) == 1
        broker.groups.classic.leave(GROUP, joined.member_id)
        await asyncio.sleep(900)
        await broker.restart()
        expiry = (await _after_restart(broker))[0]
        await expiry.sweep()
        assert len(broker.consumers.positions(GROUP)) == 1
        await asyncio.sleep(101)
        await expiry.sweep()
        assert broker.consumers.positions(GROUP) == {}
        assert broker.groups.listed() == []
        await broker.restart()
        assert broker.groups.listed() == []

    on_broker(scenario)


def test_positions_in_topics_that_no_member_reads_grow_old() -> None:
    async def scenario(broker: Broker) -> None:
        expiry, read, unread = await _expiry(broker)
        joined = await broker.stable()
        await broker.commit(GROUP, 5, read)
        await broker.commit(GROUP, 6, unread)
        await _live(broker, joined, 1001)
        await expiry.sweep()
        assert set(broker.consumers.positions(GROUP)) == {TopicPartition(read, 0)}

    on_broker(scenario)


def test_positions_of_consumers_that_assign_themselves_grow_old_by_their_last_commit() -> None:
    async def scenario(broker: Broker) -> None:
        expiry, read, unread = await _expiry(broker)
        await broker.commit("simple", 5, read)
        await asyncio.sleep(600)
        await broker.commit("simple", 6, unread)
        await asyncio.sleep(401)
        await expiry.sweep()
        assert set(broker.consumers.positions("simple")) == {TopicPartition(unread, 0)}
        await asyncio.sleep(600)
        await expiry.sweep()
        assert broker.groups.listed() == []

    on_broker(scenario)


def test_positions_of_consumers_that_a_topic_declares_do_not_grow_old() -> None:
    async def scenario(broker: Broker) -> None:
        catalog = Catalog(broker.tablet, current_loop().fork_random("topics"))
        topic = await catalog.create("read", 1, TopicConfig({"penstock.consumers": "declared, other"}))
        expiry = Expiry(broker.groups, broker.consumers, catalog, OPTIONS, broker.node.clock)
        for consumer in ("declared", "undeclared"):
            await broker.commit(consumer, 5, topic.id)
        await asyncio.sleep(10_000)
        await expiry.sweep()
        assert broker.consumers.consumers() == ["declared"]

    on_broker(scenario)


def test_positions_are_looked_through_now_and_then() -> None:
    async def scenario(broker: Broker) -> None:
        expiry, read, _ = await _expiry(broker)
        await broker.commit("simple", 5, read)
        running = asyncio.create_task(expiry.run())
        await asyncio.sleep(OPTIONS.offsets_retention_s + OPTIONS.expiry_interval_s + 1)
        running.cancel()
        assert broker.groups.listed() == []

    on_broker(scenario)


async def _after_restart(broker: Broker) -> tuple[Expiry, Catalog]:
    catalog = Catalog(broker.tablet, current_loop().fork_random("topics"))
    return Expiry(broker.groups, broker.consumers, catalog, OPTIONS, broker.node.clock), catalog


async def _live(broker: Broker, joined: JoinResponse, seconds: int) -> None:
    for _ in range(seconds // 5 + 1):
        broker.groups.classic.heartbeat(GROUP, joined.member_id, joined.generation)
        await asyncio.sleep(5)


# What consumers say.


@pytest.mark.parametrize("version", range(4))
def test_topics_are_found_in_every_version(version: int) -> None:
    plain = pack(">hi", version, 2) + b"\0\3one\0\4zwei" + b"\xff\xff\xff\xff"
    assert subscribed_topics(plain) == frozenset({"one", "zwei"})


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0\1",
        b"\xff\xff\0\0\0\0",
        b"\0\1\xff\xff\xff\xff",
        b"\0\1\x7f\xff\xff\xff\0\1a",
        b"\0\1\0\0\0\1\0\5abc",
        b"\0\1\0\0\0\1\xff\xffabc",
        b"\0\1\0\0\0\1\0\1\xff",
    ],
)
def test_what_is_not_of_that_form_says_nothing(said: bytes) -> None:
    assert subscribed_topics(said) is None
