"""Runs of pipelines against a node of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.running_node import RunningNode
from tests.spark.pipelines.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def runs(node: RunningNode, spark: SparkSession, tmp_path: Path) -> Runs:
    """Runs in a directory that nobody else uses; names of topics and pipelines are shared by all tests."""
    return Runs(node, spark, tmp_path)
