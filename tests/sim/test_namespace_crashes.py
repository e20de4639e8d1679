"""Queues, consumers and registrations when the broker dies at any step: what was answered is there, and nothing is half there."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker import Position, TopicPartition
from penstock.broker.errors import SystemTabletUnavailableError
from penstock.broker.namespace import Kind, MountState, NodeExistsError, NoSuchNodeError, WrongNodeError, consumer_name
from penstock.broker.registrations import Ref, Registration
from penstock.testing.batches import make_batch
from penstock.testing.sim_loop import ProcessDiedError, run_simulation
from tests.sim_broker import SimBroker

PATH = "//tmp/queue"
HERE = "penstock"


async def prepared() -> SimBroker:
    return await SimBroker().start()


@pytest.mark.parametrize("step", range(0, 150, 3))
def test_a_crash_while_a_queue_is_made_leaves_all_of_it_or_nothing(step: int) -> None:
    async def scenario() -> None:
        host = await prepared()
        host.process.crash_at_step(host.process.steps + step)
        try:
            await host.do(host.broker.namespace.create(PATH, Kind.QUEUE, {}, partitions=1))
            is_told = True
        except ProcessDiedError:
            is_told = False
        await host.restart()
        namespace = host.broker.namespace
        node = namespace.find(PATH)
        assert node is not None or not is_told
        if node is None:
            node = await host.do(namespace.create(PATH, Kind.QUEUE, {}, partitions=1))
        assert namespace.topic(node).name == "tmp.queue"
        assert [topic.name for topic in host.broker.catalog.topics()] == ["tmp.queue"]
        await host.do(namespace.remove(PATH))
        assert host.broker.catalog.topics() == []
        await host.stop()

    run_simulation(scenario(), seed=step)


@pytest.mark.parametrize("step", range(0, 150, 3))
def test_a_crash_while_a_queue_is_removed_leaves_all_of_it_or_nothing(step: int) -> None:
    async def scenario() -> None:
        host = await prepared()
        await host.do(host.broker.namespace.create(PATH, Kind.QUEUE, {}))
        host.process.crash_at_step(host.process.steps + step)
        try:
            await host.do(host.broker.namespace.remove(PATH))
            is_told = True
        except ProcessDiedError:
            is_told = False
        await host.restart()
        node = host.broker.namespace.find(PATH)
        assert node is None or not is_told
        assert len(host.broker.catalog.topics()) == (node is not None)
        await host.stop()

    run_simulation(scenario(), seed=step)


def test_what_is_where() -> None:
    async def scenario() -> None:
        host = await prepared()
        namespace = host.broker.namespace
        with pytest.raises(NoSuchNodeError, match="--recursive"):
            await host.do(namespace.create("//home/a/b", Kind.CONSUMER, {}))
        await host.do(namespace.create("//home/a/b", Kind.CONSUMER, {"x": b"1"}, recursive=True))
        await host.do(namespace.set_mount_state("//home/a/b", MountState.MOUNTED))
        await host.do(host.broker.create_topic("orders"))
        await host.do(namespace.set_attributes("//topics/orders", {"auto_trim_config": b'{"enable": true}'}))
        with pytest.raises(NodeExistsError):
            await host.do(namespace.create("//home/a", Kind.FOLDER, {}))
        with pytest.raises(WrongNodeError, match="not empty"):
            await host.do(namespace.remove("//home/a"))
        await host.restart()
        namespace = host.broker.namespace
        assert namespace.children("//home/a") == ["b"]
        assert namespace.node("//home/a/b").mount_state is MountState.MOUNTED
        assert [node.path for node, _ in namespace.queues_with_attributes()] == ["//topics/orders"]
        assert "auto_trim_config" in namespace.node("//topics/orders").attributes
        await host.do(host.broker.delete_topic("orders"))
        assert namespace.find("//topics/orders") is None
        await host.restart()
        namespace = host.broker.namespace
        assert namespace.tree.get("//topics/orders") is None
        await host.do(namespace.remove("//home/a", recursive=True))
        assert namespace.children("//home") == []
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_a_path_that_is_taken_as_a_topic_gets_another_name() -> None:
    async def scenario() -> None:
        host = await prepared()
        await host.do(host.broker.create_topic("tmp.queue"))
        node = await host.do(host.broker.namespace.create(PATH, Kind.QUEUE, {}))
        assert node.topic == "tmp.queue-2"
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_a_vital_consumer_holds_the_retention_of_a_topic_back() -> None:
    async def scenario() -> None:
        host = await prepared()
        broker = host.broker
        topic = await host.do(broker.create_topic("orders"))
        await host.do(broker.produce(topic, 0, make_batch([b"a", b"b", b"c"])))
        consumer = await host.do(broker.namespace.create("//tmp/c", Kind.CONSUMER, {}, mounted=True))
        assert broker.queue_agent.needed_from(topic, 0) is None
        queue = Ref(HERE, "//topics/orders")
        await host.do(broker.registrations.register(Registration(queue, Ref(HERE, "//tmp/c"), vital=True)))
        assert broker.queue_agent.needed_from(topic, 0) == 0
        await host.do(broker.consumers.commit(consumer_name(consumer), [(TopicPartition(topic.id, 0), Position(2))]))
        assert broker.queue_agent.needed_from(topic, 0) == 2
        await host.do(broker.registrations.register(Registration(queue, Ref("mars", "//c"), vital=True)))
        await host.do(broker.queue_agent.once())
        assert broker.queue_agent.needed_from(topic, 0) == 0
        assert broker.groups.listed() == []
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_tables_go_on_after_their_tablet_was_started_again() -> None:
    async def scenario() -> None:
        host = await prepared()
        await host.do(host.broker.namespace.create(PATH, Kind.QUEUE, {}))
        for number in (1, 3):
            await host.break_system_tablet(number)
        registration = Registration(Ref(HERE, PATH), Ref("mars", "//c"), vital=False)
        for _ in range(100):
            try:
                await host.do(host.broker.registrations.register(registration))
                await host.do(host.broker.namespace.set_attributes(PATH, {"a": b"1"}))
                break
            except SystemTabletUnavailableError:
                await asyncio.sleep(0.05)
        assert list(host.broker.registrations) == [registration]
        assert host.broker.namespace.node(PATH).attributes == {"a": b"1"}
        await host.stop()

    run_simulation(scenario(), seed=1)
