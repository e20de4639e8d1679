"""One cluster for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.yt.queue_objects import Make, Objects
from tests.e2e.yt.yt_clusters import YtClusters, yt_clusters


@pytest.fixture(scope="module")
def pythia(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YtClusters]:
    with yt_clusters(tmp_path_factory.mktemp("yt"), "pythia") as clusters:
        yield clusters


@pytest.fixture(scope="module")
def client(pythia: YtClusters) -> Any:
    return pythia.client("pythia")


@pytest.fixture
def make(client: Any, request: pytest.FixtureRequest) -> Make:
    return lambda **options: Objects(client, request.node.name, **options)
