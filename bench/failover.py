"""`python -m bench.failover [--rounds 10] [--systems penstock,kafka]`: three nodes of each, and one after the other is killed -9.

The same Java clients write to both: an idempotent producer and transactions to six partitions each, with three replicas, while
a group reads. A round kills a node, waits until all partitions and transactions go on, starts it again and waits until it has
caught up. Pauses are the longest times without an acknowledgement of some partition, or the end of a transaction; requests time
out after 3 s. Penstock syncs every message to disk before it acknowledges it, Kafka as it comes does not. The processor time is
that of all nodes, their starts after kills included.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from bench.kafka_peer.brokers import RESULTS, KafkaProcess, PenstockProcess, free_port
from bench.kafka_peer.java_clients import FAULTS, Pauses, running_java_clients
from bench.process_cpu import tree_cpu_s

if TYPE_CHECKING:
    from tests.e2e.cluster.running_cluster import RunningCluster

NODES = (1, 2, 3)
REQUEST_TIMEOUT_MS = 3_000
CAUGHT_UP_S = 120.0
LINE = "| {} | {} | {:.1f} / {:.1f} s | {:.1f} / {:.1f} s | {:.1f} ms | {:.0f} MB | {} |"
TITLES = (
    "system",
    "kills",
    "no acknowledgement, p50 / longest",
    "no transaction ended, p50 / longest",
    "CPU a message",
    "memory of all",
    "lost or doubled",
)


class System(ABC):
    """Three nodes that can be killed and started again."""

    name: str
    bootstrap: str

    @abstractmethod
    def kill(self, number: int) -> None:
        """kill -9."""

    @abstractmethod
    def start_again(self, number: int) -> None:
        """Start a node that was killed, and wait until it has caught up."""

    @abstractmethod
    def pids(self) -> list[int]:
        """The processes of all nodes."""


class PenstockCluster(System):
    """Three nodes with a mirror-3 group, and one member of etcd."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self.name = PenstockProcess.version()
        self.bootstrap = cluster.bootstrap

    def kill(self, number: int) -> None:
        self._cluster.kill(number)

    def start_again(self, number: int) -> None:
        self._cluster.start(number)
        self._cluster.wait_ready(number, CAUGHT_UP_S)

    def pids(self) -> list[int]:
        return [node.process.pid for node in self._cluster.nodes.values()]


class KafkaMember(KafkaProcess):
    """One of three brokers, each with a vote."""

    def __init__(self, directory: Path, number: int, controllers: dict[int, int]) -> None:
        super().__init__(directory, synced=False)
        self._number = number
        self._controllers = controllers

    def _settings(self) -> dict[str, str]:
        controller = self._controllers[self._number]
        return {
            **super()._settings(),
            "node.id": str(self._number),
            "controller.quorum.voters": ",".join(f"{number}@127.0.0.1:{port}" for number, port in self._controllers.items()),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "min.insync.replicas": "2",
        }


class KafkaCluster(System):
    """Three brokers of Kafka that are controllers as well, with the options of its own scripts."""

    def __init__(self, members: dict[int, KafkaMember]) -> None:
        self._members = members
        self.name = KafkaProcess.version()
        self.bootstrap = ",".join(member.address for member in members.values())

    def kill(self, number: int) -> None:
        self._members[number].kill()

    def start_again(self, number: int) -> None:
        self._members[number].start_again()
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + CAUGHT_UP_S
        while not self._is_whole(admin):
            if time.monotonic() > deadline:
                raise RuntimeError(f"broker {number} has not caught up after {CAUGHT_UP_S:g} s")
            time.sleep(0.2)

    def pids(self) -> list[int]:
        return [member.pid for member in self._members.values()]

    def _is_whole(self, admin: AdminClient) -> bool:
        topics = admin.list_topics(timeout=30).topics.values()
        return all(len(part.isrs) == len(part.replicas) == len(NODES) for topic in topics for part in topic.partitions.values())


@contextmanager
def penstock_cluster(directory: Path) -> Iterator[System]:
    """Three nodes of Penstock."""
    from tests.e2e.cluster.running_cluster import running_cluster

    with running_cluster(directory) as cluster:
        yield PenstockCluster(cluster)


@contextmanager
def kafka_cluster(directory: Path) -> Iterator[System]:
    """Three brokers of Kafka."""
    controllers = {number: free_port() for number in NODES}
    members = {number: KafkaMember(directory / f"kafka{number}", number, controllers) for number in NODES}
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        for member in members.values():
            stack.callback(member.stop)
        # All at once: a broker listens when most of them have elected one that leads.
        list(threads.map(KafkaMember.start, members.values()))
        yield KafkaCluster(members)


SYSTEMS = {"penstock": penstock_cluster, "kafka": kafka_cluster}


def main() -> int:
    """Measure; 1 if anything acknowledged was lost or doubled."""
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how many nodes are killed (default: 10)")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help=f"which of {', '.join(SYSTEMS)} (default: all)")
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"| {' | '.join(TITLES)} |\n|---|{'---:|' * (len(TITLES) - 1)}")
    are_good = [measure(name, options.rounds) for name in options.systems.split(",")]
    return 0 if all(are_good) else 1


def measure(name: str, rounds: int) -> bool:
    """Measure one system and print its row; whether nothing went wrong."""
    directory = RESULTS / "failover"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with SYSTEMS[name](directory) as system:
        pauses: list[Pauses] = []
        used: dict[int, float] = {}
        with running_java_clients(system.bootstrap, directory / "clients.log", REQUEST_TIMEOUT_MS) as clients:
            clients.go_on()
            for number in range(rounds):
                clients.longest_pauses()
                used.update(_cpu(system))
                system.kill(NODES[number % len(NODES)])
                clients.go_on()
                pauses.append(clients.longest_pauses())
                system.start_again(NODES[number % len(NODES)])
                clients.go_on()
            used.update(_cpu(system))
            memory_mb = sum(_memory_mb(pid) for pid in system.pids())
            counts = clients.end()
        sends, transactions = zip(*pauses, strict=True)
        cpu_ms = 1000 * sum(used.values()) / (counts["acknowledged"] + 6 * counts["committed"])
        faults = {fault: counts[fault] for fault in FAULTS}
        told = "0" if not any(faults.values()) else str(faults)
        figures = (median(sends), max(sends), median(transactions), max(transactions), cpu_ms, memory_mb)
        print(LINE.format(system.name, rounds, *figures, told), flush=True)
        print(f"<!-- {counts} -->", flush=True)
    if any(faults.values()):
        print(f"the logs are in {directory}")
        return False
    shutil.rmtree(directory, ignore_errors=True)
    return True


def _cpu(system: System) -> dict[int, float]:
    """The processor time of each process until now; that of one that is killed is what it had before."""
    return {pid: tree_cpu_s(pid) for pid in system.pids()}


def _memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1e3 for line in status.splitlines() if line.startswith("VmRSS"))


if __name__ == "__main__":
    sys.exit(main())
