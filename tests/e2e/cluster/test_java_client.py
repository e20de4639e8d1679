"""Three nodes and three members of etcd under Kafka's own Java client: an idempotent producer, transactions and a group.

`make soak` does `CLUSTER_ROUNDS` of each fault (20): nodes killed -9, stopped for a while, drained and restarted one after the
other, and etcd without its leader. Nothing acknowledged is lost, doubled or out of order; transactions are there as a whole or
not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from bench.kafka_peer.java_clients import FAULTS, JavaClients, Pauses, running_java_clients
from tests.e2e.cluster.running_cluster import RunningCluster, running_cluster

PAUSES = Path("build/java-pauses.md")
REQUEST_TIMEOUT_MS = 3_000
STOPPED_S = 10.0
CAUGHT_UP_S = 180.0
NODES = (1, 2, 3)

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(4 * 3600),
    pytest.mark.skipif(shutil.which("java") is None or shutil.which("mvn") is None, reason="it needs java and maven"),
]


class Faults:
    """What can be done to the cluster, by name; each is undone when it returns."""

    def __init__(self, cluster: RunningCluster, clients: JavaClients) -> None:
        self._cluster = cluster
        self._clients = clients
        self._turn = 0
        self.all: dict[str, Callable[[], None]] = {
            "a node is killed": self.kill,
            "a node stands still": self.freeze,
            "a node is drained": self.drain,
            "all nodes are restarted, one after the other": self.restart_all,
            "the leader of etcd is killed": self.kill_etcd_leader,
        }

    def kill(self) -> None:
        number = self._next()
        self._cluster.kill(number)
        self._clients.go_on()
        self._cluster.start(number)

    def freeze(self) -> None:
        process = self._cluster.nodes[self._next()].process
        process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        process.send_signal(signal.SIGCONT)

    def drain(self) -> None:
        name = f"n{self._next()}"
        shown = json.loads(self._cluster.ok("node", "list", "-o", "json"))
        number = str(next(node["node"] for node in shown if node["name"] == name))
        self._cluster.ok("node", "drain", number, "--wait")
        self._clients.go_on()
        self._cluster.ok("node", "undrain", number)

    def restart_all(self) -> None:
        for number in NODES:
            assert self._cluster.nodes.pop(number).stop() == 0
            self._cluster.start(number)
            self.wait_whole()

    def kill_etcd_leader(self) -> None:
        leader = self._cluster.etcd.leader()
        leader.kill()
        time.sleep(STOPPED_S)
        self._cluster.etcd.start([leader])

    def wait_whole(self) -> None:
        """Wait until every node could be done without."""
        for number in NODES:
            self._cluster.wait_ready(number, CAUGHT_UP_S)

    def _next(self) -> int:
        self._turn += 1
        return NODES[self._turn % len(NODES)]


def test_rounds_of_faults_under_the_java_client_lose_nothing(tmp_path: Path) -> None:
    rounds = int(os.environ.get("CLUSTER_ROUNDS", "20"))
    pauses: dict[str, list[Pauses]] = {}
    with (
        running_cluster(tmp_path, etcd_members=3) as cluster,
        running_java_clients(cluster.bootstrap, tmp_path / "clients.log", REQUEST_TIMEOUT_MS) as clients,
    ):
        faults = Faults(cluster, clients)
        clients.go_on()
        for _ in range(rounds):
            for name, befall in faults.all.items():
                clients.longest_pauses()
                befall()
                faults.wait_whole()
                clients.go_on()
                pauses.setdefault(name, []).append(clients.longest_pauses())
                write(pauses)
        counts = clients.end()
        assert {fault: counts[fault] for fault in FAULTS} == dict.fromkeys(FAULTS, 0), counts
        assert counts["acknowledged"] > 100 * rounds
        assert counts["committed"] > rounds


def write(pauses: dict[str, list[Pauses]]) -> None:
    """Keep the pauses of the rounds so far."""
    lines = [
        "| fault | rounds | no acknowledgement, p50 / longest | no transaction ended, p50 / longest |",
        "|---|---:|---:|---:|",
    ]
    for name, found in pauses.items():
        sends, transactions = zip(*found, strict=True)
        figures = f"{median(sends):.1f} / {max(sends):.1f} s | {median(transactions):.1f} / {max(transactions):.1f} s"
        lines.append(f"| {name} | {len(found)} | {figures} |")
    PAUSES.parent.mkdir(exist_ok=True)
    PAUSES.write_text("\n".join(lines) + "\n", encoding="utf-8")
