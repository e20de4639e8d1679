"""One node with an HTTP port for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.http.api_client import ApiClient, client_of
from tests.e2e.running_node import RunningNode, running_node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    path = tmp_path_factory.mktemp("http")
    argv = ["--data-dir", str(path / "data"), "--http-port", "0", "--stream-http-port", "0", "--yt-port", "0"]
    with running_node(path / "log", [*argv, "--group-initial-rebalance-delay-ms", "0"]) as running:
        yield running


@pytest.fixture
def api(node: RunningNode) -> ApiClient:
    return client_of(node)
