"""Following a topic over server-sent events."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.http.api_client import ApiClient, client_of
from tests.e2e.running_node import RunningNode, running_node


def later(work: Callable[[], object]) -> threading.Thread:
    """Do something in a moment, while the test waits for what comes of it."""

    def run() -> None:
        time.sleep(0.3)
        work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_messages_come_as_they_are_written(api: ApiClient) -> None:
    api.post("/topics", {"name": "live", "partitions": 2})
    api.post("/topics/live/messages", {"value": "before"})
    with api.events("/topics/live/tail") as events:
        writing = later(lambda: api.post("/topics/live/messages", {"value": {"a\nb": 1}, "key": "k"}))
        name, _, data = next(events)
        writing.join()
    assert name == "messages"
    assert data["dropped"] == 0
    (item,) = data["items"]
    assert (item["value"]["data"], item["key"]["data"]) == ({"a\nb": 1}, "k")


def test_json_over_several_lines_arrives_whole(api: ApiClient) -> None:
    api.post("/topics", {"name": "lines"})
    pretty = json.dumps({"a": [1, 2]}, indent=2)
    api.post("/topics/lines/messages", {"value": pretty})
    with api.events("/topics/lines/tail", start="oldest") as events:
        assert next(events)[2]["items"][0]["value"] == {
            "kind": "json",
            "data": {"a": [1, 2]},
            "truncated": False,
            "size": len(pretty),
            "schema": None,
            "problem": None,
        }


def test_whoever_comes_back_goes_on_after_what_it_had(api: ApiClient) -> None:
    api.post("/topics", {"name": "resumed"})
    for number in range(3):
        api.post("/topics/resumed/messages", {"value": str(number)})
    with api.events("/topics/resumed/tail", start="oldest") as events:
        _, seen, data = next(events)
    assert [item["offset"] for item in data["items"]] == [0, 1, 2]
    api.post("/topics/resumed/messages", {"value": "3"})
    with api.events("/topics/resumed/tail", {"Last-Event-ID": seen}, start="oldest") as events:
        assert [item["offset"] for item in next(events)[2]["items"]] == [3]


def test_what_is_too_much_is_left_out_and_counted(api: ApiClient, node: RunningNode) -> None:
    api.post("/topics", {"name": "flood"})
    node.ok("produce", "flood", stdin=b"".join(b"%d\n" % number for number in range(1000)))
    with api.events("/topics/flood/tail", start="oldest", limit=10) as events:
        _, _, data = next(events)
    assert data["dropped"] == 990
    assert [item["value"]["data"] for item in data["items"]] == [str(number) for number in range(990, 1000)]


def test_only_what_is_looked_for_is_told(api: ApiClient, node: RunningNode) -> None:
    api.post("/topics", {"name": "sieve"})
    node.ok("produce", "sieve", stdin=b"".join(b"%d\n" % number for number in range(5000)))
    with api.events("/topics/sieve/tail", start="oldest", search="99", limit=500) as events:
        _, _, data = next(events)
    assert data["dropped"] == 0
    assert [int(item["value"]["data"]) for item in data["items"]] == [n for n in range(5000) if "99" in str(n)]


def test_the_end_of_a_topic_is_told(api: ApiClient) -> None:
    api.post("/topics", {"name": "ends"})
    with api.events("/topics/ends/tail") as events:
        deleting = later(lambda: api.call("DELETE", "/topics/ends"))
        name, _, data = next(events)
        deleting.join()
    assert name == "end"
    assert "ends" in data["message"]
    assert api.call("GET", "/topics/ends/tail").status == 404


def test_a_stopping_node_does_not_wait_for_those_who_follow(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--http-port", "0", "--drain-timeout-s", "100"]
    with running_node(tmp_path / "log", argv) as running:
        api = client_of(running)
        api.post("/topics", {"name": "stops"})
        with api.events("/topics/stops/tail"):
            assert running.stop() == 0  # which waits for less than requests in flight may take


def test_readers_that_are_gone_are_forgotten(api: ApiClient) -> None:
    """Were they not, the next would be refused for ever: there is room for a hundred."""
    api.post("/topics", {"name": "left"})
    deadline = time.monotonic() + 30
    for _ in range(160):
        while _status_of_a_tail(api) != b"200":
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _status_of_a_tail(api: ApiClient) -> bytes:
    """What someone is answered who goes away at once."""
    with socket.create_connection((api.host, api.port)) as connection:
        connection.sendall(b"GET /api/v1/topics/left/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection.recv(12)[-3:]
