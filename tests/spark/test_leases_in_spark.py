"""Leases inside Spark: a query that is slower than retention reads every row that it has planned to read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.broker import BrokerOptions, TopicConfig
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.spark.reads import produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

ROWS: list[bytes | None] = [b"%06d" % number + bytes(1000) for number in range(9000)]
TASKS = 8  # of which two run at a time
WAIT_S = 60


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway whose retention looks often, and a topic with more rows than fit in memory alone."""
    with RunningGateway(tmp_path / "data", broker_options=BrokerOptions(retention_interval_s=0.05)) as running:
        for name in ("t", "witness"):
            running.create_topic(name)
            produce(running.bootstrap, name, ROWS)
        yield running


def slowly(begun: Path, may_go_on: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for tasks that tells when the first has rows, and keeps all of them waiting."""

    def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            begun.touch()
            while not may_go_on.exists():
                time.sleep(0.05)
            yield batch

    return passing


def expire(gateway: RunningGateway, begun: Path) -> None:
    """When the first tasks have begun, let retention take whatever it can."""
    deadline = time.monotonic() + WAIT_S
    while not begun.exists():
        assert time.monotonic() < deadline, "no task began"
        time.sleep(0.05)
    for name in ("witness", "t"):
        gateway.run(gateway.broker.configure_topic(name, TopicConfig({"retention.ms": "1"})))
    while gateway.broker.partition(gateway.broker.catalog.topic("witness"), 0).start_offset < len(ROWS):
        assert time.monotonic() < deadline, "retention took nothing"
        time.sleep(0.05)
    gateway.run(gateway.broker._retention.once())


def run_slowly(gateway: RunningGateway, tmp_path: Path, query: Callable[[Path, Path], int]) -> int:
    """Run a query, and retention while its tasks are kept waiting."""
    begun, may_go_on = tmp_path / "begun", tmp_path / "may-go-on"
    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(query, begun, may_go_on)
        try:
            expire(gateway, begun)
        finally:
            may_go_on.touch()
        return running.result(WAIT_S)


@pytest.mark.parametrize("lease", ["true", "false"])
def test_a_batch_read_that_is_slower_than_retention(
    spark: SparkSession, gateway: RunningGateway, tmp_path: Path, lease: str
) -> None:
    def query(begun: Path, may_go_on: Path) -> int:
        options = {"subscribe": "t", "columns": "value", "minPartitions": str(TASKS), "failOnDataLoss": "false", "lease": lease}
        rows: DataFrame = spark.read.format("penstock").option("bootstrap.servers", gateway.bootstrap).options(**options).load()
        return rows.mapInArrow(slowly(begun, may_go_on), "value binary").count()

    found = run_slowly(gateway, tmp_path, query)
    if lease == "true":
        assert found == len(ROWS)
    else:
        assert found < len(ROWS)  # else the test above would show nothing


def test_a_stream_that_is_slower_than_retention(spark: SparkSession, gateway: RunningGateway, tmp_path: Path) -> None:
    counted: list[int] = []

    def query(begun: Path, may_go_on: Path) -> int:
        options = {"subscribe": "t", "columns": "value", "minPartitions": str(TASKS), "startingOffsets": "earliest"}
        source = spark.readStream.format("penstock").option("bootstrap.servers", gateway.bootstrap).options(**options)
        rows = source.option("maxOffsetsPerTrigger", len(ROWS) // 2).load()
        slow = rows.mapInArrow(slowly(begun, may_go_on), "value binary")
        writer = slow.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        running = writer.trigger(availableNow=True).start()
        running.awaitTermination(WAIT_S)
        counted.extend(progress["numInputRows"] for progress in running.recentProgress)
        return sum(counted)

    assert run_slowly(gateway, tmp_path, query) == len(ROWS)
    assert len([count for count in counted if count]) == 2  # also what was not planned yet when it began
