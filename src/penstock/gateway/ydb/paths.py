"""Paths of topics: YDB's are below a database and may have folders, Penstock's topics have plain names.

`/local/shop/orders` in the database `/local` is the topic `shop.orders`, and so is `shop/orders`."""

from __future__ import annotations

from penstock.gateway.ydb.protos import Status
from penstock.gateway.ydb.statuses import StatusError


def topic_name(path: str, database: str) -> str:
    """The name of the topic at a path. StatusError if the path is outside of the database."""
    inside = path
    if path.startswith("/") and database.strip("/"):
        root = "/" + database.strip("/") + "/"
        if not path.startswith(root):
            raise StatusError(Status.SCHEME_ERROR, f"path {path!r} is not in the database {database!r}")
        inside = path[len(root) :]
    return inside.strip("/").replace("/", ".")
