"""Prints the OpenAPI document of the admin API, without a node: `python -m penstock.server.http`."""

from __future__ import annotations

import sys
from typing import Any, cast

import msgspec

from penstock.server.http.api import api_resources
from penstock.server.http.app import API_PREFIX
from penstock.server.http.node_context import NodeContext
from penstock.server.http.openapi import openapi


class _NoNode:
    """Stands for the node that resources are made with: routes are declared by annotations, and ask nothing of it."""

    def __getattr__(self, name: str) -> Any:
        return None


def main() -> None:
    """Write the document to standard output."""
    resources = api_resources(cast(NodeContext, _NoNode()))
    routes = [route for resource in resources for route in resource.routes()]
    document = openapi(routes, API_PREFIX, is_secured=False)
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")


if __name__ == "__main__":
    main()
