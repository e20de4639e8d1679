"""Messages over the admin API: from either end, an offset or a time; decoded, searched, and written."""

from __future__ import annotations

import gzip
import time
from base64 import b64encode
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.e2e.http.api_client import ApiClient
from tests.e2e.running_node import RunningNode


def produce(node: RunningNode, topic: str, values: list[bytes], **options: Any) -> None:
    """Messages of a Kafka client, keyed by their number, all in partition 0 with a timestamp each."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 50, **options})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=str(number), partition=0, timestamp=1_700_000_000_000 + number)
    assert producer.flush(20) == 0


def offsets(found: Any) -> list[int]:
    return [item["offset"] for item in found["items"]]


def test_messages_are_read_from_either_end_an_offset_and_a_time(api: ApiClient, node: RunningNode) -> None:
    api.post("/topics", {"name": "read", "config": {"message.timestamp.before.max.ms": str((1 << 63) - 1)}})
    produce(node, "read", [b"%d" % number for number in range(200)])
    assert offsets(api.get("/topics/read/messages", limit=3)) == [199, 198, 197]
    assert offsets(api.get("/topics/read/messages", limit=3, start="oldest")) == [0, 1, 2]
    assert offsets(api.get("/topics/read/messages", limit=3, start="offset:77", partition=0)) == [77, 78, 79]
    assert offsets(api.get("/topics/read/messages", limit=3, start="before:77", partition=0)) == [76, 75, 74]
    assert offsets(api.get("/topics/read/messages", limit=1, start="before:77", partition=0, filter='key = "5"')) == [5]
    assert offsets(api.get("/topics/read/messages", limit=3, start="before:9999")) == [199, 198, 197]
    assert offsets(api.get("/topics/read/messages", limit=3, start="before:0")) == []
    assert offsets(api.get("/topics/read/messages", limit=3, start="time:1700000000150")) == [150, 151, 152]
    assert offsets(api.get("/topics/read/messages", start="time:1900000000000")) == []
    first = api.get("/topics/read/messages", limit=1, start="offset:5")["items"][0]
    assert (first["timestamp"], first["timestamp_type"]) == (1_700_000_000_005, "create")
    assert first["key"] == {"kind": "text", "data": "5", "truncated": False, "size": 1, "schema": None, "problem": None}


@pytest.mark.parametrize("start", ["newest", "oldest"])
def test_a_cursor_goes_on_to_the_end_and_misses_nothing(api: ApiClient, node: RunningNode, start: str) -> None:
    name = f"pages-{start}"
    api.post("/topics", {"name": name, "partitions": 3})
    for number in range(50):
        api.post(f"/topics/{name}/messages", {"value": number, "partition": number % 3})
    seen: list[int] = []
    times: list[int] = []
    cursor: str | None = ""
    for _ in range(20):
        found = api.get(f"/topics/{name}/messages", start=start, limit=7, cursor=cursor)
        seen += (int(item["value"]["data"]) for item in found["items"])
        times += (item["timestamp"] for item in found["items"])
        cursor = found["next"]
        if cursor is None:
            break
    assert cursor is None
    assert sorted(seen) == list(range(50))
    # Not by their numbers: two may have been written in one millisecond.
    assert times == sorted(times, reverse=start == "newest")


def test_values_are_decoded_by_what_they_are(api: ApiClient) -> None:
    api.post("/topics", {"name": "kinds"})
    bodies: list[dict[str, Any]] = [
        {"value": {"deep": [1, {"big": 12345678901234567890}]}},
        {"value": "plain text, Ünïcode"},
        {"value": b64encode(b"\x00\xff\x80").decode(), "encoding": "base64"},
        {"value": None, "key": "gone", "headers": {"trace": "abc", "none": None}},
        {"value": "[not json"},
        {"value": ""},
    ]
    for body in bodies:
        api.post("/topics/kinds/messages", body)
    items = api.get("/topics/kinds/messages", start="oldest")["items"]
    assert [item["value"]["kind"] for item in items] == ["json", "text", "hex", "null", "text", "text"]
    assert items[0]["value"]["data"] == {"deep": [1, {"big": 12345678901234567890}]}
    assert items[1]["value"]["data"] == "plain text, Ünïcode"
    assert items[2]["value"]["data"] == "00ff80"
    assert items[3]["key"]["data"] == "gone"
    assert [(header["name"], header["value"]["data"]) for header in items[3]["headers"]] == [("trace", "abc"), ("none", None)]


def test_a_long_value_is_cut_in_a_list_and_whole_by_itself(api: ApiClient) -> None:
    api.post("/topics", {"name": "long"})
    text = "ä" * 100_000
    api.post("/topics/long/messages", {"value": text})
    (item,) = api.get("/topics/long/messages")["items"]
    assert item["value"]["truncated"]
    assert item["value"]["size"] == 200_000
    assert text.startswith(item["value"]["data"])
    assert api.get("/topics/long/messages", full="true", limit=1)["items"][0]["value"]["data"] == text
    assert api.get("/topics/long/messages/0/0")["value"]["data"] == text
    raw = api.send("GET", "/api/v1/topics/long/messages/0/0/value")
    assert (raw.body.decode(), raw.headers["content-type"]) == (text, "application/octet-stream")
    assert raw.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in raw.headers["content-security-policy"]
    assert api.call("GET", "/topics/long/messages/0/1").status == 404


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_text_is_found_whatever_batches_are_compressed_with(api: ApiClient, node: RunningNode, codec: str) -> None:
    name = f"packed-{codec}"
    api.post("/topics", {"name": name, "config": {"message.timestamp.before.max.ms": str((1 << 63) - 1)}})
    produce(node, name, [b'{"n": %d, "who": "Someone"}' % number for number in range(500)], **{"compression.type": codec})
    found = api.get(f"/topics/{name}/messages", search='"n": 333,', start="oldest")
    assert offsets(found) == [333]
    assert found["next"] is None
    assert offsets(api.get(f"/topics/{name}/messages", search="sOMEone", limit=2)) == [499, 498]
    assert offsets(api.get(f"/topics/{name}/messages", search="absent")) == []


def test_a_text_of_any_script_is_found_in_keys_values_and_headers_and_not_between_them(api: ApiClient) -> None:
    api.post("/topics", {"name": "scripts"})
    for body in (
        {"value": "GRÜSSE an alle", "key": "первый"},
        {"value": "x", "headers": {"Trace": "AbC"}},
        {"value": "0" * 48},  # its length is written as a byte that is also a letter
    ):
        api.post("/topics/scripts/messages", body)
    for text, found in (("GRÜSSE", [0]), ("первый", [0]), ("trace", [1]), ("abc", [1]), ("`", [])):
        assert offsets(api.get("/topics/scripts/messages", search=text)) == found, text


def test_a_search_through_much_is_cut_short_and_goes_on_by_its_cursor(api: ApiClient, node: RunningNode) -> None:
    api.post("/topics", {"name": "much", "config": {"message.timestamp.before.max.ms": str((1 << 63) - 1)}})
    filler = [gzip.compress(b"%d" % number) * 8000 for number in range(240)]  # some 40 MB
    produce(node, "much", [*filler, b"the needle"], **{"message.max.bytes": 900_000})
    found = api.get("/topics/much/messages", search="the needle", start="oldest")
    assert found["items"] == []
    assert 30 << 20 < found["scanned_bytes"] < 40 << 20
    while found["next"] is not None and not found["items"]:
        found = api.get("/topics/much/messages", search="the needle", cursor=found["next"])
    assert offsets(found) == [240]


def test_uncommitted_and_aborted_messages_are_not_shown_unless_asked_for(api: ApiClient, node: RunningNode) -> None:
    api.post("/topics", {"name": "whole"})
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "t"})
    producer.init_transactions(20)
    for word, commits in (("kept", True), ("dropped", False)):
        producer.begin_transaction()
        producer.produce("whole", word)
        assert producer.flush(20) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)(20)
    producer.begin_transaction()
    producer.produce("whole", "open")
    assert producer.flush(20) == 0
    assert [item["value"]["data"] for item in api.get("/topics/whole/messages", start="oldest")["items"]] == ["kept"]
    everything = api.get("/topics/whole/messages", start="oldest", isolation="uncommitted")["items"]
    assert [item["value"]["data"] for item in everything] == ["kept", "dropped", "open"]
    producer.abort_transaction(20)


def test_a_message_goes_where_kafkas_producers_would_send_it(api: ApiClient, node: RunningNode) -> None:
    api.post("/topics", {"name": "keyed", "partitions": 7})
    producer = Producer({"bootstrap.servers": node.bootstrap, "partitioner": "murmur2_random"})
    for number in range(20):
        producer.produce("keyed", b"theirs", key=f"key-{number}")
    assert producer.flush(20) == 0
    for number in range(20):
        written = api.post("/topics/keyed/messages", {"key": f"key-{number}", "value": "ours"})
        assert abs(written["timestamp"] - time.time() * 1000) < 60_000
    items = api.get("/topics/keyed/messages", limit=100)["items"]
    places: dict[str, set[int]] = {}
    for item in items:
        places.setdefault(item["key"]["data"], set()).add(item["partition"])
    assert len(items) == 40
    assert all(len(partitions) == 1 for partitions in places.values())


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/topics/refuses/messages", {"value": "x", "partition": 9}, 404),
        ("/topics/refuses/messages", {"value": "!", "encoding": "base64"}, 400),
        ("/topics/refuses/messages", {"key": "x"}, 400),
        ("/topics/refuses/messages", {"value": "x" * 2_000_000}, 413),
        ("/topics/__consumer_offsets/messages", {"value": "x"}, 422),
        ("/topics/compacted/messages", {"value": "x"}, 422),
        ("/topics/absent/messages", {"value": "x"}, 404),
    ],
)
def test_a_message_that_cannot_be_is_refused(
    api: ApiClient, node: RunningNode, path: str, body: dict[str, Any], status: int
) -> None:
    api.call("POST", "/topics", {"name": "refuses"})
    api.call("POST", "/topics", {"name": "compacted", "config": {"cleanup.policy": "compact"}})
    node.ok("group", "reset", "anyone", "--topic", "refuses", "--to", "earliest", "--yes")  # the broker's own topic is there now
    assert api.call("POST", path, body).status == status


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"value": ' + b"[" * 5000, b"\xff", b'{"value": "\\ud800"}', b"", b"{}x"])
def test_a_body_that_is_not_json_is_refused(api: ApiClient, body: bytes) -> None:
    api.call("POST", "/topics", {"name": "garbled"})
    refused = api.send("POST", "/api/v1/topics/garbled/messages", body, {"Content-Type": "application/json"})
    assert (refused.status, refused.code) == (400, "MALFORMED_REQUEST")
    packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert api.send("POST", "/api/v1/topics/garbled/messages", body, packed).status == 400


@pytest.mark.parametrize("query", ["start=middle", "start=offset:-1", "cursor=abc", "cursor=W10=", "partition=-1", "full=maybe"])
def test_a_question_that_means_nothing_is_refused(api: ApiClient, query: str) -> None:
    api.call("POST", "/topics", {"name": "asked"})
    assert api.call("GET", f"/topics/asked/messages?{query}").status == 400


def test_a_large_payload_of_a_stream_is_shown_by_reference(api: ApiClient, node: RunningNode) -> None:
    listener = node.ready["listeners"]["stream_http"]
    streams = ApiClient(listener["host"], listener["port"])
    assert streams.send("POST", "/streams/large", b"x" * 3_000_000).status == 200
    (item,) = api.get("/topics/large/messages")["items"]
    assert item["payload"]["size"] == 3_000_000
    assert item["payload"]["object_name"]
    assert item["size"] < 10_000


def test_a_topic_that_stamps_messages_itself_says_so(api: ApiClient) -> None:
    api.post("/topics", {"name": "stamped", "config": {"message.timestamp.type": "LogAppendTime"}})
    written = api.post("/topics/stamped/messages", {"value": "x"})
    (item,) = api.get("/topics/stamped/messages")["items"]
    assert (item["timestamp_type"], item["timestamp"]) == ("append", written["timestamp"])


def test_messages_are_filtered_by_fields_and_a_time_range(api: ApiClient, node: RunningNode) -> None:
    api.post("/topics", {"name": "filtered", "config": {"message.timestamp.before.max.ms": str((1 << 63) - 1)}})
    produce(node, "filtered", [b'{"n": %d, "even": %s}' % (n, (b"false", b"true")[n % 2 == 0]) for n in range(100)])
    path = "/topics/filtered/messages"
    assert offsets(api.get(path, filter="value.even = true and value.n > 93")) == [98, 96, 94]
    assert offsets(api.get(path, filter="key = 7", start="oldest")) == [7]
    assert offsets(api.get(path, start="time:1700000000020", until=1_700_000_000_022)) == [20, 21, 22]
    assert offsets(api.get(path, until=1_700_000_000_002)) == [2, 1, 0]
    found = api.get(path, filter="value.even = false", limit=30, start="oldest", until=1_700_000_000_098)
    rest = api.get(path, filter="value.even = false", limit=30, start="oldest", until=1_700_000_000_098, cursor=found["next"])
    assert offsets(found) + offsets(rest) == list(range(1, 98, 2))
    assert rest["next"] is None
    wrong = api.call("GET", path, filter="total > 5")
    assert wrong.status == 400
    assert "unknown field 'total'" in wrong.json["error"]["message"]
