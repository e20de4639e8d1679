"""Replays: a range once more, into a topic or a table, to the end it had when it began."""

from __future__ import annotations

import pytest

from penstock.spark.pipelines.errors import SpecError
from penstock.spark.pipelines.kinds import make_job
from penstock.spark.tables.table import table_of
from tests.spark.pipelines.runs import Runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def replay(source: str, target: str) -> str:
    """The body of a file that replays."""
    return f"kind: replay\nsource: {source}\ntarget: {target}\nbatch: {{rows_max: 40}}\n"


def test_a_range_is_replayed_once_in_order_and_ends_where_it_ended(runs: Runs) -> None:
    topic = runs.topic("r1")
    for partition in range(2):
        runs.produce(topic, [b"%d" % number for number in range(50)], partition=partition)
    body = replay("{topics: [r1], start: {offsets: {r1: {0: 10, 1: -2}}}}", "{topic: r1-again, partitions: 2}")
    spec = runs.declare("again", body)
    job = make_job(spec)
    job.start(runs.spark)
    assert job.step() is not None
    job.close()
    runs.produce(topic, [b"late"])
    runs.run(spec)
    found = [(row["partition"], int(row["value"])) for row in runs.rows("r1-again")]
    assert found == [*((0, number) for number in range(10, 50)), *((1, number) for number in range(50))]
    assert runs.run(spec)["batches"] == 0
    other = runs.declare("again", body.replace("0: 10", "0: 5"))
    with pytest.raises(SpecError, match="pipeline 'again' has replayed another range before"):
        runs.run(other)


def test_a_range_goes_to_a_table(runs: Runs) -> None:
    topic = runs.topic("r2", 1)
    runs.produce(topic, [b"%d" % number for number in range(30)])
    source = "{topics: [r2], end: {offsets: {r2: {0: 25}}}}"
    spec = runs.declare("table-again", replay(source, "{table: {format: parquet, location: lake}}"))
    runs.run(spec)
    runs.run(spec)
    assert spec.target.table is not None
    table = table_of(spec, spec.target.table)
    table.refresh()
    reader = table.reader()
    rows = [row for file in table.data_files() for batch in reader.read(file, ["_offset"]) for row in batch.to_pylist()]
    assert sorted(row["_offset"] for row in rows) == list(range(25))
