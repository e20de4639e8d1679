"""Nodes that agree through a store, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.coordination import ClusterIdentity, Coordination, MemberRecord
from tests.e2e.coordination.stores import StoreUnderTest

IDENTITY = ClusterIdentity(cluster_id="c1", name="test", kind="mirror-3")
WAIT_S = 20.0


def record(node_id: int, *, directory: str = "", instance: str = "1") -> MemberRecord:
    """A member by number."""
    return MemberRecord(
        node_id=node_id,
        name=f"node-{node_id}",
        directory_id=directory or f"directory-{node_id}",
        instance_id=f"{node_id}-{instance}",
        addresses={"kafka": f"10.0.0.{node_id}:9092"},
    )


async def opened(store: StoreUnderTest) -> Coordination:
    """A view of the cluster, which is created if need be."""
    coordination = Coordination(store.client(), now=store.now)
    await coordination.create_cluster(IDENTITY)
    await coordination.open()
    return coordination


async def joined(store: StoreUnderTest, node_id: int, *, candidate: bool = False, ttl_s: float = 30.0) -> Coordination:
    """A registered node."""
    coordination = await opened(store)
    await coordination.register(record(node_id), ttl_s)
    if candidate:
        coordination.campaign()
    return coordination


async def until(condition: Callable[[], bool], what: str = "it") -> None:
    """Wait until something is so."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110  # conditions of any kind
            await asyncio.sleep(0.01)
    assert condition(), what
