"""`python -m bench.handover [--partitions 24] [--moves 12]`: pauses of partitions that are handed over while they are written to.

Three nodes with a mirror-3 group. A stock producer writes 1 KiB to every partition, one message after the other's send and
thousands a second in all. First tablets are moved, one at a time, then each node is stopped in order and started again. The pause
of a partition is the longest time between two of its acknowledgements in a step, and holds the client's own back-off. The goal is
0.5 s for a partition.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from confluent_kafka import KafkaError, Message, Producer

from bench.takeover import Place, make_topics
from tests.e2e.cluster.running_cluster import RunningCluster, running_cluster, until

GOAL_S = 0.5
MOVED_S = 30.0
READY_S = 120.0
APART_S = 2.0  # between two steps
TURN_S = 0.005  # between two messages to a partition
VALUE = b"x" * 1024


class Writing:
    """A producer that writes to all partitions until it is told to end, and the pauses of each."""

    def __init__(self, bootstrap: str, places: list[Place]) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        self._producer = Producer(settings)
        self._places = places
        self._last: dict[Place, float] = {}  # when each partition acknowledged last
        self._longest: dict[Place, float] = {}
        self.failed: list[str] = []
        self.acknowledged = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Forget the pauses until now."""
        self._longest = {}

    def pauses(self) -> dict[Place, float]:
        """The longest time without an acknowledgement of each partition since then, ended or not."""
        now = time.monotonic()
        return {place: max(self._longest.get(place, 0.0), now - at) for place, at in list(self._last.items())}

    @property
    def is_written(self) -> bool:
        """Whether all partitions have acknowledged something."""
        return len(self._last) == len(self._places)

    def end(self) -> None:
        """Wait for what is in flight."""
        self._ending.set()
        self._thread.join()
        if self._producer.flush(60) or self.failed:
            raise RuntimeError(f"messages were not delivered: {self.failed[:3]}")

    def _write(self) -> None:
        while not self._ending.is_set():
            began = time.monotonic()
            for topic, partition in self._places:
                self._producer.produce(topic, VALUE, partition=partition, on_delivery=self._told)
            self._producer.poll(0)
            while (left_s := TURN_S - (time.monotonic() - began)) > 0:
                self._producer.poll(left_s)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        self.acknowledged += 1
        place, now = (message.topic() or "", message.partition() or 0), time.monotonic()
        before = self._last.get(place, now)
        self._longest[place] = max(self._longest.get(place, 0.0), now - before)
        self._last[place] = now


def moved(cluster: RunningCluster, writing: Writing, count: int) -> list[float]:
    """Move some tablets, one after the other; the pause of each."""
    active = cluster.active()
    tablets = cluster.api(active, "/tablets?limit=500")["items"]
    nodes = sorted({tablet["node"] for tablet in tablets})
    pauses: list[float] = []
    for tablet in [tablet for tablet in tablets if tablet["topic"].startswith("t")][:count]:
        target = nodes[(nodes.index(tablet["node"]) + 1) % len(nodes)]
        writing.begin()
        cluster.api(active, f"/tablets/{tablet['tablet']}/move", {"node": target}, "POST")

        def has_moved(wanted: int = tablet["tablet"], target: int = target) -> bool:
            now = cluster.api(active, "/tablets?limit=500")["items"]
            return any(shown["tablet"] == wanted and (shown["node"], shown["state"]) == (target, "up") for shown in now)

        until(f"tablet {tablet['tablet']} has not moved", has_moved, MOVED_S)
        time.sleep(APART_S)
        pauses.append(max(writing.pauses().values()))
    return pauses


def restarted(cluster: RunningCluster, writing: Writing) -> Iterator[tuple[str, list[float]]]:
    """Stop each node in order and start it again; whether it led, and the pause of each partition."""
    for number in sorted(cluster.nodes):
        name = f"restart of node {number}, which {'led' if cluster.active() == number else 'followed'}"
        writing.begin()
        cluster.nodes.pop(number).stop()
        cluster.start(number)
        cluster.wait_ready(number, READY_S)
        time.sleep(APART_S)
        yield name, list(writing.pauses().values())


def report(name: str, pauses: list[float]) -> bool:
    """Print a row; whether the goal is met."""
    is_good = max(pauses) <= GOAL_S
    print(
        f"| {name} | {len(pauses)} | {median(pauses):.2f} s | {max(pauses):.2f} s | {'met' if is_good else 'missed'} |",
        flush=True,
    )
    return is_good


def main() -> int:
    """Measure; 1 if the goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.handover", description=__doc__)
    parser.add_argument("--partitions", type=int, default=24, help="each of a topic of its own (default: 24)")
    parser.add_argument("--moves", type=int, default=12, help="tablets that are moved (default: 12)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, running_cluster(Path(directory)) as cluster:
        places = make_topics(cluster.bootstrap, options.partitions, 1)
        writing = Writing(cluster.bootstrap, places)
        until("not all partitions are written to", lambda: writing.is_written, READY_S)
        time.sleep(5 * APART_S)
        began, before = time.monotonic(), writing.acknowledged
        writing.begin()
        time.sleep(APART_S)
        rate = (writing.acknowledged - before) / (time.monotonic() - began)
        quiet_s = max(writing.pauses().values())
        print(f"{rate:,.0f} messages a second; the longest pause while nothing happens is {quiet_s:.2f} s")
        print(f"| handed over | partitions | pause, p50 | longest | {GOAL_S:g} s |\n|---|---:|---:|---:|---|", flush=True)
        are_good = [report("`tablet move`, one at a time", moved(cluster, writing, options.moves))]
        are_good += [report(name, pauses) for name, pauses in restarted(cluster, writing)]
        writing.end()
    return 0 if all(are_good) else 1


if __name__ == "__main__":
    sys.exit(main())
