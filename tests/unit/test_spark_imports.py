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


def test_spark_finds_the_source_by_the_name_of_a_module() -> None:
    from pyspark.sql.datasource import DataSource

    import pyspark_penstock

    assert issubclass(pyspark_penstock.DefaultSource, DataSource)
    assert pyspark_penstock.DefaultSource.name() == "penstock"
