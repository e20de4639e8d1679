"""What a node reports of its VDisks, and of those on other nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import cast

import pytest

from penstock.blob import BlobStorage, Disk, Erasure
from penstock.blob.config import GroupConfig
from penstock.blob.configuration import Configuration, Seat
from penstock.blob.membership import Membership
from penstock.blob.vdisk_host import VDiskHost
from penstock.core.clock import SystemClock
from penstock.server.storage_report import storage_report

GROUP = 1


class OneGroup:
    """Storage with a group of three nodes, as the first of them has it; its disks are not opened."""

    def __init__(self) -> None:
        seats = tuple(Seat(node, "disk0") for node in (1, 2, 3))
        configuration = Configuration(GROUP, 1, Erasure.MIRROR_3, seats, is_formed=True)
        membership = Membership(configuration, lambda _, __: None, SystemClock())
        self.host = VDiskHost.of_node(1, membership, self._open_disk, clock=SystemClock(), random=Random(1))

    def groups(self) -> list[GroupConfig]:
        return [GroupConfig(GROUP, Erasure.MIRROR_3, (Path("disk0"), Path("disk0"), Path("disk0")))]

    async def life(self, group: int) -> VDiskHost:
        return self.host

    async def _open_disk(self, order: int) -> Disk:
        raise OSError


def test_a_vdisk_of_another_node_is_not_taken_for_one_here_if_that_node_gives_no_answer() -> None:
    async def scenario() -> None:
        storage = OneGroup()
        storage.host.elsewhere = {1: True}  # the third node has not answered
        (group,) = await storage_report(cast("BlobStorage", storage))
        assert [(vdisk.is_elsewhere, vdisk.state) for vdisk in group.vdisks] == [(False, "out"), (True, "serving"), (True, "out")]

    asyncio.run(scenario())


@pytest.mark.parametrize(("erasure", "state"), [(Erasure.NONE, "damaged"), (Erasure.MIRROR_3, "healing")])
def test_a_disk_that_may_lack_parts_is_healing_only_where_others_hold_them(erasure: Erasure, state: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        paths = tuple(tmp_path / str(order) for order in range(erasure.shape.disks))
        storage = BlobStorage([GroupConfig(GROUP, erasure, paths)], clock=SystemClock(), random=Random(1))
        life = await storage.life(GROUP)
        life.vdisks[0].proves_absence = False
        (group,) = await storage_report(storage)
        assert group.vdisks[0].state == state
        await storage.close()

    asyncio.run(scenario())
