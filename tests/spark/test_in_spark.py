"""The source inside Spark: one local session for all tests, a real broker in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException

from penstock.spark import catalog, register
from tests.e2e.running_node import RunningNode
from tests.spark.reads import produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

TEN: list[bytes | None] = [b"value %d" % number for number in range(10)]

_numbers = count()


@pytest.fixture
def topic(node: RunningNode) -> str:
    """A topic of two partitions with ten messages in each."""
    name = f"in-spark-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
    for partition in range(2):
        produce(node.bootstrap, name, TEN, partition=partition)
    return name


def batch(spark: SparkSession, node: RunningNode, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", node.bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def run(spark: SparkSession, node: RunningNode, topic: str, directory: Path, **options: str) -> list[int]:
    """Read what is new to files; the rows of each micro-batch."""
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", node.bootstrap).option("subscribe", topic)
    rows = reader.option("startingOffsets", "earliest").options(**options).load()
    writer = rows.writeStream.format("parquet").option("path", str(directory / "rows"))
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def places(rows: DataFrame) -> list[tuple[int, int, bytes]]:
    return sorted((row["partition"], row["offset"], bytes(row["value"])) for row in rows.collect())


EXPECTED: list[tuple[int, int, Any]] = [(partition, offset, TEN[offset]) for partition in range(2) for offset in range(10)]


def test_a_batch_read_needs_no_more_than_the_word_kafka_changed(spark: SparkSession, node: RunningNode, topic: str) -> None:
    rows = batch(spark, node, topic, includeHeaders="true")
    assert [(field.name, field.dataType.simpleString()) for field in rows.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    assert places(rows) == EXPECTED
    # The same rows twice, under different conditions.
    first, second = rows.where("offset < 3"), rows.where("CAST(value AS STRING) = 'value 7' and partition = 1")
    assert first.union(second).count() == 7


def test_topics_are_views_and_filters_are_pushed_down(spark: SparkSession, node: RunningNode, topic: str) -> None:
    assert catalog(spark, node.bootstrap, pattern=topic, options={"pushFilters": "true"}) == {
        f"global_temp.{topic.replace('-', '_')}": topic
    }
    rows = spark.sql(f"SELECT offset FROM global_temp.{topic.replace('-', '_')} WHERE partition = 1 AND offset < 3")
    plan = rows._jdf.queryExecution().optimizedPlan().toString()
    assert "Filter" not in plan
    assert sorted(row["offset"] for row in rows.collect()) == [0, 1, 2]


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    spark.sql(f"CREATE DATABASE penstock LOCATION '{tmp_path}'")
    yield "penstock"
    spark.sql("DROP DATABASE penstock CASCADE")


def test_topics_are_tables_that_every_query_reads_again(
    spark: SparkSession, node: RunningNode, topic: str, database: str, tmp_path: Path
) -> None:
    name = topic.replace("-", "_")
    for _ in range(2):
        assert catalog(spark, node.bootstrap, database=database, pattern=topic) == {f"penstock.{name}": topic}
    assert [row["tableName"] for row in spark.sql("SHOW TABLES IN penstock").collect()] == [name]
    assert places(spark.table(f"penstock.{name}")) == EXPECTED
    produce(node.bootstrap, topic, [b"one more"])
    last = 'SELECT max(offset) FROM penstock.{} WITH (`startingOffsets` = \'{{"{}": {{"0": 4, "1": 9}}}}\')'
    assert spark.sql(last.format(name, topic)).first() == (10,)
    reader = spark.readStream.option("startingOffsets", "earliest").table(f"penstock.{name}")
    writer = reader.writeStream.format("memory").queryName("streamed").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert spark.table("streamed").count() == 21


def test_a_table_keeps_the_options_that_it_was_created_with(
    spark: SparkSession, node: RunningNode, topic: str, database: str
) -> None:
    produce(node.bootstrap, topic, [b'{"id": 7}'])
    create = (
        "CREATE TABLE penstock.decoded USING penstock OPTIONS (`kafka.bootstrap.servers` '{}', subscribe '{}', "
        "valueFormat 'json', valueSchema 'id BIGINT', columns 'value,offset'{})"
    )
    with pytest.raises(PySparkException, match=r"a table would show kafka\.sasl\.password"):
        spark.sql(create.format(node.bootstrap, topic, ", `kafka.sasl.password` 'secret'"))
    spark.sql(create.format(node.bootstrap, topic, ""))
    assert spark.sql("SELECT value.id, offset FROM penstock.decoded WHERE value IS NOT NULL").collect() == [(7, 10)]
    with pytest.raises(PySparkException, match=r"a table of a topic can only be read"):
        spark.sql("INSERT INTO penstock.decoded SELECT named_struct('id', 1L), 0L")


def test_values_are_columns_by_option_alone(spark: SparkSession, node: RunningNode, topic: str) -> None:
    produce(node.bootstrap, topic, [b'{"id": 7, "tags": ["a", "b"]}', b"no json"])
    options = {"valueFormat": "json", "valueSchema": "id BIGINT, tags ARRAY<STRING>", "columns": "value,offset"}
    rows = batch(spark, node, topic, **options).where("offset >= 10")
    assert [row.asDict(recursive=True) for row in rows.orderBy("offset").collect()] == [
        {"value": {"id": 7, "tags": ["a", "b"]}, "offset": 10},
        {"value": None, "offset": 11},
    ]


def test_a_query_that_is_registered_by_hand_reads_too(spark: SparkSession, node: RunningNode, topic: str) -> None:
    register(spark)
    view = batch(spark, node, topic, minPartitions="4")
    view.createOrReplaceTempView("topic_view")
    assert spark.sql("SELECT count(*), max(offset) FROM topic_view").collect()[0][:] == (20, 9)


def test_available_now_in_batches_then_a_restart_gives_each_row_once(
    spark: SparkSession, node: RunningNode, topic: str, tmp_path: Path
) -> None:
    assert run(spark, node, topic, tmp_path, maxOffsetsPerTrigger="8", consumer="files") == [8, 8, 4]
    produce(node.bootstrap, topic, [b"new"], partition=1)
    assert run(spark, node, topic, tmp_path, maxOffsetsPerTrigger="8", consumer="files") == [1]
    assert places(spark.read.parquet(str(tmp_path / "rows"))) == [*EXPECTED, (1, 10, b"new")]


def test_mistakes_are_told_in_words(spark: SparkSession, node: RunningNode, topic: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"there is no option startingoffset; did you mean startingOffsets\?"):
        batch(spark, node, topic, startingOffset="earliest")
    with pytest.raises(Exception, match="there is no such topic"):
        batch(spark, node, "no-such-topic").count()
    nowhere = batch(spark, node, topic, **{"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "300"})
    with pytest.raises(Exception, match=r"cannot connect to 127\.0\.0\.1:1"):
        nowhere.count()
    run(spark, node, topic, tmp_path)
    other = f"in-spark-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(other, 1, 1)])[other].result(20)
    with pytest.raises(Exception, match=f"the checkpoint belongs to a query on {topic}, this one reads {other}"):
        run(spark, node, other, tmp_path)


def test_avro_with_arrays_maps_and_decimals_is_read(spark: SparkSession, node: RunningNode, topic: str) -> None:
    fields = [
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "marks", "type": ["null", {"type": "array", "items": ["null", "int"]}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    written = BytesIO()
    fastavro.schemaless_writer(written, schema, {"tags": {"a": 7}, "marks": [1, None], "price": Decimal("1.25")})
    produce(node.bootstrap, topic, [written.getvalue()], partition=0)
    rows = batch(spark, node, topic, valueFormat="avro", valueSchema=json.dumps(schema)).where("partition = 0").select("value.*")
    *malformed, row = rows.collect()
    assert all(one.tags is None for one in malformed)
    assert row.asDict() == {"tags": {"a": 7}, "marks": [1, None], "price": Decimal("1.25")}


def test_workers_are_forked_with_everything_imported(spark: SparkSession) -> None:
    def seen(batches: Any) -> Any:
        import gc
        import sys

        import pyarrow

        for _ in batches:
            loaded = "penstock.spark.range_read" in sys.modules
            yield pyarrow.RecordBatch.from_pydict({"loaded": [loaded], "frozen": [gc.get_freeze_count()]})

    (row,) = spark.range(1).mapInArrow(seen, "loaded BOOLEAN, frozen BIGINT").collect()
    assert row["loaded"]
    assert row["frozen"] > 10_000


def test_errors_are_one_sentence_without_a_stack(spark: SparkSession, node: RunningNode) -> None:
    def told(**options: str) -> str:
        reader = spark.read.format("penstock").option("kafka.bootstrap.servers", node.bootstrap).options(**options)
        with pytest.raises(PySparkException) as failed:
            reader.load().collect()
        return str(failed.value)

    unknown = told(subscribe="t", startingOffset="earliest")
    assert unknown.splitlines()[0].endswith("there is no option startingoffset; did you mean startingOffsets?"), unknown
    missing = told(subscribe="no-such-topic")
    assert "topic 'no-such-topic': UNKNOWN_TOPIC_OR_PARTITION; there is no such topic" in missing.splitlines()[0], missing
    assert "Traceback" not in unknown + missing
