"""One node and one driver for all tests of a module, and a topic for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.e2e.running_node import RunningNode
from tests.e2e.ydb.ydb_node import connected, ydb_node

_numbers = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A running node."""
    with ydb_node(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture(scope="module")
def driver(node: RunningNode) -> Iterator[Any]:
    """The SDK, connected to it."""
    with connected(node) as made:
        yield made


@pytest.fixture
def path(driver: Any) -> str:
    """A topic of two partitions and one consumer for one test."""
    made = f"/local/topic-{next(_numbers)}"
    driver.topic_client.create_topic(made, min_active_partitions=2, consumers=["reader"])
    return made
