"""Topics to tables: each record once, offsets in the table's own commit, whatever happens between."""

from __future__ import annotations

import io
import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
import pytest

from penstock.kafka.client import BlockingClient
from penstock.spark.pipelines.errors import BadRowError, ChangedInputError, PipelineFencedError, SpecError
from penstock.spark.pipelines.fence import target_options
from penstock.spark.tables.errors import TableConflictError
from penstock.spark.tables.export import ExportJob
from penstock.spark.tables.table import TableFencedError, table_of
from penstock.spark.tables.table_target import TableTarget
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.spark.pipelines.table_pipelines import (
    CLICKS,
    FORMATS,
    again,
    click,
    declare,
    ids,
    offsets,
    read_table,
    run,
    send,
    started,
)
from tests.spark.reads import produce, read, schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("form", FORMATS)
def test_a_topic_becomes_a_table_and_the_next_run_goes_on_where_it_ended(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path, form: str
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, form, batch={"rows_max": 60})
    send(gateway.bootstrap, topic, range(100))
    done = run(spark, spec)
    assert len(done) > 1
    assert sum(one.rows_written for one in done) == 100
    send(gateway.bootstrap, topic, range(100, 150))
    assert sum(one.rows_written for one in run(spark, again(spec))) == 50
    assert run(spark, again(spec)) == []
    assert ids(form, tmp_path / "lake") == list(range(150))
    assert offsets(form, tmp_path / "lake") == {0: list(range(75)), 1: list(range(75))}


def test_a_table_is_cut_by_time_and_column_and_spark_reads_it(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    table = {"partition_by": ["day(_timestamp)", "page"], "metadata": ["partition", "offset", "timestamp"]}
    send(gateway.bootstrap, topic, range(40))
    run(spark, declare(gateway.bootstrap, tmp_path, topic, "parquet", table=table))
    rows = spark.read.parquet(str(tmp_path / "lake"))
    assert sorted(row["id"] for row in rows.collect()) == list(range(40))
    assert set(rows.columns) == {"id", "_partition", "_offset", "_timestamp", "timestamp_day", "page"}
    assert {row["page"] for row in rows.select("page").distinct().collect()} == {f"/page/{number}" for number in range(7)}


def test_raw_values_stay_bytes_and_tombstones_stay_rows(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    source = {"topics": [topic], "headers": True}
    produce(gateway.bootstrap, topic, [b"\x00\xff", None, b""])
    run(spark, declare(gateway.bootstrap, tmp_path, topic, "delta", source=source))
    found = read_table("delta", tmp_path / "lake").sort_by("_offset")
    assert found["value"].to_pylist() == [b"\x00\xff", None, b""]
    assert "_headers" in found.schema.names


@pytest.mark.parametrize("where", ["topic", "table"])
def test_dead_letters_are_there_once_also_when_the_commit_after_them_fails(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path, *, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = {"topic": f"{topic}-dead"} if where == "topic" else {"table": {"format": "delta", "location": "dead"}}
    spec = declare(gateway.bootstrap, tmp_path, topic, "delta", dead_letters=letters)
    send(gateway.bootstrap, topic, range(20))
    produce(gateway.bootstrap, topic, [b"{not json", b'{"id": "x"}'])
    with monkeypatch.context() as dying:
        dying.setattr(TableTarget, "commit", _die)
        with pytest.raises(ConnectionError, match="cut"):
            run(spark, spec)
    # The batch after the failure is another one: it reaches further.
    send(gateway.bootstrap, topic, range(20, 30))
    produce(gateway.bootstrap, topic, [b"[]"])
    done = run(spark, again(spec))
    assert sum(one.dead_letters for one in done) == 1
    assert sum(one.rows_written for one in done) == 30
    assert ids("delta", tmp_path / "lake") == list(range(30))
    if where == "topic":
        found = read(gateway.bootstrap, schema("value", "headers"), subscribe=f"{topic}-dead", includeHeaders="true")
        assert sorted(row["value"] for row in found) == [b"[]", b'{"id": "x"}', b"{not json"]
        told = {pair["key"]: pair["value"] for pair in found[0]["headers"]}
        assert told["penstock.topic"] == topic.encode()
    else:
        rows = read_table("delta", tmp_path / "dead").sort_by("offset")
        assert rows["value"].to_pylist() == [b"{not json", b'{"id": "x"}', b"[]"]
        assert "JSON" in rows["reason"][0].as_py()


def _die(*_given: object, **_named: object) -> None:
    raise ConnectionError("cut off before the commit")


def test_a_bad_row_stops_a_pipeline_that_asked_for_it(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, "parquet", dead_letters="stop")
    produce(gateway.bootstrap, topic, [click(0), b"nonsense"])
    with pytest.raises(BadRowError, match=f"offset 1 of {topic}-0"):
        run(spark, spec)
    assert not list((tmp_path / "lake").glob("*.parquet"))


def test_a_second_copy_fences_the_first(spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, "iceberg")
    send(gateway.bootstrap, topic, range(10))
    first = started(spark, spec)
    second = started(spark, again(spec))
    with pytest.raises(PipelineFencedError, match="another copy of pipeline"):
        first.step()
    assert second.step() is not None
    first.close()
    second.close()
    assert ids("iceberg", tmp_path / "lake") == list(range(10))


def test_who_takes_over_goes_on_after_a_last_commit_of_the_one_before(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, "delta")
    send(gateway.bootstrap, topic, range(10))
    first, second = started(spark, spec), started(spark, again(spec))
    assert isinstance(first, ExportJob)
    first.target.fence.check = lambda: None  # type: ignore[method-assign] # it has looked before the other came
    assert first.step() is not None
    with pytest.raises(TableConflictError) as told:
        second.step()
    assert told.value.retriable
    assert told.value.__context__ is None  # nothing of being fenced, which would end the run
    first.close()
    second.close()
    assert run(spark, again(spec)) == []
    assert ids("delta", tmp_path / "lake") == list(range(10))


@pytest.mark.parametrize("form", FORMATS)
def test_without_the_record_in_the_broker_the_table_alone_fences_and_tells_where_to_go_on(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path, *, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BlockingClient, "commits_together", lambda self: False)
    spec = declare(gateway.bootstrap, tmp_path, topic, form, dead_letters="stop")
    send(gateway.bootstrap, topic, range(10))
    first = started(spark, spec)
    second = started(spark, again(spec))
    assert first.step() is not None
    with pytest.raises(TableFencedError, match="another copy of pipeline"):
        second.step()
    first.close()
    second.close()
    assert run(spark, again(spec)) == []
    assert ids(form, tmp_path / "lake") == list(range(10))


def test_a_lost_record_doubles_nothing(spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, "delta")
    send(gateway.bootstrap, topic, range(10))
    run(spark, spec)
    with closing(BlockingClient(target_options(spec).client)) as cluster:
        key = f"pipeline/{spec.name}"
        cluster.commit_together([], (key, b""), cluster.record(key))
    send(gateway.bootstrap, topic, range(10, 20))
    run(spark, again(spec))
    assert ids("delta", tmp_path / "lake") == list(range(20))


def test_new_columns_of_the_schema_are_new_columns_of_the_table(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, "iceberg")
    send(gateway.bootstrap, topic, range(10))
    run(spark, spec)
    produce(gateway.bootstrap, topic, [b'{"id": 10, "page": "x", "price": 2.5}'])
    source = {"topics": [topic], "value": {"format": "json", "schema": f"{CLICKS}, price DOUBLE"}}
    run(spark, declare(gateway.bootstrap, tmp_path, topic, "iceberg", source=source))
    found = read_table("iceberg", tmp_path / "lake").sort_by("id")
    assert found["price"].to_pylist() == [None] * 10 + [2.5]


def test_a_table_of_another_schema_is_an_error_before_anything_runs(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    send(gateway.bootstrap, topic, range(10))
    run(spark, declare(gateway.bootstrap, tmp_path, topic, "delta"))
    source = {"topics": [topic], "value": {"format": "json", "schema": "id STRING"}}
    with pytest.raises(SpecError, match=r"pipeline\.yml:1: target\.table: column 'id' .* is int64, the pipeline writes string"):
        run(spark, declare(gateway.bootstrap, tmp_path, topic, "delta", source=source))


def test_a_topic_that_was_made_again_is_an_error_before_anything_runs(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, "parquet")
    send(gateway.bootstrap, topic, range(10))
    run(spark, spec)
    gateway.run(gateway.broker.delete_topic(topic))
    gateway.create_topic(topic, 2)
    with pytest.raises(ChangedInputError, match="deleted and created again"):
        run(spark, again(spec))
    assert ids("parquet", tmp_path / "lake") == list(range(10))


def test_a_query_changes_the_rows_on_their_way(spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path) -> None:
    sql = "SELECT page, id * 2 AS id, `offset` AS _offset, `partition` AS _partition FROM source WHERE id % 5 <> 0"
    spec = declare(gateway.bootstrap, tmp_path, topic, "delta", transform={"sql": sql}, batch={"rows_max": 15})
    send(gateway.bootstrap, topic, range(20))
    produce(gateway.bootstrap, topic, [b"bad"])
    done = run(spark, spec)
    assert sum(one.dead_letters for one in done) == 1
    assert ids("delta", tmp_path / "lake") == [2 * number for number in range(20) if number % 5]


@pytest.mark.parametrize("form", FORMATS)
def test_small_files_are_compacted_and_old_ones_removed(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path, form: str
) -> None:
    table = {"compact": {"every": "1ms", "file_bytes": "1MiB"}, "vacuum": {"after": "1ms"}, "partition_by": ["page"]}
    spec = declare(gateway.bootstrap, tmp_path, topic, form, table=table, batch={"rows_max": 25})
    send(gateway.bootstrap, topic, range(49))
    run(spark, spec)
    assert ids(form, tmp_path / "lake") == list(range(49))
    assert spec.target.table is not None
    found = table_of(spec, spec.target.table)
    found.refresh()
    assert len(found.data_files()) == 7
    assert run(spark, again(spec)) == []


def test_avro_values_become_columns(spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "page", "type": ["null", "string"]}]
    written = {"type": "record", "name": "Click", "fields": fields}
    messages: list[bytes | None] = []
    for number in range(20):
        text = io.BytesIO()
        fastavro.schemaless_writer(text, written, {"id": number, "page": f"/{number}" if number % 2 else None})
        messages.append(text.getvalue())
    produce(gateway.bootstrap, topic, [*messages, b"\x01"])
    source = {"topics": [topic], "value": {"format": "avro", "schema": json.dumps(written)}}
    done = run(spark, declare(gateway.bootstrap, tmp_path, topic, "parquet", source=source))
    assert [(one.rows_written, one.dead_letters) for one in done] == [(20, 1)]
    found = read_table("parquet", tmp_path / "lake").sort_by("id")
    assert found["page"].to_pylist() == [f"/{number}" if number % 2 else None for number in range(20)]


@pytest.mark.parametrize("form", FORMATS)
def test_tables_in_an_s3_store_are_written_by_tasks(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path, *, form: str, s3: dict[str, str]
) -> None:
    table: dict[str, object] = {"location": f"s3://payloads/{topic}/{form}", "partition_by": ["page"]}
    if form == "iceberg":
        table["catalog"] = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    spec = declare(gateway.bootstrap, tmp_path, topic, form, table=table, options=s3)
    send(gateway.bootstrap, topic, range(30))
    run(spark, spec)
    send(gateway.bootstrap, topic, range(30, 40))
    run(spark, again(spec))
    assert spec.target.table is not None
    found = table_of(spec, spec.target.table)
    found.refresh()
    reader = found.reader()
    read_back = [number for file in found.data_files() for batch in reader.read(file) for number in batch["id"].to_pylist()]
    assert sorted(read_back) == list(range(40))
