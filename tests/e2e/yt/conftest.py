"""One cluster for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.yt.yt_clusters import YtClusters, yt_clusters


@pytest.fixture(scope="module")
def pythia(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YtClusters]:
    with yt_clusters(tmp_path_factory.mktemp("yt"), "pythia") as clusters:
        yield clusters
