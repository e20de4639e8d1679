"""Runs of pipelines against a node of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.debian_tools import NotAvailableError
from tests.e2e.running_node import RunningNode
from tests.s3_server import running_s3
from tests.spark.pipelines.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def runs(node: RunningNode, spark: SparkSession, tmp_path: Path) -> Runs:
    """Runs in a directory of its own; names of topics and pipelines are shared by all tests."""
    return Runs(node, spark, tmp_path)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An S3 server that answers ranged reads and conditional writes."""
    try:
        with running_s3(tmp_path_factory.mktemp("s3")) as variables:
            yield variables
    except NotAvailableError as error:
        pytest.skip(str(error))
