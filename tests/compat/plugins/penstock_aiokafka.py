"""Runs aiokafka's suite against a broker that is already there, where the suite would start one in a container."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from penstock_outcomes import BOOTSTRAP, choose, fixtures_of, pytest_runtest_logstart, pytest_runtest_makereport

__all__ = ["pytest_collection_modifyitems", "pytest_fixture_setup", "pytest_runtest_logstart", "pytest_runtest_makereport"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Broker tests are those whose class is given a server; those of SASL are about a listener of another kind."""
    choose(config, items, lambda item: "kafka_server" in fixtures_of(item) and item.path.name != "test_sasl.py")


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> object | None:
    """Give our own values for the fixtures that start containers; all others are left to the suite."""
    make = _FIXTURES.get(fixturedef.argname)
    if make is None:
        return None
    value = make()
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value


def _server() -> object:
    host, port = BOOTSTRAP.rsplit(":", 1)
    # Nothing listens on port 1: tests of SASL would fail at once, and not reach a broker by accident.
    tls_port = int(os.environ["COMPAT_TLS_PORT"])
    return SimpleNamespace(
        host=host, port=int(port), ssl_port=tls_port, sasl_plain_port=1, sasl_ssl_port=1, container=None, hosts=[BOOTSTRAP]
    )


_FIXTURES: dict[str, Callable[[], object]] = {
    "docker": SimpleNamespace,
    "kafka_server": _server,
    "kafka_config": SimpleNamespace,
    "acl_manager": SimpleNamespace,
    "kerberos_utils": SimpleNamespace,
    "ssl_folder": lambda: Path(os.environ["COMPAT_CERTIFICATES"]),
}
