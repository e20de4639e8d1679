"""`penstock up --workers`: brokers to Kafka clients, in processes that are started, restarted and stopped together."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import ydb
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from penstock.cli.exit_codes import ExitCode
from penstock.server import NodeConfig
from penstock.server.data_directory import DataDirectory
from tests.e2e.running_node import RunningNode, penstock, running_node
from tests.ports import ports_in_a_row

WAIT_S = 60.0
TOPIC = "spread"
PARTITIONS = 4


def _until(what: str, ready: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not ready():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Messages:
    """An idempotent producer of numbered messages to all partitions, and what should be there of them."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
        self.errors: list[Any] = []
        self.count = 0

    def produce(self, count: int) -> None:
        """Hand messages to the client."""
        for _ in range(count):
            self._producer.produce(TOPIC, str(self.count), partition=self.count % PARTITIONS, on_delivery=self._delivered)
            self.count += 1
            self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all of them are acknowledged."""
        assert self._producer.flush(WAIT_S) == 0
        assert self.errors == []

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self.errors.append(error)


def _leaders(bootstrap: str, topic: str) -> set[int]:
    described = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=WAIT_S).topics[topic]
    return {partition.leader for partition in described.partitions.values()}


def _consumed(bootstrap: str, group: str, count: int) -> list[int]:
    """What a consumer of a new group reads, sorted; a moment longer than needed, so that what is there twice is seen."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    found: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        found += [int(message.value() or b"") for message in consumer.consume(count, timeout=0.5) if message.error() is None]
    found += [int(message.value() or b"") for message in consumer.consume(count, timeout=0.5) if message.error() is None]
    consumer.close()
    return sorted(found)


def _kill(node: RunningNode, number: int) -> None:
    """kill -9 of a worker that the supervisor has started first."""
    os.kill(node.ready["workers"][number - 1]["pid"], signal.SIGKILL)


def test_workers_share_topics_and_lose_nothing_when_they_are_killed(tmp_path: Path) -> None:
    log, options = tmp_path / "log", ["--data-dir", str(tmp_path / "data"), "--http-port", "0"]
    with running_node(log, options) as alone:
        alone.ok("topic", "create", "old")
        alone.ok("produce", "old", stdin=b"first\n")
        assert alone.stop() == 0
    with running_node(log, [*options, "--workers", "2"]) as node:
        assert [worker["node_id"] for worker in node.ready["workers"]] == [1, 2]
        node.ok("topic", "create", TOPIC, "--partitions", str(PARTITIONS))
        second = node.ready["workers"][1]["listeners"]["kafka"]
        assert _leaders(f"{second['host']}:{second['port']}", TOPIC) == {1, 2}
        assert _leaders(node.bootstrap, "old") == {1}
        messages = Messages(node.bootstrap)
        for number in (2, 1):
            messages.produce(100)
            _kill(node, number)
            if number == 2:  # what is created meanwhile is on it as well, once it is back
                node.run("topic", "create", "late", "--partitions", "2")
            _until(f"worker {number} serves again", lambda text=f"worker {number} serves again": text in log.read_text())  # type: ignore[misc]
            messages.produce(100)
            messages.flush()
        _until("the new topic is on both", lambda: _leaders(node.bootstrap, "late") == {1, 2})
        assert _consumed(node.bootstrap, "before", messages.count) == list(range(messages.count))
        http = node.ready["listeners"]["http"]
        status = penstock("status", "--http", f"{http['host']}:{http['port']}").stdout.decode()
        assert f"2 (worker2) {second['host']}:{second['port']}" in status
        in_use = penstock("up", *options, "--workers", "2", "--kafka-port", "0")
        assert in_use.returncode == ExitCode.DIRECTORY_IN_USE, in_use.stderr
        node.kill()
    with running_node(log, [*options, "--workers", "2"]) as node:
        # The workers of the supervisor that was killed have stopped before these started.
        assert log.read_text().count("the supervisor has ended; this worker stops") == 2
        assert _consumed(node.bootstrap, "after", messages.count) == list(range(messages.count))
        assert node.ok("consume", "old", "-n", "1").strip() == "first"
        assert node.stop() == 0
        assert not any(_runs(worker["pid"]) for worker in node.ready["workers"])
    fewer = penstock("up", *options, "--kafka-port", "0")
    assert fewer.returncode == ExitCode.DIRECTORY_MISMATCH, fewer.stderr
    assert b"has partitions on worker 2; start with --workers 2 or more" in fewer.stderr


def test_a_topic_is_deleted_while_a_worker_with_its_data_is_away(tmp_path: Path) -> None:
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data"), "--workers", "2"]) as node:
        pid = node.ready["workers"][1]["pid"]
        for leaves, returns in ((signal.SIGSTOP, signal.SIGCONT), (signal.SIGKILL, None)):
            for topic in ("gone", "other"):
                node.ok("topic", "create", topic, "--partitions", "2")
                node.ok("produce", topic, "--partition", "1", stdin=b"old\n")
            os.kill(pid, leaves)
            try:
                node.ok("topic", "delete", "gone", "other", "--yes")
            finally:
                if returns is not None:
                    os.kill(pid, returns)
            for topic in ("gone", "other"):
                _until("its name is free again", lambda topic=topic: node.run("topic", "create", topic).returncode == 0)  # type: ignore[misc]
            _until("both are deleted again", lambda: node.run("topic", "delete", "gone", "other", "--yes").returncode == 0)


def test_every_worker_shows_its_metrics_to_those_who_may_see_them(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("swordfish")
    argv = ["--sasl", "true", "--admin-password-file", str(password), "--data-dir", str(tmp_path / "data"), "--http-port", "0"]
    with running_node(tmp_path / "log", [*argv, "--workers", "2"]) as node:
        for worker in node.ready["workers"]:
            http = worker["listeners"]["http"]
            base = f"http://{http['host']}:{http['port']}"
            assert "penstock_" in _get(f"{base}/metrics", "admin", "swordfish")[1]
            assert _get(f"{base}/metrics", "admin", "guess")[0] == 401
            # All else is the same on each of them.
            assert [known["name"] for known in json.loads(_get(f"{base}/api/v1/nodes", "admin", "swordfish")[1])["nodes"]] == [
                "worker1",
                "worker2",
            ]
            assert _get(f"{base}/api/v1/nodes", "admin", "guess")[0] == 401


def test_clients_of_ydb_write_to_partitions_of_the_worker_they_ask_and_are_told_of_others(tmp_path: Path) -> None:
    argv = ["--data-dir", str(tmp_path / "data"), "--http-port", "none", "--ydb-port", "0", "--workers", "2"]
    with running_node(tmp_path / "log", argv) as node:
        endpoint = f"grpc://127.0.0.1:{node.ready['listeners']['ydb']['port']}"
        with ydb.Driver(endpoint=endpoint, database="/local") as driver:
            driver.wait(timeout=WAIT_S)
            client = driver.topic_client
            client.create_topic("/local/shared", min_active_partitions=4)
            told = []
            for number in range(4):
                try:
                    with client.writer("/local/shared", producer_id=f"p{number}", partition_id=number) as writer:
                        assert isinstance(writer.write_with_ack("x", timeout=WAIT_S), ydb.TopicWriteResult.Written)
                except ydb.issues.PreconditionFailed as error:
                    told.append(str(error))
            client.close()
    assert len(told) == 2
    assert all("node 2" in text for text in told)


def _get(url: str, user: str, password: str) -> tuple[int, str]:
    token = b64encode(f"{user}:{password}".encode()).decode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers={"Authorization": f"Basic {token}"}), timeout=WAIT_S
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_directory_that_cannot_be_a_workers_stops_all(tmp_path: Path) -> None:
    DataDirectory.open(NodeConfig(data_dir=tmp_path), Random(1), cluster_id="ours").close()
    DataDirectory.open(NodeConfig(data_dir=tmp_path / "workers" / "2"), Random(1), cluster_id="another").close()
    done = penstock("up", "--workers", "2", "--data-dir", str(tmp_path), "--kafka-port", "0")
    assert (done.returncode, done.stdout) == (ExitCode.DIRECTORY_MISMATCH, b""), done.stderr
    assert b"is of cluster another, not ours" in done.stderr


def test_a_port_of_another_worker_that_is_taken_stops_all(tmp_path: Path) -> None:
    port = ports_in_a_row(2) + 1
    with socket.create_server(("127.0.0.1", port)):
        options = ("--data-dir", str(tmp_path), "--kafka-port", str(port - 1), "--http-port", "none")
        done = penstock("up", "--workers", "2", *options)
    assert (done.returncode, done.stdout) == (ExitCode.CANNOT_LISTEN, b""), done.stderr
    assert f"cannot listen on 127.0.0.1:{port}: ".encode() in done.stderr
    assert b"choose another --host or --kafka-port" in done.stderr


def test_topics_and_groups_are_listed_without_a_worker_that_hangs(tmp_path: Path) -> None:
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data"), "--http-port", "0", "--workers", "2"]) as node:
        names = [TOPIC, *(f"t{number}" for number in range(4))]
        for name in names:
            node.ok("topic", "create", name, "--partitions", str(PARTITIONS if name == TOPIC else 1))
        leaders = {name: _leaders(node.bootstrap, name) for name in names}
        assert leaders[TOPIC] == {1, 2}
        assert {1} in leaders.values()
        hung = node.ready["workers"][1]["pid"]
        variables = {"PENSTOCK_BOOTSTRAP": node.bootstrap}
        os.kill(hung, signal.SIGSTOP)
        try:
            topics, groups = (penstock(what, "list", "-o", "json", variables=variables) for what in ("topic", "group"))
        finally:
            os.kill(hung, signal.SIGCONT)
        assert (topics.returncode, groups.returncode) == (ExitCode.OK, ExitCode.OK), (topics.stderr, groups.stderr)
        assert b"node 2 is left out: " in topics.stderr  # and when its lease has ended, it is no node of the cluster for a while
        assert {row["name"]: row["size"] is None for row in json.loads(topics.stdout)} == {
            name: 2 in on_nodes for name, on_nodes in leaders.items()
        }
        whole = penstock("topic", "list", "-o", "json", variables=variables)
        assert (whole.returncode, whole.stderr) == (ExitCode.OK, b"")
        assert all(row["size"] is not None for row in json.loads(whole.stdout))
