"""Frames of the Kafka protocol that a load generator sends as ready bytes, and the error codes in the replies to them."""

from __future__ import annotations

from struct import Struct

from penstock.kafka.protocol import encode_request, keys
from penstock.kafka.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.kafka.protocol.metadata import MetadataRequest, MetadataRequestTopic
from penstock.kafka.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData

CLIENT_ID = "bench"
PRODUCE_VERSION = 9
FETCH_VERSION = 11
METADATA_VERSION = 8
FETCH_BYTES_MAX = 1 << 20

_ERROR_CODE = Struct(">h")


def produce_frame(topic: str, partition: int, batch: bytes) -> bytes:
    """A produce of one batch with acks=all."""
    place = PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[place])])
    return b"".join(encode_request(keys.PRODUCE, PRODUCE_VERSION, 0, CLIENT_ID, request)[0])


def produce_error_at(topic: str) -> int:
    """Where a reply to `produce_frame` has its error code: after the size, the correlation id, the tags of the header, the array
    of one topic, its name with a length, the array of one partition, and its number."""
    return 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4


def fetch_frame(topic: str, partition: int, offset: int, *, max_wait_ms: int) -> bytes:
    """A fetch of one partition outside any session, which is answered at the first byte or after the wait."""
    place = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX)
    topics = [FetchTopic(topic=topic, partitions=[place])]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=FETCH_BYTES_MAX, topics=topics)
    return b"".join(encode_request(keys.FETCH, FETCH_VERSION, 0, CLIENT_ID, request)[0])


def fetch_error_at(topic: str) -> int:
    """Where a reply to `fetch_frame` has the error code of its partition: after the size, the correlation id, the throttle time,
    the error code and the id of the session, the array of one topic, its name, the array of one partition, and its number."""
    return 4 + 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4


def create_frame(topic: str) -> bytes:
    """A question about a topic that creates it, if the broker may."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    return b"".join(encode_request(keys.METADATA, METADATA_VERSION, 0, CLIENT_ID, request)[0])


def error_code(reply: bytes | bytearray, at: int) -> int:
    """The error code at a place of a reply."""
    code: int = _ERROR_CODE.unpack_from(reply, at)[0]
    return code
