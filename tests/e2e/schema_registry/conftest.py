"""One node with a schema registry, and listeners of all protocols, for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.running_node import RunningNode, running_node


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    path = tmp_path_factory.mktemp("schemas")
    ports = ["--http-port", "0", "--schema-registry-port", "0", "--yt-port", "0", "--ydb-port", "0"]
    with running_node(path / "log", ["--data-dir", str(path / "data"), *ports]) as running:
        yield running


@pytest.fixture
def url(node: RunningNode) -> str:
    """The registry at its own port."""
    return f"http://127.0.0.1:{node.ready['listeners']['schema_registry']['port']}"


@pytest.fixture
def http_url(node: RunningNode) -> str:
    """The registry at the HTTP listener."""
    return f"http://127.0.0.1:{node.ready['listeners']['http']['port']}/schema-registry"
