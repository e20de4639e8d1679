"""A node that is cut off from etcd one way: it stops believing in its lease first, and returns by itself."""

from __future__ import annotations

import asyncio
import random
from itertools import count

import pytest

from penstock.coordination import Coordination, EtcdOptions, KeyChange, StoreState, cluster_prefix, connect_etcd
from tests.e2e.coordination.etcd_process import EtcdCluster
from tests.e2e.coordination.nodes import IDENTITY, record, until
from tests.e2e.coordination.relay import Relay

TTL_S = 2.0

_serial = count()


async def started(url: str, prefix: str, node_id: int) -> Coordination:
    node = Coordination(connect_etcd(EtcdOptions((url,), prefix), random.Random(1)))
    await node.create_cluster(IDENTITY)
    await node.open()
    await node.register(record(node_id), TTL_S)
    node.campaign()
    return node


@pytest.mark.parametrize("way", ["requests", "answers"])
def test_a_node_that_is_cut_off_one_way_stops_believing_first_and_returns(etcd: EtcdCluster, way: str) -> None:
    async def test() -> None:
        prefix = cluster_prefix(f"cut-{next(_serial)}")
        async with Relay(etcd.urls[0]) as relay:
            node = await started(relay.url, prefix, 1)
            await until(lambda: node.leadership is not None)
            other = await started(etcd.urls[0], prefix, 2)
            await until(lambda: len(other.members()) == 2)
            believed_when_gone: list[bool] = []

            def note(changes: list[KeyChange]) -> None:
                believed_when_gone.extend(node.is_registered for change in changes if change.after is None)

            other.listen(note)
            relay.loses_requests, relay.loses_answers = way == "requests", way == "answers"
            await until(lambda: node.status.state is StoreState.AWAY and not node.is_registered)
            assert node.leadership is None
            assert "nothing new starts" in node.status.message
            if way == "requests":
                await until(lambda: other.leadership is not None and len(other.members()) == 1)
            else:
                # Renewals arrive, so the lease lives: there is no other leader, and this one knows that it cannot tell.
                await asyncio.sleep(TTL_S)
                assert (len(other.members()), other.leadership) == (2, None)
            assert not any(believed_when_gone)
            relay.mend()
            await until(lambda: node.status.is_usable and node.is_registered and len(other.members()) == 2)
            await until(lambda: (node.leadership is None) != (other.leadership is None))
            await node.close()
            await other.close()

    asyncio.run(test())
