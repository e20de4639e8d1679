"""Several storage groups in a cluster: new topics are spread over them, but not to one with a full disk, and a disk is drained
without losing a message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from penstock.blob import Seat
from penstock.cli.etcd_options import ask_leader
from penstock.cli.failure import CommandError
from penstock.coordination import Coordination
from penstock.server.cluster.controller import AWAIT_DISK_DRAINED, DRAIN_DISK, MAKE_GROUP, UNDRAIN_DISK
from penstock.server.cluster.node import ClusterNode
from tests.e2e.cluster.members import WAIT_S, config, connected, create, read, serving_groups, write
from tests.e2e.cluster.small_disks import SmallDisk, small_disks
from tests.e2e.coordination.etcd_process import running_etcd

VALUES = [b"one", b"two"]


async def until(is_true: Callable[[], bool]) -> None:
    """Wait for something that comes by itself."""
    async with asyncio.timeout(WAIT_S):
        while not is_true():  # noqa: ASYNC110 - a test that looks on
            await asyncio.sleep(0.05)


def test_new_topics_are_spread_over_groups_but_not_to_a_full_disk_and_a_drained_one_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        broker = nodes[0]._member.broker
        assert broker is not None
        names = (f"spread-{number}" for number in count())
        async with asyncio.timeout(WAIT_S):  # the leader polls the space of a new group every few seconds
            await asyncio.to_thread(write, bootstrap, spread := next(names), VALUES, 6)
            while set(broker.catalog.topic(spread).groups) != set(serving_groups(operator)):
                await asyncio.sleep(0.5)
                await asyncio.to_thread(write, bootstrap, spread := next(names), VALUES, 6)
        assert broker.catalog.topic("first").groups == ()
        for small_disk in small:
            await no_tablet_goes_to_the_group_of_a_full_disk(operator, small_disk, bootstrap, nodes[0])

        left = next(seat for seat in serving_groups(operator)[second].seats if seat.node == 2)
        await drain(left)
        await until(lambda: not any(left in group.seats for group in serving_groups(operator).values()))
        with pytest.raises(CommandError, match="there is no node 2 disk9"):
            await ask_leader(operator, DRAIN_DISK, {"node": "2", "disk": "disk9"}, WAIT_S)
        # Its other disk has nowhere to go and drains for ever: a third group does not get either of them.
        await drain(Seat(2, "disk0" if left.disk == "disk1" else "disk1"), awaits=False)
        with pytest.raises(CommandError, match="mirror-3 needs disks in 3 fail domains"):
            await ask_leader(operator, MAKE_GROUP, {}, WAIT_S)
        for name in ("disk0", "disk1"):
            await ask_leader(operator, UNDRAIN_DISK, {"node": "2", "disk": name}, WAIT_S)
        await ask_leader(operator, MAKE_GROUP, {}, WAIT_S)
        for topic in ("first", spread):
            assert await asyncio.to_thread(read, bootstrap, topic, len(VALUES)) == VALUES
        await operator.close()
        for node in nodes:
            await node.stop()

    async def no_tablet_goes_to_the_group_of_a_full_disk(
        operator: Coordination, disk: SmallDisk, bootstrap: str, node: ClusterNode
    ) -> None:
        first, second = sorted(serving_groups(operator))
        full = next(number for number, group in serving_groups(operator).items() if Seat(2, "disk1") in group.seats)
        disk.fill()
        broker = node._member.broker
        assert broker is not None
        others = {first, second} - {full}

        async def goes_elsewhere() -> bool:
            name = f"topic-{next(numbers)}"
            await asyncio.to_thread(write, bootstrap, name, VALUES, 6)
            return set(broker.catalog.topic(name).groups) == others

        numbers = count()
        async with asyncio.timeout(WAIT_S):  # the leader hears of it with its next look at the disks
            while not await goes_elsewhere():  # noqa: ASYNC110 - each try makes a topic
                await asyncio.sleep(0.5)
        assert await goes_elsewhere()
        disk.make_room()

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

    monkeypatch.setattr("penstock.server.cluster.group_rooms.POLL_S", 0.5)
    (tmp_path / "n2").mkdir()
    with running_etcd(tmp_path) as etcd, small_disks([tmp_path / "n2" / "disk1"]) as small:
        asyncio.run(test())
