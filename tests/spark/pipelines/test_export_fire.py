"""Exactly once under fire: topics are exported while driver, Python workers and broker are killed at random. Afterwards the table
has each record once, offsets have no gap, the audit agrees, and finds a row that is then removed by hand."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.core.errors import UnavailableError
from penstock.spark.pipelines.spec_reading import read_spec
from penstock.spark.tables.table import Table, table_of
from tests.e2e.running_node import PENSTOCK, environment, running_node
from tests.spark.pipelines.table_pipelines import FORMATS, again, declare, ids, offsets, run, send, started
from tests.spark.reads import read, schema
from tests.spark.workers import workers_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.spec import PipelineSpec

PARTITIONS = 3
KILLS = 24
S3_KILLS = 10
BAD_EVERY = 97
WORKERS_MAX = 8
# A driver takes longest to come back.
VICTIMS = ("driver", "worker", "worker", "worker", "broker", "broker")
ROOT = Path(__file__).resolve().parents[3]


class Feed(threading.Thread):
    """Writes clicks 0, 1, 2, … until told to stop, now and then one that cannot be decoded; `sent` is how many are stored."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._address = bootstrap
        self.goes_on = True
        self.sent = 0

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self._address, "enable.idempotence": True, "delivery.timeout.ms": 300_000})
        while self.goes_on:
            for _ in range(50):
                good = json.dumps({"id": self.sent, "page": f"/{self.sent % 7}"})
                producer.produce("clicks", f"bad {self.sent}" if self.sent % BAD_EVERY == 0 else good, key=b"%d" % self.sent)
                self.sent += 1
            producer.flush(120)
            time.sleep(0.1)

    def finish(self) -> None:
        """Stop; everything is stored when this returns."""
        self.goes_on = False
        self.join()


class Run:
    """`penstock pipeline run`, started again whenever it has died."""

    def __init__(self, file: Path, log: Path) -> None:
        self._file = file
        self._log = log.open("ab")
        self.process = self._start()

    def keep_alive(self) -> None:
        """Start it again if need be."""
        if self.process.poll() is not None:
            self.kill()
            self.process = self._start()

    def kill(self) -> None:
        """kill -9 the driver with its JVM and workers."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def kill_worker(self, chance: random.Random) -> bool:
        """kill -9 one of the Python processes that tasks run in; whether there was one."""
        workers = workers_of(self.process.pid)
        if not workers:
            return False
        with suppress(ProcessLookupError):
            os.kill(chance.choice(workers), signal.SIGKILL)
        return True

    def close(self) -> None:
        """The end."""
        self.kill()
        self._log.close()

    def _start(self) -> subprocess.Popen[bytes]:
        argv = [*PENSTOCK, "pipeline", "run", str(self._file), "--master", "local[2,4]", "--conf", "spark.ui.enabled=false"]
        return subprocess.Popen(argv, stdout=self._log, stderr=self._log, cwd=ROOT, env=environment(), start_new_session=True)


def _declared(directory: Path, bootstrap: str, form: str, s3: dict[str, str] | None) -> tuple[Path, Path]:
    """The files of an export and of its audit."""
    table: dict[str, Any] = {"format": form, "location": "lake", "compact": {"every": "7s", "file_bytes": "1MiB"}}
    if form == "iceberg":
        table["name"] = "db.clicks"
    target: dict[str, Any] = {"table": table}
    if s3 is not None:
        table["location"] = f"s3://payloads/{form}"
        target["options"] = s3
        if form == "iceberg":
            table["catalog"] = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db"}
    fields: dict[str, Any] = {
        "pipeline": "clicks",
        "kind": "export",
        "brokers": bootstrap,
        "source": {"topics": ["clicks"], "value": {"format": "json", "schema": "id BIGINT, page STRING"}},
        "target": target,
        "dead_letters": {"topic": "dead"},
        "batch": {"rows_max": 3000},
        "restart": {"attempts": 1000, "backoff": "200ms"},
    }
    export, audit = directory / "export.yaml", directory / "audit.yaml"
    export.write_text(json.dumps(fields))
    for name in ("dead_letters", "restart"):
        del fields[name]
    audit.write_text(json.dumps({**fields, "pipeline": "clicks-audit", "kind": "audit"}))
    return export, audit


def _fire(directory: Path, form: str, kills: int, victims: tuple[str, ...], s3: dict[str, str] | None = None) -> None:
    """Export what a feed writes while victims are killed; then compare, audit, remove a row, and audit again."""
    chance = random.Random(form)
    argv = ["--data-dir", str(directory / "data")]
    with running_node(directory / "log", argv) as first:
        first.ok("topic", "create", "clicks", "dead", "--partitions", str(PARTITIONS))
        argv += ["--kafka-port", first.bootstrap.rsplit(":", 1)[1]]
        bootstrap = first.bootstrap
        first.kill()
    export, audit = _declared(directory, bootstrap, form, s3)
    spec = read_spec(str(export))
    killed: Counter[str] = Counter()
    with ExitStack() as stack:
        node = stack.enter_context(running_node(directory / "log", argv))
        feed = Feed(bootstrap)
        running = Run(export, directory / "pipeline.log")
        stack.callback(running.close)
        feed.start()
        stack.callback(feed.finish)
        exported = 0
        while killed.total() < kills:
            exported = _wait_for(running, spec, exported + 1)
            time.sleep(chance.uniform(0, 2))
            victim = chance.choice(victims)
            if victim == "driver":
                running.kill()
            elif victim == "broker":
                node.kill()
                node = stack.enter_context(running_node(directory / "log", argv))
            elif not running.kill_worker(chance):
                continue
            killed[victim] += 1
            (directory / "killed").write_text(f"{killed}, {feed.sent} sent\n")
        feed.finish()
        _wait_for(running, spec, feed.sent)
        running.close()
        (directory / "killed").write_text(f"{killed}, {feed.sent} sent\n")
        found = ids(form, directory / "lake") if s3 is None else _held(spec)
        assert found == [number for number in range(feed.sent) if number % BAD_EVERY], f"after {killed}"
        letters = read(bootstrap, schema("value"), **{"subscribe": "dead", "kafka.isolation.level": "read_committed"})
        bad = list(range(0, feed.sent, BAD_EVERY))
        assert sorted(int(row["value"].split()[1]) for row in letters) == bad, f"after {killed}"
        agreed = node.run("pipeline", "run", str(audit), timeout=300)
        assert agreed.returncode == 0, agreed.stderr
        assert b"topic and table agree" in agreed.stdout
        gone = remove_row(spec, 1, 42)
        refused = node.run("pipeline", "run", str(audit), timeout=300)
        assert refused.returncode != 0
        assert gone in refused.stderr + refused.stdout


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("form", FORMATS)
def test_each_record_is_exported_once_while_everything_is_killed(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.e2e.running_node.START_S", 180.0)
    _fire(tmp_path, form, KILLS, VICTIMS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("form", FORMATS)
def test_each_record_is_exported_to_s3_once_while_driver_and_broker_are_killed(
    tmp_path: Path, form: str, s3: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.e2e.running_node.START_S", 180.0)
    _fire(tmp_path, form, S3_KILLS, ("driver", "broker"), s3)


def _held(spec: PipelineSpec) -> list[int]:
    """The numbers of the clicks in a table, wherever it is."""
    table = _table(spec)
    reader = table.reader()
    return sorted(number for file in table.data_files() for batch in reader.read(file) for number in batch["id"].to_pylist())


def _table(spec: PipelineSpec) -> Table:
    assert spec.target.table is not None
    found = table_of(spec, spec.target.table)
    found.refresh()
    return found


def _wait_for(running: Run, spec: PipelineSpec, count: int) -> int:
    """Until so many offsets are committed; how many there are then."""
    deadline = time.monotonic() + 600
    while True:
        progress = _table(spec).progress()
        committed = 0 if progress is None else sum(progress.offsets.values())
        if committed >= count:
            return committed
        assert time.monotonic() < deadline, f"only {committed} of {count} records are exported"
        running.keep_alive()
        time.sleep(0.5)


def remove_row(spec: PipelineSpec, partition: int, offset: int) -> bytes:
    """Take one row out of a table; how an audit should tell of it."""
    table = _table(spec)
    reader, old = table.reader(), table.data_files()
    rows = pa.Table.from_batches([batch for file in old for batch in reader.read(file)])
    is_it = pc.and_(pc.equal(rows["_partition"], partition), pc.equal(rows["_offset"], offset))
    assert pc.sum(is_it).as_py() == 1
    before = table.progress()
    assert before is not None
    files = table.writer().write(rows.filter(pc.invert(is_it)).to_batches(), "by-hand")
    table.commit(files, replace(before, batch=before.batch + 1), before, removed=old)
    return f"missing in the table: 1 offsets: {offset}".encode()


@pytest.mark.slow
@pytest.mark.parametrize("form", [pytest.param(form, marks=[] if form == "iceberg" else [pytest.mark.soak]) for form in FORMATS])
def test_a_few_kills_in_one_session(spark: SparkSession, tmp_path: Path, form: str) -> None:
    argv = ["--data-dir", str(tmp_path / "data")]
    with running_node(tmp_path / "log", argv) as node:
        bootstrap = node.bootstrap
        node.ok("topic", "create", "clicks", "--partitions", "2")
        spec = declare(bootstrap, tmp_path, "clicks", form, batch={"rows_max": 40})
        send(bootstrap, "clicks", range(200))
        job = started(spark, spec)
        job.step()
        # A driver that dies leaves everything as it is; a broker that dies takes a batch with it.
        job.close()
        job = started(spark, again(spec))
        node.kill()
        broken = replace(again(spec), options={"kafka.default.api.timeout.ms": "300"})
        with pytest.raises(UnavailableError):
            run(spark, broken)
        job.close()
    with running_node(tmp_path / "log", [*argv, "--kafka-port", bootstrap.rsplit(":", 1)[1]]):
        job = started(spark, again(spec))
        _kill_workers()
        with suppress(Py4JJavaError, PySparkException):
            job.step()
        job.close()
        # Spark hands tasks to the dead, one after another, until it has tried each of them.
        for _ in range(WORKERS_MAX):
            with suppress(Py4JJavaError, PySparkException):
                run(spark, again(spec))
                break
        assert ids(form, tmp_path / "lake") == list(range(200))
        assert offsets(form, tmp_path / "lake") == {0: list(range(100)), 1: list(range(100))}


def _kill_workers() -> None:
    """kill -9 the processes that this session's tasks run in."""
    # With their daemon dead too, a task fails for each of them that Spark still counts on, also in other tests of the session.
    workers = workers_of(os.getpid(), with_daemon=False)
    assert workers
    for pid in workers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
