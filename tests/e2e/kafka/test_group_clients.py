"""Consumer groups of real clients: they divide partitions, leave, come back, and outlive the broker."""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import confluent_kafka
import pytest

from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.untidy_client import untidy_client
from tests.e2e.running_node import running_node

with warnings.catch_warnings():
    # Two clients use what newer Pythons want to be rid of; that is theirs to mend.
    warnings.simplefilter("ignore", DeprecationWarning)
    import aiokafka
    import kafka

PARTITIONS = 6
WAIT_S = 30.0
QUICK = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200, "auto.offset.reset": "earliest"}

# A client may take the broker for gone for as long as it is.
PATIENT = {"session.timeout.ms": 45_000}
SILENT = logging.getLogger("librdkafka")
SILENT.disabled = True

_numbers = count()


@pytest.fixture
def wide_topic(gateway: RunningGateway) -> str:
    """A topic of several partitions, with messages in each."""
    name = f"wide-{next(_numbers)}"
    gateway.create_topic(name, PARTITIONS, is_spread=True)
    fill(gateway.bootstrap, name, range(60))
    return name


def fill(bootstrap: str, topic: str, numbers: range) -> None:
    """Write numbers, spread over the partitions."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


class Confluent:
    """A consumer of librdkafka, and what it was told and has read."""

    def __init__(self, bootstrap: str, topic: str, group: str, **settings: object) -> None:
        self.revoked: list[set[int]] = []
        self.assigned: list[set[int]] = []
        self.values: list[int] = []
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "logger": SILENT, **QUICK, **settings}
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, _: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.assigned.append({one.partition for one in partitions})

    def _on_revoke(self, _: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.revoked.append({one.partition for one in partitions})

    @property
    def owned(self) -> set[int]:
        """The partitions it has now."""
        return {one.partition for one in self._consumer.assignment()}

    def poll(self) -> None:
        """Read what there is."""
        message = self._consumer.poll(0.02)
        while message is not None:
            if message.error() is None:
                self.values.append(int(message.value() or b"-1"))
            message = self._consumer.poll(0)

    def commit(self) -> None:
        """Commit what was read, durably."""
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        """Leave the group, unless it is an instance."""
        self._consumer.close()


def poll_until(consumers: list[Confluent], done: Callable[[], bool]) -> None:
    """Let consumers go on until something is so."""
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, [(one.owned, len(one.values)) for one in consumers]
        for consumer in consumers:
            consumer.poll()


def poll_for(consumers: list[Confluent], seconds: float) -> None:
    """Let consumers go on for some time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for consumer in consumers:
            consumer.poll()


def divided(*consumers: Confluent) -> bool:
    """Whether these own everything, in equal shares."""
    shares = [one.owned for one in consumers]
    return sorted(number for share in shares for number in share) == list(range(PARTITIONS)) and {
        len(share) for share in shares
    } == {PARTITIONS // len(consumers)}


@contextmanager
def closing(*consumers: Confluent) -> Iterator[None]:
    """Close them in any case."""
    try:
        yield
    finally:
        for consumer in consumers:
            consumer.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_confluent_members_divide_the_partitions_when_one_joins_and_when_one_leaves(
    gateway: RunningGateway, wide_topic: str, strategy: str
) -> None:
    settings = {"partition.assignment.strategy": strategy}
    first = Confluent(gateway.bootstrap, wide_topic, f"by-{strategy}", **settings)
    second = Confluent(gateway.bootstrap, wide_topic, f"by-{strategy}", **settings)
    with closing(first):
        with closing(second):
            poll_until([first, second], lambda: divided(first, second))
            poll_until([first, second], lambda: len(first.values) + len(second.values) >= 60)
        poll_until([first], lambda: divided(first))
    assert sorted({*first.values, *second.values}) == list(range(60))


def test_a_cooperative_member_keeps_what_it_need_not_give_up(gateway: RunningGateway, wide_topic: str) -> None:
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    first = Confluent(gateway.bootstrap, wide_topic, "cooperative", **settings)
    with closing(first):
        poll_until([first], lambda: divided(first))
        second = Confluent(gateway.bootstrap, wide_topic, "cooperative", **settings)
        with closing(second):
            poll_until([first, second], lambda: divided(first, second))
            assert len(first.revoked) == 1
            assert len(first.revoked[0]) == PARTITIONS // 2


def test_an_instance_that_restarts_is_not_noticed_by_the_others(gateway: RunningGateway, wide_topic: str) -> None:
    names = [f"instance-{number}" for number in range(2)]
    first, second = (Confluent(gateway.bootstrap, wide_topic, "static", **{"group.instance.id": name}) for name in names)
    with closing(first):
        with closing(second):
            poll_until([first, second], lambda: divided(first, second))
            told = len(first.assigned), len(first.revoked)
            share = second.owned
        second = Confluent(gateway.bootstrap, wide_topic, "static", **{"group.instance.id": names[1]})
        with closing(second):
            poll_until([first, second], lambda: bool(second.owned))
            assert second.owned == share
            poll_for([first, second], 1.0)
            assert (len(first.assigned), len(first.revoked)) == told


def test_a_second_member_with_the_name_of_an_instance_fences_the_first(gateway: RunningGateway, wide_topic: str) -> None:
    settings: dict[str, object] = {"group.instance.id": "the-only-one"}
    first = Confluent(gateway.bootstrap, wide_topic, "fenced", **settings)
    with closing(first):
        poll_until([first], lambda: divided(first))
        second = Confluent(gateway.bootstrap, wide_topic, "fenced", **settings)
        with closing(second):
            poll_until([second], lambda: divided(second))
            with pytest.raises(confluent_kafka.KafkaException):
                first.commit()


def test_members_that_vanish_are_replaced(gateway: RunningGateway, wide_topic: str) -> None:
    settings: dict[str, object] = {"session.timeout.ms": 1000, "max.poll.interval.ms": 1000}
    first = Confluent(gateway.bootstrap, wide_topic, "vanish", **settings)
    second = Confluent(gateway.bootstrap, wide_topic, "vanish", **settings)
    with closing(first, second):
        poll_until([first, second], lambda: divided(first, second))
        # One that is not polled leaves by itself after a while; the other takes over.
        poll_until([first], lambda: divided(first))


def test_members_go_on_after_a_restart_without_a_rebalance(tmp_path: Path) -> None:
    with RunningGateway(tmp_path) as gateway:
        gateway.create_topic("again", PARTITIONS, is_spread=True)
        fill(gateway.bootstrap, "again", range(60))
        first, second = (Confluent(gateway.bootstrap, "again", "restart", **PATIENT) for _ in range(2))
        with closing(first, second):
            both = [first, second]
            poll_until(both, lambda: divided(first, second))
            poll_until(both, lambda: len(first.values) + len(second.values) >= 60)
            told = [(len(one.assigned), len(one.revoked)) for one in both]
            gateway.restart()
            fill(gateway.bootstrap, "again", range(60, 120))
            poll_until(both, lambda: len(first.values) + len(second.values) >= 120)
            for one in both:
                one.commit()
            assert [(len(one.assigned), len(one.revoked)) for one in both] == told
        assert sorted(first.values + second.values) == list(range(120))


def test_members_go_on_after_a_kill_without_a_lost_position(tmp_path: Path) -> None:
    data = ["--data-dir", str(tmp_path / "data"), "--default-partitions", str(PARTITIONS)]
    with running_node(tmp_path / "log", data) as node:
        bootstrap = node.bootstrap
        fill(bootstrap, "killed", range(60))
        first, second = (Confluent(bootstrap, "killed", "killed", **PATIENT, **{"enable.auto.commit": False}) for _ in range(2))
        with closing(first, second):
            both = [first, second]
            poll_until(both, lambda: divided(first, second))
            poll_until(both, lambda: len(first.values) + len(second.values) >= 60)
            for one in both:
                one.commit()
            told = [(len(one.assigned), len(one.revoked)) for one in both]
            node.kill()
            port = bootstrap.rsplit(":", 1)[1]
            with running_node(tmp_path / "log", [*data, "--kafka-port", port]):
                fill(bootstrap, "killed", range(60, 120))
                poll_until(both, lambda: len(first.values) + len(second.values) >= 120)
                assert [(len(one.assigned), len(one.revoked)) for one in both] == told
                assert sorted(first.values + second.values) == list(range(120))
                # New members continue from the committed offsets.
                for one in both:
                    one.commit()
                first.close()
                second.close()
                fill(bootstrap, "killed", range(120, 126))
                third = Confluent(bootstrap, "killed", "killed")
                with closing(third):
                    poll_until([third], lambda: len(third.values) >= 6)
                    assert sorted(third.values) == list(range(120, 126))


def test_aiokafka_members_divide_the_partitions(gateway: RunningGateway, wide_topic: str) -> None:
    async def shares(*consumers: aiokafka.AIOKafkaConsumer, sizes: list[int]) -> None:
        async with asyncio.timeout(WAIT_S):
            while sorted(len(one.assignment()) for one in consumers) != sizes:
                for one in consumers:
                    values.extend(int(each.value) for some in (await one.getmany(timeout_ms=20)).values() for each in some)

    async def start() -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            wide_topic,
            bootstrap_servers=gateway.bootstrap,
            group_id="aio",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
        )
        await consumer.start()
        return consumer

    async def run() -> None:
        first = await start()
        await shares(first, sizes=[6])
        second = await start()
        await shares(first, second, sizes=[3, 3])
        await first.stop()
        await shares(second, sizes=[6])
        await second.stop()

    values: list[int] = []
    asyncio.run(run())
    assert len(set(values)) == len(values)


@untidy_client()
def test_kafka_python_members_divide_the_partitions(gateway: RunningGateway, wide_topic: str) -> None:
    def start(instance: str | None) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            wide_topic,
            bootstrap_servers=gateway.bootstrap,
            group_id="python",
            group_instance_id=instance,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
        )

    def poll(*consumers: kafka.KafkaConsumer, sizes: list[int]) -> None:
        deadline = time.monotonic() + WAIT_S
        while sorted(len(one.assignment()) for one in consumers) != sizes:
            assert time.monotonic() < deadline
            for one in consumers:
                one.poll(timeout_ms=20)

    first = start(None)
    poll(first, sizes=[6])
    second = start("an-instance")
    poll(first, second, sizes=[3, 3])
    first.close()
    poll(second, sizes=[6])
    second.close()
