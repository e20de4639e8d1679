"""Every kind of pipeline and every target, on a cluster, while driver, executors, workers and broker are killed and rows go on
coming in: the target holds what the source makes of it, each row once. Minutes of JVMs each, so soak tests."""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.pipelines.spec import KINDS
from tests.spark.pipelines.table_pipelines import read_table
from tests.spark.pipelines.test_kills import World, committed, world
from tests.spark.spark_cluster import JAVA_OPTIONS, SparkCluster, spark_cluster

KEYS = 400
KILLS = int(os.environ.get("KILLS", "8"))
REPLAYED = 25_000 * KILLS  # more than is replayed between the kills
BATCH = 1_000
FEED_ROWS = 30
FEED_EVERY_S = 0.25
SMALL = (
    *("--conf", "spark.executor.memory=500m", "--conf", "spark.cores.max=2"),
    *("--conf", f"spark.executor.extraJavaOptions={JAVA_OPTIONS}"),
)
START_MS = 1_790_000_040_000  # a full minute
SCHEMA = "id BIGINT, n BIGINT, op STRING, region STRING, at TIMESTAMP"
TOPIC = f"source: {{topics: [changes], value: {{format: json, schema: '{SCHEMA}'}}}}"


def change(number: int) -> dict[str, Any]:
    """The change with this number; every 50th deletes its key."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START_MS / 1000 + number))
    op = "d" if number % 50 == 17 else "u"
    return {"id": number % KEYS, "n": number, "op": op, "region": f"r{number % KEYS % 3}", "at": at}


def last_changes(rows: int) -> dict[int, int]:
    """The number of the last change of each key that is not deleted."""
    last = {change(number)["id"]: change(number) for number in range(rows)}
    return {key: row["n"] for key, row in last.items() if row["op"] != "d"}


Check = Callable[[World, Path, int], None]


class Case(NamedTuple):
    """A pipeline: the rest of its file, and what its target must hold in the end of so many rows."""

    file: str
    check: Check


def numbers_in_topic(name: str) -> Check:
    """Every number is in the topic once."""

    def check(one: World, _directory: Path, rows: int) -> None:
        assert Counter(value["n"] for value in committed(one, name)) == Counter(range(rows))

    return check


def check_minutes(minutes: list[str], counts: list[int], rows: int) -> None:
    """Every minute that has ended is there once, with all of its rows."""
    assert len(set(minutes)) == len(minutes) >= rows // 60 - 110
    assert set(counts) == {60}


def minutes_in_topic(one: World, _directory: Path, rows: int) -> None:
    """See `check_minutes`."""
    found = committed(one, "minutes")
    check_minutes([value["minute"] for value in found], [value["rows"] for value in found], rows)


def minutes_in_table(_one: World, directory: Path, rows: int) -> None:
    """See `check_minutes`."""
    found = read_table("delta", directory / "lake")
    check_minutes(found["minute"].to_pylist(), found["rows"].to_pylist(), rows)


def counts_in_table(_one: World, directory: Path, rows: int) -> None:
    """The table has one row for each region, with the last count."""
    found = read_table("delta", directory / "lake")
    counts = zip(found["region"].to_pylist(), found["rows"].to_pylist(), strict=True)
    assert sorted(counts) == sorted(Counter(change(number)["region"] for number in range(rows)).items())


def numbers_in_topics(one: World, _directory: Path, rows: int) -> None:
    """Every number is once in the topic of its region, and nowhere else."""
    for region in range(3):
        found = Counter(value["n"] for value in committed(one, f"out-r{region}"))
        assert found == Counter(number for number in range(rows) if number % KEYS % 3 == region)


def numbers_in_table(form: str) -> Check:
    """Every number is in the table once."""

    def check(_one: World, directory: Path, rows: int) -> None:
        assert Counter(read_table(form, directory / "lake")["n"].to_pylist()) == Counter(range(rows))

    return check


def last_in_table(form: str) -> Check:
    """The table has the last change of each key that is not deleted."""

    def check(_one: World, directory: Path, rows: int) -> None:
        found = read_table(form, directory / "lake")
        changes = zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True)
        assert Counter(changes) == Counter(last_changes(rows).items())

    return check


def values_in_table(form: str) -> Check:
    """The table of a compaction has the last value of each key."""

    def check(_one: World, directory: Path, rows: int) -> None:
        found = read_table(form, directory / "lake")
        last = {number % KEYS: number for number in range(rows)}
        assert Counter(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True)) == Counter(last.items())

    return check


def table(form: str, more: str = "") -> str:
    """A target."""
    return f"target: {{table: {{format: {form}, location: lake{', name: db.clicks' if form == 'iceberg' else ''}{more}}}}}"


def numbers_in_tables(_one: World, directory: Path, rows: int) -> None:
    """Every number is once in the table of its region, and nowhere else."""
    for region in range(3):
        found = read_table("delta", directory / "lake" / f"r{region}")["n"].to_pylist()
        assert Counter(found) == Counter(number for number in range(rows) if number % KEYS % 3 == region)


MERGE = ", metadata: none, merge: {key: [id], delete: {column: op}}"
WINDOWS = (
    "transform: {sql: \"SELECT date_format(window.start, 'yyyy-MM-dd HH:mm') AS minute, count(*) AS rows FROM changes "
    "GROUP BY window(at, '1 minute')\", watermark: {column: at, delay: 1 hour}}"
)
COUNTS = "transform: {sql: 'SELECT region, count(*) AS rows FROM changes GROUP BY region', output_mode: update}"
NUMBERS = "transform: {sql: 'SELECT n FROM changes'}"
CASES = {
    "transform": Case(f"kind: transform\n{TOPIC}\n{NUMBERS}\ntarget: {{topic: out}}", numbers_in_topic("out")),
    "transform-topics": Case(
        f"kind: transform\n{TOPIC}\ntransform: {{sql: 'SELECT n, region FROM changes'}}\ntarget: {{topic: 'out-{{region}}'}}",
        numbers_in_topics,
    ),
    **{
        f"transform-{form}": Case(f"kind: transform\n{TOPIC}\n{NUMBERS}\n{table(form)}", numbers_in_table(form))
        for form in ("delta", "iceberg", "parquet")
    },
    "windows": Case(f"kind: transform\n{TOPIC}\n{WINDOWS}\ntarget: {{topic: minutes}}", minutes_in_topic),
    "windows-delta": Case(f"kind: transform\n{TOPIC}\n{WINDOWS}\n{table('delta')}", minutes_in_table),
    "update-delta": Case(f"kind: transform\n{TOPIC}\n{COUNTS}\n{table('delta', ', merge: {key: [region]}')}", counts_in_table),
    "load": Case("kind: load\nsource: {files: {path: in, format: parquet}}\ntarget: {topic: out}", numbers_in_topic("out")),
    "replay": Case("kind: replay\nsource: {topics: [changes]}\ntarget: {topic: out}", numbers_in_topic("out")),
    "replay-delta": Case(f"kind: replay\n{TOPIC}\n{table('delta')}", numbers_in_table("delta")),
    "tables": Case(
        f"kind: export\n{TOPIC}\ntarget: {{table: {{format: delta, location: 'lake/{{region}}'}}}}", numbers_in_tables
    ),
    **{
        f"compact-{form}": Case(f"kind: compact\n{TOPIC}\n{table(form)}", values_in_table(form))
        for form in ("delta", "iceberg", "parquet")
    },
    **{
        f"export-{form}": Case(f"kind: export\n{TOPIC}\n{table(form)}", numbers_in_table(form))
        for form in ("delta", "iceberg", "parquet")
    },
    **{
        f"merge-{form}": Case(f"kind: export\n{TOPIC}\n{table(form, MERGE)}", last_in_table(form))
        for form in ("delta", "iceberg")
    },
}


class Feed:
    """Writes changes to a topic, and their numbers to files, while the pipeline runs."""

    def __init__(self, one: World, directory: Path) -> None:
        # An idempotent producer: what it sends again after the broker was killed is there once.
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": one.node.bootstrap, "linger.ms": 20, "enable.idempotence": True}
        )
        self._files = directory / "in"
        self._files.mkdir()
        one.node.ok("topic", "create", "changes", "--partitions", "2")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rows = 0

    def write(self, count: int) -> None:
        """So many more rows."""
        numbers = range(self.rows, self.rows + count)
        for number in numbers:
            row = change(number)
            self._producer.produce("changes", json.dumps(row), key=str(row["id"]), partition=row["id"] % 2)
        unfinished = self._files / f".{self.rows:06}"
        pq.write_table(pa.table({"n": list(numbers)}), unfinished)
        unfinished.rename(self._files / f"{self.rows:06}.parquet")
        self.rows += count

    def _run(self) -> None:
        while not self._stopping.wait(FEED_EVERY_S):
            self.write(FEED_ROWS)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Rows come in until the end of the block; then all of them are in the topic."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join()
            self.flush()

    def flush(self) -> None:
        """Until all rows are acknowledged."""
        assert self._producer.flush(120) == 0


def shake(one: World, cluster: SparkCluster, file: Path, seed: int) -> None:
    """Kill driver, executor, broker and a worker in turn, each at a random moment after the pipeline has gone on."""
    chance = random.Random(seed)
    running = one.pipeline(file, *SMALL, master=cluster.address)
    for kill in range(KILLS):
        said = len(running.said())
        deadline = time.monotonic() + 180
        while "rows read" not in running.said()[said:] and time.monotonic() < deadline and running.process.poll() is None:
            time.sleep(0.05)
        time.sleep(chance.uniform(0.0, 2.0))
        assert running.process.poll() is None, f"it has ended before kill {kill}: {running.said()[-3000:]}"
        if kill % 4 == 0:
            running.kill()
            running = one.pipeline(file, *SMALL, master=cluster.address)
        elif kill % 4 == 1:
            cluster.kill_executor()
        elif kill % 4 == 2:
            one.kill_broker()
        else:
            cluster.kill_worker(chance.randrange(2))
    assert running.process.poll() in (None, 0), running.said()[-3000:]
    running.kill()


def test_every_case_is_a_row_of_the_guarantees_and_every_kind_that_writes_has_one() -> None:
    rows = (Path(__file__).parents[3] / "docs" / "guarantees.md").read_text()
    assert sorted(re.findall(r"test_cluster_kills\.py::\w+`, case `([\w-]+)`", rows)) == sorted(CASES)
    assert {case.file.split()[1] for case in CASES.values()} == set(KINDS) - {"audit"}


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CASES)
def test_a_pipeline_outlives_the_deaths_of_all_that_it_needs(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with world(tmp_path) as one, spark_cluster() as cluster:
        feed = Feed(one, tmp_path)
        file = tmp_path / "pipeline.yaml"
        file.write_text(
            f"pipeline: shaken\nbrokers: 127.0.0.1:{one.port}\n{case.file}\n"
            f"batch: {{rows_max: {BATCH}}}\nrestart: {{attempts: 100, backoff: 500ms}}\n"
        )
        if name.startswith("replay"):  # its range is known when it is started first
            feed.write(REPLAYED)
            feed.flush()
            shake(one, cluster, file, seed=len(name))
        else:
            with feed.going_on():
                shake(one, cluster, file, seed=len(name))
        last = one.pipeline(file, "--once", *SMALL, master=cluster.address)
        assert last.wait(900) == 0, last.said()[-3000:]
        case.check(one, tmp_path, feed.rows)
