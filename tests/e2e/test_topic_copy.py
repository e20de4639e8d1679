"""`penstock topic copy`: every committed message is in the other topic once, as it was, however often the copy is killed."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.e2e.running_node import PENSTOCK, RunningNode, environment, running_node

pytestmark = pytest.mark.slow

WAIT_S = 60.0
Message = tuple[Any, ...]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    folder = tmp_path_factory.mktemp("source")
    with running_node(folder / "log", ["--data-dir", str(folder / "data")]) as running:
        yield running


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    folder = tmp_path_factory.mktemp("target")
    with running_node(folder / "log", ["--data-dir", str(folder / "data")]) as running:
        yield running


def produce(node: RunningNode, topic: str, partition: int, numbers: range, **settings: Any) -> None:
    """Messages with keys, headers and times of their own."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "queue.buffering.max.messages": 1_000_000, **settings})
    is_transactional = "transactional.id" in settings
    if is_transactional:
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
    for number in numbers:
        key = None if number % 3 == 0 else f"key {number}".encode()
        value = None if number % 7 == 0 else f"value {number} ".encode() * 30
        headers: list[tuple[str, str | bytes | None]] | None = [("number", f"{number}"), ("none", None)] if number % 2 else None
        producer.produce(topic, value, key, partition, headers=headers, timestamp=1_700_000_000_000 + number)
    assert producer.flush(WAIT_S) == 0
    if is_transactional:
        if numbers[0] % 2:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)


def messages(node: RunningNode, topic: str, partition: int) -> list[Message]:
    """What a consumer reads of a partition, without offsets."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "check", "enable.partition.eof": True})
    place = TopicPartition(topic, partition)
    low, high = consumer.get_watermark_offsets(place, WAIT_S)
    read: list[Message] = []
    consumer.assign([TopicPartition(topic, partition, low)])
    while low < high:
        batch = consumer.consume(5_000, 0.3)
        for message in batch:
            if message.error() is None:
                read.append((message.key(), message.value(), message.headers(), message.timestamp()))
        if any(message.error() is not None for message in batch):
            break  # the end of the partition
    consumer.close()
    return read


def test_a_topic_is_copied_as_it_is(node: RunningNode, other: RunningNode) -> None:
    node.ok("topic", "create", "orders", "-p", "3", "--config", "retention.ms=30d")
    for partition, codec in enumerate(("none", "lz4", "zstd")):
        produce(node, "orders", partition, range(400), **{"compression.type": codec, "linger.ms": 5})
    produce(node, "orders", 0, range(400, 4000), **{"batch.size": 900_000, "linger.ms": 50})  # batches that are copied whole
    produce(node, "orders", 1, range(401, 500), **{"transactional.id": "aborted"})
    produce(node, "orders", 1, range(500, 600), **{"transactional.id": "committed"})
    for number in range(600, 620):
        produce(node, "orders", 2, range(number, number + 1))  # batches of one message
    node.ok("topic", "trim", "orders", "--before", "150", "--partition", "2", "--yes")  # within a batch
    wanted = [messages(node, "orders", partition) for partition in range(3)]
    assert [len(read) for read in wanted] == [4000, 500, 270]

    said = node.ok("topic", "copy", "orders", "orders-2")
    assert said == "created topic orders-2 with 3 partitions\ncopied 4,770 messages from orders to orders-2\n"
    assert [messages(node, "orders-2", partition) for partition in range(3)] == wanted
    assert "retention.ms" in node.ok("topic", "describe", "orders-2")
    node.ok("topic", "copy", "orders", "orders", "--to-bootstrap", other.bootstrap)
    assert [messages(other, "orders", partition) for partition in range(3)] == wanted

    produce(node, "orders", 2, range(700, 710))
    assert node.ok("topic", "copy", "orders", "orders-2") == "copied 10 messages from orders to orders-2\n", "it goes on"
    assert messages(node, "orders-2", 2) == wanted[2] + messages(node, "orders", 2)[-10:]


def test_a_copy_that_is_killed_again_and_again_copies_each_message_once(node: RunningNode, tmp_path: Path) -> None:
    node.ok("topic", "create", "many", "-p", "2")
    for partition in range(2):
        produce(node, "many", partition, range(40_000), **{"linger.ms": 5})
    wanted = [messages(node, "many", partition) for partition in range(2)]
    variables = environment({"PENSTOCK_BOOTSTRAP": node.bootstrap})
    is_done = False
    for attempt in range(60):
        if is_done:
            break
        copying = subprocess.Popen([*PENSTOCK, "topic", "copy", "many", "many-2"], env=variables, stdout=subprocess.DEVNULL)
        try:
            is_done = copying.wait(0.5 + 0.1 * attempt) == 0
        except subprocess.TimeoutExpired:
            copying.kill()
            copying.wait(WAIT_S)
    assert is_done
    assert [messages(node, "many-2", partition) for partition in range(2)] == wanted


def test_a_copy_follows_new_messages_until_it_is_interrupted(node: RunningNode) -> None:
    node.ok("topic", "create", "live", "-p", "1")
    node.ok("topic", "create", "live-2", "-p", "1")
    variables = environment({"PENSTOCK_BOOTSTRAP": node.bootstrap})
    argv = [*PENSTOCK, "topic", "copy", "live", "live-2", "--follow"]
    copying = subprocess.Popen(argv, env=variables, stdout=subprocess.PIPE)
    for number in range(3):
        produce(node, "live", 0, range(number, number + 1))
        deadline = time.monotonic() + WAIT_S
        while len(messages(node, "live-2", 0)) <= number:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    copying.send_signal(signal.SIGINT)
    assert copying.communicate(timeout=WAIT_S)[0] == b"copied 3 messages from live to live-2\n"
    assert copying.returncode == 0


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["full", "full"], "cannot be copied into itself"),
        (["full", "other"], "has messages that were not copied from there"),
        (["wide", "narrow"], "penstock topic add-partitions narrow --total 2"),
        (["missing", "copy"], "there is no topic 'missing'"),
        (["full", "copy", "--to-profile", "a", "--to-bootstrap", "b:1"], "not both"),
    ],
)
def test_what_cannot_be_copied_is_refused_with_a_reason(node: RunningNode, argv: list[str], text: str) -> None:
    node.ok("topic", "create", "full", "other", "narrow", "-p", "1", "--if-not-exists")
    node.ok("topic", "create", "wide", "-p", "2", "--if-not-exists")
    node.ok("produce", "full", "message")
    node.ok("produce", "other", "message")
    done = node.run("topic", "copy", *argv)
    assert done.returncode != 0
    assert text in done.stderr.decode()
    assert b"Traceback" not in done.stderr
