"""A group whose VDisks are all in this process, with its proxy: the storage of a single node."""

from __future__ import annotations

from random import Random

from penstock.blob.group import Group
from penstock.blob.options import GroupOptions
from penstock.blob.topology import Erasure
from penstock.blob.vdisk_host import OnFormed, OpenDisk, VDiskHost
from penstock.core.clock import Clock


class LocalGroup(VDiskHost):
    """Hosts all VDisks of a group, and sends commands to it."""

    def __init__(
        self,
        group_id: int,
        generation: int,
        erasure: Erasure,
        open_disk: OpenDisk,
        *,
        clock: Clock,
        random: Random,
        options: GroupOptions | None = None,
        on_formed: OnFormed | None = None,
    ) -> None:
        disks = erasure.shape.disks
        group = Group(group_id, generation, erasure, [None] * disks)
        super().__init__(group, range(disks), open_disk, clock=clock, random=random, options=options, on_formed=on_formed)
