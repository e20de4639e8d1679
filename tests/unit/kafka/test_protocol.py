"""Kafka frames: golden bytes, records that are never copied, and what is said about frames that are wrong."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest

from penstock.core.errors import InvalidRequestError
from penstock.kafka.protocol import (
    APIS,
    Message,
    ProtocolError,
    Splice,
    UnsupportedVersionError,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    errors,
    keys,
)
from penstock.kafka.protocol.cluster import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from penstock.kafka.protocol.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from penstock.kafka.protocol.groups import HeartbeatRequest
from penstock.kafka.protocol.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    MetadataRequest,
    MetadataRequestTopic,
)
from penstock.kafka.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

TOPIC_ID = bytes(range(16))

PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=30_000,
    topic_data=[TopicProduceData(name="logs", partition_data=[PartitionProduceData(index=3, records=b"batch")])],
)
PRODUCED = ProduceResponse(
    responses=[
        TopicProduceResponse(
            name="logs",
            topic_id=TOPIC_ID,
            partition_responses=[PartitionProduceResponse(index=3, base_offset=42, log_start_offset=0)],
        )
    ]
)

GOLDEN_REQUESTS = [
    ("api versions 0", keys.API_VERSIONS, 0, ApiVersionsRequest(), "0012 0000 00000007 0001 63"),
    (
        "api versions 3",
        keys.API_VERSIONS,
        3,
        ApiVersionsRequest(client_software_name="ab", client_software_version="1"),
        "0012 0003 00000007 0001 63 00  03 6162 02 31 00",
    ),
    ("metadata 0 of all topics", keys.METADATA, 0, MetadataRequest(), "0003 0000 00000007 0001 63  00000000"),
    (
        "metadata 1 of all topics",
        keys.METADATA,
        1,
        MetadataRequest(topics=None),
        "0003 0001 00000007 0001 63  ffffffff",
    ),
    (
        "metadata 4",
        keys.METADATA,
        4,
        MetadataRequest(topics=[MetadataRequestTopic(name="logs")], allow_auto_topic_creation=False),
        "0003 0004 00000007 0001 63  00000001 0004 6c6f6773 00",
    ),
    (
        "produce 3",
        keys.PRODUCE,
        3,
        PRODUCE,
        "0000 0003 00000007 0001 63  ffff ffff 00007530 00000001 0004 6c6f6773 00000001 00000003 00000005 6261746368",
    ),
    (
        "produce 9",
        keys.PRODUCE,
        9,
        PRODUCE,
        "0000 0009 00000007 0001 63 00  00 ffff 00007530 02 05 6c6f6773 02 00000003 06 6261746368 00 00 00",
    ),
    (
        "a nullable struct",
        keys.DESCRIBE_TOPIC_PARTITIONS,
        0,
        DescribeTopicPartitionsRequest(cursor=DescribeTopicPartitionsRequestCursor(topic_name="t", partition_index=1)),
        "004b 0000 00000007 0001 63 00  01 000007d0 01 02 74 00000001 00 00",
    ),
    (
        "a nullable struct that is null",
        keys.DESCRIBE_TOPIC_PARTITIONS,
        0,
        DescribeTopicPartitionsRequest(),
        "004b 0000 00000007 0001 63 00  01 000007d0 ff 00",
    ),
]

GOLDEN_RESPONSES = [
    (
        "api versions 0",
        keys.API_VERSIONS,
        0,
        ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, max_version=4)]),
        "00000007  0023 00000001 0012 0000 0004",
    ),
    (
        "api versions 3, whose header stays the oldest",
        keys.API_VERSIONS,
        3,
        ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)]),
        "00000007  0000 02 0012 0000 0004 00 00000000 00",
    ),
    (
        "produce 9",
        keys.PRODUCE,
        9,
        PRODUCED,
        "00000007 00  02 05 6c6f6773 02 00000003 0000 000000000000002a ffffffffffffffff 0000000000000000 01 00 00 00 00000000 00",
    ),
    (
        "produce 13, by topic id",
        keys.PRODUCE,
        13,
        PRODUCED,
        (
            "00000007 00  02 000102030405060708090a0b0c0d0e0f 02 00000003 0000 000000000000002a ffffffffffffffff 0000000000000000"
            " 01 00 00 00 00000000 00"
        ),
    ),
    (
        "fetch 12 with a tagged leader",
        keys.FETCH,
        12,
        FetchResponse(
            session_id=5,
            responses=[
                FetchableTopicResponse(
                    topic="logs",
                    partitions=[
                        PartitionData(
                            error_code=errors.NOT_LEADER_OR_FOLLOWER,
                            high_watermark=9,
                            current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=4),
                            aborted_transactions=None,
                            records=b"batch",
                        )
                    ],
                )
            ],
        ),
        (
            "00000007 00  00000000 0000 00000005 02 05 6c6f6773 02 00000000 0006 0000000000000009 ffffffffffffffff"
            " ffffffffffffffff 00 ffffffff 06 6261746368 01 01 09 00000002 00000004 00 00 00"
        ),
    ),
]


@pytest.mark.parametrize(("key", "version", "message", "golden"), [case[1:] for case in GOLDEN_REQUESTS])
def test_golden_request(key: int, version: int, message: Message, golden: str) -> None:
    frame = bytes.fromhex(golden)
    buffers, size = encode_request(key, version, 7, "c", message)
    assert b"".join(buffers) == struct.pack(">i", len(frame)) + frame
    assert size == 4 + len(frame)
    request = decode_request(frame)
    assert (request.api_key, request.api_version, request.correlation_id, request.client_id) == (key, version, 7, "c")
    assert request.body == message


@pytest.mark.parametrize(("key", "version", "message", "golden"), [case[1:] for case in GOLDEN_RESPONSES])
def test_golden_response(key: int, version: int, message: Message, golden: str) -> None:
    frame = bytes.fromhex(golden)
    buffers, size = encode_response(key, version, 7, message)
    assert b"".join(buffers) == struct.pack(">i", len(frame)) + frame
    assert size == 4 + len(frame)
    again, _ = encode_response(key, version, 7, decode_response(key, version, frame)[1])
    assert b"".join(again) == b"".join(buffers)


@pytest.mark.parametrize("version", range(3, 14))
def test_records_of_a_request_are_a_view_of_its_frame(version: int) -> None:
    buffers, _ = encode_request(keys.PRODUCE, version, 7, "c", PRODUCE)
    frame = bytearray(b"".join(buffers)[4:])
    body = decode_request(memoryview(frame)).body
    assert isinstance(body, ProduceRequest)
    records = body.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert records.tobytes() == b"batch"


@pytest.mark.parametrize("version", range(4, 19))
def test_records_of_a_response_are_handed_on_by_reference(version: int) -> None:
    batch, first, piece = bytes(70_000), memoryview(b"abc"), object()
    spliced = Splice([first, piece], 1_000_003)
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(partitions=[PartitionData(records=batch), PartitionData(records=spliced), PartitionData()])
        ]
    )
    buffers, size = encode_response(keys.FETCH, version, 7, response)
    assert [buffer for buffer in buffers if type(buffer) is not bytearray] == [batch, first, piece]
    assert buffers[1] is batch
    assert size == sum(len(buffer) for buffer in buffers if type(buffer) is bytearray) + 70_000 + 1_000_003
    assert struct.unpack_from(">i", buffers[0]) == (size - 4,)


def test_empty_records_leave_no_empty_buffer() -> None:
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=b"")])])
    buffers, size = encode_response(keys.FETCH, 12, 7, response)
    assert [len(buffer) for buffer in buffers] == [size]


def test_unknown_tags_are_skipped_at_every_depth() -> None:
    frame = bytes.fromhex(
        "0000 0009 00000007 0001 63 01 00 02 6162  00 ffff 00007530 02 05 6c6f6773 02 00000003 06 6261746368"
        " 01 05 01 ff  02 06 00 8001 02 abcd  01 00 01 ff"
    )
    assert decode_request(frame).body == PRODUCE


@pytest.mark.parametrize(
    ("what", "frame"),
    [
        ("nothing", ""),
        ("a header cut short", "0012 0000 000000"),
        ("a client id longer than the frame", "0012 0000 00000007 0005 63"),
        ("a client id of negative length", "0012 0000 00000007 fffe"),
        ("a client id that is not UTF-8", "0012 0000 00000007 0001 ff"),
        ("a flexible header without its tags", "0012 0003 00000007 0001 63"),
        ("a header tag longer than the frame", "0012 0003 00000007 ffff 01 00 7f"),
        ("header tags without end", "0012 0003 00000007 ffff ffffffff0f"),
        ("a string that is not UTF-8", "0003 0004 00000007 ffff  00000001 0001 ff 00"),
        ("null in place of a string", "0003 0004 00000007 ffff  00000001 ffff 00"),
        ("null in place of a compact string", "000c 0004 00000007 ffff 00  00 00000000 01 00 00"),
        ("a negative count", "0003 0004 00000007 ffff  fffffffe 00"),
        ("a count that no frame could hold", "0003 0004 00000007 ffff  7fffffff 00"),
        ("a compact count that no frame could hold", "0000 0009 00000007 ffff 00  00 ffff 00007530 ffffffff0f"),
        ("a varint of more than 32 bits", "0000 0009 00000007 ffff 00  00 ffff 00007530 ffffffff7f"),
        ("a varint without end", "0000 0009 00000007 ffff 00  00 ffff 00007530 ffffffffff"),
        (
            "records longer than the frame",
            "0000 0003 00000007 ffff  ffff ffff 00007530 00000001 0001 6c 00000001 00000003 7fffffff",
        ),
        ("a presence byte that is neither", "004b 0000 00000007 ffff 00  01 000007d0 02 02 74 00000001 00 00"),
        ("a tag that is longer than its value", "0001 000c 00000007 ffff 00" + "00" * 25 + "01 01 01  01 00 03 02 61 00"),
    ],
)
def test_refused(what: str, frame: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_request(bytes.fromhex(frame))
    assert isinstance(caught.value, InvalidRequestError), what
    assert not isinstance(caught.value, UnsupportedVersionError), what


@pytest.mark.parametrize(("key", "version"), [(18, 5), (18, -1), (0, 2), (4, 0), (-1, 0), (999, 0)])
def test_an_unsupported_version_still_gives_the_correlation_id(key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        decode_request(struct.pack(">hhih", key, version, 77, -1))
    assert (caught.value.api_key, caught.value.api_version, caught.value.correlation_id) == (key, version, 77)


def test_no_response_is_written_in_an_unsupported_version() -> None:
    with pytest.raises(UnsupportedVersionError):
        encode_response(keys.PRODUCE, 14, 7, ProduceResponse())


def test_only_produce_advertises_more_than_it_reads() -> None:
    assert {api.key for api in APIS.values() if api.advertised_min != api.min_version} == {keys.PRODUCE}
    assert APIS[keys.PRODUCE].advertised_min == 0


def test_every_key_has_a_name_and_its_two_messages() -> None:
    named = {value for name, value in vars(keys).items() if name.isupper()}
    assert named == set(APIS)
    for api in APIS.values():
        assert api.request_class.__name__ == f"{api.name}Request"
        assert api.response_class.__name__ == f"{api.name}Response"


def test_importing_the_protocol_imports_no_messages() -> None:
    """The package around it is replaced by an empty one, since a gateway does import the messages it serves."""
    source = """
import sys, types, penstock.gateway
around = types.ModuleType("penstock.gateway.kafka")
around.__path__ = [penstock.gateway.__path__[0] + "/kafka"]
sys.modules[around.__name__] = around
from penstock.kafka.protocol import APIS
prefix = "penstock.kafka.protocol."
before = set(sys.modules)
assert {prefix + api.area for api in APIS.values()}.isdisjoint(before)
APIS[0].request_class
assert {name for name in sys.modules if name.startswith(prefix)} - before == {prefix + "produce"}
"""
    subprocess.run([sys.executable, "-c", source], check=True, timeout=60)


def test_messages_are_compared_by_value_and_shown_without_their_defaults() -> None:
    assert HeartbeatRequest(group_id="g") == HeartbeatRequest(group_id="g")
    assert HeartbeatRequest(group_id="g") != HeartbeatRequest(group_id="h")
    assert repr(HeartbeatRequest(group_id="g", generation_id=3)) == "HeartbeatRequest(group_id='g', generation_id=3)"


def test_each_message_has_lists_of_its_own() -> None:
    FetchResponse().responses.append(FetchableTopicResponse())
    assert FetchResponse().responses == []


@pytest.mark.parametrize(
    ("code", "name", "retriable"),
    [
        (-1, "UNKNOWN_SERVER_ERROR", False),
        (0, "NONE", False),
        (3, "UNKNOWN_TOPIC_OR_PARTITION", True),
        (47, "INVALID_PRODUCER_EPOCH", False),
        (90, "PRODUCER_FENCED", False),
        (9_999, "ERROR_9999", False),
    ],
)
def test_error_codes(code: int, name: str, retriable: bool) -> None:
    assert errors.error_name(code) == name
    assert errors.is_retriable(code) is retriable
