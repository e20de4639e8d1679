"""`python -m bench.kafka_peer [--quick]`: both brokers, row by row, in turns; a table of ratios, and JSON in bench/results.

Durability is compared like with like: ours `os` with Kafka's default (neither syncs), ours `fsync` with Kafka flushing every
message. A ratio above 1 is in Penstock's favour. Where the client is the limit the processor time of the brokers tells more.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median

from bench.kafka_peer.brokers import RESULTS, BrokerProcess, java
from bench.kafka_peer.coordination import coordination
from bench.kafka_peer.pair import LINE, Compared, Pair, load, show


def throughput(pair: Pair, label: str, *, quick: bool, goal: float) -> list[Compared]:
    """Produce and consume, small and larger messages, plain and lz4, one partition and twelve."""
    found: list[Compared] = []
    every = [(size, codec, partitions) for size in (100, 1024) for codec in ("none", "lz4") for partitions in (1, 12)]
    for size, codec, partitions in [(100, "none", 1), (1024, "none", 12)] if quick else every:
        count = (200_000 if quick else 1_000_000) // (1 if size == 100 else 4)
        found += Stream(pair, label, size, codec, partitions, count).rows(goal)
    return found


@dataclass(frozen=True, slots=True)
class Stream:
    """One shape of load: messages of a size, in a codec, over so many partitions."""

    pair: Pair
    label: str
    size: int
    codec: str
    partitions: int
    count: int

    @property
    def topic(self) -> str:
        """A topic of its own."""
        return f"t-{self.label}-{self.size}-{self.codec}-{self.partitions}".replace(" ", "-")

    def rows(self, goal: float) -> list[Compared]:
        """Produce and consume, and what that costs the brokers."""
        for broker in (self.pair.ours, self.pair.kafka):
            load("create", broker, topic=self.topic, partitions=self.partitions)

        def produced(broker: BrokerProcess) -> float:
            result = load("produce", broker, topic=self.topic, size=self.size, count=self.count, codec=self.codec)
            return self.count * self.size / result["s"] / 1e6

        def consumed(broker: BrokerProcess) -> float:
            result = load("consume", broker, topic=self.topic, partitions=self.partitions, count=self.count)
            return result["count"] * self.size / result["s"] / 1e6

        shape = f"{self.size} B, {self.codec}, {self.partitions} partition{'s' if self.partitions > 1 else ''}, {self.label}"
        return [*self._both(f"produce {shape}", produced, goal), *self._both(f"consume {shape}", consumed, 1.0)]

    def _both(self, name: str, measure: Callable[[BrokerProcess], float], goal: float) -> list[Compared]:
        """A rate, and the processor time that the brokers take for it: where the client is the limit, that tells more."""
        cpu: dict[str, list[float]] = {"penstock": [], "kafka": []}

        def timed(broker: BrokerProcess) -> float:
            before = broker.cpu_seconds()
            rate = measure(broker)
            cpu[broker.name].append((broker.cpu_seconds() - before) / self.count * 1e6)
            return rate

        row = self.pair.compare(name, "MB/s", timed, higher_is_better=True, goal=goal)
        ours, kafka = median(cpu["penstock"]), median(cpu["kafka"])
        spent = Compared("  processor time of the broker for it", ours, kafka, "us/msg", kafka / max(ours, 1e-9), 1.0)
        show(spent)
        return [row, spent]


def latencies(pair: Pair, label: str, *, quick: bool, goal: float) -> list[Compared]:
    """One synchronous producer, and sixty-four."""
    found: list[Compared] = []
    for producers in (1, 64):
        results: dict[str, list[dict[str, float]]] = {"penstock": [], "kafka": []}
        for broker in (pair.ours, pair.kafka):
            load("create", broker, topic=f"sync-{label}-{producers}".replace(" ", "-"), partitions=12)
        for number in range(pair.rounds):
            for broker in (pair.ours, pair.kafka) if number % 2 else (pair.kafka, pair.ours):
                topic = f"sync-{label}-{producers}".replace(" ", "-")
                results[broker.name].append(
                    load("latency", broker, topic=topic, producers=producers, seconds=1.0 if quick else 4.0)
                )
        for key, unit in (("p50_us", "us"), ("p99_us", "us"), ("p99.9_us", "us"), ("rate", "/s")):
            ours, kafka = (median(one[key] for one in results[name]) for name in ("penstock", "kafka"))
            ratio = ours / kafka if key == "rate" else kafka / ours
            row = Compared(f"{producers} synchronous producers, {key.split('_')[0]}, {label}", ours, kafka, unit, ratio, goal)
            show(row)
            found.append(row)
    return found


def footprint(pair: Pair) -> list[Compared]:
    """Start, memory idle and under load, and a thousand idle partitions."""
    start = Compared("start to first acknowledged message", pair.starts["penstock"], pair.starts["kafka"], "s", 0, 2.0)
    rows = [
        Compared(start.name, start.ours, start.kafka, "s", start.kafka / start.ours, 2.0),
        pair.compare("memory, idle", "MB", lambda broker: broker.memory_mb(), higher_is_better=False, goal=2.0),
    ]
    show(rows[0])
    return rows


def thousand(pair: Pair) -> list[Compared]:
    """A topic of a thousand partitions, and nothing to do."""
    rows = []
    seconds = {broker.name: load("create", broker, topic="thousand", partitions=1000)["s"] for broker in (pair.ours, pair.kafka)}
    rows.append(
        Compared(
            "create 1,000 partitions", seconds["penstock"], seconds["kafka"], "s", seconds["kafka"] / seconds["penstock"], 1.0
        )
    )
    show(rows[0])
    rows.append(
        pair.compare("memory with 1,000 partitions", "MB", lambda broker: broker.memory_mb(), higher_is_better=False, goal=2.0)
    )

    def idle_cpu(broker: BrokerProcess) -> float:
        before = broker.cpu_seconds()
        time.sleep(2)
        return (broker.cpu_seconds() - before) / 2 * 100

    ours, kafka = idle_cpu(pair.ours), idle_cpu(pair.kafka)
    row = Compared("processor while idle with 1,000 partitions", ours, kafka, "%", kafka / max(ours, 0.01), 1.0)
    show(row)
    return [*rows, row]


def perf_tool(pair: Pair, *, quick: bool) -> list[Compared]:
    """Kafka's own producer benchmark."""

    def run(broker: BrokerProcess) -> float:
        command = [*java(), "org.apache.kafka.tools.ProducerPerformance", "--topic", "perf", "--num-records"]
        command += ["100000" if quick else "1000000", "--record-size", "1024", "--throughput", "-1", "--producer-props"]
        command += [f"bootstrap.servers={broker.address}", "acks=all", "batch.size=262144", "linger.ms=5"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        last = [line for line in done.stdout.splitlines() if "records/sec" in line][-1]
        return float(last.split("records/sec")[0].split(",")[-1])

    return [pair.compare("kafka's ProducerPerformance, 1 KiB", "/s", run, higher_is_better=True)]


def main() -> int:
    """Compare; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.kafka_peer", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer shapes and rounds: some minutes, and rougher")
    quick = parser.parse_args().quick
    directory = RESULTS / "peer"
    shutil.rmtree(directory, ignore_errors=True)
    found: list[Compared] = []
    print(LINE.format("", "penstock", "kafka", "ratio", "goal", ""))
    for synced, label in ((False, "no fsync"), (True, "fsync")):
        with Pair(directory / label.replace(" ", "-"), synced=synced, rounds=1 if quick else 3) as pair:
            if not synced:
                found += footprint(pair)
            found += latencies(pair, label, quick=quick, goal=2.0 if synced else 1.0)
            found += throughput(pair, label, quick=quick or synced, goal=2.0 if synced else 1.0)
            if not synced:
                found += coordination(pair, quick=quick)
                found += perf_tool(pair, quick=quick)
                found.append(
                    pair.compare("memory after load", "MB", lambda broker: broker.memory_mb(), higher_is_better=False, goal=2.0)
                )
                found += thousand(pair)
    shutil.rmtree(directory, ignore_errors=True)
    (RESULTS / "kafka_peer.json").write_text(json.dumps([asdict(row) for row in found], indent=1), encoding="ascii")
    missed = [row.name for row in found if row.ratio < row.goal]
    print(f"\n{len(missed)} of {len(found)} rows below their goal")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
