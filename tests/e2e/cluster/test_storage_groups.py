"""Several storage groups in a cluster: new topics are spread over them, and a disk is drained without losing a message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.blob import Seat
from penstock.cli.etcd_options import ask_leader
from penstock.cli.failure import CommandError
from penstock.server.cluster.controller import AWAIT_DISK_DRAINED, DRAIN_DISK, MAKE_GROUP, UNDRAIN_DISK
from penstock.server.cluster.node import ClusterNode
from tests.e2e.cluster.members import WAIT_S, config, connected, create, read, serving_groups, write
from tests.e2e.coordination.etcd_process import running_etcd

VALUES = [b"one", b"two"]


async def until(is_true: Callable[[], bool]) -> None:
    """Wait for something that comes by itself."""
    async with asyncio.timeout(WAIT_S):
        while not is_true():  # noqa: ASYNC110 - a test that looks on
            await asyncio.sleep(0.05)


def test_new_topics_are_spread_over_groups_and_a_drained_disk_is_left(tmp_path: Path) -> None:
    async def test() -> None:
        await create(etcd, "many")
        configs = [config(etcd, "many", tmp_path / f"n{number}", f"n{number}", disks=2) for number in (1, 2, 3)]
        nodes = [await ClusterNode.start(own) for own in configs]
        bootstrap = ",".join(f"127.0.0.1:{own.kafka_port}" for own in configs)
        operator = connected(etcd, "many")
        await operator.open()
        await until(lambda: len(serving_groups(operator)) == 1)
        await asyncio.to_thread(write, bootstrap, "first", VALUES)
        await ask_leader(operator, MAKE_GROUP, {}, WAIT_S)
        await until(lambda: len(serving_groups(operator)) == 2)
        second = max(serving_groups(operator))
        await asyncio.to_thread(write, bootstrap, "second", VALUES, 6)
        broker = nodes[0]._member.broker
        assert broker is not None
        assert broker.catalog.topic("first").groups == ()
        assert set(broker.catalog.topic("second").groups) == set(serving_groups(operator)), "both groups get tablets"

        left = next(seat for seat in serving_groups(operator)[second].seats if seat.node == 2)
        await drain(left)
        await until(lambda: not any(left in group.seats for group in serving_groups(operator).values()))
        with pytest.raises(CommandError, match="there is no node 2 disk9"):
            await ask_leader(operator, DRAIN_DISK, {"node": "2", "disk": "disk9"}, WAIT_S)
        # Its other disk has nowhere to go and drains for ever: a third group does not get either of them.
        await drain(Seat(2, "disk0" if left.disk == "disk1" else "disk1"), awaits=False)
        with pytest.raises(CommandError, match="mirror-3 needs disks in 3 fail domains"):
            await ask_leader(operator, MAKE_GROUP, {}, WAIT_S)
        for disk in ("disk0", "disk1"):
            await ask_leader(operator, UNDRAIN_DISK, {"node": "2", "disk": disk}, WAIT_S)
        await ask_leader(operator, MAKE_GROUP, {}, WAIT_S)
        for topic in ("first", "second"):
            assert await asyncio.to_thread(read, bootstrap, topic, len(VALUES)) == VALUES
        await operator.close()
        for node in nodes:
            await node.stop()

    async def drain(disk: Seat, *, awaits: bool = True) -> None:
        operator = connected(etcd, "many")
        await operator.open()
        arguments = {"node": str(disk.node), "disk": disk.disk}
        answer = await ask_leader(operator, DRAIN_DISK, arguments, WAIT_S)
        assert answer == f"node {disk.node} {disk.disk} drains: its VDisks move to other disks, and it gets no more"
        if awaits:
            answer = await ask_leader(operator, AWAIT_DISK_DRAINED, arguments, WAIT_S)
            assert "is drained" in answer
        await operator.close()

    with running_etcd(tmp_path) as etcd:
        asyncio.run(test())
