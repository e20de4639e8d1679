"""A running gateway, and topics on it; a Spark session, and a node in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.running_node import RunningNode, running_node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]

_numbers = count()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A running gateway on an empty broker."""
    with RunningGateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def topic(gateway: RunningGateway) -> str:
    """A topic of two partitions for one test."""
    name = f"topic-{next(_numbers)}"
    gateway.create_topic(name, 2)
    return name


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests, started as a user does on a laptop."""
    from penstock.spark import session

    # Workers import the tests' own sources from here.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
    }
    started = session("penstock-tests", master="local[2]", settings=settings)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """`penstock up`."""
    directory = tmp_path_factory.mktemp("node")
    argv = ["--data-dir", str(directory / "data"), "--schema-registry-port", "0"]
    with running_node(directory / "log", argv) as running:
        yield running
