"""Options of groups and VDisks: their use of disks, and the intervals of background work."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class VDiskOptions:
    """How a VDisk uses its disk. The defaults suit a real one."""

    chunk_size: int = 128 << 20
    space_reserve: int = 256 << 20  # kept free of blobs, so that garbage can still be collected on a full disk
    checkpoint_bytes: int = 128 << 20  # of log, after which a checkpoint is due
    checkpoint_records: int = 200_000  # the same in records, over all disks of the group: an opening group reads the logs of all
    accept_loss: bool = False  # open the only copy of something though files of it are missing
    sparse_ratio: float = 0.5  # a chunk less alive than this is rewritten
    busy_ratio: float = 0.25  # the same while blobs are written, and an eighth of the disk is free
    busy_bytes: int = 2 << 20  # of log between two steps of upkeep: as many are a disk that is written to


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The intervals of a group's background work in seconds; None turns the work off."""

    vdisk: VDiskOptions = field(default_factory=VDiskOptions)
    sync_interval: float | None = 1.0
    replication_interval: float = 60.0
    scrub_interval: float | None = 60.0  # between two chunks
    refill_share: float = 0.3  # of the time that refills may take while others use the group; 1 does not throttle them
