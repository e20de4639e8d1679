"""The room on the disk of a VDisk: how much more it takes in before it is full, and what is kept for collecting garbage."""

from __future__ import annotations

from contextlib import suppress

from penstock.blob.disk import Disk, DiskSpace
from penstock.blob.journal import Journal
from penstock.blob.link import DiskReply
from penstock.blob.options import VDiskOptions
from penstock.blob.status import Status
from penstock.blob.topology import VDiskId

NO_LIMIT = 1 << 62


class DiskRoom:
    """The part of a VDisk that knows how full its disk is; the rest of it is in vdisk.py.

    Upkeep looks once a round; until the next look, what is written counts against it. Before anything is refused because that is
    used up, the disk is looked at again: others may have made room meanwhile.
    """

    id: VDiskId
    disk: Disk
    journal: Journal
    options: VDiskOptions
    full: bool
    space: DiskSpace | None = None  # as it was seen last
    # How much the journal may take in before the disk is full for blobs, and for parts that are restored.
    bytes_max: int
    replica_bytes_max = NO_LIMIT

    async def look_for_room(self) -> DiskSpace:
        """Look how much room is left. Blobs leave the disk its reserve, parts that are restored half of it: a disk that cannot
        write a barrier or a checkpoint any more never has room again by itself."""
        settled = self.journal.bytes_settled  # what is on its way to the disk takes room that still seems free
        space = await self.disk.space()
        reserve = self.options.space_reserve
        self.space = space
        self.full = space.free < reserve
        self.bytes_max = settled + space.free - reserve
        self.replica_bytes_max = settled + space.free - reserve // 2
        return space

    async def seek_room(self, size: int) -> None:
        """Look again if blobs of this size do not fit by the last look. Not if that found the disk full: upkeep looks again."""
        if not self.full and self.journal.bytes_appended + size > self.bytes_max:
            with suppress(OSError):  # then the last look stands; upkeep reports a disk that cannot be looked at
                await self.look_for_room()

    async def seek_room_for_replica(self) -> None:
        """Look again if no restored part fits by the last look."""
        if self.journal.bytes_appended > self.replica_bytes_max:
            with suppress(OSError):  # as above
                await self.look_for_room()

    def _out_of_space(self) -> DiskReply:
        self.full = True  # until upkeep finds room again
        return DiskReply(Status.OUT_OF_SPACE, f"VDisk {self.id} is full; delete topics, shorten retention, or make room")
