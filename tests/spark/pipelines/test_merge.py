"""Tables that are changed by key: inserted, updated and deleted once, whatever dies, with the offsets in the same commit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from penstock.spark.pipelines.errors import SpecError
from penstock.spark.tables.errors import TableConflictError
from penstock.spark.tables.table_target import FileChange, TableTarget
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.spark.pipelines.table_pipelines import again, declare, read_table, run, started
from tests.spark.reads import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROWS = {"format": "json", "schema": "id BIGINT, region STRING, page STRING, op STRING, version BIGINT"}


def send(bootstrap: str, topic: str, values: Sequence[dict[str, Any] | tuple[str, None]]) -> None:
    """Rows by their id, and tombstones by key."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for value in values:
        key = value[0] if isinstance(value, tuple) else str(value["id"])
        producer.produce(topic, key=key, value=None if isinstance(value, tuple) else json.dumps(value), partition=0)
    assert producer.flush(20) == 0


def row(number: int, page: str, op: str = "u", version: int = 0, region: str = "eu") -> dict[str, Any]:
    return {"id": number, "region": region, "page": page, "op": op, "version": version}


def pages(form: str, directory: Path) -> dict[int, str]:
    """The table as it is, each key once."""
    rows = read_table(form, directory / "lake")
    assert "op" not in rows.column_names
    keys = rows["id"].to_pylist()
    assert len(keys) == len(set(keys)), "a key is there twice"
    return dict(zip(keys, rows["page"].to_pylist(), strict=True))


@pytest.mark.parametrize(("form", "order"), [("delta", {"order_by": "version"}), ("iceberg", {})])
def test_rows_are_inserted_updated_and_deleted_once(
    spark: SparkSession,
    gateway: RunningGateway,
    topic: str,
    tmp_path: Path,
    *,
    form: str,
    order: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = {"merge": {"key": ["id"], "delete": {"column": "op"}} | order, "partition_by": ["region"], "metadata": "none"}
    spec = declare(gateway.bootstrap, tmp_path, topic, form, table=table, source={"topics": [topic], "value": ROWS})
    send(gateway.bootstrap, topic, [row(number, "first", region="eu" if number % 2 else "us") for number in range(10)])
    assert sum(done.rows_written for done in run(spark, spec)) == 10
    changes: list[dict[str, Any] | tuple[str, None]] = []
    changes += [row(1, "second"), row(1, "third"), row(2, "", op="d"), ("3", None), ('{"id": 4}', None), row(5, "", op="delete")]
    changes += [row(5, "back"), row(6, "moved", region="asia"), ("absent", None), row(20, "new")]
    send(gateway.bootstrap, topic, changes)
    with monkeypatch.context() as dying:
        dying.setattr(TableTarget, "commit", _die)
        job = started(spark, again(spec))
        with pytest.raises(ConnectionError):
            job.step()
        job.close()
    assert pages(form, tmp_path) == dict.fromkeys(range(10), "first")
    (done,) = run(spark, again(spec))
    assert done.dead_letters == 0  # the one of this batch was committed before the table was
    expected = {0: "first", 1: "third", 5: "back", 6: "moved", 7: "first", 8: "first", 9: "first", 20: "new"}
    assert pages(form, tmp_path) == expected
    assert run(spark, again(spec)) == []
    # A tombstone whose key is no number.
    (letter,) = read(gateway.bootstrap, None, subscribe=f"{spec.name}.dead")
    assert (letter["key"], letter["value"]) == (b"absent", None)


def _die(*_given: object, **_named: object) -> None:
    raise ConnectionError("cut off before the commit")


def test_an_older_version_that_comes_late_changes_nothing_and_another_writer_is_noticed(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"merge": {"key": ["region", "id"], "order_by": "version"}, "metadata": "none"}
    transform = {"sql": f"SELECT id, region, page, version FROM `{topic}`"}
    source = {"topics": [topic], "value": ROWS}
    spec = declare(gateway.bootstrap, tmp_path, topic, "delta", table=table, source=source, transform=transform)
    send(gateway.bootstrap, topic, [row(1, "v5", version=5), row(1, "v2", version=2), row(2, "v1", version=1)])
    run(spark, spec)
    send(gateway.bootstrap, topic, [row(1, "v4", version=4), row(2, "v9", version=9)])
    commit = TableTarget.commit

    def commit_late(target: TableTarget, files: FileChange, *given: Any, **named: Any) -> None:
        from deltalake import write_deltalake

        write_deltalake(str(tmp_path / "lake"), read_table("delta", tmp_path / "lake").slice(0, 1), mode="append")
        commit(target, files, *given, **named)

    with monkeypatch.context() as racing:
        racing.setattr(TableTarget, "commit", commit_late)
        job = started(spark, again(spec))
        with pytest.raises(TableConflictError, match="changed by another writer while rows were merged"):
            job.step()
        job.close()
    run(spark, again(spec))
    assert pages("delta", tmp_path) == {1: "v5", 2: "v9"}


def test_a_history_has_every_version(spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path) -> None:
    table = {"merge": {"key": "id", "order_by": "version", "delete": {"column": "op"}, "history": True}, "metadata": "none"}
    spec = declare(gateway.bootstrap, tmp_path, topic, "iceberg", table=table, source={"topics": [topic], "value": ROWS})
    send(gateway.bootstrap, topic, [row(1, "a", version=1), row(1, "b", version=5), row(2, "x", version=1)])
    run(spark, spec)
    send(gateway.bootstrap, topic, [row(1, "late", version=3), row(2, "", op="d", version=8), row(1, "c", version=9)])
    run(spark, again(spec))
    rows = read_table("iceberg", tmp_path / "lake").to_pylist()
    found = sorted((each["id"], each["page"], each["_valid_from"], each["_valid_to"] or 0, each["_is_current"]) for each in rows)
    expected = [
        (1, "a", 1, 3, False),
        (1, "b", 5, 9, False),
        (1, "c", 9, 0, True),
        (1, "late", 3, 5, False),
        (2, "x", 1, 8, False),
    ]
    assert found == expected


def test_a_table_follows_the_change_events_of_a_database(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    table = {"merge": {"key": ["id"], "delete": {"column": "__op"}}, "metadata": "none"}
    value = {"format": "debezium-json", "schema": "id BIGINT, page STRING"}
    spec = declare(gateway.bootstrap, tmp_path, topic, "delta", table=table, source={"topics": [topic], "value": value})
    events = [("r", None, "a"), ("u", "a", "b"), ("d", "b", None), ("c", None, "c")]
    producer = confluent_kafka.Producer({"bootstrap.servers": gateway.bootstrap})
    for number in range(5):
        for op, before, after in events[: number + 1]:
            row = {
                "before": before and {"id": number, "page": before},
                "after": after and {"id": number, "page": after},
                "op": op,
            }
            producer.produce(topic, json.dumps(row), key=json.dumps({"id": number}), partition=0)
            if op == "d":
                producer.produce(topic, None, key=json.dumps({"payload": {"id": number}}), partition=0)
    assert producer.flush(20) == 0
    (done,) = run(spark, spec)
    assert (done.rows_read, done.dead_letters) == (17, 0)
    assert pages("delta", tmp_path) == {0: "a", 1: "b", 3: "c", 4: "c"}
    assert "__op" not in read_table("delta", tmp_path / "lake").column_names


@pytest.mark.soak
def test_counts_that_change_are_updated_in_the_table(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    transform = {"sql": f"SELECT region, count(*) AS n FROM `{topic}` GROUP BY region", "output_mode": "update"}
    source = {"topics": [topic], "value": ROWS}
    fields: dict[str, Any] = {"source": source, "transform": transform, "trigger": "once", "kind": "transform"}
    spec = declare(gateway.bootstrap, tmp_path, topic, "delta", table={"merge": {"key": ["region"]}}, **fields)
    send(gateway.bootstrap, topic, [row(number, "", region=f"r{number % 3}") for number in range(9)])
    run(spark, spec)
    send(gateway.bootstrap, topic, [row(9, "", region="r0"), row(10, "", region="new")])
    run(spark, again(spec))
    rows = read_table("delta", tmp_path / "lake")
    found = sorted(zip(rows["region"].to_pylist(), rows["n"].to_pylist(), strict=True))
    assert found == [("new", 1), ("r0", 4), ("r1", 3), ("r2", 3)]


@pytest.mark.parametrize(
    ("form", "table", "more", "told"),
    [
        ("delta", {}, {"transform": {"sql": "x", "output_mode": "update"}, "kind": "transform"}, "would hold every one; give"),
        ("delta", {}, {"transform": {"sql": "x", "output_mode": "complete"}, "kind": "transform"}, "complete repeats the whole"),
        ("parquet", {"merge": {"key": "id"}}, {}, "plain Parquet has no commit that replaces files at once; use delta or"),
        ("delta", {"merge": {"key": "id"}}, {"kind": "compact"}, "a pipeline of kind compact does not merge"),
        ("delta", {"merge": {"key": "id", "history": True}}, {"transform": {"sql": "x"}}, "rows of a query have no time"),
        ("delta", {"merge": {}}, {}, "key is missing; the columns that tell rows"),
        ("delta", {"merge": {"key": "id", "delete": {"values": "d"}}}, {}, "column is missing; the column that says"),
    ],
)
def test_what_cannot_merge_is_refused_with_a_reason(
    tmp_path: Path, form: str, table: dict[str, Any], more: dict[str, Any], told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        declare("127.0.0.1:9", tmp_path, "t", form, table=table, **more)


def test_columns_of_a_merge_must_be_there(spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path) -> None:
    for merge, told in (
        ({"key": "nr"}, r"merge.key: there is no column 'nr'; there are _topic, .*page"),
        ({"key": "_timestamp", "order_by": "when"}, "merge.order_by: there is no column 'when'"),
    ):
        with pytest.raises(SpecError, match=told):
            started(spark, declare(gateway.bootstrap, tmp_path, topic, "delta", table={"merge": merge}))
