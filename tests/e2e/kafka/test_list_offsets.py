"""ListOffsets: exact to the record, whatever a batch is compressed with."""

from __future__ import annotations

import gzip
import time
from struct import pack

import cramjam
import pytest

from penstock.core.checksum import crc32c
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import RunningGateway

NONE, GZIP, SNAPPY, LZ4, ZSTD, XERIAL = range(6)
# Recent enough for the retention that topics have by default.
BASE = int(time.time() * 1000) - 60_000


def varint(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes(out) + bytes([zigzag])


def compressed(records: bytes, codec: int) -> bytes:
    if codec == GZIP:
        return gzip.compress(records)
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(records))
    if codec == XERIAL:
        half = len(records) // 2
        chunks = [bytes(cramjam.snappy.compress_raw(part)) for part in (records[:half], records[half:])]
        return b"\x82SNAPPY\x00" + pack(">ii", 1, 1) + b"".join(pack(">i", len(chunk)) + chunk for chunk in chunks)
    if codec == LZ4:
        return bytes(cramjam.lz4.compress(records))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(records))
    return records


def timed_batch(stamps: list[int], codec: int = NONE) -> bytes:
    """A batch whose records have these timestamps."""
    records = b""
    for delta, stamp in enumerate(stamps):
        body = b"\0" + varint(stamp - stamps[0]) + varint(delta) + varint(-1) + varint(5) + b"value" + varint(0)
        records += varint(len(body)) + body
    packed = compressed(records, codec)
    attributes = SNAPPY if codec == XERIAL else codec
    count = len(stamps)
    tail = pack(">hiqqqhii", attributes, count - 1, stamps[0], max(stamps), -1, -1, -1, count) + packed
    return pack(">qiibI", 0, len(tail) + 9, 0, 2, crc32c(tail)) + tail


def ask(client: RawClient, topic: str, timestamp: int, version: int = 8) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    request = ListOffsetsRequest(replica_id=-1, topics=[asked])
    return client.call(keys.LIST_OFFSETS, version, request, ListOffsetsResponse).topics[0].partitions[0]


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD, XERIAL])
def test_the_first_record_from_a_time_on_is_found(client: RawClient, topic: str, codec: int) -> None:
    client.produce(topic, timed_batch([BASE, BASE + 10, BASE + 20], codec))
    client.produce(topic, timed_batch([BASE + 30, BASE + 25, BASE + 40], codec))
    expected = {0: 0, 1: 1, 10: 1, 11: 2, 21: 3, 30: 3, 31: 5, 40: 5}
    found = {after: ask(client, topic, BASE + after) for after in expected}
    assert {after: one.offset for after, one in found.items()} == expected
    assert found[11].timestamp == BASE + 20
    late = ask(client, topic, BASE + 41)
    assert (late.error_code, late.offset, late.timestamp) == (errors.NONE, -1, -1)


@pytest.mark.parametrize("version", range(1, 12))
def test_the_special_offsets(client: RawClient, gateway: RunningGateway, topic: str, version: int) -> None:
    client.produce(topic, timed_batch([BASE, BASE + 90, BASE + 20]))
    client.produce(topic, timed_batch([BASE + 30]))
    partition = gateway.partition(topic)
    gateway.run(partition.trim(1))
    assert ask(client, topic, -1, version).offset == 4
    assert ask(client, topic, -2, version).offset == 1
    assert ask(client, topic, -3, version).offset == 1
    assert ask(client, topic, -3, version).timestamp == BASE + 90
    assert ask(client, topic, -4, version).offset == 1
    assert ask(client, topic, -5, version).offset == -1


def test_records_before_the_start_are_not_found(client: RawClient, gateway: RunningGateway, topic: str) -> None:
    client.produce(topic, timed_batch([BASE + 90, BASE, BASE]))
    client.produce(topic, timed_batch([BASE + 90]))
    gateway.run(gateway.partition(topic).trim(1))
    assert ask(client, topic, BASE + 50).offset == 3


def test_an_empty_partition_has_no_latest_time(client: RawClient, topic: str) -> None:
    assert ask(client, topic, -3).offset == -1


def test_an_unknown_partition_is_said_to_be_unknown(client: RawClient) -> None:
    assert ask(client, "never-created", -1).error_code == errors.UNKNOWN_TOPIC_OR_PARTITION


def test_a_batch_nobody_can_read_is_found_as_a_whole(client: RawClient, gateway: RunningGateway, topic: str) -> None:
    batch = bytearray(timed_batch([BASE, BASE + 10]))
    batch[22] = ZSTD  # it is not
    batch[17:21] = pack(">I", crc32c(bytes(batch[21:])))
    # A client could store it once, before the records of batches were checked.
    gateway.run(gateway.broker_of(topic).produce(gateway.broker.catalog.topic(topic), 0, bytes(batch)))
    assert ask(client, topic, BASE + 5).offset == 0
