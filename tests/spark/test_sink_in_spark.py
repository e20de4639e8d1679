"""The sink inside Spark: batches all or nothing, streams each row once, also when something dies on the way."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tests.e2e.running_node import RunningNode
from tests.spark.crashing import POINTS, CrashingDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.slow

ROWS = 600

_numbers = count()


@pytest.fixture
def topics(node: RunningNode) -> tuple[str, str]:
    """A topic of numbered messages, and an empty one."""
    number = next(_numbers)
    source, target = f"source-{number}", f"target-{number}"
    node.ok("topic", "create", source, target, "--partitions", "3")
    lines = "".join(f"{row}\t{row}\n" for row in range(ROWS))
    node.ok("produce", source, "--key-separator", "\t", stdin=lines.encode())
    return source, target


def _read(spark: SparkSession, node: RunningNode, topic: str) -> DataFrame:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", node.bootstrap).option("subscribe", topic)
    return reader.option("kafka.isolation.level", "read_committed").load()


def _values(spark: SparkSession, node: RunningNode, topic: str) -> list[int]:
    return sorted(int(row["value"]) for row in _read(spark, node, topic).select("value").collect())


def _copy(spark: SparkSession, node: RunningNode, topics: tuple[str, str], sink: str = "penstock") -> DataStreamWriter:
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", node.bootstrap).option("subscribe", topics[0])
    rows = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 400).load()
    writer = rows.select("key", "value").writeStream.format(sink).option("kafka.bootstrap.servers", node.bootstrap)
    return writer.option("topic", topics[1]).trigger(availableNow=True)


def _run(writer: DataStreamWriter, checkpoint: Path) -> StreamingQuery:
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination(100)
    return query


def test_a_frame_is_written_and_read_back(spark: SparkSession, node: RunningNode, topics: tuple[str, str]) -> None:
    frame = spark.range(5).selectExpr(
        "cast(id as string) as key",
        "concat('value ', id) as value",
        "array(struct('h' as key, cast('x' as binary) as value)) as headers",
    )
    frame.write.format("penstock").option("kafka.bootstrap.servers", node.bootstrap).option("topic", topics[1]).mode(
        "append"
    ).save()
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", node.bootstrap).option("subscribe", topics[1])
    found = reader.option("includeHeaders", True).load().orderBy("key").collect()
    assert [(bytes(row["key"]), bytes(row["value"])) for row in found] == [
        (b"%d" % number, b"value %d" % number) for number in range(5)
    ]
    assert all([(one["key"], bytes(one["value"])) for one in row["headers"]] == [("h", b"x")] for row in found)


def test_a_frame_that_fails_half_way_leaves_nothing_to_be_seen(
    spark: SparkSession, node: RunningNode, topics: tuple[str, str]
) -> None:
    frame = spark.range(0, 1000, numPartitions=4).selectExpr("if(id = 999, raise_error('no'), cast(id as string)) as value")
    writer = frame.write.format("penstock").option("kafka.bootstrap.servers", node.bootstrap).option("topic", topics[1])
    with pytest.raises(PySparkException):
        writer.mode("append").save()
    assert _values(spark, node, topics[1]) == []


def test_a_stream_copies_each_row_once_over_restarts(
    spark: SparkSession, node: RunningNode, topics: tuple[str, str], tmp_path: Path
) -> None:
    _run(_copy(spark, node, topics), tmp_path / "checkpoint")
    assert _values(spark, node, topics[1]) == list(range(ROWS))
    node.ok("produce", topics[0], stdin=b"600\n601\n")
    _run(_copy(spark, node, topics), tmp_path / "checkpoint")
    assert _values(spark, node, topics[1]) == list(range(ROWS + 2))


@pytest.mark.parametrize("point", POINTS)
def test_each_row_is_there_once_wherever_a_process_dies(
    spark: SparkSession, node: RunningNode, topics: tuple[str, str], tmp_path: Path, point: str
) -> None:
    spark.dataSource.register(CrashingDataSource)
    crashing = (
        _copy(spark, node, topics, "penstock_crashing").option("crashat", point).option("crashed", str(tmp_path / "crashed"))
    )
    with pytest.raises(PySparkException):
        _run(crashing, tmp_path / "checkpoint")
    assert (tmp_path / "crashed").exists()
    _run(_copy(spark, node, topics), tmp_path / "checkpoint")
    assert _values(spark, node, topics[1]) == list(range(ROWS))


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (["cast(id as string) as value"], {}, "say which topic to write to"),
        (["id"], {"topic": "t"}, "value is missing|id is none of them"),
        (["cast(id as string) as value"], {"topic": "t", "kafka.acks": "0"}, "kafka.acks is '0'"),
        (["cast(id as string) as value"], {"topik": "t"}, "did you mean topic"),
    ],
)
def test_a_write_that_makes_no_sense_is_told_before_it_begins(
    spark: SparkSession, node: RunningNode, columns: list[str], options: dict[str, Any], words: str
) -> None:
    writer = spark.range(1).selectExpr(*columns).write.format("penstock").option("kafka.bootstrap.servers", node.bootstrap)
    with pytest.raises(PySparkException, match=words):
        writer.options(**options).mode("append").save()
