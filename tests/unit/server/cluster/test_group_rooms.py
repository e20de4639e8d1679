"""How much room the disks of a storage group leave for new tablets."""

from __future__ import annotations

import pytest

from penstock.placement import choose_groups
from penstock.server.cluster.group_rooms import _room
from penstock.server.storage_report import GroupReport, VDiskReport, VDiskState

MIB = 1 << 20


def _group(number: int, *disks: tuple[VDiskState, int]) -> GroupReport:
    vdisks = [
        VDiskReport(
            id=f"{number}:{order}",
            order=order,
            path="",
            state=state,
            is_elsewhere=False,
            used=0,
            live=0,
            chunks=0,
            parts=0,
            to_heal=0,
            free=free,
            total=1024 * MIB,
            device=order,
            losses=[],
        )
        for order, (state, free) in enumerate(disks)
    ]
    return GroupReport(
        id=number,
        generation=1,
        erasure="mirror-3",
        state="healthy",
        vdisks=vdisks,
        restored=0,
        scrubbed_ms=0,
        chunks_scrubbed=0,
        damaged_found=0,
    )


@pytest.mark.parametrize("partitions", [0, 1000])
def test_a_group_with_a_full_disk_gets_no_tablets_though_that_keeps_bytes_free_for_making_room(partitions: int) -> None:
    full = _room(1, 0, _group(1, ("serving", 900 * MIB), ("full", 200 * MIB), ("serving", 900 * MIB)))
    other = _room(2, partitions, _group(2, ("serving", 400 * MIB), ("serving", 400 * MIB), ("serving", 400 * MIB)))
    assert choose_groups([full, other], 3) == [2, 2, 2]


def test_the_fullest_disk_counts() -> None:
    assert _room(1, 0, _group(1, ("serving", 900 * MIB), ("serving", 300 * MIB), ("out", 700 * MIB))).free_bytes == 300 * MIB
