"""A running gateway, and topics on it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.e2e.kafka.running_gateway import RunningGateway

_numbers = count()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A running gateway on an empty broker."""
    with RunningGateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def topic(gateway: RunningGateway) -> str:
    """A topic of two partitions that nobody else uses."""
    name = f"topic-{next(_numbers)}"
    gateway.create_topic(name, 2)
    return name
