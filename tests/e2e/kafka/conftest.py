"""A gateway for all tests of a module, a connection and a topic for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import RunningGateway

_numbers = count()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A running gateway on an empty broker."""
    with RunningGateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[RawClient]:
    """A raw connection to the gateway."""
    with RawClient(gateway.port) as connected:
        yield connected


@pytest.fixture
def topic(gateway: RunningGateway) -> str:
    """A topic of one partition for one test."""
    name = f"topic-{next(_numbers)}"
    gateway.create_topic(name)
    return name
