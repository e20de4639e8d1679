"""Runs confluent-kafka's integration tests against a broker that is already there.

The suite does that by itself when BROKERS is set, but imports the tool it would start a cluster with all the same.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

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
    others = _OTHER_SUBJECTS - {os.environ.get("COMPAT_SUBJECT")}
    choose(config, items, lambda item: "kafka_cluster" in fixtures_of(item) and not others & set(item.path.parts))


for _name in ("trivup", "trivup.clusters", "trivup.clusters.KafkaCluster"):
    sys.modules.setdefault(_name, ModuleType(_name))
sys.modules["trivup.clusters.KafkaCluster"].__dict__["KafkaCluster"] = KafkaCluster
