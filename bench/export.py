"""`python -m bench.export [--quick]`: topics exported to tables, beside Spark reading the same rows from Parquet and writing them
as Parquet, in turns; a table of ratios, and JSON in bench/results.

Spark's side has it easier: its rows are columns already, nothing is decoded, nothing waits for the disk, and no offset is stored.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bench.kafka_peer.brokers import RESULTS, PenstockProcess, load
from bench.spark_peer.processor_time import processor_time
from penstock.spark import session
from penstock.spark.pipelines.spec import Origin, PipelineSpec, RunSpec
from penstock.spark.pipelines.spec_file import Declaration
from penstock.spark.pipelines.spec_reading import check
from penstock.spark.tables.export import export_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
PARTITIONS = 4
GOAL = 0.7
FORMATS = ("parquet", "delta", "iceberg")
LINE = "{:<22} {:>12} {:>10} {:>14} {:>8} {:>10}"
SHAPES = {
    "raw": {"format": "raw"},
    "json": {"format": "json", "schema": "id BIGINT, user STRING, page STRING, at TIMESTAMP, price DOUBLE"},
}
AT = "date_format(timestamp_seconds(1794000000 + id div 1000), \"yyyy-MM-dd'T'HH:mm:ss'Z'\")"
CLICK = "'id', id, 'user', concat('user-', id % 1000), 'page', concat('/page/', id % 97)"
MADE = ("cast(id as string) as key", f"to_json(named_struct({CLICK}, 'at', {AT}, 'price', id / 7)) as value")


class Bench:
    """A Spark session and a broker."""

    def __init__(self, directory: Path, *, quick: bool) -> None:
        self.directory = directory
        self.rows = 1_000_000 if quick else 4_000_000
        self.rounds = 2 if quick else 5
        self.broker = PenstockProcess(directory / "penstock", synced=False)
        os.environ["PYTHONPATH"] = str(ROOT)
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.driver.memory": "4g",
        }
        self.spark: SparkSession = session("bench", master="local[2]", settings=settings)

    def __enter__(self) -> Bench:
        self.broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.spark.stop()
        self.broker.stop()

    def shape(self, name: str, formats: tuple[str, ...]) -> list[dict[str, Any]]:
        """One kind of values, exported to each format."""
        self._write(name)
        ready = self.directory / f"{name}-ready"
        self._export(name, "parquet", ready)
        return [self._duel(name, form, ready) for form in formats]

    def _duel(self, name: str, form: str, ready: Path) -> dict[str, Any]:
        ratios, ours, costs = [], [], []
        size = 0
        for number in range(self.rounds + 1):
            target = self.directory / uuid4().hex
            before = processor_time()
            taken, size = self._export(name, form, target / "lake")
            between = processor_time()
            beside = self._copy(ready, target / "copy")
            after = processor_time()
            shutil.rmtree(target)
            if number:
                ratios.append(beside / taken)
                ours.append(taken)
                costs.append((after - between) / (between - before))
        found = {
            "name": f"{name} to {form}",
            "rows_per_s": self.rows / median(ours),
            "mb_per_s": size / median(ours) / 1e6,
            "spark_rows_per_s": self.rows / median(ours) / median(ratios),
            "ratio": median(ratios),
            "processor_ratio": median(costs),
        }
        show(found)
        return found

    def _export(self, name: str, form: str, target: Path) -> tuple[float, int]:
        """Seconds from the first look at the topic to the last commit, and bytes of columns that were read."""
        job = export_job(self._spec(name, form, target))
        started = time.perf_counter()
        job.start(self.spark)
        rows = size = 0
        while (done := job.step()) is not None:
            rows += done.rows_written
            size += done.bytes_read
        taken = time.perf_counter() - started
        job.close()
        if rows != self.rows:
            raise RuntimeError(f"{rows} of {self.rows} rows were exported")
        return taken, size

    def _copy(self, source: Path, target: Path) -> float:
        started = time.perf_counter()
        self.spark.read.parquet(str(source)).write.parquet(str(target))
        return time.perf_counter() - started

    def _spec(self, name: str, form: str, target: Path) -> PipelineSpec:
        table = {"format": form, "location": str(target), **({"name": "bench.rows"} if form == "iceberg" else {})}
        fields = {
            "pipeline": f"bench-{uuid4().hex[:8]}",
            "kind": "export",
            "brokers": self.broker.address,
            "source": {"topics": [name], "value": SHAPES[name]},
            "target": {"table": table},
            "dead_letters": "stop",
        }
        return replace(check(Declaration(fields, Origin(str(target), {}))), run=RunSpec(uuid4().hex))

    def _write(self, name: str) -> None:
        load("create", self.broker, topic=name, partitions=PARTITIONS)
        if name == "raw":
            load("produce", self.broker, topic=name, size=100, count=self.rows - 1, codec="none")
            return
        frame = self.spark.range(0, self.rows, numPartitions=4).selectExpr(*MADE)
        writer = frame.write.format("penstock").option("kafka.bootstrap.servers", self.broker.address)
        writer.option("topic", name).mode("append").save()


def show(row: dict[str, Any]) -> None:
    """A line of the table."""
    figures = (f"{row['rows_per_s'] / 1e6:.2f} M/s", f"{row['mb_per_s']:.0f} MB/s", f"{row['spark_rows_per_s'] / 1e6:.2f} M/s")
    print(LINE.format(row["name"], *figures, f"{row['ratio']:.2f}", f"{row['processor_ratio']:.2f}"), flush=True)


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(prog="python -m bench.export")
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds")
    parser.add_argument("--shape", choices=tuple(SHAPES), action="append")
    parser.add_argument("--format", choices=FORMATS, action="append")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=ROOT / "build"))
    print(LINE.format("", "rows", "columns", "Spark", "ratio", "by cpu"))
    try:
        with Bench(directory, quick=arguments.quick) as bench:
            rows = []
            for shape in arguments.shape or SHAPES:
                rows += bench.shape(shape, tuple(arguments.format or FORMATS))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    met = all(row["ratio"] >= GOAL for row in rows)
    print(f"goal: {GOAL} of Spark's rate: {'met' if met else 'missed'}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "export.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
