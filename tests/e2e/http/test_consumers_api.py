"""Consumers of every kind over the admin API: their members, positions and lags, moved and deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yt.wrapper as yt
from confluent_kafka import Consumer

from tests.e2e.http.api_client import ApiClient, client_of, eventually
from tests.e2e.running_node import RunningNode
from tests.e2e.ydb.ydb_node import connected, ydb_node


@contextmanager
def reading(node: RunningNode, group: str, topic: str, count: int, protocol: str = "classic") -> Iterator[Consumer]:
    """A member of a group that has read so many messages and said so."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read, deadline = 0, time.monotonic() + 30
    while read < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        read += message is not None and message.error() is None
    assert read == count
    consumer.commit(asynchronous=False)
    try:
        yield consumer
    finally:
        consumer.close()


def fill(api: ApiClient, topic: str, messages: int, partitions: int = 1) -> None:
    api.post("/topics", {"name": topic, "partitions": partitions})
    for number in range(messages):
        api.post(f"/topics/{topic}/messages", {"value": f"message {number}", "partition": number % partitions})


def settled(api: ApiClient, name: str, **expected: object) -> Any:
    """The consumer in the list, once the sums that are taken now and then say so."""
    deadline = time.monotonic() + 15
    while True:
        found = next((item for item in api.get("/consumers", search=name)["items"] if item["name"] == name), None)
        if found is not None and all(found[key] == value for key, value in expected.items()):
            return found
        assert time.monotonic() < deadline, (found, expected)
        time.sleep(0.2)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_shown_with_members_positions_and_lag(api: ApiClient, node: RunningNode, protocol: str) -> None:
    topic, group = f"read-{protocol}", f"group-{protocol}"
    fill(api, topic, 20)
    with reading(node, group, topic, 5, protocol) as consumer:
        consumer.pause(consumer.assignment())
        shown = api.get(f"/consumers/{group}")
        assert (shown["kind"], shown["state"], shown["lag_messages"]) == ("kafka", "Stable", 15)
        (member,) = shown["members"]
        assert (member["client_id"], member["host"], member["partitions"]) == ("reader", "127.0.0.1", {topic: [0]})
        (position,) = shown["positions"]
        assert (position["position"], position["end"], position["start"], position["member"]) == (5, 20, 0, member["id"])
        assert 0 < position["lag_bytes"] < 20 * 100
        assert 0 <= position["lag_seconds"] < 60
        assert 0 <= position["retention_share"] < 0.01
        refused = api.call("POST", f"/consumers/{group}/reset", {"topic": topic, "to": "earliest", "dry_run": True})
        assert (refused.status, refused.code) == (409, "NON_EMPTY_GROUP")
        assert api.call("DELETE", f"/consumers/{group}").status == 409
        listed = settled(api, group, lag_messages=15, members=1)
        assert (listed["topics"], listed["topic_count"], listed["vital"]) == ([topic], 1, False)
    of_topic = api.get(f"/topics/{topic}/consumers")
    assert [item["name"] for item in of_topic["items"]] == [group]


def test_positions_are_planned_moved_and_deleted(api: ApiClient, node: RunningNode) -> None:
    fill(api, "moved", 10, partitions=2)
    with reading(node, "mover", "moved", 10):
        pass
    plan = api.post("/consumers/mover/reset", {"topic": "moved", "to": "earliest", "dry_run": True})
    assert not plan["done"]
    assert [(item["partition"], item["before"], item["after"]) for item in plan["items"]] == [(0, 5, 0), (1, 5, 0)]
    assert api.get("/consumers/mover")["lag_messages"] == 0
    moved = api.post("/consumers/mover/reset", {"topic": "moved", "to": "offset", "value": 99, "partitions": [1]})
    assert [(item["partition"], item["before"], item["after"]) for item in moved["items"]] == [(1, 5, 5)]
    third = api.get("/topics/moved/messages", partition=0, start="offset:2", limit=1)["items"][0]["timestamp"]
    found = api.post("/consumers/mover/reset", {"topic": "moved", "to": "time", "value": third, "partitions": [0]})
    assert found["items"][0]["after"] == 2
    api.post("/consumers/mover/reset", {"topic": "moved", "to": "earliest"})
    assert api.get("/consumers/mover")["lag_messages"] == 10
    assert api.call("DELETE", "/consumers/mover").json == {"done": True}
    assert api.call("GET", "/consumers/mover").code == "UNKNOWN_GROUP"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"topic": "odd", "to": "offset"}, 400),
        ({"topic": "odd", "to": "latest", "value": 1}, 400),
        ({"topic": "odd", "to": "middle"}, 400),
        ({"topic": "absent", "to": "latest"}, 404),
        ({"topic": "odd", "to": "latest", "partitions": [7]}, 404),
    ],
)
def test_a_move_that_means_nothing_is_refused(api: ApiClient, node: RunningNode, body: object, status: int) -> None:
    api.call("POST", "/topics", {"name": "odd"})
    node.ok("group", "reset", "oddly", "--topic", "odd", "--to", "earliest", "--yes")
    assert api.call("POST", "/consumers/oddly/reset", body).status == status


def test_a_consumer_of_yt_is_shown_by_its_path(api: ApiClient, node: RunningNode) -> None:
    listener = node.ready["listeners"]["yt"]
    client = yt.YtClient(f"http://{listener['host']}:{listener['port']}", config={"proxy": {"enable_proxy_discovery": False}})
    client.create("table", "//home/q", recursive=True, attributes={"dynamic": True, "schema": [{"name": "n", "type": "int64"}]})
    client.mount_table("//home/q", sync=True)
    client.create("queue_consumer", "//home/c", recursive=True)
    client.register_queue_consumer("//home/q", "//home/c", vital=True)
    client.insert_rows("//home/q", [{"n": number} for number in range(10)])
    client.advance_queue_consumer("//home/c", "//home/q", partition_index=0, old_offset=None, new_offset=4)
    name = quote("//home/c", safe="")
    shown = api.get(f"/consumers/{name}")
    assert (shown["name"], shown["kind"], shown["vital"], shown["lag_messages"]) == ("//home/c", "yt", True, 6)
    queue = api.get(f"/queues/{quote('//home/q', safe='')}")
    (registration,) = queue["registrations"]
    assert (registration["vital"], registration["consumer"]) == (True, "penstock://home/c")
    assert registration["partitions"][0]["unread_row_count"] == 6
    assert queue["partition_list"][0]["upper_row_index"] == 10
    assert not queue["trim"]["enable"]
    listed = {item["name"]: item for item in api.get("/queues")["items"]}
    assert listed[queue["topic"]]["vital"] == 1
    assert api.post(f"/consumers/{name}/reset", {"topic": queue["topic"], "to": "latest"})["items"][0]["before"] == 4
    assert api.get(f"/consumers/{name}")["lag_messages"] == 0
    assert api.call("DELETE", f"/consumers/{name}").status == 200
    assert api.call("GET", f"/consumers/{name}").status == 404


def test_a_consumer_declared_on_a_topic_is_one_of_ydb(api: ApiClient) -> None:
    fill(api, "declared", 3)
    api.call("PATCH", "/topics/declared/config", {"set": {"penstock.important.consumers": "important-one"}})
    shown = api.get("/consumers/important-one")
    assert (shown["kind"], shown["state"], shown["vital"]) == ("ydb", "Declared", True)
    assert (shown["lag_messages"], shown["positions"][0]["position"], shown["positions"][0]["committed_ms"]) == (3, 0, None)
    settled(api, "important-one", lag_messages=3, topics=["declared"])
    refused = api.call("DELETE", "/consumers/important-one")
    assert refused.status == 409
    assert "declared" in refused.json["error"]["message"]


def test_readers_of_ydb_are_members_and_keep_a_position_from_being_moved(tmp_path: Path) -> None:
    with ydb_node(tmp_path, ["--http-port", "0"]) as running, connected(running) as driver:
        api = client_of(running)
        driver.topic_client.create_topic("/local/topic", consumers=["watcher"], min_active_partitions=2)
        with driver.topic_client.reader("/local/topic", consumer="watcher"):
            deadline = time.monotonic() + 30
            while not (members := api.get("/consumers/watcher")["members"]) or members[0]["partitions"] != {"topic": [0, 1]}:
                assert time.monotonic() < deadline, members
                time.sleep(0.1)
            refused = api.call("POST", "/consumers/watcher/reset", {"topic": "topic", "to": "earliest"})
            assert (refused.status, refused.code) == (409, "NON_EMPTY_GROUP")
        deadline = time.monotonic() + 30
        while api.call("POST", "/consumers/watcher/reset", {"topic": "topic", "to": "earliest"}).status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert api.get("/consumers/watcher")["members"] == []


def test_a_durable_name_of_streams_is_shown_and_moved(api: ApiClient, node: RunningNode) -> None:
    listener = node.ready["listeners"]["stream_http"]
    streams = ApiClient(listener["host"], listener["port"])
    for subject in ("sub.a", "sub.b", "sub.a", "sub.a"):
        assert streams.send("POST", f"/streams/{subject}", b"x").status == 200
    assert streams.send("POST", "/streams/sub.a/consumers/dur/1").status == 200
    subjects = api.get("/streams", search="sub.")
    assert subjects["is_on"]
    assert [(item["subject"], item["messages"]) for item in subjects["items"]] == [("sub.a", 3), ("sub.b", 1)]
    eventually(lambda: bool(api.get("/streams/sub.a")["consumers"]))  # lists are at most a few seconds old
    one = api.get("/streams/sub.a")
    (durable,) = one["consumers"]
    assert durable.pop("lag_bytes") > 0
    assert durable == {"name": "dur", "subject": "sub.a", "position": 1, "lag_messages": 2}
    assert api.get("/consumers/stream:dur")["lag_messages"] == 2
    assert streams.send("POST", f"/streams/sub.a/consumers/up-to-date/{one['last_sequence']}").status == 200
    by_lag = {"search": "stream:", "sort": "lag_messages", "order": "desc"}
    durables = ["stream:dur", "stream:up-to-date"]
    eventually(
        lambda: [each["name"] for each in api.get("/consumers", **by_lag)["items"] if each["name"] in durables] == durables
    )
    moved = api.post("/consumers/stream:dur/reset", {"topic": "sub.a", "to": "latest"})
    assert moved["items"][0]["after"] == one["last_sequence"]
    assert api.get("/consumers/stream:dur")["lag_messages"] == 0
    assert api.call("GET", "/streams/nothing").status == 404


def test_a_large_payload_is_sized_and_downloaded(api: ApiClient, node: RunningNode) -> None:
    listener = node.ready["listeners"]["stream_http"]
    payload = bytes(range(256)) * 12_000
    assert ApiClient(listener["host"], listener["port"]).send("POST", "/streams/files", payload).status == 200
    (message,) = api.get("/topics/files/messages")["items"]
    assert message["payload"]["size"] == api.get("/streams/files")["payload_bytes"] == len(payload)
    downloaded = api.call("GET", f"/streams/files/payloads/{message['offset']}")
    assert (downloaded.body, downloaded.headers["content-disposition"].partition(";")[0]) == (payload, "attachment")
    assert api.call("GET", "/streams/files/payloads/77").status == 404


def test_a_durable_name_of_a_pattern_is_shown_in_every_subject_of_it(api: ApiClient, node: RunningNode) -> None:
    listener = node.ready["listeners"]["stream_http"]
    streams = ApiClient(listener["host"], listener["port"])
    sequences = [streams.send("POST", f"/streams/{subject}", b"x").json["sequence"] for subject in ("pat.a", "pat.b", "pat.a")]
    assert streams.send("POST", f"/streams/pat.*/consumers/wide/{sequences[0]}").status == 200
    shown = streams.send("GET", "/streams/pat.b/consumers").json
    assert shown == [{"durable_name": "wide", "subject": "pat.*", "last_sequence": sequences[0]}]
    eventually(lambda: bool(api.get("/streams/pat.a")["consumers"]))
    (durable,) = api.get("/streams/pat.a")["consumers"]
    assert (durable["name"], durable["subject"], durable["lag_messages"]) == ("wide", "pat.*", 1)
    consumer = api.get("/consumers/stream:wide")
    assert (consumer["topics"], consumer["lag_messages"]) == (["pat.*"], 2)
    assert "stream:wide" in [one["name"] for one in api.get("/topics/pat.b/consumers")["items"]]
    refused = api.call("POST", "/consumers/stream:wide/reset", {"topic": "pat.a", "to": "earliest"})
    assert refused.status == 409
