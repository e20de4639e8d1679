"""Runs confluent-kafka's integration tests against a broker that is already there.

The suite does that by itself when BROKERS is set, but imports the tool it would start a cluster with all the same.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

import pytest
from penstock_outcomes import choose, fixtures_of, pytest_runtest_logstart, pytest_runtest_makereport

__all__ = ["pytest_collection_modifyitems", "pytest_runtest_logstart", "pytest_runtest_makereport"]

# Share groups are a protocol of their own. A schema registry is not a broker: its tests are a suite by themselves.
_REGISTRY = "schema_registry"
_OTHER_SUBJECTS = frozenset({"share_consumer", "share_consumer_oauth", "share_consumer_sasl", _REGISTRY})


class KafkaCluster:
    """What the suite would start a cluster with."""

    def __init__(self, *_: object, **__: object) -> None:
        raise RuntimeError("this run brings its own broker: BROKERS must be set")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Broker tests use the suite's cluster."""
    _add_asynchronous_registry()
    others = _OTHER_SUBJECTS - {os.environ.get("COMPAT_SUBJECT")}
    choose(config, items, lambda item: "kafka_cluster" in fixtures_of(item) and not others & set(item.path.parts))


def _add_asynchronous_registry() -> None:
    """The suite's fixture for a broker that is already there has a client of its registry, and not the asynchronous one that the
    fixture of its own cluster has too."""
    from confluent_kafka.schema_registry._async.schema_registry_client import AsyncSchemaRegistryClient
    from tests.integration.cluster_fixture import ByoFixture  # type: ignore[import-untyped]  # of the suite, not ours

    def async_schema_registry(fixture: Any, conf: dict[str, Any] | None = None) -> Any:
        return AsyncSchemaRegistryClient({"url": fixture._sr_url, **(conf or {})})

    if not hasattr(ByoFixture, "async_schema_registry"):
        ByoFixture.async_schema_registry = async_schema_registry


for _name in ("trivup", "trivup.clusters", "trivup.clusters.KafkaCluster"):
    sys.modules.setdefault(_name, ModuleType(_name))
sys.modules["trivup.clusters.KafkaCluster"].__dict__["KafkaCluster"] = KafkaCluster
