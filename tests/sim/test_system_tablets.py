"""The broker's own tablets are stopped under it: it starts them again, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from penstock.blob import BlobId, Content, Reply, Status, Submitted
from penstock.broker import Position, TopicConfig, TopicExistsError, TopicPartition
from penstock.broker.errors import SystemTabletUnavailableError
from penstock.broker.groups.errors import NotCoordinatorError
from penstock.broker.groups.members import JoinRequest, OfferedProtocol
from penstock.broker.tablets import tablet_info
from penstock.core.errors import FencedError, PenstockError
from penstock.gateway.kafka.error_codes import code_of, coordinator_code
from penstock.kafka.protocol import errors
from penstock.tablet import KvTablet
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import SimBroker, SimProducer, Write, read_committed

SYSTEM, CONSUMERS, TRANSACTIONS = 2, 3, 4
CONSUMER = "readers"


async def _fence(host: SimBroker, tablet_id: int) -> None:
    """Another process takes the tablet, and goes away again."""
    storage = host.node.storage.tablet(tablet_info(tablet_id, 0))
    rival = await KvTablet.boot(storage, await storage.next_generation(), random=Random(tablet_id))
    await rival.stop()


def _tablet(host: SimBroker, tablet_id: int) -> KvTablet:
    return next(one.latest for one in host.broker.system_tablets.running if one.latest.id == tablet_id)


async def _serves(host: SimBroker, tablet_id: int, after: int) -> None:
    """Wait until a generation after this one serves."""
    holder = next(one for one in host.broker.system_tablets.running if one.latest.id == tablet_id)
    while holder._serving is None or holder.generation <= after:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)


async def _until_done(work: Awaitable[Any]) -> None:
    async with asyncio.timeout(300):
        await work


class Load:
    """Clients that keep on trying, and what they were told."""

    def __init__(self, host: SimBroker) -> None:
        self._host = host
        self.topics: list[str] = []
        self.position = 0
        self.committed: list[bytes] = []
        self.refused: set[str] = set()

    async def make_topics(self, count: int) -> None:
        for number in range(count):
            name = f"topic-{number}"
            while name not in self.topics:
                try:
                    await self._host.broker.create_topic(name, 2, TopicConfig())
                except TopicExistsError:
                    pass  # the last attempt did it after all
                except PenstockError as error:
                    await self._refused(error)
                    continue
                self.topics.append(name)
            await asyncio.sleep(0.05)

    async def commit_positions(self, count: int) -> None:
        queue = TopicPartition(self._host.topic("first").id, 0)
        for offset in range(1, count + 1):
            while self.position < offset:
                try:
                    await self._host.broker.consumers.commit(CONSUMER, [(queue, Position(offset))])
                    self.position = offset
                except PenstockError as error:
                    await self._refused(error)
            await asyncio.sleep(0.02)

    async def transact(self, count: int) -> None:
        producer = SimProducer(self._host, "id", version=1)
        await self._insist(producer.initialise)
        for number in range(count):
            steps = (
                partial(producer.write, Write("first", 0), [b"%d" % number]),
                partial(producer.set_position, "in-transactions", Write("first", 1), number),
                partial(producer.end, commit=True),
            )
            for step in steps:
                await self._insist(step)
            self.committed.append(b"%d" % number)

    async def _insist(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await step()
            except PenstockError as error:
                await self._refused(error)

    async def _refused(self, error: PenstockError) -> None:
        self.refused.add(type(error).__name__)
        retriable = {errors.KAFKA_STORAGE_ERROR, errors.NOT_LEADER_OR_FOLLOWER, errors.CONCURRENT_TRANSACTIONS}
        assert code_of(error) in retriable, repr(error)
        await asyncio.sleep(0.02)


async def _check(host: SimBroker, load: Load) -> None:
    """All that was acknowledged is there, and nothing else."""
    names = {topic.name for topic in host.broker.catalog.topics()}
    assert names == {"first", *load.topics}
    queue = TopicPartition(host.topic("first").id, 0)
    position = host.broker.consumers.position(CONSUMER, queue)
    assert position is not None
    assert position.offset == load.position
    assert (await host.do(read_committed(host.partition("first", 0)))).values == load.committed
    staged = host.broker.consumers.position("in-transactions", TopicPartition(queue.topic_id, 1))
    assert staged is not None
    assert staged.offset == len(load.committed) - 1
    for name in load.topics:
        assert host.partition(name, 1).end_offset == 0


@pytest.mark.parametrize("tablet_id", [SYSTEM, CONSUMERS, TRANSACTIONS])
def test_a_system_tablet_that_is_fenced_again_and_again_under_load_comes_back_with_all_that_was_acknowledged(
    tablet_id: int,
) -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        await host.do(host.broker.create_topic("first", 2))
        load = Load(host)
        work = [
            asyncio.create_task(host.do(load.make_topics(15))),
            asyncio.create_task(host.do(load.commit_positions(80))),
            asyncio.create_task(load.transact(40)),
        ]
        for _ in range(4):
            generation = _tablet(host, tablet_id).generation
            await host.do(_fence(host, tablet_id))
            await _until_done(_serves(host, tablet_id, generation + 1))
            await asyncio.sleep(0.2)
        await _until_done(asyncio.gather(*work))
        assert load.refused, "no request was refused"
        await _check(host, load)
        await host.restart()
        await _check(host, load)
        await host.stop()

    run_simulation(scenario())


@pytest.mark.parametrize("seed", range(4))
def test_whichever_system_tablets_stop_whenever_and_however_all_that_was_acknowledged_is_there(seed: int) -> None:
    rng = Random(seed)

    async def scenario() -> None:
        host = await SimBroker().start()
        await host.do(host.broker.create_topic("first", 2))
        load = Load(host)
        work = [
            asyncio.create_task(host.do(load.make_topics(12))),
            asyncio.create_task(host.do(load.commit_positions(60))),
            asyncio.create_task(load.transact(30)),
        ]
        for _ in range(rng.randint(3, 12)):
            await asyncio.sleep(rng.choice([0, 0.001, 0.01, 0.05, 0.2]) * rng.random())
            tablet_id = rng.choice([SYSTEM, CONSUMERS, TRANSACTIONS])
            with contextlib.suppress(FencedError):  # the rival may come too late
                await host.do(_fence(host, tablet_id) if rng.random() < 0.5 else _tablet(host, tablet_id).stop())
        await _until_done(asyncio.gather(*work))
        await asyncio.sleep(30)
        await _check(host, load)
        await host.restart()
        await _check(host, load)
        await host.stop()

    run_simulation(scenario(), seed=seed, shuffle_ties=True, timer_slack_s=0.0005)


def test_while_a_system_tablet_starts_again_callers_are_told_to_try_again() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        topic = await host.do(host.broker.create_topic("first", 1))
        queue = TopicPartition(topic.id, 0)
        await host.do(host.broker.consumers.commit(CONSUMER, [(queue, Position(5))]))
        generation = _tablet(host, CONSUMERS).generation
        await host.do(_tablet(host, CONSUMERS).stop())
        with pytest.raises(SystemTabletUnavailableError, match="try again") as refused:
            await host.do(host.broker.consumers.commit(CONSUMER, [(queue, Position(6))]))
        with pytest.raises(SystemTabletUnavailableError):
            host.broker.consumers.position(CONSUMER, queue)
        assert refused.value.retriable
        assert coordinator_code(refused.value) == errors.COORDINATOR_NOT_AVAILABLE
        await _until_done(_serves(host, CONSUMERS, generation))
        position = host.broker.consumers.position(CONSUMER, queue)
        assert position is not None
        assert position.offset == 5
        await host.stop()

    run_simulation(scenario())


class LosesAnswers:
    """Storage that stores, and tells that it did not."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def submit(self, blobs: Sequence[tuple[BlobId, Content]], done: Submitted, *, from_reserve: bool = False) -> None:
        lost = Reply(Status.ERROR, "the answer was lost by the test")
        self._storage.submit(blobs, lambda _: done(lost), from_reserve=from_reserve)


async def _lose_answers_and_stop(host: SimBroker, tablet_id: int, work: Coroutine[Any, Any, Any]) -> None:
    """The request is stored, its caller gets an error, and the tablet stops before it can abort the request."""
    tablet = _tablet(host, tablet_id)
    sequencer: Any = tablet.sequencer
    sequencer._storage = LosesAnswers(sequencer._storage)
    with pytest.raises(PenstockError):
        await host.do(work)
    await host.do(tablet.stop())
    await _until_done(_serves(host, tablet_id, tablet.generation))


def test_a_topic_that_was_made_though_its_maker_was_told_otherwise_can_be_written_to_after_the_restart_of_the_tablet() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        await _lose_answers_and_stop(host, SYSTEM, host.broker.create_topic("late", 7))
        assert host.topic("late").partitions == 7
        await asyncio.sleep(5)
        assert [host.partition("late", number).end_offset for number in range(7)] == [0] * 7
        await _lose_answers_and_stop(host, SYSTEM, host.broker.delete_topic("late"))
        await asyncio.sleep(5)
        assert not host.broker.catalog.deleting()
        assert await host.do(host.broker.create_topic("late", 1))
        await host.stop()

    run_simulation(scenario())


def test_a_deletion_that_is_finished_twice_does_not_touch_a_new_topic_of_the_same_name() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        old = await host.do(host.broker.create_topic("name", 1))
        await host.do(host.broker.delete_topic("name"))
        new = await host.do(host.broker.create_topic("name", 1))
        await host.do(host.broker._finish_deleting(old))
        assert host.topic("name") == new
        await host.restart()
        assert host.topic("name").id == new.id
        await host.stop()

    run_simulation(scenario())


def test_a_commit_that_was_decided_though_its_producer_was_told_otherwise_is_carried_out_after_the_restart_of_the_tablet() -> (
    None
):
    async def scenario() -> None:
        host = await SimBroker().start()
        await host.do(host.broker.create_topic("first", 1))
        producer = SimProducer(host, "id", version=1)
        await producer.initialise()
        await producer.write(Write("first", 0), [b"kept"])
        old = host.broker.transactions
        ending = old.end("id", producer.identity, commit=True, version=1)
        await _lose_answers_and_stop(host, TRANSACTIONS, ending)
        await asyncio.sleep(5)
        assert (await host.do(read_committed(host.partition("first", 0)))).values == [b"kept"]
        await producer.end(commit=True)  # as its producer would, which knows nothing of it
        # What is left of the coordinator before can write nothing any more.
        with pytest.raises(PenstockError):
            await host.do(old.initialise("id", 1000))
        await host.stop()

    run_simulation(scenario())


def test_a_member_that_waits_for_its_group_is_told_to_find_the_coordinator_again_and_is_still_a_member_then() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        queue = TopicPartition((await host.do(host.broker.create_topic("first", 1))).id, 0)
        asked = JoinRequest("", "consumer", (OfferedProtocol("range", b""),), 60_000, 600_000, takes_id_first=False)
        old = host.broker.groups
        first = await host.do(old.classic.join("group", asked))
        await host.do(old.classic.sync("group", first.member_id, first.generation, {first.member_id: b"all"}))
        second = asyncio.create_task(host.do(old.classic.join("group", asked)))  # it waits for the first to join again
        await asyncio.sleep(1)
        await host.do(_fence(host, CONSUMERS))
        with pytest.raises(SystemTabletUnavailableError):
            await host.do(host.broker.consumers.commit(CONSUMER, [(queue, Position(1))]))
        with pytest.raises(NotCoordinatorError):
            await second
        await asyncio.sleep(5)
        assert host.broker.groups is not old
        with pytest.raises(NotCoordinatorError):
            await host.do(old.classic.join("group", asked))
        host.broker.groups.classic.heartbeat("group", first.member_id, first.generation)
        await host.stop()

    run_simulation(scenario())
