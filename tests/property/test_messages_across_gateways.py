"""Any bytes in any header, key and value, written through one gateway, can be read through the others, and give nothing away.

One real node with all four gateways; each example is a message that one of them writes and all of them read.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
import yt.wrapper
from hypothesis import given, settings
from hypothesis import strategies as st
from yt.yson import YsonStringProxy

from penstock.core.checksum import crc32c
from penstock.core.record_format import Header, framed, packed_record
from penstock.gateway.ydb.protos import timestamp
from penstock.testing.batches import keyed_records_of
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.stream.stream_client import StreamClient
from tests.e2e.ydb.raw_stream import RawStream
from tests.e2e.yt.yt_clusters import NO_CLIENT_RETRIES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
TOPIC, QUEUE = "any", "tmp.rows"
QUEUE_PATH = "//tmp/rows"
SECRET = b"secret" * 500_000
LONG_MS = (1 << 63) - 1

OWN_NAMES = st.sampled_from(
    [
        *(b"ydb.producer", b"ydb.seqno", b"ydb.group", b"ydb.session.a", b"__key", b"kafka.key", b"traceparent", b"$yson"),
        *(
            b"penstock.weights",
            b"penstock.object_name",
            b"penstock.size",
            b"penstock.crc32c",
            b"content-type",
            b"content-encoding",
        ),
    ]
)
ODD_VALUES = st.sampled_from(
    [b"", b"0", b"9" * 19, b"9" * 5000, b"-1", b"\xff\xfe", b"\x01" * 8, b"\x01" + bytes(12), "²".encode(), b"a\r\nb: c", b"gzip"]
)
OCTETS = st.one_of(st.none(), st.binary(max_size=60), ODD_VALUES)
JSON_VALUES = st.sampled_from(
    [
        *(
            b"{}",
            b"[]",
            b"null",
            b'{"data": 5}',
            b'{"data": "x"}',
            b'{"data": null, "other": 1e999}',
            b'{"data": {"$yson": "{"}}',
            b'{"data": {"$yson": 5}}',
            b'{"data": [{"$yson": "1u"}]}',
        ),
        *(b'{"$yson": "\\u0001"}', b'{"data": "\\ud800"}', b"{" * 500, b"[" * 3000, b'{"data": ' + b"9" * 30 + b"}"),
    ]
)
TIMES = st.sampled_from([0, -1, 1, LONG_MS, -(1 << 62), 1_700_000_000_123])
TEXT_HEADERS = st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=30), max_size=3)


class Written(NamedTuple):
    """What a gateway is told to write; `headers` as the protocol can say them."""

    gateway: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    time_ms: int = 0


KAFKA = st.builds(
    Written,
    st.just("kafka"),
    st.sampled_from([TOPIC, QUEUE]),
    OCTETS,
    st.one_of(OCTETS, JSON_VALUES),
    st.lists(st.tuples(st.one_of(OWN_NAMES, st.binary(max_size=9)), OCTETS), max_size=4),
    TIMES,
)
YDB = st.builds(
    Written,
    st.just("ydb"),
    st.sampled_from([TOPIC, QUEUE]),
    OCTETS,
    st.one_of(st.binary(max_size=60), JSON_VALUES),
    st.lists(
        st.tuples(
            st.one_of(st.text(max_size=9).map(str.encode), OWN_NAMES).filter(
                lambda name: not name.startswith(b"ydb.") and name != b"__key"
            ),
            st.binary(max_size=30),
        ),
        max_size=3,
    ),
)
STREAM = st.builds(
    Written,
    st.just("stream"),
    st.sampled_from([TOPIC, QUEUE]),
    st.none(),
    st.one_of(st.binary(max_size=60), JSON_VALUES),
    TEXT_HEADERS.map(lambda headers: [(name.encode(), value.encode()) for name, value in headers.items()]).filter(
        lambda headers: not any(name.startswith(b"penstock.") for name, _ in headers)
    ),
)
YT = st.builds(Written, st.just("yt"), st.just(QUEUE), st.none(), st.binary(max_size=60), st.just([]))


class Gateways:
    """A node, and a client of each of its gateways."""

    def __init__(self, node: RunningNode, stack: ExitStack) -> None:
        ports = {name: listener["port"] for name, listener in node.ready["listeners"].items()}
        self._ydb_port = str(ports["ydb"])
        self._http_port = ports["stream_http"]
        self.kafka = stack.enter_context(RawClient(ports["kafka"]))
        self.streams = stack.enter_context(StreamClient(f"127.0.0.1:{ports['stream']}"))
        self.yt: Any = yt.wrapper.YtClient(proxy=f"http://127.0.0.1:{ports['yt']}", config=NO_CLIENT_RETRIES)
        self._seqno = 0
        settings = ("--set", "retention.ms=-1", "--set", f"message.timestamp.after.max.ms={LONG_MS}")
        self.yt.create("table", QUEUE_PATH, attributes={"dynamic": True, "schema": [{"name": "data", "type": "string"}]})
        self.yt.mount_table(QUEUE_PATH, sync=True)
        node.ok("topic", "create", TOPIC)
        node.ok("topic", "alter", TOPIC, *settings)
        node.ok("topic", "alter", QUEUE, *settings)
        published = self.streams.upload("secret", [SECRET])
        self.secret_headers = {
            "penstock.object_name": str(published.object_name),
            "penstock.size": str(len(SECRET)),
            "penstock.crc32c": f"{crc32c(SECRET):08x}",
        }

    def write(self, written: Written) -> int:
        """Write a message; its offset."""
        before = int(self.kafka.fetch(written.topic, 0, max_bytes=1).high_watermark)
        getattr(self, f"_write_{written.gateway}")(written)
        assert int(self.kafka.fetch(written.topic, 0, max_bytes=1).high_watermark) == before + 1
        return before

    def _write_kafka(self, written: Written) -> None:
        record = packed_record(0, written.value, key=written.key, headers=written.headers)
        times = (written.time_ms, written.time_ms)
        assert self.kafka.produce(written.topic, framed(record, 1, times)).error_code == 0

    def _write_ydb(self, written: Written) -> None:
        self._seqno += 1
        items = [{"key": name.decode(), "value": value} for name, value in written.headers]
        if written.key is not None:
            items.append({"key": "__key", "value": written.key})
        now = timestamp(int(time.time() * 1000))
        message = {"seq_no": self._seqno, "data": written.value, "created_at": now, "metadata_items": items}
        with RawStream(self._ydb_port, "StreamWrite") as stream:
            stream.send(init_request={"path": f"/local/{written.topic}", "producer_id": f"writer-{self._seqno}"})
            stream.send(write_request={"messages": [message], "codec": 1})
            assert stream.receive().status == stream.receive().status == 400000

    def _write_stream(self, written: Written) -> None:
        headers = {name.decode(): (value or b"").decode() for name, value in written.headers}
        assert self.streams.publish(written.topic, written.value or b"", headers).sequence

    def _write_yt(self, written: Written) -> None:
        self.yt.insert_rows(QUEUE_PATH, [{"data": written.value}])

    def read_kafka(self, topic: str, offset: int) -> tuple[bytes | None, bytes | None]:
        """Key and value."""
        (record,) = [one for one in keyed_records_of(_bytes(self.kafka.fetch(topic, offset).records)) if one.offset == offset]
        return record.key, record.value

    def read_ydb(self, topic: str, offset: int) -> Any:
        """A message with its metadata."""
        with RawStream(self._ydb_port, "StreamRead") as stream:
            stream.send(init_request={"topics_read_settings": [{"path": f"/local/{topic}", "partition_ids": [0]}]})
            stream.receive()
            session = stream.receive().start_partition_session_request.partition_session.partition_session_id
            stream.send(start_partition_session_response={"partition_session_id": session, "read_offset": offset})
            stream.send(read_request={"bytes_size": 1 << 20})
            batches = stream.receive().read_response.partition_data[0].batches
        return next(message for batch in batches for message in batch.message_data if message.offset == offset)

    def read_stream(self, topic: str) -> Any:
        """The last message of a subject."""
        return next(iter(self.streams.read(topic, self.streams.last_sequence(topic), limit=1)))

    def download(self, topic: str, sequence: int) -> bytes:
        """The payload of a message, by gRPC and by HTTP alike."""
        data = b"".join(self.streams.download(sequence))
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/streams/{topic}/{sequence}", timeout=30) as answer:
            assert answer.read() == data
        return data

    def read_yt(self, topic: str, offset: int) -> Any:
        """A row."""
        path = QUEUE_PATH if topic == QUEUE else f"//topics/{topic}"
        (row,) = self.yt.pull_queue(path, offset=offset, partition_index=0, max_row_count=1)
        assert row["$row_index"] == offset
        return row


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    path = tmp_path_factory.mktemp("gateways")
    ports = [word for name in ("yt", "ydb", "stream", "stream-http") for word in (f"--{name}-port", "0")]
    with ExitStack() as stack:
        node = stack.enter_context(running_node(path / "log", ["--data-dir", str(path / "data"), *ports]))
        yield Gateways(node, stack)
        log = (path / "log").read_text()
        assert "Traceback" not in log, log[-5000:]


@settings(max_examples=60)
@given(written=st.one_of(KAFKA, KAFKA, YDB, STREAM, YT))
def test_what_one_gateway_writes_all_can_read(gateways: Gateways, written: Written) -> None:
    _check_readable(gateways, written)


@given(is_exact=st.booleans(), topic=st.sampled_from([TOPIC, QUEUE]), prefix=st.sampled_from(["", "any/", "secret/"]))
@settings(max_examples=8)
def test_a_reference_to_the_payload_of_another_message_gives_nothing_away(
    gateways: Gateways, topic: str, prefix: str, *, is_exact: bool
) -> None:
    names = dict(gateways.secret_headers)
    if prefix:
        names["penstock.object_name"] = prefix + names["penstock.object_name"].rpartition("/")[2]
    fields = {name.removeprefix("penstock."): text for name, text in names.items()}
    headers: list[Header] = [(name.encode(), text.encode()) for name, text in names.items()]
    value = json.dumps(fields).encode() if is_exact else b"value"
    _check_readable(gateways, Written("kafka", topic, None, value, headers))


def _check_readable(gateways: Gateways, written: Written) -> None:
    offset = gateways.write(written)
    key, value = gateways.read_kafka(written.topic, offset)
    if written.gateway == "yt":
        assert json.loads(value or b"").keys() <= {"data"}
        assert _octets(gateways.read_yt(QUEUE, offset)["data"]) == written.value
    else:
        assert (key, value) == (written.key, written.value)
    data = value or b""
    message = gateways.read_ydb(written.topic, offset)
    assert message.data == data
    assert [item.value for item in message.metadata_items if item.key == "__key"] == ([] if key is None else [key])
    assert message.seq_no > 0
    streamed = gateways.read_stream(written.topic)
    assert streamed.data == data
    assert gateways.download(written.topic, streamed.sequence) == data
    row = gateways.read_yt(written.topic, offset)
    if written.topic == TOPIC:
        assert (_octets(row["key"]), _octets(row["value"])) == (key, value)
        if written.gateway == "kafka":
            assert [(_octets(name), _octets(text)) for name, text in row["headers"]] == written.headers


def _octets(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, YsonStringProxy):
        found: bytes = value._bytes
        return found
    return str(value).encode()


def _bytes(records: Any) -> bytes:
    return bytes(records)
