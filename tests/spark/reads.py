"""Reads as Spark makes them, without Spark: the source is asked for partitions, and each is read on a copy that was pickled."""

from __future__ import annotations

import pickle
from typing import Any

import confluent_kafka
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark import PenstockDataSource
from penstock.spark.options import COLUMNS
from penstock.spark.source import PenstockReader, PenstockStreamReader

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}

Row = dict[str, Any]


def schema(*columns: str, value: DataType | None = None) -> StructType:
    """Some columns, or all but the headers."""
    types = {**TYPES, **({"value": value} if value is not None else {})}
    return StructType([StructField(name, types[name]) for name in columns or COLUMNS[:-1]])


def read(bootstrap: str, columns: StructType | None = None, **options: Any) -> list[Row]:
    """A batch read; rows by partition and offset."""
    reader = batch_reader(bootstrap, columns, **options)
    return rows_of(reader, reader.partitions())


def batch_reader(bootstrap: str, columns: StructType | None = None, **options: Any) -> PenstockReader:
    """What plans and makes a batch read."""
    reader = source(bootstrap, **options).reader(columns or schema())
    assert isinstance(reader, PenstockReader)
    return reader


def stream_reader(bootstrap: str, columns: StructType | None = None, **options: Any) -> PenstockStreamReader:
    """What plans and makes the micro-batches of a stream."""
    reader = source(bootstrap, **options).streamReader(columns or schema())
    assert isinstance(reader, PenstockStreamReader)
    return reader


def source(bootstrap: str, **options: object) -> PenstockDataSource:
    """The source with options, whose names have `_` where Kafka has dots."""
    given = {name.replace("_", "."): str(value) for name, value in options.items()}
    return PenstockDataSource({"kafka.bootstrap.servers": bootstrap, **given})


def rows_of(reader: PenstockReader | PenstockStreamReader, partitions: list[InputPartition]) -> list[Row]:
    """What tasks make of partitions, each on a copy of the reader."""
    batches: list[pa.RecordBatch] = []
    for partition in partitions:
        copy, part = pickle.loads(pickle.dumps((reader, partition)))
        batches += copy.read(part)
    for batch in batches:
        batch.validate(full=True)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row.get("topic", ""), row.get("partition", 0), row.get("offset", 0)))


def values(rows: list[Row]) -> list[Any]:
    """Just the values."""
    return [row["value"] for row in rows]


def produce(bootstrap: str, topic: str, messages: list[bytes | None], *, partition: int = 0, **settings: object) -> None:
    """Write values to one partition, all acknowledged."""
    failures: list[object] = []
    settings = {name.replace("_", "."): value for name, value in settings.items()}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **settings})
    for message in messages:
        producer.produce(
            topic, message, partition=partition, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(20) == 0
    assert failures == []
