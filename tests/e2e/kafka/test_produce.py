"""Produce: what is stored, and Kafka's own code for what is refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock.broker import TopicConfig
from penstock.core.record_format import FROM_STREAMS, FROM_YDB, FROM_YT
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.testing.batches import make_batch, make_marker, values_of
from tests.e2e.kafka.raw_client import RawClient, produce_request
from tests.e2e.kafka.running_gateway import RunningGateway


def batch_of(*values: bytes, producer_id: int = -1, epoch: int = -1, sequence: int = -1, attributes: int = 0) -> bytes:
    """A batch from just now."""
    return make_batch(
        list(values),
        timestamp=int(time.time() * 1000),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=attributes,
    )


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [3, 7, 8, 9, 12])
def test_a_batch_gets_the_next_offset(client: RawClient, topic: str, acks: int, version: int) -> None:
    assert client.produce(topic, batch_of(b"a", b"b"), acks=acks, version=version).base_offset == 0
    assert client.produce(topic, batch_of(b"c"), acks=acks, version=version).base_offset == 2


def test_a_topic_is_named_by_id_in_version_13(gateway: RunningGateway, client: RawClient, topic: str) -> None:
    topic_id = gateway.broker.catalog.topic(topic).id.bytes
    data = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=batch_of(b"a"))])
    response = client.call(keys.PRODUCE, 13, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), ProduceResponse)
    assert response.responses[0].topic_id == topic_id
    assert response.responses[0].partition_responses[0].error_code == errors.NONE


def test_an_unknown_topic_id_is_said_to_be_unknown(client: RawClient) -> None:
    data = TopicProduceData(topic_id=b"?" * 16, partition_data=[PartitionProduceData(index=0, records=batch_of(b"a"))])
    response = client.call(keys.PRODUCE, 13, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == errors.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("attributes", [FROM_YDB, FROM_YT, FROM_STREAMS, 0x4000])
def test_no_client_of_kafka_can_pass_for_another_gateway(client: RawClient, topic: str, attributes: int) -> None:
    assert client.produce(topic, batch_of(b"a", attributes=attributes)).error_code == errors.INVALID_RECORD
    assert client.produce(topic, batch_of(b"b")).base_offset == 0


def test_without_acks_there_is_no_reply(client: RawClient, topic: str) -> None:
    client.send(keys.PRODUCE, 9, produce_request(topic, batch_of(b"quiet"), acks=0))
    assert client.produce(topic, batch_of(b"loud")).base_offset == 1


def test_without_acks_an_error_closes_the_connection(client: RawClient) -> None:
    client.send(keys.PRODUCE, 9, produce_request("never-created", batch_of(b"quiet"), acks=0))
    assert client.receive_frame() is None


def test_pipelined_requests_are_stored_and_answered_in_order(client: RawClient, topic: str) -> None:
    sent = [client.send(keys.PRODUCE, 9, produce_request(topic, batch_of(b"%d" % number))) for number in range(300)]
    for expected_offset, expected_id in enumerate(sent):
        correlation_id, response = client.receive(keys.PRODUCE, 9, ProduceResponse)
        assert correlation_id == expected_id
        assert response.responses[0].partition_responses[0].base_offset == expected_offset
    data = client.fetch(topic, 0).records
    assert isinstance(data, memoryview)
    assert [value for _, value in values_of(data)] == [b"%d" % number for number in range(300)]


def test_a_repeated_batch_of_an_idempotent_producer_is_stored_once(client: RawClient, topic: str) -> None:
    first = batch_of(b"a", producer_id=7, epoch=0, sequence=0)
    second = batch_of(b"b", producer_id=7, epoch=0, sequence=1)
    offsets = [client.produce(topic, batch).base_offset for batch in (first, second, first, second)]
    assert offsets == [0, 1, 0, 1]
    assert client.fetch(topic, 0).high_watermark == 2


def test_a_batch_of_long_ago_is_a_duplicate_without_offset(client: RawClient, topic: str) -> None:
    batches = [batch_of(b"x", producer_id=7, epoch=0, sequence=number) for number in range(8)]
    for batch in batches:
        client.produce(topic, batch)
    again = client.produce(topic, batches[0])
    assert (again.error_code, again.base_offset) == (errors.DUPLICATE_SEQUENCE_NUMBER, -1)


def test_a_producer_is_known_after_a_restart(tmp_path: Path) -> None:
    batch = batch_of(b"once", producer_id=9, epoch=0, sequence=0)
    with RunningGateway(tmp_path) as gateway:
        gateway.create_topic("kept")
        with RawClient(gateway.port) as client:
            assert client.produce("kept", batch).base_offset == 0
        gateway.restart()
        with RawClient(gateway.port) as client:
            assert client.produce("kept", batch).base_offset == 0
            assert client.fetch("kept", 0).high_watermark == 1


def test_a_gap_in_the_sequence_is_refused(client: RawClient, topic: str) -> None:
    client.produce(topic, batch_of(b"a", producer_id=7, epoch=0, sequence=0))
    refused = client.produce(topic, batch_of(b"c", producer_id=7, epoch=0, sequence=5))
    assert refused.error_code == errors.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_old_epoch_is_refused(client: RawClient, topic: str) -> None:
    client.produce(topic, batch_of(b"new", producer_id=7, epoch=3, sequence=0))
    refused = client.produce(topic, batch_of(b"old", producer_id=7, epoch=2, sequence=1))
    assert refused.error_code == errors.INVALID_PRODUCER_EPOCH


def damaged(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def of_magic(batch: bytes, magic: int) -> bytes:
    return batch[:16] + bytes([magic]) + batch[17:]


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (damaged(batch_of(b"a")), errors.CORRUPT_MESSAGE),
        (of_magic(batch_of(b"a"), 1), errors.INVALID_RECORD),
        (of_magic(batch_of(b"a"), 3), errors.INVALID_RECORD),
        (batch_of(b"a") + batch_of(b"b"), errors.INVALID_RECORD),
        (batch_of(b"a")[:-1], errors.INVALID_RECORD),
        (b"", errors.INVALID_RECORD),
        (b"short", errors.INVALID_RECORD),
        (batch_of(bytes(2 << 20)), errors.MESSAGE_TOO_LARGE),
        (make_marker(commit=True, producer_id=1), errors.INVALID_RECORD),
        (batch_of(b"a", producer_id=1, epoch=0, sequence=0, attributes=0x10), errors.INVALID_PRODUCER_ID_MAPPING),
    ],
    ids=[
        "checksum",
        "old format",
        "new format",
        "two batches",
        "cut off",
        "empty",
        "no batch",
        "large",
        "control",
        "transaction",
    ],
)
def test_a_bad_batch_is_refused_with_its_code(client: RawClient, topic: str, batch: bytes, code: int) -> None:
    refused = client.produce(topic, batch)
    assert (refused.error_code, refused.base_offset) == (code, -1)
    assert refused.error_message
    assert client.produce(topic, batch_of(b"good")).base_offset == 0


def test_an_unknown_topic_or_partition_is_said_to_be_unknown(client: RawClient, topic: str) -> None:
    assert client.produce("never-created", batch_of(b"a")).error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce(topic, batch_of(b"a"), partition=1).error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce(topic, batch_of(b"a"), partition=-1).error_code == errors.UNKNOWN_TOPIC_OR_PARTITION


def test_acks_that_do_not_exist_are_refused(client: RawClient, topic: str) -> None:
    assert client.produce(topic, batch_of(b"a"), acks=2).error_code == errors.INVALID_REQUIRED_ACKS


def test_one_bad_batch_of_a_request_does_not_harm_the_others(gateway: RunningGateway, client: RawClient) -> None:
    gateway.create_topic("mixed", 2)
    data = TopicProduceData(
        name="mixed",
        partition_data=[
            PartitionProduceData(index=0, records=damaged(batch_of(b"a"))),
            PartitionProduceData(index=1, records=batch_of(b"b")),
        ],
    )
    response = client.call(keys.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), ProduceResponse)
    codes = [one.error_code for one in response.responses[0].partition_responses]
    assert codes == [errors.CORRUPT_MESSAGE, errors.NONE]


def test_a_topic_may_stamp_messages_itself(gateway: RunningGateway, client: RawClient) -> None:
    config = TopicConfig({"message.timestamp.type": "LogAppendTime"})
    gateway.run(gateway.broker.create_topic("stamped", 1, config))
    before = int(time.time() * 1000)
    stored = client.produce("stamped", make_batch([b"a"], timestamp=5))
    assert before <= stored.log_append_time_ms <= int(time.time() * 1000)
