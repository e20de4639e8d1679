"""Two workers, and clients that are not Kafka's: what they do with partitions of the worker that they are not connected to."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yt.wrapper
from yt.wrapper.errors import YtError

from penstock.kafka.protocol import keys
from penstock.kafka.protocol.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.yt.yt_clusters import NO_CLIENT_RETRIES

WAIT_S = 60.0
PARTITIONS = 4

# The client of YT leaves the connections of answers that are errors to the garbage collector.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    directory = tmp_path_factory.mktemp("workers")
    ports = [word for name in ("http", "yt", "stream-http") for word in (f"--{name}-port", "0")]
    options = ["--data-dir", str(directory / "data"), "--workers", "2", "--stream-port", "0", *ports]
    with running_node(directory / "log", options) as running:
        running.ok("topic", "create", "spread", "--partitions", str(PARTITIONS))
        yield running


def url(node: RunningNode, listener: str = "http", worker: int = 1) -> str:
    """The address of a listener."""
    where = node.ready["workers"][worker - 1]["listeners"][listener]
    return f"http://{where['host']}:{where['port']}"


def post(address: str, body: bytes) -> tuple[int, Any]:
    """The status of the answer, and what it says."""
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_messages_are_produced_to_partitions_of_all_workers_and_followed(node: RunningNode) -> None:
    address = f"{url(node, worker=2)}/api/v1/topics/spread"
    with urllib.request.urlopen(f"{address}/tail", timeout=WAIT_S) as tail:
        assert b"following" in tail.readline() + tail.readline()
        for number in range(PARTITIONS):
            message = json.dumps({"value": f"to {number}", "partition": number}).encode()
            status, stored = post(f"{address}/messages", message)
            assert (status, stored["partition"], stored["offset"]) == (200, number, 0)
        seen: set[str] = set()
        while len(seen) < PARTITIONS:
            line = tail.readline()
            if line.startswith(b"data:"):
                seen.update(item["value"]["data"] for item in json.loads(line[5:])["items"])
    assert seen == {f"to {number}" for number in range(PARTITIONS)}


def leader(node: RunningNode, topic: str) -> int:
    """The worker that has the first partition of a topic."""
    (described,) = json.loads(node.ok("topic", "describe", topic, "-o", "json"))
    worker: int = described["partitions"][0]["leader"]
    return worker


def test_pipelines_are_listed_though_another_worker_has_their_reports(node: RunningNode) -> None:
    reports = "__penstock_pipelines"
    node.ok("topic", "create", reports)
    while leader(node, reports) != 2:  # workers take turns
        node.ok("topic", "delete", reports, "--yes")
        node.ok("topic", "create", "takes-a-turn")
        node.ok("topic", "create", reports)
    node.ok("produce", reports, "--key", "copy", json.dumps({"name": "copy", "kind": "transform"}))
    with urllib.request.urlopen(f"{url(node)}/api/v1/pipelines", timeout=WAIT_S) as response:
        assert [(item["name"], item["kind"]) for item in json.load(response)["items"]] == [("copy", "transform")]


def test_what_another_worker_refuses_is_a_fault_of_the_client(node: RunningNode) -> None:
    node.ok("topic", "create", "keyed", "--partitions", str(PARTITIONS), "--config", "cleanup.policy=compact")
    answers = [
        post(f"{url(node)}/api/v1/topics/keyed/messages", json.dumps({"value": "x", "partition": number}).encode())
        for number in range(PARTITIONS)
    ]
    assert {status for status, _ in answers} == {422}
    assert len({answer["error"]["message"] for _, answer in answers}) == 1


def test_every_worker_tells_the_sizes_of_its_own_partitions(node: RunningNode) -> None:
    node.ok("topic", "create", "sized", "--partitions", str(PARTITIONS))
    for number in range(PARTITIONS):
        node.ok("produce", "sized", "--partition", str(number), stdin=b"x\n")
    sizes: dict[int, list[int]] = {}
    for worker in node.ready["workers"]:
        with RawClient(worker["listeners"]["kafka"]["port"]) as client:
            answer = client.call(keys.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        (directory,) = answer.results
        assert directory.total_bytes > directory.usable_bytes > 0
        for topic in directory.topics:
            if topic.name == "sized":
                for partition in topic.partitions:
                    sizes.setdefault(partition.partition_index, []).append(partition.partition_size)
    assert sorted(sizes) == list(range(PARTITIONS))
    assert all(len(told) == 1 and told[0] > 0 for told in sizes.values())


def test_the_scrub_is_of_all_workers_whichever_is_asked(node: RunningNode) -> None:
    assert post(f"{url(node, worker=2)}/api/v1/storage/scrub", b"") == (200, {"started": True})

    def scrubbed() -> bool:
        with urllib.request.urlopen(f"{url(node)}/api/v1/storage", timeout=WAIT_S) as response:
            groups = json.loads(response.read())["groups"]
        return len(groups) == 2 and all(group["scrub"]["last_ms"] for group in groups)

    deadline = time.monotonic() + WAIT_S
    while not scrubbed():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_stream_or_a_queue_on_another_worker_is_refused_at_once_with_its_place(node: RunningNode) -> None:
    began = time.monotonic()
    answers = [post(f"{url(node, 'stream_http')}/streams/subject-{number}", b"x") for number in range(4)]
    assert time.monotonic() - began < 5.0  # formerly the time that one of them waited
    refused = [answer["message"] for status, answer in answers if status == 503]
    assert 0 < len(refused) < 4
    assert all("is on node 2 (127.0.0.1:" in message for message in refused)

    client = yt.wrapper.YtClient(proxy=url(node, "yt"), config=NO_CLIENT_RETRIES)
    schema = [{"name": "data", "type": "string"}]
    client.create("table", "//tmp/queue", attributes={"dynamic": True, "schema": schema, "tablet_count": PARTITIONS})
    client.mount_table("//tmp/queue", sync=True)
    told: list[str] = []
    for number in range(PARTITIONS):
        try:
            client.insert_rows("//tmp/queue", [{"data": "x", "$tablet_index": number}])
        except YtError as error:
            told.append(str(error))
    assert 0 < len(told) < PARTITIONS
    assert all("is on node 2 (127.0.0.1:" in message for message in told)
