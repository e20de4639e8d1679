"""Messages, written and read with the SDK: what is in them, in which order they come, and what is refused."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import ydb
import zstandard
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.e2e.running_node import RunningNode
from tests.e2e.ydb.ydb_node import read_all, ydb_port

CODECS = [ydb.TopicCodec.RAW, ydb.TopicCodec.GZIP, 4]


def _message(data: bytes | str, **fields: Any) -> Any:
    return ydb.TopicWriterMessage(data, **fields)


@pytest.mark.parametrize("codec", CODECS)
def test_a_message_is_read_as_it_was_written(driver: Any, path: str, codec: int) -> None:
    client = driver.topic_client
    created_at = datetime.now(UTC).replace(microsecond=89_000) - timedelta(hours=1)
    with client.writer(
        path, producer_id="a source", codec=codec, auto_created_at=False, auto_seqno=False, encoders={4: zstandard.compress}
    ) as writer:
        writer.write(_message(b"first" * 100, seqno=3, created_at=created_at, metadata_items={"color": b"\0red", "__key": b"k"}))
        writer.write(_message("second", seqno=7, created_at=created_at + timedelta(seconds=1)))
    first, second = read_all(client, path, "reader", 2)
    assert (first.data, second.data) == (b"first" * 100, b"second")
    assert (first.seqno, second.seqno) == (3, 7)
    assert (first.producer_id, first.message_group_id) == ("a source", "a source")
    assert first.created_at == created_at.replace(tzinfo=None)
    assert second.created_at == first.created_at + timedelta(seconds=1)
    assert first.metadata_items == {"color": b"\0red", "__key": b"k"}
    assert (first.offset, second.offset) == (0, 1)


def test_a_writer_goes_on_where_its_producer_stopped_and_repeats_nothing(driver: Any, path: str) -> None:
    client = driver.topic_client
    with client.writer(path, producer_id="source") as writer:
        assert writer.wait_init().last_seqno == 0
        assert [type(ack).__name__ for ack in (writer.write_with_ack("one"), writer.write_with_ack("two"))] == ["Written"] * 2
    with client.writer(path, producer_id="source", auto_seqno=False) as writer:
        assert writer.wait_init().last_seqno == 2
        acks = writer.write_with_ack([_message(f"again {seqno}", seqno=seqno) for seqno in (3, 9)])
        assert [ack.offset for ack in acks] == [2, 3]
    assert [message.data for message in read_all(client, path, "reader", 4)] == [b"one", b"two", b"again 3", b"again 9"]


def test_the_producer_stays_in_its_partition(driver: Any, path: str) -> None:
    client = driver.topic_client
    for number in (0, 1):
        with client.writer(path, producer_id=f"source {number}", partition_id=number) as writer:
            writer.write("there")
    client.alter_topic(path, set_min_active_partitions=7)
    for number in (0, 1):
        with client.writer(path, producer_id=f"source {number}") as writer:
            assert writer.write_with_ack("there").offset == 1
    found = client.describe_topic(path, include_stats=True)
    assert [one.partition_stats.partition_end for one in found.partitions] == [2, 2, 0, 0, 0, 0, 0]
    with (
        pytest.raises(ydb.BadRequest, match="writes to partition 0"),
        client.writer(path, producer_id="source 0", partition_id=1) as writer,
    ):
        writer.wait_init()


def test_a_new_writer_takes_over(node: RunningNode, driver: Any, path: str) -> None:
    async def run() -> None:
        async with _async_driver(node) as made:
            old = made.topic_client.writer(path, producer_id="source")
            await old.write_with_ack("by the old one")
            async with made.topic_client.writer(path, producer_id="source") as new:
                assert (await new.wait_init()).last_seqno == 1
                # The old one opens another stream when its own is over, which ends the new one's, and so on until it is closed.
                # Sent again by a later stream, a message that was written before may be answered as skipped.
                await old.close(flush=False)
                await new.write_with_ack("by the new one")

    asyncio.run(run())
    found = [(one.seqno, one.data) for one in read_all(driver.topic_client, path, "reader", 2)]
    assert found == [(1, b"by the old one"), (2, b"by the new one")]
    written = driver.topic_client.describe_topic(path, include_stats=True).partitions
    assert sum(one.partition_stats.partition_end for one in written) == 2


def test_the_async_sdk_writes_and_reads(node: RunningNode, path: str) -> None:
    async def run() -> None:
        async with _async_driver(node) as driver:
            client = driver.topic_client
            async with client.writer(path, producer_id="async") as writer:
                for number in range(1000):
                    await writer.write(f"message {number}")
            async with client.reader(path, consumer="reader") as reader:
                found: list[bytes] = []
                while len(found) < 1000:
                    batch = await asyncio.wait_for(reader.receive_batch(), 30)
                    found += [message.data for message in batch.messages]
                    await reader.commit_with_ack(batch)
            assert found == [f"message {number}".encode() for number in range(1000)]

    asyncio.run(run())


def test_a_message_of_20_mb_comes_through_a_small_buffer(driver: Any, path: str) -> None:
    client = driver.topic_client
    data = bytes(range(256)) * (20_000_000 // 256)
    with client.writer(path, producer_id="big", codec=ydb.TopicCodec.RAW) as writer:
        writer.write([data, "after it"])
    found: list[bytes] = []
    with client.reader(path, consumer="reader", buffer_size_bytes=1000) as reader:
        while len(found) < 2:
            batch = reader.receive_batch(timeout=30)
            found += [message.data for message in batch.messages]
            reader.commit_with_ack(batch)
    assert found[0] == data
    assert found[1] == b"after it"


def test_reading_begins_at_a_time(driver: Any, path: str) -> None:
    client = driver.topic_client
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=30)
    with client.writer(path, producer_id="source", auto_created_at=False) as writer:
        writer.write([_message(str(hour), created_at=start + timedelta(hours=hour)) for hour in range(20)])
    selector = ydb.TopicReaderSelector(path=path, read_from=start + timedelta(hours=15))
    with client.reader(selector, consumer="reader") as reader:
        assert [message.data for message in reader.receive_batch(timeout=30).messages] == [b"15", b"16", b"17", b"18", b"19"]


def test_partitions_are_read_without_a_consumer(driver: Any, path: str) -> None:
    client = driver.topic_client
    with client.writer(path, producer_id="source", partition_id=1) as writer:
        writer.write(["one", "two", "three"])
    selector = ydb.TopicReaderSelector(path=path, partitions=[1])

    class FromOne(ydb.TopicReaderEvents.EventHandler):  # type: ignore[misc]
        def on_partition_get_start_offset(self, event: Any) -> Any:
            return ydb.TopicReaderEvents.OnPartitionGetStartOffsetResponse(1)

    with client.reader(selector, consumer=None, event_handler=FromOne()) as reader:
        assert [message.data for message in reader.receive_batch(timeout=30).messages] == [b"two", b"three"]


def test_what_is_wrong_ends_the_writer_with_a_status(driver: Any, path: str) -> None:
    client = driver.topic_client
    with pytest.raises(ydb.SchemeError), client.writer("/local/nowhere") as writer:
        writer.wait_init()
    client.alter_topic(path, set_supported_codecs=[ydb.TopicCodec.RAW])
    with pytest.raises(ydb.BadRequest, match="does not take codec 2"), client.writer(path, codec=ydb.TopicCodec.GZIP) as writer:
        writer.write_with_ack("zipped")
    client.alter_topic(path, set_supported_codecs=[ydb.TopicCodec.GZIP])
    with (
        pytest.raises(ydb.BadRequest, match="is not gzip"),
        client.writer(path, codec=ydb.TopicCodec.GZIP, encoders={ydb.TopicCodec.GZIP: lambda data: data}) as writer,
    ):
        writer.write_with_ack("not zipped")
    with pytest.raises(ydb.BadRequest, match="names that begin with"), client.writer(path) as writer:
        writer.write_with_ack(_message("mine", metadata_items={"ydb.producer": b"somebody"}))


def test_what_is_wrong_ends_the_reader_with_a_status(driver: Any, path: str) -> None:
    client = driver.topic_client
    for consumer, where in (("reader", "/local/nowhere"), ("absent", path)):
        with pytest.raises(ydb.SchemeError), client.reader(where, consumer=consumer) as reader:
            reader.receive_batch(timeout=30)


def test_a_full_topic_is_overloaded_until_there_is_room(driver: Any, path: str, node: RunningNode) -> None:
    client = driver.topic_client
    name = path.removeprefix("/local/")
    node.ok("topic", "alter", name, "--set", "penstock.limit.messages=2")
    with client.writer(path, producer_id="source", partition_id=0) as writer:
        writer.write_with_ack(["one", "two"])
        waiting = writer.async_write_with_ack("three")
        with pytest.raises(TimeoutError):
            waiting.result(timeout=1)
        node.ok("topic", "alter", name, "--set", "penstock.limit.messages=3")
        assert waiting.result(timeout=60).offset == 2


def test_messages_of_ydb_are_records_of_kafka(driver: Any, path: str, node: RunningNode) -> None:
    name = path.removeprefix("/local/")
    with driver.topic_client.writer(path, producer_id="source", partition_id=0, codec=ydb.TopicCodec.GZIP) as writer:
        writer.write([_message("value", metadata_items={"__key": b"key", "color": b"red"}), "bare"])
    for headers in ({"color": b"red"}, {"ydb.producer": b"source", "ydb.seqno": b"1", "color": b"red"}):
        consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "any", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition(name, 0, 0)])
        found: list[Any] = []
        while len(found) < 2:
            found += consumer.consume(2, 30.0)
        consumer.close()
        assert [(record.key(), record.value()) for record in found] == [(b"key", b"value"), (None, b"bare")]
        assert dict(found[0].headers() or ()) == headers
        node.ok("topic", "alter", name, "--set", "penstock.headers.visible=true")


@pytest.mark.parametrize("idempotent", [False, True])
def test_records_of_kafka_are_messages_of_ydb(driver: Any, path: str, node: RunningNode, *, idempotent: bool) -> None:
    name = path.removeprefix("/local/")
    now = datetime.now(UTC).replace(microsecond=123_000)
    producer = Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": idempotent})
    producer.produce(name, b"value", b"key", 0, headers=[("color", b"red")], timestamp=int(now.timestamp() * 1000))
    producer.produce(name, None, b"gone", 0)
    assert producer.flush(30) == 0
    first, second = read_all(driver.topic_client, path, "reader", 2)
    assert (first.data, first.metadata_items) == (b"value", {"__key": b"key", "color": b"red"})
    assert (second.data, second.metadata_items) == (b"", {"__key": b"gone"})
    assert first.created_at == now.replace(tzinfo=None)
    assert (first.seqno, second.seqno) == (1, 2)
    assert first.producer_id.startswith("kafka-") == idempotent


def _async_driver(node: RunningNode) -> Any:
    return ydb.aio.Driver(endpoint=f"grpc://127.0.0.1:{ydb_port(node)}", database="/local")


def test_a_topic_made_by_others_is_written_and_read(driver: Any, node: RunningNode) -> None:
    node.ok("topic", "create", "of-others")
    client = driver.topic_client
    client.alter_topic("/local/of-others", add_consumers=["reader"])
    data = bytes(range(256)) * 4
    with client.writer("/local/of-others", producer_id="source", codec=ydb.TopicCodec.RAW) as writer:
        writer.write([data] * 3000)
    with (
        pytest.raises(ydb.BadRequest, match="the topic takes 1048588"),
        client.writer("/local/of-others", codec=ydb.TopicCodec.RAW) as writer,
    ):
        writer.write_with_ack(bytes(2_000_000))
    assert [message.data for message in read_all(client, "/local/of-others", "reader", 3000)] == [data] * 3000


def test_of_transactions_of_kafka_only_what_is_committed_is_read(driver: Any, path: str, node: RunningNode) -> None:
    name = path.removeprefix("/local/")
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for end, value in ((producer.abort_transaction, b"aborted"), (producer.commit_transaction, b"committed")):
        producer.begin_transaction()
        producer.produce(name, value, partition=0)
        producer.flush(30)
        end(30)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    producer.flush(30)
    with driver.topic_client.reader(path, consumer="reader") as reader:
        assert [message.data for message in reader.receive_batch(timeout=30).messages] == [b"committed"]
        with pytest.raises(TimeoutError):
            reader.receive_batch(timeout=0.5)
        producer.commit_transaction(30)
        assert [message.data for message in reader.receive_batch(timeout=30).messages] == [b"open"]
