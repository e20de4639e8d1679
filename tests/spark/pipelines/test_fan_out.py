"""Exports to many tables: every row is in the table that it names, once, though a run dies between the commits of two tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.pipelines.errors import SpecError
from penstock.spark.tables.errors import TableOptionError
from penstock.spark.tables.table_target import FileChange, TableTarget
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.spark.pipelines.table_pipelines import again, declare, ids, read_table, run, started
from tests.spark.pipelines.test_merge import ROWS, row, send
from tests.spark.reads import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
REGIONS = ("eu", "us", "asia")


def numbers(region: str, count: int) -> list[int]:
    """The rows of a region."""
    return [number for number in range(count) if REGIONS[number % 3] == region]


def test_each_row_is_in_the_table_that_it_names_once(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"location": "lake/{region}", "compact": {"every": "1h"}}
    spec = declare(gateway.bootstrap, tmp_path, topic, "delta", table=table, source={"topics": [topic], "value": ROWS})
    rows: list[dict[str, Any] | tuple[str, None]] = [row(number, "", region=REGIONS[number % 3]) for number in range(20)]
    send(gateway.bootstrap, topic, [*rows, row(20, "", region="../away"), {"id": 21}])
    commit, commits = TableTarget.commit, []

    def die_at_second(target: TableTarget, files: FileChange, *given: Any, **named: Any) -> None:
        commits.append(target)
        if len(commits) == 2:
            raise ConnectionError("cut off between two tables")
        commit(target, files, *given, **named)

    with monkeypatch.context() as dying:
        dying.setattr(TableTarget, "commit", die_at_second)
        job = started(spark, spec)
        with pytest.raises(ConnectionError):
            job.step()
        job.close()
    send(gateway.bootstrap, topic, [row(number, "", region=REGIONS[number % 3]) for number in range(20, 30)])
    (rest, more) = run(spark, again(spec))
    assert (rest.rows_read, rest.dead_letters, more.rows_written) == (22, 0, 10)  # the letters were committed before the tables
    for region in REGIONS:
        assert ids("delta", tmp_path / "lake" / region) == numbers(region, 30)
    assert not (tmp_path / "away").exists()
    letters = read(gateway.bootstrap, None, subscribe=f"{spec.name}.dead")
    assert len(letters) == 2
    # Another pipeline of that name, whose record does not know these tables.
    monkeypatch.setattr("penstock.spark.pipelines.fence.Fence.content", {})
    job = started(spark, again(spec))
    send(gateway.bootstrap, topic, [row(31, "", region="eu")])
    with pytest.raises(TableOptionError, match=r"holds rows of pipeline .* that its record in the broker does not know of"):
        job.step()
    job.close()


@pytest.mark.soak
def test_many_tables_are_merged_by_key(spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path) -> None:
    table = {
        "location": "lake/{region}",
        "merge": {"key": ["region", "id"], "delete": {"column": "op"}},
        "metadata": "none",
    }
    fields: dict[str, Any] = {"table": table, "source": {"topics": [topic], "value": ROWS}}
    spec = declare(gateway.bootstrap, tmp_path, topic, "delta", **fields)
    send(gateway.bootstrap, topic, [row(number, "old", region=REGIONS[number % 3]) for number in range(9)])
    run(spark, spec)
    changes: list[dict[str, Any] | tuple[str, None]] = [row(0, "new", version=2), row(3, "", op="d", version=2)]
    changes += [('{"region": "us", "id": 4}', None), row(1, "new", region="us", version=1)]
    send(gateway.bootstrap, topic, changes)
    run(spark, again(spec))
    found = {
        region: dict(zip(rows["id"].to_pylist(), rows["page"].to_pylist(), strict=True))
        for region in REGIONS
        for rows in [read_table("delta", tmp_path / "lake" / region)]
    }
    asia = dict.fromkeys((2, 5, 8), "old")
    assert found == {"eu": {0: "new", 6: "old"}, "us": {1: "new", 7: "old"}, "asia": asia}


@pytest.mark.soak
def test_a_query_fans_out_to_tables_of_a_catalog(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    sql = f"SELECT id, page, upper(region) AS part, year(timestamp) AS year FROM `{topic}`"
    table = {"location": "lake/{part}-{year}", "name": "{part}.y{year}"}
    fields: dict[str, Any] = {"source": {"topics": [topic], "value": ROWS}, "transform": {"sql": sql}, "kind": "transform"}
    spec = declare(gateway.bootstrap, tmp_path, topic, "iceberg", table=table, **fields)
    send(gateway.bootstrap, topic, [row(number, "", region=REGIONS[number % 3]) for number in range(9)])
    run(spark, spec)
    made = sorted(path.name for path in (tmp_path / "lake").iterdir())
    assert [name.rpartition("-")[0] for name in made] == ["ASIA", "EU", "US"]


@pytest.mark.parametrize(
    ("form", "more", "told"),
    [
        ("delta", {"kind": "compact"}, "a pipeline of kind compact works on one table"),
        ("iceberg", {}, "'db.clicks' would be the same for several tables; it needs {region}"),
        ("delta", {"dead_letters": {"table": {"format": "delta", "location": "{x}"}}}, "dead letters have no columns; name one"),
    ],
)
def test_what_cannot_fan_out_is_refused(tmp_path: Path, form: str, more: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        declare("127.0.0.1:9", tmp_path, "t", form, table={"location": "lake/{region}"}, **more)


def test_a_table_is_named_by_a_column_that_is_there(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=r"there is no column 'area' that could name a table; there are _topic, .*page"):
        started(spark, declare(gateway.bootstrap, tmp_path, topic, "delta", table={"location": "lake/{area}"}))
