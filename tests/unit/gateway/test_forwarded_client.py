"""The address of a client whose request another node has forwarded."""

from __future__ import annotations

import pytest

from penstock.gateway.forwarded_client import client_address, signed_client

SECRET = b"s" * 32
HEADER = signed_client(SECRET, "10.0.0.7", "GET", "/api/v1/topics?limit=5")


def test_a_node_of_the_cluster_is_believed() -> None:
    assert client_address(SECRET, HEADER, "GET", "/api/v1/topics?limit=5") == "10.0.0.7"


@pytest.mark.parametrize(
    ("secret", "header", "method", "path"),
    [
        (SECRET, "10.0.0.7", "GET", "/api/v1/topics?limit=5"),
        (SECRET, HEADER.replace("10.0.0.7", "10.0.0.8"), "GET", "/api/v1/topics?limit=5"),
        (SECRET, HEADER, "DELETE", "/api/v1/topics?limit=5"),
        (SECRET, HEADER, "GET", "/api/v1/users"),
        (b"t" * 32, HEADER, "GET", "/api/v1/topics?limit=5"),
        (None, HEADER, "GET", "/api/v1/topics?limit=5"),
        (SECRET, "1\u0436 2", "GET", "/"),
    ],
)
def test_anyone_else_is_not(secret: bytes | None, header: str, method: str, path: str) -> None:
    assert client_address(secret, header, method, path) is None
