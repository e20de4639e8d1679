"""What is counted on disks and in groups, and how well a group is, read off its disks when asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.blob.quorum import fits_fail_model
from penstock.core.probe import Durations

if TYPE_CHECKING:
    from penstock.blob.replication import RoundReport
    from penstock.blob.vdisk_host import VDiskHost

HEALTHY, DEGRADED, READ_ONLY, LOST = "healthy", "degraded", "read-only", "lost"


class DiskProbe:
    """One local disk. The thread that writes it counts writes, those that read count nothing."""

    __slots__ = ("bytes_written", "failures", "syncs", "writes")

    def __init__(self) -> None:
        self.writes = 0
        self.bytes_written = 0
        self.failures = 0
        self.syncs = Durations()


class GroupProbe:
    """What a group did to stay whole."""

    __slots__ = (
        "chunks_scrubbed",
        "damaged_found",
        "parts_dropped",
        "parts_failed",
        "parts_restored",
        "rounds",
        "scrub_finished_ms",
        "to_heal",
    )

    def __init__(self) -> None:
        self.rounds = 0
        self.parts_restored = 0
        self.parts_dropped = 0  # handoffs whose main place holds the part by now
        self.parts_failed = 0  # restorations that will be tried again
        self.to_heal: dict[int, int] = {}  # by VDisk, how many of those the last round left
        self.chunks_scrubbed = 0
        self.damaged_found = 0
        self.scrub_finished_ms = 0  # when all of a disk had last been gone over, by the wall clock

    def note_round(self, order: int, report: RoundReport) -> None:
        """A disk was compared with its sisters."""
        self.rounds += 1
        self.parts_restored += report.restored
        self.parts_dropped += report.dropped
        self.parts_failed += report.failed
        self.to_heal[order] = report.failed

    def note_scrub(self, found: int) -> None:
        """A chunk was read and verified."""
        self.chunks_scrubbed += 1
        self.damaged_found += found


def group_state(life: VDiskHost) -> str:
    """How well a group is: `healthy`; `degraded` while disks are out, full, failing or being refilled; `read-only` when too many
    are full or failing to write; `lost` when too few are left to answer at all."""
    erasure = life.group.erasure
    out = unfit = stuck = 0
    for order in range(len(life.group.links)):
        vdisk = life.vdisks.get(order)
        if vdisk is None and order in life.elsewhere:
            unfit |= 0 if life.elsewhere[order] else 1 << order
            continue
        if vdisk is None or vdisk.closed:
            out |= 1 << order
            continue
        if not vdisk.proves_absence:
            unfit |= 1 << order
        if vdisk.full or vdisk.is_failing:
            stuck |= 1 << order
    if not fits_fail_model(erasure, out):
        return LOST
    if stuck and not fits_fail_model(erasure, out | stuck):
        return READ_ONLY
    return DEGRADED if out | unfit | stuck else HEALTHY
