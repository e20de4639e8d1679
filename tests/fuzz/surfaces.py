"""What each port of a node has to be attacked: a generator of inputs by the name of its listener."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import Any

from penstock import minitoolstream
from penstock.gateway.ydb.protos import topic
from penstock.gateway.yt.gateway import COMMANDS
from tests.fuzz.http1_requests import Surface, http1_generator
from tests.fuzz.http2_frames import http2_generator
from tests.fuzz.input import Generator
from tests.fuzz.kafka_frames import TOPIC, kafka_input

YDB_METHODS = (
    *(
        f"Ydb.Topic.V1.TopicService/{name}"
        for name in ("StreamWrite", "StreamRead", "CommitOffset", "CreateTopic", "DescribeTopic")
    ),
    *(f"Ydb.Topic.V1.TopicService/{name}" for name in ("AlterTopic", "DescribeConsumer", "DescribePartition", "DropTopic")),
    "Ydb.Discovery.V1.DiscoveryService/ListEndpoints",
    "Ydb.Discovery.V1.DiscoveryService/WhoAmI",
    "Ydb.Auth.V1.AuthService/Login",
    *(f"Ydb.Query.V1.QueryService/{name}" for name in ("CreateSession", "AttachSession", "DeleteSession", "BeginTransaction")),
    *(f"Ydb.Query.V1.QueryService/{name}" for name in ("CommitTransaction", "RollbackTransaction", "ExecuteQuery")),
)
STREAM_METHODS = (
    *(f"IngressService/{name}" for name in ("Publish", "PublishBatch", "Upload")),
    *(f"EgressService/{name}" for name in ("Subscribe", "Fetch", "GetLastSequence", "AckMessage", "Read", "Download")),
    *(f"EgressService/{name}" for name in ("ConfigureConsumer", "GetConsumers")),
)
YT_BODIES = (
    b'{"path":"//tmp/fuzzed"}',
    b'{"path":"//tmp/fuzzed/@attr","value":{"a":1}}',
    b'{"type":"table","path":"//tmp/fuzzed","attributes":{"dynamic":true,"schema":[{"name":"data","type":"string"}]}}',
    b'{"queue_path":"//tmp/fuzzed","offset":0,"partition_index":0}',
    b'{"path":"<cluster=nowhere>//tmp/fuzzed[#1:#2]"}',
    b'{"query":"* from [//tmp/fuzzed] where [$tablet_index] = 0 limit 5"}',
    b'{"requests":[{"command":"get","parameters":{"path":"//tmp/fuzzed"}},{"command":"execute_batch"}]}',
    b'{"data":"row"}\n{"data":5}\n{"nothing":[]}',
    b'{data=row};{data=%true};{"\\xff"=1u}',
    b"\x7b\x01\x08data\x3d\x01\xff\xff\xff\x7f",
)
API_BODIES = (
    b'{"name":"fuzzed","partitions":1}',
    b'{"name":"fuzzed","partitions":-1,"configs":{"retention.ms":"x"}}',
    b'{"value":"x","key":null,"headers":[{"name":"a","value":"b"}]}',
    b'{"partition":0,"offset":9223372036854775808}',
    b'{"configs":{"retention.ms":"-1","nothing":"1"}}',
)


def generators(http_port: int) -> dict[str, Generator]:
    """A generator for each listener; the admin API says itself what it has."""
    return {
        "kafka": kafka_input,
        "http": http1_generator(Surface(_api_targets(http_port), API_BODIES)),
        "yt": http1_generator(Surface(_yt_targets(), YT_BODIES)),
        "stream_http": http1_generator(Surface(_stream_targets(), (b"payload", b"x" * 5000))),
        "ydb": http2_generator([f"/{name}".encode() for name in YDB_METHODS], _ydb_messages()),
        "stream": http2_generator([f"/{minitoolstream.PACKAGE}.{name}".encode() for name in STREAM_METHODS], _stream_messages()),
    }


def _api_targets(port: int) -> list[tuple[bytes, bytes]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/openapi.json", timeout=30) as answer:
        paths: dict[str, dict[str, Any]] = json.load(answer)["paths"]
    found = [
        (method.upper().encode(), re.sub(r"{(\w+)}", lambda name: "0" if name[1] == "partition" else TOPIC, path).encode())
        for path, methods in sorted(paths.items())
        for method in sorted(methods)
    ]
    pages = ("/", "/metrics", "/metrics/internal", "/healthz", "/readyz", "/topics/fuzzed", "/favicon.ico", "/assets/../x")
    return found + [(b"GET", page.encode()) for page in pages]


def _yt_targets() -> list[tuple[bytes, bytes]]:
    found = [(method.encode(), f"/api/v4/{name}".encode()) for name in COMMANDS for method in ("GET", "PUT", "POST")]
    found += [(b"GET", f"/api/v3/{name}?path=//tmp/fuzzed".encode()) for name in ("get", "list", "exists", "read_table")]
    return [*found, (b"GET", b"/hosts"), (b"GET", b"/api"), (b"GET", b"/ping"), (b"GET", b"/version")]


def _stream_targets() -> list[tuple[bytes, bytes]]:
    return [
        (b"POST", b"/streams/fuzzed"),
        (b"GET", b"/streams/fuzzed"),
        (b"GET", b"/streams/fuzzed?from=1&limit=5"),
        (b"GET", b"/streams/fuzzed?follow=1"),
        (b"GET", b"/streams/fuzzed/1"),
        (b"GET", b"/streams/fuzzed/" + b"9" * 5000),
        (b"GET", b"/streams/fuzzed/consumers"),
        (b"GET", b"/streams/fuzzed/consumers/one?limit=3"),
        (b"POST", b"/streams/fuzzed/consumers/one/1"),
        (b"POST", b"/streams/fuzzed/consumers/one/99999999999999999999?rewind=1"),
        (b"GET", b"/streams/%3E"),
    ]


def _ydb_messages() -> list[bytes]:
    write, read = topic.StreamWriteMessage.FromClient, topic.StreamReadMessage.FromClient
    path = f"/local/{TOPIC}"
    fields: list[Any] = [
        write(init_request={"path": path, "producer_id": "fuzz"}),
        write(write_request={"messages": [{"seq_no": 1, "data": b"x"}], "codec": 1}),
        write(write_request={"messages": [{"seq_no": -1, "data": b"\x1f\x8b"}], "codec": 2}),
        write(update_token_request={"token": "no.token."}),
        read(init_request={"topics_read_settings": [{"path": path}], "consumer": "reader"}),
        read(read_request={"bytes_size": 1 << 62}),
        read(commit_offset_request={"commit_offsets": [{"partition_session_id": 5, "offsets": [{"start": 9, "end": -1}]}]}),
        topic.CreateTopicRequest(path=f"{path}/%", partitioning_settings={"min_active_partitions": -1}),
        topic.DescribeTopicRequest(path=path, include_stats=True),
    ]
    return [message.SerializeToString() for message in fields]


def _stream_messages() -> list[bytes]:
    protos: Any = minitoolstream
    fields: list[Any] = [
        protos.PublishRequest(subject=TOPIC, data=b"x", headers={"penstock.size": "1"}),
        protos.PublishRequest(subject="fuzzed.*", data=b"x"),
        protos.PublishBatchRequest(messages=[protos.PublishRequest(subject=TOPIC, data=b"x")] * 3),
        protos.UploadRequest(header=protos.UploadHeader(subject=TOPIC, size=1 << 60)),
        protos.UploadRequest(chunk=b"x" * 100),
        protos.FetchRequest(subject="*", durable_name="one", batch_size=1 << 30),
        protos.ReadRequest(subject=TOPIC, from_sequence=1 << 60, follow=True),
        protos.DownloadRequest(sequence=1, offset=1 << 60),
        protos.AckRequest(durable_name="one", subject=TOPIC, sequence=1 << 60),
        protos.SubscribeRequest(subject=">", durable_name="one"),
    ]
    return [message.SerializeToString() for message in fields]
