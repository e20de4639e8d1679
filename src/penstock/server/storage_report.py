"""Reports the storage of a node: the groups that it knows, and its own VDisks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from penstock.blob import BlobStorage, Erasure, GroupConfig, VDisk, VDiskHost, VDiskId, group_state

GroupState = Literal["healthy", "degraded", "read-only", "lost"]
VDiskState = Literal["serving", "healing", "damaged", "full", "failing", "out"]


class VDiskReport(msgspec.Struct, frozen=True, kw_only=True):
    """One VDisk; `damaged` is the state of an only disk that has lost part of its log, since there is none to refill it from.
    `used` is the size of its files, `live` the part that is not garbage, `damaged` how many parts cannot be read;
    space is that of its disk, on the file system `device`. Of one that `is_elsewhere`, no more is known than its state."""

    id: str
    order: int
    path: str
    state: VDiskState
    is_elsewhere: bool
    used: int
    live: int
    chunks: int
    parts: int
    to_heal: int
    free: int | None
    total: int | None
    device: int
    losses: list[str]
    damaged: int = 0


class GroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """A storage group as a node has it."""

    id: int
    generation: int
    erasure: str
    state: GroupState
    vdisks: list[VDiskReport]
    restored: int
    scrubbed_ms: int
    chunks_scrubbed: int
    damaged_found: int


async def storage_report(storage: BlobStorage) -> list[GroupReport]:
    """All groups of a node."""
    return [_group(config, await storage.life(config.id)) for config in storage.groups()]


def merged_reports(own: Sequence[GroupReport], others: Sequence[GroupReport]) -> list[GroupReport]:
    """The groups of all nodes: each VDisk as the node has it that it lives on."""
    merged = {group.id: group for group in own}
    for group in others:
        known = merged.setdefault(group.id, group)
        told = {vdisk.order: vdisk for vdisk in group.vdisks if not vdisk.is_elsewhere}
        if known is not group and told:
            vdisks = [told.get(vdisk.order, vdisk) if vdisk.is_elsewhere else vdisk for vdisk in known.vdisks]
            merged[group.id] = msgspec.structs.replace(
                known,
                vdisks=vdisks,
                restored=known.restored + group.restored,
                scrubbed_ms=max(known.scrubbed_ms, group.scrubbed_ms),
                chunks_scrubbed=known.chunks_scrubbed + group.chunks_scrubbed,
                damaged_found=known.damaged_found + group.damaged_found,
            )
    return [merged[group_id] for group_id in sorted(merged)]


def _group(config: GroupConfig, life: VDiskHost) -> GroupReport:
    probe = life.probe
    return GroupReport(
        id=config.id,
        generation=life.group.generation,
        erasure=config.erasure.value,
        state=cast("GroupState", group_state(life)),
        vdisks=[_vdisk(config, life, order) for order in range(len(config.disks))],
        restored=probe.parts_restored,
        scrubbed_ms=probe.scrub_finished_ms,
        chunks_scrubbed=probe.chunks_scrubbed,
        damaged_found=probe.damaged_found,
    )


def _vdisk(config: GroupConfig, life: VDiskHost, order: int) -> VDiskReport:
    vdisk = life.vdisks.get(order)
    is_elsewhere = order not in life.hosted
    chunks = [] if vdisk is None else list(vdisk.index.chunks.values())
    state: VDiskState = "out"
    if vdisk is not None and not vdisk.closed:
        state = "serving" if vdisk.proves_absence else "damaged" if config.erasure is Erasure.NONE else "healing"
        state = "full" if vdisk.full else "failing" if vdisk.is_failing else state
    elif order in life.elsewhere:  # without an answer of its node it counts as out
        state = "serving" if life.elsewhere[order] else "healing"
    space = None if vdisk is None else vdisk.space
    return VDiskReport(
        id=str(VDiskId.of_order(config.erasure, config.id, life.group.generation, order)),
        order=order,
        path=str(config.disks[order]),
        state=state,
        is_elsewhere=is_elsewhere,
        used=0 if vdisk is None else _used(vdisk),
        live=sum(use.live for use in chunks),
        chunks=len(chunks),
        parts=0 if vdisk is None else vdisk.index.parts,
        to_heal=life.probe.to_heal.get(order, 0),
        free=None if space is None else space.free,
        total=None if space is None else space.total,
        device=-1 if space is None else space.device,
        losses=life.losses(order)[-10:],
        damaged=0 if vdisk is None else len(vdisk.index.damaged),
    )


def _used(vdisk: VDisk) -> int:
    """The size of the chunks; the active chunk's size is known only when it is full."""
    sealed = sum(use.size for number, use in vdisk.index.chunks.items() if number != vdisk.journal.chunk)
    return sealed + vdisk.journal.offset
