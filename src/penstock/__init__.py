"""Penstock: a persistent queue that never loses what it acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client import AsyncClient, Client

# A constant, since looking up installed metadata costs imports at every start of the command. The build reads it from here.
__version__ = "0.1.0.dev0"

__all__ = ["AsyncClient", "Client", "__version__"]


def __getattr__(name: str) -> Any:
    """The clients, imported when they are first used: commands and nodes need not wait for them."""
    if name in ("AsyncClient", "Client"):
        from penstock import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
