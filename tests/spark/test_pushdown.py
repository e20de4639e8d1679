"""Filters that are pushed down: a scan plans only what may pass them, and reads every record that does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import confluent_kafka
import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from penstock.spark.ranges import OffsetRange
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.spark.reads import batch_reader, rows_of

HOUR_MS = 3_600_000
START_MS = 1_790_000_000_000
ROWS = 480  # a record every three minutes, for a day, in each of two partitions


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.fixture
def day(gateway: RunningGateway, topic: str) -> str:
    """A topic with a day of records; every 40th comes an hour late."""
    producer = confluent_kafka.Producer({"bootstrap.servers": gateway.bootstrap, "batch.num.messages": 5})
    for number in range(ROWS):
        late = HOUR_MS if number % 40 == 39 else 0
        for partition in (0, 1):
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=START_MS + number * 180_000 - late)
    assert producer.flush(20) == 0
    return topic


def scan(gateway: RunningGateway, topic: str, filters: list[Filter], **options: Any) -> tuple[int, list[int], list[Filter]]:
    """How many offsets a scan with filters reads, the numbers in partition 1 among them, and the filters that Spark keeps."""
    reader = batch_reader(gateway.bootstrap, subscribe=topic, **{"pushFilters": "true", **options})
    left = list(reader.pushFilters(filters))
    partitions = reader.partitions()
    ranges: list[OffsetRange] = [one for partition in partitions for one in partition.value or ()]
    found = [int(row["value"]) for row in rows_of(reader, partitions) if row["partition"] == 1]
    return sum(one.size for one in ranges), found, left


def test_an_hour_of_a_day_reads_about_an_hour(gateway: RunningGateway, day: str) -> None:
    first, stop = START_MS + 10 * HOUR_MS, START_MS + 11 * HOUR_MS
    hour: list[Filter] = [GreaterThanOrEqual(("timestamp",), at(first)), LessThan(("timestamp",), at(stop))]
    wanted = [n for n in range(ROWS) if first <= START_MS + n * 180_000 - (HOUR_MS if n % 40 == 39 else 0) < stop]
    # Timestamps may go back: without a word on how far, only the beginning is known.
    size, found, left = scan(gateway, day, hour)
    assert left == hour
    assert size == 2 * (ROWS - 200)
    assert set(wanted) <= set(found)
    size, found, left = scan(gateway, day, hour, maxTimestampDisorder="1h")
    assert left == hour
    assert set(wanted) <= set(found)
    assert size == 2 * 41  # an hour, and another that records may be late
    later: list[Filter] = [GreaterThan(("timestamp",), at(START_MS + 48 * HOUR_MS))]
    assert scan(gateway, day, later)[0] == 0


def test_partitions_topics_and_offsets_are_chosen_exactly(gateway: RunningGateway, day: str) -> None:
    size, found, left = scan(
        gateway,
        day,
        [
            IsNotNull(("partition",)),
            EqualTo(("partition",), 1),
            GreaterThan(("offset",), 9),
            LessThanOrEqual(("offset",), 19),
            StringStartsWith(("topic",), day),
        ],
    )
    assert (size, found, left) == (10, list(range(10, 20)), [])
    some = In(("offset",), (3, 5))
    assert scan(gateway, day, [some, Not(EqualTo(("partition",), 0))]) == (3, [3, 4, 5], [some])
    assert scan(gateway, day, [EqualTo(("topic",), "another")])[0] == 0
    assert scan(gateway, day, [In(("partition",), (0, 7))])[:2] == (ROWS, [])
    others: list[Filter] = [EqualTo(("value", "id"), 1), EqualTo(("key",), b"x"), Not(IsNotNull(("offset",)))]
    assert scan(gateway, day, others)[0::2] == (2 * ROWS, others)
    assert scan(gateway, day, [GreaterThan(("offset",), 10**9)])[0] == 0


def test_bounds_stay_within_those_of_the_options(gateway: RunningGateway, day: str) -> None:
    offsets = '{"%s":{"0":100,"1":100}}' % day  # noqa: UP031 - braces of JSON
    filters: list[Filter] = [GreaterThanOrEqual(("offset",), 50), LessThan(("offset",), 110)]
    assert scan(gateway, day, filters, startingOffsets=offsets)[:2] == (20, list(range(100, 110)))
    assert scan(gateway, day, filters, endingOffsets=offsets)[:2] == (100, list(range(50, 100)))


def test_filters_are_left_to_spark_unless_the_option_says_that_they_are_those_of_the_only_query(
    gateway: RunningGateway, day: str
) -> None:
    filters: list[Filter] = [EqualTo(("partition",), 1)]
    assert scan(gateway, day, filters, pushFilters="false")[0::2] == (2 * ROWS, filters)


def test_spark_that_does_not_push_filters_down_takes_the_reader_too(gateway: RunningGateway, day: str) -> None:
    reader = batch_reader(gateway.bootstrap, subscribe=day)
    # As Spark decides whether a reader needs the setting.
    assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters
