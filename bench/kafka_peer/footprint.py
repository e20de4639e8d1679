"""Rows about what brokers cost by being there: start, memory, and a thousand idle partitions."""

from __future__ import annotations

import subprocess
import time

from bench.kafka_peer.brokers import BrokerProcess, java
from bench.kafka_peer.pair import Pair
from bench.kafka_peer.rows import Compared, Figure, Goal, show

IDLE_S = 4.0


def start(pair: Pair) -> list[Compared]:
    """Start and idle memory, before any load."""
    ours, peer = (Figure.of([pair.starts[broker.name]]) for broker in pair.brokers)
    goal = Goal(2.0) if pair.has_goals else None
    row = Compared.of("start to first acknowledged message", "s", ours, peer, higher_is_better=False, goal=goal)
    return [show(row), _memory(pair, "memory, idle")]


def after_load(pair: Pair) -> list[Compared]:
    """Memory when the rows before are done."""
    return [_memory(pair, "memory after load")]


def thousand(pair: Pair) -> list[Compared]:
    """A topic of a thousand partitions, and nothing to do."""
    ours, peer = (Figure.of([broker.create_topic("thousand", 1000)]) for broker in pair.brokers)

    def idle_cpu(broker: BrokerProcess) -> float:
        before = broker.cpu_seconds()
        time.sleep(IDLE_S)
        return (broker.cpu_seconds() - before) / IDLE_S * 100

    return [
        show(Compared.of("create 1,000 partitions", "s", ours, peer, higher_is_better=False)),
        _memory(pair, "memory with 1,000 partitions"),
        pair.compare(
            "broker CPU while idle with 1,000 partitions", "% of a core", idle_cpu, higher_is_better=False, is_warm=True
        ),
    ]


def perf_tool(pair: Pair) -> list[Compared]:
    """Kafka's own producer benchmark."""

    def run(broker: BrokerProcess) -> float:
        command = [*java(), "org.apache.kafka.tools.ProducerPerformance", "--topic", "perf", "--num-records"]
        command += ["100000" if pair.is_quick else "1000000", "--record-size", "1024", "--throughput", "-1", "--producer-props"]
        command += [f"bootstrap.servers={broker.address}", "acks=all", "batch.size=262144", "linger.ms=5"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        last = [line for line in done.stdout.splitlines() if "records/sec" in line][-1]
        return float(last.split("records/sec")[0].split(",")[-1])

    return [pair.compare("kafka's ProducerPerformance, 1 KiB", "/s", run, higher_is_better=True)]


def _memory(pair: Pair, name: str) -> Compared:
    def resident(broker: BrokerProcess) -> float:
        return broker.memory_mb()

    return pair.compare(name, "MB", resident, higher_is_better=False, goal=Goal(2.0), is_warm=True)
