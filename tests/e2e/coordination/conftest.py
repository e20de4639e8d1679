"""One etcd for all tests of a worker, and each kind of store in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.coordination.etcd_process import EtcdCluster, running_etcd
from tests.e2e.coordination.stores import AloneStore, EtcdStoreUnderTest, ModelStore, ServedStore, StoreUnderTest


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """An etcd of one member."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture(params=["alone", "socket", "model", "etcd"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StoreUnderTest:
    """An empty store of each kind."""
    match request.param:
        case "alone":
            return AloneStore()
        case "socket":
            return ServedStore(tmp_path)
        case "model":
            return ModelStore()
    return EtcdStoreUnderTest(request.getfixturevalue("etcd"))
