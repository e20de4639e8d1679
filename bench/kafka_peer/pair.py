"""Both brokers side by side, and a row of the table: the same measure of each."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.kafka_peer.brokers import BrokerProcess, KafkaProcess, PenstockProcess

ROOT = Path(__file__).resolve().parents[2]
LINE = "{:<58} {:>14} {:>14} {:>8} {:>6}  {}"


@dataclass(frozen=True, slots=True)
class Compared:
    """One row: the same measure of both, and how many times better ours is."""

    name: str
    ours: float
    kafka: float
    unit: str
    ratio: float
    goal: float


class Pair:
    """Both brokers up at once on one disk; only one is under load at a time."""

    def __init__(self, directory: Path, *, synced: bool, rounds: int) -> None:
        self.ours: BrokerProcess = PenstockProcess(directory / "penstock", synced=synced)
        self.kafka: BrokerProcess = KafkaProcess(directory / "kafka", synced=synced)
        self.rounds = rounds
        self.starts: dict[str, float] = {}

    def __enter__(self) -> Pair:
        for broker in (self.ours, self.kafka):
            listening = broker.start()
            started = time.perf_counter()
            load("first", broker, topic="first")
            self.starts[broker.name] = listening + time.perf_counter() - started
        return self

    def __exit__(self, *_: object) -> None:
        self.ours.stop()
        self.kafka.stop()

    def compare(
        self, name: str, unit: str, measure: Callable[[BrokerProcess], float], *, higher_is_better: bool, goal: float = 1.0
    ) -> Compared:
        """Measure both in turns, and take the medians."""
        values: dict[str, list[float]] = {"penstock": [], "kafka": []}
        for number in range(self.rounds):
            for broker in (self.ours, self.kafka) if number % 2 else (self.kafka, self.ours):
                values[broker.name].append(measure(broker))
        ours, kafka = median(values["penstock"]), median(values["kafka"])
        ratio = ours / kafka if higher_is_better else kafka / ours
        row = Compared(name, ours, kafka, unit, ratio, goal)
        show(row)
        return row


def load(task: str, broker: BrokerProcess, **arguments: object) -> dict[str, float]:
    """Run one task of the client against a broker."""
    command = [sys.executable, "-m", "bench.kafka_peer.client", task, json.dumps({"address": broker.address, **arguments})]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"{task} on {broker.name} failed: {done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def show(row: Compared) -> None:
    """One line of the table."""
    verdict = "" if row.ratio >= row.goal else "below"
    print(
        LINE.format(
            row.name, f"{row.ours:,.4g} {row.unit}", f"{row.kafka:,.4g} {row.unit}", f"{row.ratio:.2f}", f"{row.goal:g}", verdict
        )
    )
    sys.stdout.flush()
