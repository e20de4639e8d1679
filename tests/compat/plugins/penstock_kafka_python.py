"""Runs kafka-python's suite against a broker that is already there.

The suite can do that by itself when KAFKA_URI is set. But its published archive leaves out two files that it imports: the
test/__init__.py that would make its folder a package, and test/service.py with two classes. Both are stood in for here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from penstock_outcomes import choose, fixtures_of, pytest_runtest_logstart, pytest_runtest_makereport

__all__ = ["pytest_collection_modifyitems", "pytest_runtest_logstart", "pytest_runtest_makereport"]


class ExternalService:
    """A broker that is neither started nor stopped by the suite."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def stop(self) -> None:
        """Nothing to stop."""


class SpawnedService:
    """What the suite would start brokers with."""

    def __init__(self, *_: object) -> None:
        raise RuntimeError("this run brings its own broker: KAFKA_URI must be set")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Broker tests use the suite's broker; those of SASL and TLS start brokers of their own and are left out."""
    choose(config, items, lambda item: "kafka_broker" in fixtures_of(item) and not _is_about_security(item))


def _is_about_security(item: pytest.Item) -> bool:
    return item.path.name in {"test_sasl_integration.py", "test_ssl_integration.py"}


# Without it, `test` would be the package of that name that comes with Python.
_package = ModuleType("test")
_package.__path__ = [str(Path.cwd() / "test")]
sys.modules["test"] = _package
_service = ModuleType("test.service")
_service.__dict__.update(ExternalService=ExternalService, SpawnedService=SpawnedService)
sys.modules["test.service"] = _service
