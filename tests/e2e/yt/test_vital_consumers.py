"""A vital consumer of whichever kind holds trimming back: one of Kafka's groups, a reader of YDB, a durable consumer of a stream.

Each is made vital through the yt client, and again by what its own gateway offers: the consumers that a topic names as important.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import ydb
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.e2e.running_node import running_node
from tests.e2e.stream.stream_client import StreamClient
from tests.e2e.yt.yt_clusters import NO_CLIENT_RETRIES, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
MESSAGES = 6


class Gateways(NamedTuple):
    """A node that speaks all four protocols, and a client of each."""

    yt: Any
    bootstrap: str
    ydb: Any
    stream: StreamClient

    def starts_at(self, queue: str) -> int:
        """The first row that is still there."""
        return int(self.yt.get(f"{queue}/@queue_partitions/0/lower_row_index"))

    def set_config(self, topic: str, name: str, value: str) -> None:
        """Set a configuration of a topic as Kafka's tools do."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(20)


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    import yt.wrapper

    folder: Path = tmp_path_factory.mktemp("gateways")
    argv = ["--data-dir", str(folder / "data"), "--yt-port", "0", "--ydb-port", "0", "--stream-port", "0"]
    with ExitStack() as stack:
        node = stack.enter_context(running_node(folder / "log", argv))
        ports = {name: listener["port"] for name, listener in node.ready["listeners"].items()}
        client = yt.wrapper.YtClient(proxy=f"http://127.0.0.1:{ports['yt']}", config=NO_CLIENT_RETRIES)
        driver = ydb.Driver(endpoint=f"grpc://127.0.0.1:{ports['ydb']}", database="/local")
        stack.callback(driver.stop)
        driver.wait(30, fail_fast=True)
        stream = stack.enter_context(StreamClient(f"127.0.0.1:{ports['stream']}"))
        yield Gateways(client, node.bootstrap, driver.topic_client, stream)


def kafka_reads(gateways: Gateways, topic: str, group: str) -> Callable[[int], None]:
    producer = Producer({"bootstrap.servers": gateways.bootstrap})
    for number in range(MESSAGES):
        producer.produce(topic, b"%d" % number)
        assert producer.flush(20) == 0  # one batch each

    def read(count: int) -> None:
        settings: Any = {"bootstrap.servers": gateways.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        with closing(Consumer(settings)) as consumer:
            consumer.subscribe([topic])
            for _ in range(count):
                message = consumer.poll(30)
                assert message is not None
                assert message.error() is None
                place = TopicPartition(topic, 0, (message.offset() or 0) + 1)
                consumer.commit(offsets=[place], asynchronous=False)

    return read


def ydb_reads(gateways: Gateways, topic: str, consumer: str) -> Callable[[int], None]:
    with gateways.ydb.writer(f"/local/{topic}", producer_id="writer") as writer:
        for number in range(MESSAGES):
            writer.write(str(number))
            writer.flush()

    def read(count: int) -> None:
        with gateways.ydb.reader(f"/local/{topic}", consumer=consumer) as reader:
            for _ in range(count):
                reader.commit_with_ack(reader.receive_message(timeout=30))

    return read


def stream_reads(gateways: Gateways, subject: str, durable: str) -> Callable[[int], None]:
    for number in range(MESSAGES):
        gateways.stream.publish(subject, b"%d" % number)

    def read(count: int) -> None:
        for message in gateways.stream.fetch(subject, durable, count):
            assert gateways.stream.ack(durable, subject, message.sequence)

    return read


def holds_trimming_back(gateways: Gateways, topic: str, read: Callable[[int], None]) -> None:
    """What is checked of all kinds: trimming follows the consumer, and never passes it."""
    queue = f"//topics/{topic}"
    read(2)
    gateways.yt.set(f"{queue}/@auto_trim_config", {"enable": True})
    wait_until(lambda: gateways.starts_at(queue) == 2)
    read(1)
    wait_until(lambda: gateways.starts_at(queue) == 3)
    read(MESSAGES - 3)
    wait_until(lambda: gateways.starts_at(queue) == MESSAGES)


def test_a_vital_kafka_group(gateways: Gateways) -> None:
    read = kafka_reads(gateways, "vital-kafka", "vital-group")
    gateways.yt.register_queue_consumer("//topics/vital-kafka", "//groups/vital-group", vital=True)
    holds_trimming_back(gateways, "vital-kafka", read)


def test_a_vital_reader_of_ydb(gateways: Gateways) -> None:
    gateways.ydb.create_topic("/local/vital-ydb", consumers=["reader"])
    read = ydb_reads(gateways, "vital-ydb", "reader")
    gateways.yt.register_queue_consumer("//topics/vital-ydb", "//groups/reader", vital=True)
    holds_trimming_back(gateways, "vital-ydb", read)


def test_a_vital_durable_consumer_of_a_stream(gateways: Gateways) -> None:
    read = stream_reads(gateways, "vital-stream", "worker")
    gateways.yt.register_queue_consumer("//topics/vital-stream", "//groups/stream:worker", vital=True)
    holds_trimming_back(gateways, "vital-stream", read)


def test_a_group_that_a_kafka_topic_names_as_important(gateways: Gateways) -> None:
    read = kafka_reads(gateways, "important-kafka", "important-group")
    gateways.set_config("important-kafka", "penstock.important.consumers", "important-group")
    holds_trimming_back(gateways, "important-kafka", read)


def test_a_reader_of_ydb_that_is_important(gateways: Gateways) -> None:
    gateways.ydb.create_topic("/local/important-ydb", consumers=[ydb.TopicConsumer("reader", important=True)])
    holds_trimming_back(gateways, "important-ydb", ydb_reads(gateways, "important-ydb", "reader"))


def test_a_durable_consumer_that_a_subject_names_as_important(gateways: Gateways) -> None:
    read = stream_reads(gateways, "important-stream", "worker")
    gateways.set_config("important-stream", "penstock.important.consumers", "stream:worker")
    holds_trimming_back(gateways, "important-stream", read)


def test_the_slowest_of_all_kinds_counts(gateways: Gateways) -> None:
    by_kafka = kafka_reads(gateways, "mixed", "mixed-group")
    for consumer in ("//groups/mixed-group", "//groups/stream:slow"):
        gateways.yt.register_queue_consumer("//topics/mixed", consumer, vital=True)
    by_kafka(MESSAGES)
    gateways.yt.set("//topics/mixed/@auto_trim_config", {"enable": True})
    # What Kafka's clients have written gets its sequences a moment later.
    wait_until(lambda: len(gateways.stream.fetch("mixed", "slow", MESSAGES)) == MESSAGES)
    assert gateways.stream.ack("slow", "mixed", gateways.stream.fetch("mixed", "slow", MESSAGES)[3].sequence)
    wait_until(lambda: gateways.starts_at("//topics/mixed") == 4)
