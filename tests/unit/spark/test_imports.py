"""The core without Spark: nothing of it is loaded unless asked for, and tasks load no broker."""

from __future__ import annotations

import subprocess
import sys

import pytest


def modules_after(statement: str) -> set[str]:
    """What a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("module", ["penstock.cli.main", "penstock.server", "penstock.gateway.kafka.gateway", "penstock.spark"])
def test_the_core_loads_neither_spark_nor_arrow(module: str) -> None:
    assert not modules_after(f"import {module}") & {"pyspark", "pyarrow", "py4j"}


def test_a_task_loads_no_broker() -> None:
    loaded = modules_after("import penstock.spark.range_read")
    assert not {name for name in loaded if name.startswith(("penstock.broker", "penstock.blob", "penstock.queue", "asyncio"))}


def test_the_columns_of_a_task_are_made_without_pandas() -> None:
    loaded = modules_after(
        """
import pyarrow as pa
from penstock.spark.arrow_batches import ArrowBatchFactory
from penstock.kafka.client import TopicPartition
from penstock.spark.columns import Layout
maker = ArrowBatchFactory(Layout(pa.schema([])), TopicPartition("a topic", 7), None)
assert maker.constant("topic", 3).to_pylist() == maker.constant("topic", 5).to_pylist()[:3] == ["a topic"] * 3
assert maker.constant("partition", 2).to_pylist() == [7, 7]
"""
    )
    assert "pandas" not in loaded


def test_spark_finds_the_source_by_the_name_of_a_module() -> None:
    from pyspark.sql.datasource import DataSource

    import pyspark_penstock

    assert issubclass(pyspark_penstock.DefaultSource, DataSource)
    assert pyspark_penstock.DefaultSource.name() == "penstock"
