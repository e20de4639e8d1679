"""What a real node tells of itself: its numbers move as real clients move it, and its readiness turns when it drains."""

from __future__ import annotations

import base64
import http.client
import json
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from penstock.kafka.protocol import keys
from penstock.server.metrics import METRICS
from tests.e2e.http.api_client import client_of
from tests.e2e.kafka.raw_client import fetch_request, frame_of
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.stream.stream_client import StreamClient

WAIT_S = 20.0
MESSAGES = 300
PARTITIONS = 3
OPEN_METRICS = "application/openmetrics-text;version=1.0.0"

Labels = frozenset[tuple[str, str]]


class Scrape:
    """All samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.samples: dict[tuple[str, Labels], float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in parse_text(text)
            for sample in family.samples
        }
        self.families = {family.name: family.type for family in parse_text(text)}

    def get(self, name: str, **labels: str) -> float:
        """One sample; 0 if there is none."""
        return self.samples.get((name, frozenset(labels.items())), 0.0)

    def sum(self, name: str, **labels: str) -> float:
        """The sum of all that have these labels."""
        wanted = set(labels.items())
        return sum(value for (found, has), value in self.samples.items() if found == name and wanted <= has)


def address(node: RunningNode) -> str:
    http = node.ready["listeners"]["http"]
    return f"http://{http['host']}:{http['port']}"


def get(node: RunningNode, path: str, accept: str = "*/*", user: str = "") -> tuple[int, str]:
    """The status and the body of an answer."""
    headers = {"Accept": accept}
    if user:
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    request = urllib.request.Request(address(node) + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scrape(node: RunningNode, path: str = "/metrics/internal") -> Scrape:
    status, text = get(node, path)
    assert status == 200, text
    return Scrape(text)


def until(found: Any, what: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@contextmanager
def observed_node(folder: Path, *argv: str) -> Iterator[RunningNode]:
    with running_node(folder / "log", ["--data-dir", str(folder / "data"), "--http-port", "0", *argv]) as running:
        yield running


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with observed_node(tmp_path_factory.mktemp("metrics"), "--stream-http-port", "0", "--stream-port", "0") as running:
        yield running


def produce(node: RunningNode, topic: str, count: int) -> int:
    """Send so many messages of 100 bytes; how many are stored."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 5})
    stored: list[Any] = []
    for number in range(count):
        producer.produce(
            topic, value=b"x" * 100, partition=number % PARTITIONS, on_delivery=lambda error, _: stored.append(error)
        )
    producer.flush(WAIT_S)
    assert stored == [None] * count
    return len(stored)


def make_topic(node: RunningNode, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(WAIT_S)


def consume(node: RunningNode, topic: str, group: str, count: int) -> None:
    """Read so many messages as a group, and commit that."""
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    read = 0
    while read < count:
        messages = consumer.consume(count, WAIT_S)
        assert messages, f"only {read} of {count} came"
        read += len(messages)
    consumer.commit(asynchronous=False)
    consumer.close()


def test_what_clients_write_and_read_is_counted(node: RunningNode) -> None:
    make_topic(node, "counted")
    before = scrape(node)
    produce(node, "counted", MESSAGES)
    consume(node, "counted", "reader", MESSAGES)
    until(lambda: scrape(node).get("penstock_topic_messages", topic="counted") == MESSAGES, "the survey did not find them")
    after = scrape(node)
    assert after.get("penstock_produce_messages_total", topic="counted") == MESSAGES
    written = after.get("penstock_produce_bytes_total", topic="counted")
    assert MESSAGES * 100 < written < MESSAGES * 200
    assert 0 < after.get("penstock_produce_batches_total", topic="counted") <= MESSAGES
    assert after.get("penstock_fetch_messages_total", topic="counted") >= MESSAGES
    assert after.get("penstock_fetch_bytes_total", topic="counted") >= written
    assert after.get("penstock_topic_stored_bytes", topic="counted") == written
    assert after.get("penstock_head_bytes") + after.get("penstock_body_bytes") >= written
    for api in ("Produce", "Fetch", "OffsetCommit"):
        labels = {"gateway": "kafka", "api": api, "outcome": "ok"}
        assert after.sum("penstock_request_duration_seconds_count", **labels) > before.sum(
            "penstock_request_duration_seconds_count", **labels
        ), api
    for counter in ("penstock_tablet_commit_duration_seconds_count", "penstock_tablet_commit_requests_total"):
        assert after.get(counter) > before.get(counter), counter
    for counter in ("penstock_disk_sync_duration_seconds_count", "penstock_disk_written_bytes_total"):
        assert after.get(counter, vdisk="0") > before.get(counter, vdisk="0"), counter
    assert after.get("penstock_disk_written_bytes_total", vdisk="0") >= written
    assert after.get("penstock_storage_used_bytes") >= written
    assert after.get("penstock_process_cpu_seconds_total") > before.get("penstock_process_cpu_seconds_total")
    # A look by the admin API, as the console does, is no consumption.
    assert len(client_of(node).get("/topics/counted/messages", limit=50)["items"]) == 50
    assert scrape(node).get("penstock_fetch_messages_total", topic="counted") == after.get(
        "penstock_fetch_messages_total", topic="counted"
    )


def test_lag_is_told_by_consumer_and_topic(node: RunningNode) -> None:
    make_topic(node, "lagging")
    produce(node, "lagging", MESSAGES)
    consume(node, "lagging", "slow", MESSAGES)
    produce(node, "lagging", 30)
    labels = {"consumer": "slow", "topic": "lagging"}
    until(lambda: scrape(node, "/metrics").get("penstock_consumer_lag_messages", **labels) == 30, "no such lag")
    found = scrape(node, "/metrics")
    seconds = found.get("penstock_consumer_lag_seconds", **labels)
    assert 0 < seconds < WAIT_S
    assert 0 < found.get("penstock_consumer_retention_ratio", **labels) < 0.01
    assert found.get("penstock_consumers") >= 1


def test_what_stream_clients_do_is_counted(node: RunningNode) -> None:
    port = node.ready["listeners"]["stream_http"]["port"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)

    def ask(method: str, path: str, body: bytes = b"") -> str:
        connection.request(method, path, body)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        return text

    before = scrape(node, "/metrics")
    first, _, last = (json.loads(ask("POST", "/streams/watched", b"x" * 100))["sequence"] for _ in range(3))
    assert len(ask("GET", "/streams/watched").splitlines()) == 3
    ask("POST", f"/streams/watched/consumers/watcher/{first}")
    lag = {"consumer": "stream:watcher", "topic": "watched"}
    until(lambda: scrape(node, "/metrics").get("penstock_consumer_lag_messages", **lag) == 2, "no lag of a durable consumer")
    after = scrape(node, "/metrics")
    for name, grown in (
        ("penstock_stream_published_messages_total", 3),
        ("penstock_stream_published_bytes_total", 300),
        ("penstock_stream_read_messages_total", 3),
        ("penstock_stream_read_bytes_total", 300),
        ("penstock_stream_consumers", 1),
        ("penstock_stream_subjects", 1),
    ):
        assert after.get(name) - before.get(name) == grown, name
    assert after.get("penstock_stream_last_sequence") >= last
    assert after.get("penstock_connections", gateway="stream") == 1
    assert after.get("penstock_connections", gateway="http") >= 1
    connection.close()
    until(lambda: scrape(node, "/metrics").get("penstock_connections", gateway="stream") == 0, "no client is connected any more")


def test_a_subscriber_over_grpc_is_connected(node: RunningNode) -> None:
    with StreamClient(f"127.0.0.1:{node.ready['listeners']['stream']['port']}") as client:
        client.publish("followed", b"x")
        told = client.subscribe("followed")
        assert next(told).sequence > 0
        assert scrape(node).get("penstock_connections", gateway="stream") == 1
        told.cancel()
    until(lambda: scrape(node).get("penstock_connections", gateway="stream") == 0, "the subscriber has gone")


def test_what_is_refused_is_counted_as_such(node: RunningNode) -> None:
    make_topic(node, "twice")
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    with pytest.raises(Exception, match="ALREADY_EXISTS"):
        admin.create_topics([NewTopic("twice", 1)])["twice"].result(WAIT_S)
    found = scrape(node)
    assert found.sum("penstock_request_duration_seconds_count", gateway="kafka", api="CreateTopics", outcome="refused") >= 1
    assert get(node, "/api/v1/there-is-none")[0] == 404
    assert scrape(node).sum("penstock_request_duration_seconds_count", gateway="http", outcome="refused") >= 1


def test_the_public_tier_has_what_is_declared_and_no_more(node: RunningNode) -> None:
    make_topic(node, "shown")
    produce(node, "shown", 1)
    until(lambda: scrape(node).get("penstock_disk_size_bytes", vdisk="0"), "the room on the disk is not known")
    until(lambda: scrape(node).get("penstock_topic_messages", topic="shown"), "the survey did not find the topic")
    public, everything = scrape(node, "/metrics"), scrape(node)
    declared = {metric.name.removesuffix("_total"): metric for metric in METRICS}
    for found in (public, everything):
        for name, kind in found.families.items():
            assert declared[name].kind.value == kind, name
    assert {declared[name].tier.value for name in public.families} == {"public"}
    unused = {"penstock_alerts", "penstock_consumer_lag_messages", "penstock_consumer_lag_seconds", "penstock_groups"}
    unused |= {"penstock_consumer_retention_ratio", "penstock_deployed_pipelines", "penstock_sign_in_failures"}
    unused |= {
        *(name for name in declared if name.startswith(("penstock_pipeline", "penstock_interconnect", "penstock_placement")))
    }
    assert declared.keys() - everything.families.keys() <= unused


def test_openmetrics_is_served_to_who_asks_for_it(node: RunningNode) -> None:
    status, text = get(node, "/metrics/internal", OPEN_METRICS)
    assert status == 200
    # The parser of OpenMetrics has no types.
    families = {family.name: family for family in parse_open_metrics(text)}  # type: ignore[no-untyped-call]
    assert families["penstock_produce_bytes"].unit == "bytes"
    assert families["penstock_request_duration_seconds"].type == "histogram"


def test_a_topic_made_again_is_counted_anew(tmp_path: Path) -> None:
    with observed_node(tmp_path) as node:
        make_topic(node, "kept")
        produce(node, "kept", MESSAGES)
        assert scrape(node).get("penstock_produce_messages_total", topic="kept") == MESSAGES
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.delete_topics(["kept"])["kept"].result(WAIT_S)
        assert scrape(node).get("penstock_produce_messages_total", topic="kept") == 0
        make_topic(node, "kept")
        produce(node, "kept", 3)
        assert scrape(node).get("penstock_produce_messages_total", topic="kept") == 3


def test_history_and_overview_follow(node: RunningNode) -> None:
    make_topic(node, "charted")

    def is_charted() -> bool:
        produce(node, "charted", 50)
        status, text = get(node, "/api/v1/history?metric=produce_messages&topic=charted")
        assert status == 200, text
        values = json.loads(text)["series"].get("charted", [])
        return any(value for value in values if value)

    until(is_charted, "the topic got no history")
    whole = json.loads(get(node, "/api/v1/history?metric=produce_bytes&points=30")[1])
    assert any(whole["series"]["produce_bytes"])
    assert len(whole["times"]) == len(whole["series"]["produce_bytes"]) <= 31
    overview = json.loads(get(node, "/api/v1/overview")[1])
    assert overview["topics"] >= 1
    assert overview["storage"]["total"] > overview["storage"]["used"] > 0


def test_a_node_that_runs_is_alive_and_ready(node: RunningNode) -> None:
    assert get(node, "/healthz") == (200, '{"status": "ok"}')
    status, text = get(node, "/readyz")
    assert (status, json.loads(text)) == (200, {"status": "ready", "phase": "serving", "reasons": []})
    assert scrape(node).get("penstock_ready") == 1


@pytest.mark.slow
def test_a_node_that_drains_is_not_ready_and_says_why(tmp_path: Path) -> None:
    with observed_node(tmp_path, "--drain-timeout-s", "15") as node:
        make_topic(node, "drained")
        producer = Producer({"bootstrap.servers": node.bootstrap, "message.max.bytes": 2_000_000})
        for _ in range(8):
            producer.produce("drained", value=b"x" * 900_000, partition=0)
        assert producer.flush(WAIT_S) == 0
        assert get(node, "/readyz")[0] == 200
        # A client that asks and does not take the answers keeps the node from being done.
        host, _, port = node.bootstrap.partition(":")
        with socket.create_connection((host, int(port))) as stubborn:
            stubborn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            ask = frame_of(keys.FETCH, 11, fetch_request("drained", 0, max_bytes=8 << 20))
            stubborn.sendall(ask * 4)
            until(lambda: scrape(node).sum("penstock_request_duration_seconds_count", api="Fetch") >= 1, "nothing was fetched")
            node.process.send_signal(signal.SIGTERM)
            until(lambda: get(node, "/readyz")[0] == 503, "it stayed ready")
            shown = json.loads(get(node, "/readyz")[1])
            assert (shown["phase"], shown["reasons"]) == ("draining", ["the node is stopping"])
            assert get(node, "/healthz")[0] == 200
            assert get(node, "/api/v1/topics")[0] == 503
            assert scrape(node).get("penstock_ready") == 0
        assert node.process.wait(WAIT_S) == 0


def test_a_node_that_asks_who_its_clients_are_tells_its_numbers_only_to_them(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret")
    with observed_node(tmp_path, "--sasl", "true", "--admin-password-file", str(password)) as node:
        assert [get(node, path)[0] for path in ("/healthz", "/readyz")] == [200, 200]
        assert [get(node, path)[0] for path in ("/metrics", "/metrics/internal")] == [401, 401]
        status, text = get(node, "/metrics", user="admin:secret")
        assert (status, Scrape(text).get("penstock_ready")) == (200, 1)
        assert get(node, "/metrics", user="admin:wrong")[0] == 401


@pytest.mark.slow
def test_a_node_that_lost_a_disk_says_so_everywhere(tmp_path: Path) -> None:
    disks = [tmp_path / f"disk{number}" for number in range(8)]
    argv = ["--erasure", "block-4-2", *(part for disk in disks for part in ("--disk", str(disk)))]
    with observed_node(tmp_path, *argv) as node:
        make_topic(node, "t")
        produce(node, "t", 30)
        assert scrape(node).get("penstock_storage_group_state", group="0", state="healthy") == 1
        assert node.stop() == 0
    for path in sorted(disks[3].rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    disks[3].rmdir()
    disks[3].write_text("not a directory any more")
    with observed_node(tmp_path, *argv) as node:
        found = scrape(node)
        assert found.get("penstock_storage_group_state", group="0", state="degraded") == 1
        assert (found.get("penstock_vdisk_up", vdisk="3"), found.get("penstock_vdisk_up", vdisk="2")) == (0, 1)
        assert get(node, "/readyz")[0] == 200, "it serves on"
        until(lambda: scrape(node).get("penstock_alerts", code="storage_degraded", level="warning") == 1, "no alert")
