"""A process that hosts VDisks of a block-4-2 group over nodes until it is killed.

Run as `python -m tests.e2e.interconnect.vdisk_program NODE_ID DIRECTORY`; disks and sockets of all nodes are in that directory.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from random import Random

import uvloop

from penstock.blob import Disk, Erasure, GroupOptions, LocalDisk
from penstock.blob.configuration import Configuration, Seat
from penstock.blob.link import DiskLink
from penstock.blob.membership import Membership
from penstock.blob.remote_link import link_to_vdisk
from penstock.blob.vdisk_host import VDiskHost
from penstock.blob.vdisk_service import VDiskService
from penstock.core.clock import SystemClock
from penstock.interconnect import Interconnect
from tests.e2e.interconnect.node_program import new_interconnect

GROUP = 0x82000000
HOSTS = (2, 3, 4, 5)
FIRST = Configuration(
    GROUP,
    1,
    Erasure.BLOCK_4_2,
    tuple(Seat(node, f"disk-{node}-{disk}") for node in HOSTS for disk in (0, 1)),
    is_formed=False,
)
OPTIONS = GroupOptions(sync_interval=0.2, replication_interval=0.5, scrub_interval=None)


def address_of(node: int, directory: Path) -> str:
    """Where a node listens."""
    return f"unix:{directory}/node-{node}"


def membership_of(node: int, interconnect: Interconnect, directory: Path) -> Membership:
    """The group as a node knows it, with links to all VDisks of others."""

    def connect(configuration: Configuration, order: int) -> DiskLink | None:
        seat = configuration.seats[order]
        if seat.node == node:
            return None
        return link_to_vdisk(interconnect.link(seat.node, address_of(seat.node, directory)), GROUP, order)

    return Membership(FIRST, connect, SystemClock())


async def serve(node: int, directory: Path) -> None:
    """Host the VDisks of a node. What is stored on its disks tells it how the group is configured by now."""
    interconnect = new_interconnect(node)
    membership = membership_of(node, interconnect, directory)

    async def open_disk(order: int) -> Disk:
        return await LocalDisk.open(directory / membership.configuration.seats[order].disk)

    host = VDiskHost.of_node(node, membership, open_disk, clock=SystemClock(), random=Random(), options=OPTIONS)
    interconnect.watch(host.note_link)
    for order in range(len(FIRST.seats)):
        VDiskService(interconnect.service, GROUP, order, lambda order=order: host.vdisks.get(order))  # type: ignore[misc]
    await interconnect.listen(address_of(node, directory))
    await host.start()
    sys.stdout.write(json.dumps({"address": address_of(node, directory)}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
