"""A process that has some VDisks of a new group and serves them to other nodes until it is killed.

Run as `python -m tests.e2e.interconnect.vdisk_program NODE_ID ADDRESS DIRECTORY ORDERS`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from random import Random

import uvloop

from penstock.blob import Erasure, LocalDisk, VDisk, VDiskId
from penstock.blob.meta import DiskState
from penstock.blob.vdisk_service import VDiskService
from tests.e2e.interconnect.node_program import new_interconnect

GROUP = 0x82000000
ERASURE = Erasure.BLOCK_4_2


async def serve(node_id: int, address: str, directory: Path, orders: list[int]) -> None:
    """Open the disks as those of a group that has formed now, and listen."""
    interconnect = new_interconnect(node_id)
    for order in orders:
        disk = await LocalDisk.open(directory / str(order))
        vdisk = await VDisk.open(VDiskId.of_order(ERASURE, GROUP, 1, order), ERASURE, disk, random=Random())
        await vdisk.reach(DiskState.COMPLETE)
        vdisk.in_step = True
        VDiskService(interconnect.service, GROUP, order, vdisk)
    address = await interconnect.listen(address)
    sys.stdout.write(json.dumps({"address": address}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), [int(order) for order in sys.argv[4].split(",")]))
