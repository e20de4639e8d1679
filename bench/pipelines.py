"""`python -m bench.pipelines [--quick]`: transforms from topic to topic against the limit of their way, and the time of a start.

`limit` is the same query in the same session on rows that are ready, into a task that drops them: what Spark itself makes of rows
that come from Python and go to Python. Both in turns. `filter` chooses and compares columns, which tasks do without Spark, so it
may be faster than the limit; `json` decodes values, computes and writes JSON, and its limit decodes by Spark's from_json. The
start is that of the command, until its first batch is committed, without an archive of Spark's classes and with the one that an
earlier run leaves, beside that of a session of Spark alone, until its first job is done.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql.functions import col, lit, struct, to_json

from bench.kafka_peer.brokers import RESULTS, PenstockProcess, load
from bench.spark_peer.processor_time import processor_time
from penstock.spark import session
from penstock.spark.pipelines.kinds import make_job
from penstock.spark.pipelines.spec_reading import read_spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
PARTITIONS = 2
BATCH_ROWS = 1 << 16
SIZE = 100
PAGE = "/a/page/of/some/length?with=a&query=in-it"
TRANSFORM_GOAL = 0.7
START_GOAL = 1.0
ARCHIVE_SECONDS_MAX = 120.0
BARE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.log.level", "ERROR").getOrCreate()
spark.range(1000).write.format("noop").mode("overwrite").save()
print("done", flush=True)
"""


class Shape(NamedTuple):
    """A query, the topic that it reads, how the pipeline's file declares its values, the columns that the limit has ready, and
    the view that decodes them, if any."""

    topic: str
    query: str
    values: str
    columns: str
    decoded: str = ""


SHAPES = {
    "filter": Shape(
        "rows",
        "SELECT key, value FROM rows WHERE offset >= 0",
        "",
        "value BINARY, key BINARY, timestamp TIMESTAMP, topic STRING, partition INT, offset BIGINT",
    ),
    "json": Shape(
        "events",
        "SELECT n, page, 2 * n AS twice FROM events WHERE n % 2 >= 0",
        ", value: {format: json, schema: 'n BIGINT, page STRING'}",
        "event BINARY",
        "SELECT v.* FROM (SELECT from_json(CAST(event AS STRING), 'n BIGINT, page STRING') AS v FROM ready)",
    ),
}


def ready_columns() -> dict[str, pa.Array]:
    """The columns of all shapes, made once a task."""
    numbers = pa.array(range(BATCH_ROWS), pa.int64())
    return {
        "value": pa.repeat(pa.scalar(bytes(SIZE), pa.binary()), BATCH_ROWS),
        "key": pa.nulls(BATCH_ROWS, pa.binary()),
        "timestamp": numbers.cast(pa.timestamp("us", "UTC")),
        "topic": pa.repeat("rows", BATCH_ROWS),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), BATCH_ROWS),
        "offset": numbers,
        "event": pa.array([b'{"n":%d,"page":"%s"}' % (number, PAGE.encode()) for number in range(BATCH_ROWS)], pa.binary()),
    }


def ready(shape: Shape, rows: int) -> Any:
    """A task that hands over rows it has ready."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [column.split()[0] for column in shape.columns.split(", ")]
        made = ready_columns()
        whole = pa.RecordBatch.from_arrays([made[name] for name in names], names=names)
        for batch in batches:
            for _ in range(batch.num_rows):
                left = rows
                while left > 0:
                    yield whole.slice(0, min(left, BATCH_ROWS))
                    left -= BATCH_ROWS

    return make


def drop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that counts rows and lets them go."""
    yield pa.RecordBatch.from_pydict(
        {"rows": [sum(batch.num_rows for batch in batches)]}, schema=pa.schema([("rows", pa.int64())])
    )


def limit(spark: SparkSession, shape: Shape, rows: int) -> float:
    """The same query, with nothing at either end."""
    started = time.perf_counter()
    numbers = spark.range(0, PARTITIONS, 1, PARTITIONS)
    made = numbers.mapInArrow(ready(shape, rows // PARTITIONS), shape.columns)
    if shape.decoded:
        made.createOrReplaceTempView("ready")
        made = spark.sql(shape.decoded)
    made.createOrReplaceTempView(shape.topic)
    result = spark.sql(shape.query)
    if "value" not in result.columns:
        result = result.select(to_json(struct(*result.columns), {"ignoreNullFields": "false"}).alias("value"))
    counted = sum(row["rows"] for row in result.mapInArrow(drop, "rows BIGINT").collect())
    if counted != rows // PARTITIONS * PARTITIONS:
        raise RuntimeError(f"{counted} rows came through of {rows}")
    return time.perf_counter() - started


def declare(directory: Path, address: str, name: str, shape: Shape, rows_max: int) -> Path:
    """The pipeline's file."""
    path = directory / f"{name}.yaml"
    path.write_text(
        f"pipeline: {name}\nkind: transform\nbrokers: {address}\nsource: {{topics: [{shape.topic}]{shape.values}}}\n"
        f"transform: {{sql: '{shape.query}'}}\n"
        f"target: {{topic: {name}, partitions: {PARTITIONS}}}\nbatch: {{rows_max: {rows_max}}}\n"
    )
    return path


def transform(spark: SparkSession, file: Path, rows: int) -> float:
    """The pipeline, from its start on a warm session to its last commit."""
    job = make_job(read_spec(str(file)))
    started = time.perf_counter()
    job.start(spark)
    written = 0
    while (done := job.step()) is not None:
        written += done.rows_written
    taken = time.perf_counter() - started
    job.close()
    if written != rows:
        raise RuntimeError(f"{written} rows were written of {rows}")
    return taken


def start_time(file: Path, temporary: Path, *options: str) -> float:
    """Seconds from the command to its first batch, committed."""
    log = file.with_suffix(".log")
    started = time.perf_counter()
    with log.open("wb") as output:
        environment = os.environ | {"TMPDIR": str(temporary)}
        process = subprocess.Popen([*run_command(file), *options], stdout=output, stderr=output, env=environment)
    while "1 batches" not in log.read_text():
        if process.poll() not in (None, 0):
            raise RuntimeError(log.read_text()[-2000:])
        time.sleep(0.02)
    taken = time.perf_counter() - started
    process.terminate()
    process.wait()
    return taken


def run_command(file: Path) -> list[str]:
    """The command that is measured."""
    return [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(file), "--once", "--master", "local[2]"]


def bare_start_time() -> float:
    """Seconds from the start of Python to the end of the first job of a session of Spark alone."""
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", BARE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"done\n":
            raise RuntimeError("a session of Spark alone did not start")
        return time.perf_counter() - started


def start_times(directory: Path, address: str, count: int) -> dict[str, float]:
    """Several starts in turns: of the command without an archive of classes, of Spark alone, and of the command with an
    archive; the median of each."""
    temporary = directory / "temporary"
    temporary.mkdir()
    names = [f"start-{number}" for number in range(2 * count)]
    files = [declare(directory, address, name, SHAPES["filter"], 1000) for name in names]
    files.append(declare(directory, address, "start-keeping", SHAPES["filter"], 1 << 30))  # it goes on to its end
    for file in files:
        file.write_text(file.read_text().replace("topics: [rows]", "topics: [rows], start: {offsets: {rows: {0: 0, 1: -1}}}"))
    starts, bare, with_archive = [], [], []
    subprocess.run(run_command(files[-1]), check=True, capture_output=True, env=os.environ | {"TMPDIR": str(temporary)})
    wait_for_archive(temporary)
    without = directory / "without"
    without.mkdir()
    for first, later in zip(files[:count], files[count:-1], strict=True):
        starts.append(start_time(first, without, "--no-keep-classes"))
        bare.append(bare_start_time())
        with_archive.append(start_time(later, temporary))
    return {"start_s": median(starts), "bare_start_s": median(bare), "start_with_archive_s": median(with_archive)}


def wait_for_archive(temporary: Path) -> None:
    """Wait until the process that the first run leaves behind has made the archive of classes."""
    deadline = time.monotonic() + ARCHIVE_SECONDS_MAX
    while not list(temporary.glob("penstock-spark-*/classes-*.jsa")):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no archive of classes was made within {ARCHIVE_SECONDS_MAX:g} s")
        time.sleep(0.1)


def write(spark: SparkSession, broker: PenstockProcess, rows: int) -> None:
    """The topics that are read."""
    for shape in SHAPES.values():
        load("create", broker, topic=shape.topic, partitions=PARTITIONS)
    load("produce", broker, topic="rows", size=SIZE, count=rows - 1, codec="none")
    events = spark.range(0, rows, 1, PARTITIONS).select(
        to_json(struct(col("id").alias("n"), lit(PAGE).alias("page"))).alias("value")
    )
    sink = events.write.format("penstock").option("kafka.bootstrap.servers", broker.address).option("topic", "events")
    sink.mode("append").save()


def measure(
    spark: SparkSession, directory: Path, broker: PenstockProcess, name: str, *, rows: int, rounds: int
) -> dict[str, Any]:
    """Both ways in turns."""
    shape = SHAPES[name]
    rates: dict[str, list[float]] = {"ours": [], "limit": []}
    costs: dict[str, list[float]] = {"ours": [], "limit": []}
    for number in range(rounds):
        file = declare(directory, broker.address, f"{name}-{number}", shape, rows // 2)
        for way in ("limit", "ours"):
            before = processor_time()
            rate = rows / (limit(spark, shape, rows) if way == "limit" else transform(spark, file, rows))
            if number:
                rates[way].append(rate)
                costs[way].append((processor_time() - before) / rows * 1e6)
    ratios = [ours / most for ours, most in zip(rates["ours"], rates["limit"], strict=True)]
    found: dict[str, Any] = {
        "rows_per_s": {way: median(each) for way, each in rates.items()},
        "cpu_us": {way: median(each) for way, each in costs.items()},
        "ratio": median(ratios),
    }
    print(
        f"transform, {name}: {found['rows_per_s']['ours'] / 1e6:.2f} M rows/s, limit {found['rows_per_s']['limit'] / 1e6:.2f} M: "
        f"{found['ratio']:.2f} of it; processor time {found['cpu_us']['ours']:.2f} us a row, broker included, "
        f"limit {found['cpu_us']['limit']:.2f} us",
        flush=True,
    )
    return found


def main() -> int:
    """Measure; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipelines", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds: rougher")
    parser.add_argument("--starts", action="store_true", help="measure only starts")
    arguments = parser.parse_args()
    quick, shapes = arguments.quick, [] if arguments.starts else list(SHAPES)
    directory = RESULTS / "pipelines"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    os.environ["PYTHONPATH"] = str(ROOT)
    broker = PenstockProcess(directory / "penstock", synced=False)
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    broker.start()
    try:
        spark = session("bench", master="local[2]", settings={**settings, "spark.driver.memory": "4g"})
        rows = 10_000 if arguments.starts else 2_000_000 if quick else 8_000_000
        write(spark, broker, rows)
        found: dict[str, Any] = {
            name: measure(spark, directory, broker, name, rows=rows, rounds=4 if quick else 6) for name in shapes
        }
        spark.stop()
        found |= start_times(directory, broker.address, 3)
    finally:
        broker.stop()
    shutil.rmtree(directory, ignore_errors=True)
    print(
        f"start to the first committed batch: {found['start_s']:.1f} s, with an archive of classes "
        f"{found['start_with_archive_s']:.1f} s, of a bare session to its first job {found['bare_start_s']:.1f} s; "
        f"load average {os.getloadavg()[0]:.1f}"
    )
    (RESULTS / "pipelines.json").write_text(json.dumps(found, indent=1), encoding="ascii")
    is_slow = any(found[name]["ratio"] < TRANSFORM_GOAL for name in shapes)
    return int(is_slow or found["start_with_archive_s"] > START_GOAL * found["bare_start_s"])


if __name__ == "__main__":
    sys.exit(main())
