"""A node with a YDB listener, and the real SDK connected to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ydb

from tests.e2e.running_node import RunningNode, running_node

CONNECT_S = 30


def ydb_port(node: RunningNode) -> str:
    """The port of its YDB listener."""
    return str(node.ready["listeners"]["ydb"]["port"])


@contextmanager
def ydb_node(path: Path, argv: Sequence[str] = ()) -> Iterator[RunningNode]:
    """A node on a directory of its own, with both listeners on free ports unless told otherwise."""
    ports = () if "--ydb-port" in argv else ("--ydb-port", "0")
    with running_node(path / "log", ["--data-dir", str(path / "data"), *ports, *argv]) as node:
        yield node


@contextmanager
def connected(node: RunningNode, credentials: Any = None) -> Iterator[Any]:
    """The SDK's driver, connected to a node."""
    driver = ydb.Driver(
        endpoint=f"grpc://127.0.0.1:{ydb_port(node)}",
        database="/local",
        credentials=credentials or ydb.AnonymousCredentials(),
    )
    try:
        driver.wait(CONNECT_S, fail_fast=True)
        yield driver
    finally:
        driver.stop()


def read_all(client: Any, path: str, consumer: str | None, count: int, *, commit: bool = True) -> list[Any]:
    """The next messages of a consumer, as many as asked for."""
    found: list[Any] = []
    with client.reader(path, consumer=consumer) as reader:
        while len(found) < count:
            batch = reader.receive_batch(timeout=30)
            found += batch.messages
            if commit:
                reader.commit_with_ack(batch)
    return found
