"""`python -m bench.spark_peer [--quick] [--parts lz4 ...]`: one Spark, the same topic, three ways in; ratios, and JSON in
bench/results.

`direct` and `fetch` are format("penstock"), from the broker's files and over the network, and `connector` is Spark's own
format("kafka"), all reading the same topic of the same Penstock broker; `kafka` is the connector reading the same records from a
real Kafka; `limit` is a Python source whose rows are ready. All into
Spark's noop sink, in turns. Beside rows a second it tells the processor time of everything, brokers included: where others are
at work on the machine that says more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from bench.kafka_peer.brokers import RESULTS, BrokerProcess, KafkaProcess, PenstockProcess, load
from bench.spark_peer.connector import connector_jars, connector_version
from bench.spark_peer.processor_time import processor_time
from bench.spark_peer.ready_source import ReadySource
from penstock.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 4
LINE = "{:<28}" + " {:>9}" * 5 + " {:>14} {:>15} {:>13} {:>14}"
WAYS = ("direct", "fetch", "connector", "kafka", "limit")
GOALS = {"direct to peer": 2.0, "fetch to peer": 2.0, "direct to limit": 0.7, "fetch to limit": 0.5}
SINK_GOAL = 1.0
LATENCY_GOAL = 0.8
PARTS = ("none", "lz4", "latency", "sinks", "hour")
DAY_ROWS = 2_400_000
HOUR_MS = 3_600_000

Run = Callable[[], float]
Phases = dict[str, float]
"""Milliseconds of a micro-batch by the names that Spark has for its phases; triggerExecution is all of it."""


class Bench:
    """A Spark session and two brokers."""

    def __init__(self, directory: Path, *, quick: bool) -> None:
        self.quick = quick
        self.directory = directory
        self.ours: BrokerProcess = PenstockProcess(directory / "penstock", synced=False)
        self.kafka: BrokerProcess = KafkaProcess(directory / "kafka", synced=False)
        os.environ["PYTHONPATH"] = str(ROOT)
        settings = {
            "spark.jars": ",".join(map(str, connector_jars())),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.driver.memory": "4g",
        }
        self.spark: SparkSession = session("bench", master="local[2]", settings=settings)
        self.spark.dataSource.register(ReadySource)

    def __enter__(self) -> Bench:
        self.ours.start()
        self.kafka.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.spark.stop()
        self.ours.stop()
        self.kafka.stop()

    def row(self, size: int, codec: str, *, streaming: bool) -> dict[str, Any]:
        """One shape of records, read in one of two ways."""
        rows = (2_000_000 if self.quick else 8_000_000) // (1 if size == 100 else 4)
        topic = f"rows-{size}-{codec}"
        if not streaming:
            self._write(topic, size, codec, rows)
        read = self._stream if streaming else self._scan
        ways: dict[str, Run] = {
            "direct": lambda: read("penstock", rows, self._topic(self.ours, topic)),
            "fetch": lambda: read("penstock", rows, {**self._topic(self.ours, topic), "direct": "false"}),
            "connector": lambda: read("kafka", rows, self._topic(self.ours, topic)),
            "kafka": lambda: read("kafka", rows, self._topic(self.kafka, topic)),
            "limit": lambda: read("ready", rows, {"rows": str(rows), "size": str(size), "parts": str(PARTITIONS)}),
        }
        rounds = len(ways)
        rates: dict[str, list[float]] = {name: [] for name in ways}
        costs: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            # A run after a heavy one pays for its garbage: each takes each place in turn.
            turn = number % len(ways)
            for name in (*WAYS[turn:], *WAYS[:turn]):
                before = processor_time()
                rate = rows / ways[name]()
                if number:
                    rates[name].append(rate)
                    costs[name].append((processor_time() - before) / rows * 1e6)
        found: dict[str, Any] = {name: median(values) for name, values in rates.items()}
        cost = {name: median(values) for name, values in costs.items()}
        peer, cheapest = max(found["connector"], found["kafka"]), min(cost["connector"], cost["kafka"])
        for name in ("direct", "fetch"):
            found[f"{name} to peer"], found[f"{name} to limit"] = found[name] / peer, found[name] / found["limit"]
            cost[f"{name} to peer"], cost[f"{name} to limit"] = cheapest / cost[name], cost["limit"] / cost[name]
        found |= {"name": f"{'AvailableNow' if streaming else 'batch scan'}, {size} B, {codec}", "cpu_us": cost}
        show(found)
        return found

    def latency(self) -> dict[str, Any]:
        """How long a micro-batch takes from its trigger to its end, while 1,000 rows a second come in."""
        topic = "rows-trickle"
        for broker in (self.ours, self.kafka):
            load("create", broker, topic=topic, partitions=PARTITIONS)
        ready = {"rows": "0", "rate": "1000", "size": "100", "parts": "1"}
        ways: dict[str, Callable[[float], list[Phases]]] = {
            "fetch": lambda seconds: self._trickle("penstock", self.ours, topic, seconds),
            "connector": lambda seconds: self._trickle("kafka", self.ours, topic, seconds),
            "kafka": lambda seconds: self._trickle("kafka", self.kafka, topic, seconds),
            # Rows are produced beside it as well, so that all four share the machine with the same load.
            "limit": lambda seconds: self._trickle("ready", self.ours, topic, seconds, ready),
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        phases: dict[str, Phases] = {}
        # The first run finds Spark cold: each runs once before it counts.
        for number in range(3 if self.quick else 5):
            for name, run in ways.items():
                batches = run(8 if number == 0 else 12)
                if number:
                    taken[name].append(median(batch["triggerExecution"] for batch in batches))
                    phases[name] = {phase: median(batch.get(phase, 0) for batch in batches) for phase in batches[0]}
        found: dict[str, Any] = {name: median(times) for name, times in taken.items()}
        found |= {
            "name": "micro-batch at 1,000 rows/s",
            "phases_ms": phases,
            "fetch to peer": min(found["connector"], found["kafka"]) / found["fetch"],
            "fetch to limit": found["limit"] / found["fetch"],
        }
        told = ", ".join(f"{name} {found[name]:.0f} ms ({min(times):.0f}-{max(times):.0f})" for name, times in taken.items())
        print(
            f"{found['name']}: {told}; {found['fetch to peer']:.2f} times as fast as the connector, "
            f"{found['fetch to limit']:.2f} of the limit",
            flush=True,
        )
        for name in ways:
            print(
                f"  {name}, last run: " + ", ".join(f"{phase} {taken:.0f} ms" for phase, taken in phases[name].items()),
                flush=True,
            )
        return found

    def sink(self, size: int) -> dict[str, Any]:
        """Rows written by our sink, each once, and by the connector's, each at least once, from a frame that is in memory."""
        rows = (500_000 if self.quick else 2_000_000) // (1 if size == 100 else 4)
        topic = f"written-{size}"
        for broker in (self.ours, self.kafka):
            load("create", broker, topic=topic, partitions=PARTITIONS)
        value = f"repeat(char(65 + id % 26), {size}) as value"
        frame = self.spark.range(0, rows, numPartitions=2).selectExpr("cast(id as string) as key", value).cache()
        frame.count()
        ways = {"ours": ("penstock", self.ours), "connector": ("kafka", self.ours), "kafka": ("kafka", self.kafka)}
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(2 if self.quick else 4):
            for name, (sink, broker) in ways.items():
                writer = frame.write.format(sink).option("kafka.bootstrap.servers", broker.address).option("topic", topic)
                started = time.perf_counter()
                writer.mode("append").save()
                if number:
                    rates[name].append(rows / (time.perf_counter() - started))
        frame.unpersist()
        found: dict[str, Any] = {name: median(values) for name, values in rates.items()}
        found |= {"name": f"sink, {size} B", "ours to peer": found["ours"] / max(found["connector"], found["kafka"])}
        told = ", ".join(f"{name} {found[name] / 1e6:.2f} M rows/s" for name in ways)
        print(f"{found['name']}: {told}; {found['ours to peer']:.2f} times the connector", flush=True)
        return found

    def hour(self) -> dict[str, Any]:
        """An hour of a day of records, chosen by a filter on their timestamps: planned by the filter, and picked out of all."""
        topic = "day"
        load("create", self.ours, topic=topic, partitions=PARTITIONS)
        first_ms = int(time.time() * 1000) - 24 * HOUR_MS
        self._write_day(topic, first_ms)
        bounds = [f"timestamp_millis({first_ms + hour * HOUR_MS})" for hour in (12, 13)]
        chosen = f"timestamp >= {bounds[0]} AND timestamp < {bounds[1]}"
        ways: dict[str, tuple[str, dict[str, str]]] = {
            "pushed": ("penstock", {"pushFilters": "true", "maxTimestampDisorder": "1m"}),
            "all": ("penstock", {}),
            "connector": ("kafka", {}),
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        costs: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(4 if self.quick else 6):
            for name, (source, options) in ways.items():
                before = processor_time()
                started = time.perf_counter()
                frame = self.spark.read.format(source).options(**self._topic(self.ours, topic), **options).load()
                rows = frame.where(chosen).count()
                if rows != DAY_ROWS // 24:
                    raise RuntimeError(f"{name} found {rows} rows of the hour's {DAY_ROWS // 24}")
                if number:
                    taken[name].append(time.perf_counter() - started)
                    costs[name].append(processor_time() - before)
        found: dict[str, Any] = {name: median(times) for name, times in taken.items()}
        found |= {"name": "an hour of a day", "cpu_s": {name: median(times) for name, times in costs.items()}}
        told = ", ".join(f"{name} {found[name]:.2f} s ({found['cpu_s'][name]:.2f} s of processor time)" for name in ways)
        print(f"{found['name']} of {DAY_ROWS:,} rows: {told}", flush=True)
        return found

    def _write_day(self, topic: str, first_ms: int) -> None:
        """Records whose timestamps go through a day."""
        producer = Producer({"bootstrap.servers": self.ours.address, "linger.ms": 50, "queue.buffering.max.messages": DAY_ROWS})
        for number in range(DAY_ROWS):
            producer.produce(topic, bytes(100), timestamp=first_ms + number * 24 * HOUR_MS // DAY_ROWS)
            if not number % 10_000:
                producer.poll(0)
        if producer.flush(120):
            raise RuntimeError("the broker did not acknowledge a day of records")

    def _trickle(
        self, source: str, broker: BrokerProcess, topic: str, seconds: float, options: dict[str, str] | None = None
    ) -> list[Phases]:
        """What each micro-batch with rows took, but for the first ones, that find everything cold."""
        given = {"kafka.bootstrap.servers": broker.address, "subscribe": topic, "startingOffsets": "latest"}
        frame = self.spark.readStream.format(source).options(**(options or given)).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", tempfile.mkdtemp(dir=self.directory))
        query = writer.start()
        producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            for _ in range(10):
                producer.produce(topic, bytes(100))
            producer.poll(0)
            time.sleep(0.01)
        query.stop()
        return [dict(one["durationMs"]) for one in query.recentProgress if one["numInputRows"]][5:]

    def _write(self, topic: str, size: int, codec: str, rows: int) -> None:
        for broker in (self.ours, self.kafka):
            load("create", broker, topic=topic, partitions=PARTITIONS)
            load("produce", broker, topic=topic, size=size, count=rows - 1, codec=codec)

    def _topic(self, broker: BrokerProcess, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": broker.address, "subscribe": topic, "startingOffsets": "earliest"}

    def _scan(self, source: str, rows: int, options: dict[str, str]) -> float:
        frame = self.spark.read.format(source).options(**options).load()
        started = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - started

    def _stream(self, source: str, rows: int, options: dict[str, str]) -> float:
        frame = self.spark.readStream.format(source).options(**options).load()
        checkpoint = tempfile.mkdtemp(dir=self.directory)
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        started = time.perf_counter()
        query = writer.start()
        query.awaitTermination()
        taken = time.perf_counter() - started
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
        if read != rows:
            raise RuntimeError(f"{source} read {read} rows of {rows}")
        return taken


def show(row: dict[str, Any]) -> None:
    """Two lines of the table: rows a second, and the processor time of a row; a ratio above 1 is in our favour in both."""
    ratios = [f"{name} to {other}" for name in ("direct", "fetch") for other in ("peer", "limit")]
    rates = [f"{row[name] / 1e6:.2f} M" for name in WAYS]
    print(LINE.format(row["name"], *rates, *(f"{row[name]:.2f}" for name in ratios)))
    costs = [f"{row['cpu_us'][name]:.2f} us" for name in WAYS]
    print(LINE.format("  processor time", *costs, *(f"{row['cpu_us'][name]:.2f}" for name in ratios)), flush=True)


def main() -> int:
    """Compare; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_peer", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer shapes and rounds: some minutes, and rougher")
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=PARTS,
        help="topics without and with compression, micro-batches, sinks, an hour of a day",
    )
    arguments = parser.parse_args()
    quick, parts = arguments.quick, arguments.parts
    directory = RESULTS / "spark-peer"
    shutil.rmtree(directory, ignore_errors=True)
    found = []
    load_before = os.getloadavg()[0]
    print(f"connector {connector_version()}; load average before {load_before:.2f} on {os.cpu_count()} cores")
    shapes = [(100, "none"), (1024, "lz4")] if quick else [(size, codec) for size in (100, 1024) for codec in ("none", "lz4")]
    with Bench(directory, quick=quick) as bench:
        ratios = [f"{name} to {other}" for name in ("direct", "fetch") for other in ("peer", "limit")]
        print(LINE.format("rows a second", *WAYS, *ratios))
        for size, codec in shapes:
            if codec in parts:
                found += [bench.row(size, codec, streaming=streaming) for streaming in (False, True)]
        latency = bench.latency() if "latency" in parts else None
        sinks = [bench.sink(size) for size in (100, 1024)] if "sinks" in parts else []
        hour = bench.hour() if "hour" in parts else None
    shutil.rmtree(directory, ignore_errors=True)
    result = {
        "load_average_before": load_before,
        "connector": connector_version(),
        "quick": quick,
        "rows": found,
        "latency": latency,
        "sinks": sinks,
        "hour": hour,
    }
    (RESULTS / "spark_peer.json").write_text(json.dumps(result, indent=1), encoding="ascii")
    missed = [f"{row['name']}: {name} {row[name]:.2f}" for row in found for name, goal in GOALS.items() if row[name] < goal]
    missed += [f"{row['name']}: {row['ours to peer']:.2f}" for row in sinks if row["ours to peer"] < SINK_GOAL]
    if latency is not None and latency["fetch to limit"] < LATENCY_GOAL:
        missed.append(f"{latency['name']}: fetch to limit {latency['fetch to limit']:.2f}")
    goals = len(found) * len(GOALS) + len(sinks) + (latency is not None)
    print(f"\n{len(missed)} of {goals} goals missed" + "".join(f"\n  {one}" for one in missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
