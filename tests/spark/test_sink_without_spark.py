"""The sink's two halves as plain calls against a real broker: what tasks send, and what the driver makes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.core.errors import PenstockError
from penstock.kafka.client import BlockingClient, RequestRefusedError
from penstock.spark.errors import FencedTaskError, OptionError, RowError
from penstock.spark.sink import BATCH_JOB, TaskCommitMessage, abort_rows, commit_rows
from penstock.spark.task_transaction import TaskTransaction
from penstock.spark.write_options import WriteOptions, write_options
from tests.e2e.kafka.running_gateway import RunningGateway

Read = list[tuple[int, bytes | None, bytes | None]]


def _options(gateway: RunningGateway, topic: str | None, **more: str) -> WriteOptions:
    given = {"kafka.bootstrap.servers": gateway.bootstrap, **more}
    return write_options(given if topic is None else {**given, "topic": topic})


def _rows(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def _send(options: WriteOptions, *batches: pa.RecordBatch, name: str | None = None) -> TaskCommitMessage:
    return _send_all(options, iter(batches), name)


def _send_all(options: WriteOptions, batches: Iterator[pa.RecordBatch], name: str | None) -> TaskCommitMessage:
    with closing(BlockingClient(options.client)) as client:
        transaction = TaskTransaction(client, options, name, 0)
        for batch in batches:
            transaction.send(options.topic, batch)
        return TaskCommitMessage("q", transaction.finish(), transaction.rows)


def _read(gateway: RunningGateway, topic: str, partitions: int = 2, *, committed: bool = True) -> Read:
    """Everything in a topic: partition, key and value."""
    level = "read_committed" if committed else "read_uncommitted"
    settings = {
        "bootstrap.servers": gateway.bootstrap,
        "group.id": "check",
        "enable.partition.eof": True,
        "isolation.level": level,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: Read = []
    at_end = 0
    while at_end < partitions:
        for message in consumer.consume(1000, 0.1):
            if message.error() is not None:
                at_end += 1
            else:
                found.append((message.partition() or 0, message.key(), message.value()))
    consumer.close()
    return found


def test_rows_go_to_the_partitions_of_their_keys_in_order(gateway: RunningGateway, topic: str) -> None:
    keys = [b"%d" % (number % 7) for number in range(1000)]
    _send(_options(gateway, topic), _rows(key=keys, value=[b"%d" % number for number in range(1000)]))
    found = _read(gateway, topic)
    assert sorted(int(value or b"") for _, _, value in found) == list(range(1000))
    assert {partition for partition, _, _ in found} == {0, 1}
    for key in set(keys):
        values = [int(value or b"") for _, other, value in found if other == key]
        assert values == sorted(values)
        assert len({partition for partition, other, _ in found if other == key}) == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_by_other_clients(gateway: RunningGateway, topic: str, codec: str) -> None:
    options = _options(gateway, topic, **{"kafka.compression.type": codec})
    _send(options, _rows(key=["k", None], value=["text" * 1000, None]))
    assert {(key, value) for _, key, value in _read(gateway, topic)} == {(b"k", b"text" * 1000), (None, None)}


def test_a_row_names_its_topic_and_partition(gateway: RunningGateway, topic: str) -> None:
    other = f"{topic}-other"
    gateway.create_topic(other, 3)
    rows = _rows(value=["a", "b", "c"], topic=[topic, other, other], partition=pa.array([1, 2, 0], pa.int32()))
    _send(_options(gateway, None), rows)
    assert _read(gateway, topic) == [(1, None, b"a")]
    assert sorted(_read(gateway, other, 3)) == [(0, None, b"c"), (2, None, b"b")]


@pytest.mark.parametrize(("given", "written"), [({}, [("a", b"1"), ("b", None)]), ({"includeHeaders": "false"}, None)])
def test_headers_are_written_unless_they_are_left_out(
    gateway: RunningGateway, topic: str, given: dict[str, str], written: list[tuple[str, bytes | None]] | None
) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([None, [], [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]], kind)
    _send(
        _options(gateway, topic, **given), pa.RecordBatch.from_arrays([pa.array(["x", "y", "z"]), headers], ["value", "headers"])
    )
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "check", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    found: dict[bytes | None, Any] = {}
    deadline = time.monotonic() + 20
    while len(found) < 3 and time.monotonic() < deadline:
        for message in consumer.consume(10, 0.1):
            if message.error() is None:
                found[message.value()] = message.headers()
    consumer.close()
    assert found == {b"x": None, b"y": None, b"z": written}


def test_rows_of_a_slice_are_those_of_the_slice(gateway: RunningGateway, topic: str) -> None:
    rows = _rows(key=["a", None, "c", "d"], value=["1", "2", None, "4"]).slice(1, 2)
    _send(_options(gateway, topic), rows)
    assert {(key, value) for _, key, value in _read(gateway, topic)} == {(None, b"2"), (b"c", None)}


def test_a_row_larger_than_a_batch_gets_one_of_its_own(gateway: RunningGateway, topic: str) -> None:
    values = ["small", "x" * 50_000, "small again"]
    _send(_options(gateway, topic, **{"kafka.batch.size": "1000"}), _rows(key=["k"] * 3, value=values))
    assert [value for _, _, value in _read(gateway, topic)] == [value.encode() for value in values]


def test_rows_that_cannot_be_written_are_told(gateway: RunningGateway, topic: str) -> None:
    with pytest.raises(RowError, match="asks for partition 7"):
        _send(_options(gateway, topic), _rows(value=["x"], partition=pa.array([7], pa.int32())))
    with pytest.raises(RowError, match="has no topic"):
        _send(_options(gateway, None), _rows(value=["x", "y"], topic=[topic, None]))
    with pytest.raises(OptionError, match="column value is"):
        _send(_options(gateway, topic), _rows(value=[[1], [2]]))
    with pytest.raises(RequestRefusedError, match="MESSAGE_TOO_LARGE"):
        _send(_options(gateway, topic), _rows(value=["x" * (2 << 20)]))
    assert _read(gateway, topic) == []


def test_nothing_is_seen_before_the_driver_commits_and_then_all_at_once(gateway: RunningGateway, topic: str) -> None:
    options = _options(gateway, topic)
    told = [_send(options, _rows(value=[f"{task}"]), name=f"spark/{topic}/{task}/0") for task in range(3)]
    told = [TaskCommitMessage(topic, one.transaction, one.rows) for one in told]
    assert _read(gateway, topic) == []
    assert len(_read(gateway, topic, committed=False)) == 3
    commit_rows(options, told, 0)
    assert sorted(value or b"" for _, _, value in _read(gateway, topic)) == [b"0", b"1", b"2"]


def test_a_repeated_micro_batch_changes_nothing(gateway: RunningGateway, topic: str) -> None:
    options = _options(gateway, topic)
    for attempt in range(3):  # as a driver does that died before it noted that the batch was done
        told = _send(options, _rows(value=["once"]), name=f"spark/{topic}/0/{attempt}")
        commit_rows(options, [TaskCommitMessage(topic, told.transaction, 1)], 5)
    assert [value for _, _, value in _read(gateway, topic)] == [b"once"]
    told = _send(options, _rows(value=["next"]), name=f"spark/{topic}/0/0")
    commit_rows(options, [TaskCommitMessage(topic, told.transaction, 1)], 6)
    assert sorted(value or b"" for _, _, value in _read(gateway, topic)) == [b"next", b"once"]


def test_a_job_that_is_no_stream_leaves_no_record(gateway: RunningGateway, topic: str) -> None:
    options = _options(gateway, topic)
    told = _send(options, _rows(value=["x"]), name=f"spark/{topic}/0/0")
    commit_rows(options, [TaskCommitMessage(topic, told.transaction, 1)], BATCH_JOB)
    assert [value for _, _, value in _read(gateway, topic)] == [b"x"]
    assert gateway.broker.transactions.application_record(f"spark/{topic}") is None


def test_abort_takes_back_what_is_open_and_never_what_is_committed(gateway: RunningGateway, topic: str) -> None:
    options = _options(gateway, topic)
    first = _send(options, _rows(value=["kept"]), name=f"spark/{topic}/0/0")
    told = [TaskCommitMessage(topic, first.transaction, 1)]
    commit_rows(options, told, 0)
    abort_rows(options, told)  # Spark does this when the answer to a commit was lost
    second = _send(options, _rows(value=["taken back"]), name=f"spark/{topic}/1/0")
    abort_rows(options, [TaskCommitMessage(topic, second.transaction, 1)])
    assert [value for _, _, value in _read(gateway, topic)] == [b"kept"]


def test_what_lost_attempts_left_open_is_aborted_with_the_commit(gateway: RunningGateway, topic: str) -> None:
    options = _options(gateway, topic)
    _send(options, _rows(value=["of an attempt that died"]), name=f"spark/{topic}/0/0")
    won = _send(options, _rows(value=["of its successor"]), name=f"spark/{topic}/0/1")
    commit_rows(options, [TaskCommitMessage(topic, won.transaction, 1)], 0)
    assert [value for _, _, value in _read(gateway, topic)] == [b"of its successor"]
    with closing(BlockingClient(options.client)) as cluster:
        assert cluster.open_transactions(f"spark/{topic}/") == []


def test_the_next_attempt_fences_the_one_before(gateway: RunningGateway, topic: str) -> None:
    options = _options(gateway, topic)
    has_sent, is_late = threading.Event(), threading.Event()
    outcome: list[BaseException | None] = []

    def rows() -> Iterator[pa.RecordBatch]:
        yield _rows(value=["a" * 5_000_000])
        has_sent.set()
        is_late.wait(20)
        yield _rows(value=["b"])

    def zombie() -> None:
        try:
            _send_all(options, rows(), f"spark/{topic}/0/0")
            outcome.append(None)
        except PenstockError as error:
            outcome.append(error)

    options = _options(gateway, topic, **{"kafka.batch.size": "900000"})
    gateway.run(gateway.broker.configure_topic(topic, _large_messages()))
    thread = threading.Thread(target=zombie)
    thread.start()
    assert has_sent.wait(30)
    told = _send(options, _rows(value=["of the successor"]), name=f"spark/{topic}/0/0")
    is_late.set()
    thread.join(30)
    assert isinstance(outcome[0], FencedTaskError)
    commit_rows(options, [TaskCommitMessage(topic, told.transaction, 1)], 0)
    assert [value for _, _, value in _read(gateway, topic)] == [b"of the successor"]


def _large_messages() -> Any:
    from penstock.broker import TopicConfig

    return TopicConfig({"max.message.bytes": str(16 << 20)})


def test_each_row_is_there_once_though_the_broker_restarts_while_they_are_sent(gateway: RunningGateway, topic: str) -> None:
    options = _options(gateway, topic, **{"kafka.batch.size": "2000"})
    stop = threading.Event()

    def restarts() -> None:
        while not stop.wait(0.3):
            with suppress(OSError):
                gateway.restart()

    def rows() -> Iterator[pa.RecordBatch]:
        for begin in range(0, 20_000, 500):
            time.sleep(0.02)
            numbers = [str(number) for number in range(begin, begin + 500)]
            yield _rows(key=numbers, value=numbers)

    thread = threading.Thread(target=restarts)
    thread.start()
    try:
        told = _send_all(options, rows(), f"spark/{topic}/0/0")
    finally:
        stop.set()
        thread.join(30)
    commit_rows(options, [TaskCommitMessage(topic, told.transaction, told.rows)], 0)
    found = [int(value or b"") for _, _, value in _read(gateway, topic)]
    assert len(found) == 20_000
    assert sorted(found) == list(range(20_000))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topik": "x"}, "did you mean topic"),
        ({"kafka.acks": "1"}, "kafka.acks is '1'"),
        ({"kafka.compression.type": "lzma"}, "it takes none or gzip"),
        ({"kafka.transactional.id": "x"}, "guarantee=exactly_once"),
        ({"path": "x"}, "name the topic with the option topic"),
    ],
)
def test_a_wrong_option_is_told(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        write_options({"kafka.bootstrap.servers": "127.0.0.1:9092", **options})
