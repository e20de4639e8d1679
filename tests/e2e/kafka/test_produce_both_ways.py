"""Produce requests parsed by the kernel and by the codecs get the same replies, byte by byte, whatever is wrong with them.

A byte behind a request is passed over, but leaves the request to the codecs.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker import TopicConfig
from penstock.core.record_compression import GZIP, LZ4, ZSTD, compress_like
from penstock.core.record_format import Writer, framed, packed_record
from penstock.kafka.protocol import decode_response, keys
from penstock.kafka.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.e2e.kafka.raw_client import RawClient, frame_of
from tests.e2e.kafka.running_gateway import RunningGateway

VERSIONS = (3, 6, 8, 9, 12, 13)
HOUR_MS = 3_600_000
NOW_MS = int(time.time() * 1000)


def _batch(*values: bytes | None, key: bytes | None = b"k", ms: int = NOW_MS, codec: int = 0, **changes: Any) -> bytes:
    records = b"".join(packed_record(delta, value, key=key) for delta, value in enumerate(values))
    latest_ms = changes.pop("latest_ms", ms)
    packed = compress_like(codec, memoryview(b""), records) if codec else records
    return framed(packed, changes.pop("count", len(values)), (ms, latest_ms), attributes=codec, **changes)


def _damaged(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


# Sent one after another, with the partition they are for.
BATCHES: list[tuple[int, bytes]] = [
    (0, _batch(b"a", b"b")),
    (1, _batch(b"a", writer=Writer(7, 0, 0))),
    (1, _batch(b"a", writer=Writer(7, 0, 0))),  # a duplicate
    (1, _batch(b"b", writer=Writer(7, 0, 5))),  # a gap
    (1, _batch(b"c", writer=Writer(7, -1, 1))),  # an old epoch
    (1, _batch(b"d", writer=Writer(7, 0, -1))),
    (0, _damaged(_batch(b"crc"), 70)),
    (0, _damaged(_batch(b"magic"), 16)),
    (0, _damaged(_batch(b"length"), 11)),
    (0, _batch(b"count", count=2)),
    (0, _batch(b"offset", base_offset=3)),
    (0, _batch(b"early", b"late", latest_ms=NOW_MS + 5)),
    (0, _batch(b"from the future", ms=NOW_MS + 10 * HOUR_MS)),
    (0, _batch(b"no time", ms=-1)),
    (0, _batch(b"no key", b"nor here", key=None)),
    (0, _batch(b"x" * 70_000)),
    (0, _batch(b"x" * 3_000_000)),
    (0, _batch(b"lz4" * 100, codec=LZ4)),
    (0, _batch(b"gzip" * 10_000, codec=GZIP)),
    (0, _damaged(_batch(b"lz4" * 100, codec=LZ4), 70)),
    (0, _batch(b"zstd", codec=ZSTD)),
    (9, _batch(b"no such partition")),
    (0, b"short"),
    (0, _batch(b"two") + _batch(b"batches")),
    (0, _batch(b"last")),
]


@pytest.fixture(scope="module", params=[{}, {"cleanup.policy": "compact"}, {"message.timestamp.type": "LogAppendTime"}], ids=str)
def topics(request: pytest.FixtureRequest, gateway: RunningGateway) -> Iterator[tuple[str, str]]:
    """Two topics that are alike."""
    names = ("both-1", "both-2")
    for name in names:
        gateway.create_topic(name, 2, config=TopicConfig(request.param))
    yield names
    for name in names:
        gateway.run(gateway.broker.delete_topic(name))


def _request(gateway: RunningGateway, topic: str, version: int, parts: list[tuple[int, bytes]], acks: int = -1) -> bytes:
    data = TopicProduceData(partition_data=[PartitionProduceData(index=index, records=raw) for index, raw in parts])
    if version >= 13:
        data.topic_id = gateway.broker.catalog.topic(topic).id.bytes
    else:
        data.name = topic
    return frame_of(keys.PRODUCE, version, ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data]))


def _reply(client: RawClient, frame: bytes) -> bytes:
    client.socket.sendall(frame)
    reply = client.receive_frame()
    assert reply is not None, "the broker has hung up"
    return reply


def _with_tail(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame) - 3) + frame[4:] + b"\0"


def _told(reply: bytes, version: int) -> list[Any]:
    """What a reply says, without the name of its topic and the time of the broker."""
    _, response = decode_response(keys.PRODUCE, version, reply)
    assert isinstance(response, ProduceResponse)
    parts = [part for topic in response.responses for part in topic.partition_responses]
    for part in parts:
        part.log_append_time_ms = min(part.log_append_time_ms, 0)
        if part.error_message:  # which may name the topic, or say how far the time is off
            part.error_message = "".join(char for char in part.error_message if not char.isdigit())
    return [response.throttle_time_ms, parts]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_batch_gets_the_same_reply(
    gateway: RunningGateway, client: RawClient, topics: tuple[str, str], version: int
) -> None:
    for number, part in enumerate(BATCHES):
        plain = _reply(client, _request(gateway, topics[0], version, [part]))
        other = _reply(client, _with_tail(_request(gateway, topics[1], version, [part])))
        assert _told(plain, version) == _told(other, version), f"batch {number}"
    ends = [[gateway.partition(topic, n).end_offset for n in (0, 1)] for topic in topics]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_with_many_batches_gets_the_same_reply(
    gateway: RunningGateway, client: RawClient, topics: tuple[str, str], version: int
) -> None:
    is_parsed = [(index, raw) for index, raw in BATCHES if len(raw) >= 61 and not (raw[22] == ZSTD and version < 7)]
    plain = _reply(client, _request(gateway, topics[0], version, is_parsed))
    other = _reply(client, _with_tail(_request(gateway, topics[1], version, is_parsed)))
    assert _told(plain, version) == _told(other, version)


def test_a_good_batch_gets_the_same_bytes(gateway: RunningGateway, client: RawClient) -> None:
    gateway.create_topic("same")
    for version in VERSIONS:
        frame = _request(gateway, "same", version, [(0, _batch(b"v", writer=Writer(version, 0, 0)))])
        # The second is a duplicate of the first, and told the same offset.
        assert _reply(client, frame) == _reply(client, _with_tail(frame))


@pytest.mark.parametrize("tail", [b"", b"\0"])
def test_without_acks_only_an_error_is_told_by_closing(gateway: RunningGateway, tail: bytes, topic: str) -> None:
    with RawClient(gateway.port) as client:
        for raw, is_closed in ((_batch(b"good"), False), (_damaged(_batch(b"bad"), 70), True)):
            frame = _request(gateway, topic, 9, [(0, raw)], acks=0)
            client.socket.sendall(_with_tail(frame) if tail else frame)
            if not is_closed:
                assert _told(_reply(client, _request(gateway, topic, 9, [(0, _batch(b"next"))])), 9)[1][0].base_offset == 1
        assert client.receive_frame() is None
