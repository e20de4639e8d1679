"""`python -m bench.takeover [--topics 300] [--partitions 1] [--kill follower]`: pauses of the partitions of a killed node.

Three nodes with a mirror-3 group and as many topics as asked for; a stock producer writes to all partitions in turn. A round
kills a node -9, the one that leads or another, and waits until every partition acknowledges messages again. The pause of a
partition is the time from the kill to its first acknowledgement after it. The goal is 3 s for up to 1,000 partitions that a
survivor takes over, and 2 ms for each beyond.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.cluster.running_cluster import RunningCluster, running_cluster, until

CREATED_AT_ONCE = 50
FREE_S = 3.0
FREE_PARTITIONS = 1_000
EACH_S = 0.002
RECOVERED_S = 120.0
WARM_S = 3.0
ROUND_S = 0.25  # between two messages to a partition

Place = tuple[str, int]


class Load:
    """A producer that writes to all partitions in turn until it is told to end."""

    def __init__(self, bootstrap: str, places: list[Place]) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 500,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._places = places
        self.first_after: dict[Place, float] = {}  # when each partition was written to first in this round
        self.failed: list[str] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait for what is in flight."""
        self._ending.set()
        self._thread.join()
        if self._producer.flush(60) or self.failed:
            raise RuntimeError(f"messages were not delivered: {self.failed[:3]}")

    def _write(self) -> None:
        while not self._ending.is_set():
            for topic, partition in self._places:
                with suppress(BufferError):  # it is full of what waits for a node
                    self._producer.produce(topic, b"x" * 100, partition=partition, on_delivery=self._told)
                self._producer.poll(0)
            began = time.monotonic()
            while (left_s := ROUND_S - (time.monotonic() - began)) > 0:
                self._producer.poll(left_s)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        place = (message.topic() or "", message.partition() or 0)
        self.first_after.setdefault(place, time.monotonic())


def make_topics(bootstrap: str, topics: int, partitions: int) -> list[Place]:
    """Create topics; all their partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    names = [f"t{number}" for number in range(topics)]
    for begin in range(0, topics, CREATED_AT_ONCE):
        new = [NewTopic(name, partitions) for name in names[begin : begin + CREATED_AT_ONCE]]
        for created in admin.create_topics(new, operation_timeout=60).values():
            created.result(60)
    return [(name, number) for name in names for number in range(partitions)]


def owned_by(cluster: RunningCluster, victim: int) -> int:
    """How many partitions a node leads."""
    shown = cluster.api(cluster.active(), "/nodes")["nodes"]
    return int(next(node["partitions"] for node in shown if node["name"] == f"n{victim}"))


def measure(cluster: RunningCluster, load: Load, places: list[Place], *, leader: bool) -> bool:
    """Kill a node and print how long its partitions were away; whether that is within the goal."""
    active = cluster.active()
    victim = active if leader else next(number for number in cluster.nodes if number != active)
    owned = owned_by(cluster, victim)
    time.sleep(WARM_S)
    killed_at = time.monotonic()
    cluster.kill(victim)
    load.first_after = {}
    until("not all partitions are written to", lambda: len(load.first_after) == len(places), RECOVERED_S)
    pauses = sorted(at - killed_at for at in load.first_after.values())
    away = pauses[-owned:]
    goal_s = FREE_S + EACH_S * max(0, owned // 2 - FREE_PARTITIONS)
    print(
        f"| {'leader' if leader else 'follower'} | {owned} | {median(away):.2f} s | {pauses[-1]:.2f} s | {goal_s:.2f} s | "
        f"{'met' if pauses[-1] <= goal_s else 'missed'} |",
        flush=True,
    )
    cluster.start(victim)
    cluster.wait_ready(victim, RECOVERED_S)
    return pauses[-1] <= goal_s


def main() -> int:
    """Measure; 1 if the goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.takeover", description=__doc__)
    parser.add_argument("--topics", type=int, default=300)
    parser.add_argument("--partitions", type=int, default=1, help="of each topic (default: 1)")
    parser.add_argument("--rounds", type=int, default=1, help="kills of each kind (default: 1)")
    parser.add_argument("--kill", choices=("leader", "follower", "both"), default="both")
    options = parser.parse_args()
    kinds = {"both": (False, True), "leader": (True,), "follower": (False,)}[options.kill]
    with tempfile.TemporaryDirectory() as directory, running_cluster(Path(directory)) as cluster:
        places = make_topics(cluster.bootstrap, options.topics, options.partitions)
        load = Load(cluster.bootstrap, places)
        until("not all partitions are written to", lambda: len(load.first_after) == len(places), RECOVERED_S)
        print("| killed | its partitions | pause, p50 | longest | goal | |\n|---|---:|---:|---:|---:|---|", flush=True)
        are_good = [measure(cluster, load, places, leader=leader) for leader in kinds for _ in range(options.rounds)]
        load.end()
    return 0 if all(are_good) else 1


if __name__ == "__main__":
    sys.exit(main())
