"""Spreading blocks, barriers and keep flags between the disks of a group, so that what a quorum knows, all come to know."""

from __future__ import annotations

import asyncio

from penstock.blob.group import Group
from penstock.blob.meta import KEEP, DiskState, FlagsItem
from penstock.blob.quorum import group_quorum
from penstock.blob.status import Status
from penstock.blob.vdisk import VDisk


class Syncer:
    """Pulls metadata from the sister disks of one VDisk. It only ever reads from them; each pulls for itself."""

    def __init__(self, vdisk: VDisk, group: Group) -> None:
        self._vdisk = vdisk
        self._group = group
        # Where this disk stands in each sister's sync log: (incarnation, position).
        self._cursors = [(0, -1)] * len(group.links)
        # While this disk doubts its own Keep flags: those that sisters know, and the sisters that have told all of theirs.
        self._kept: set[bytes] = set()
        self._told = 1 << vdisk.order

    async def round(self) -> int:
        """Pull from every sister once; the mask of those that were heard. A fresh disk becomes synced once the sisters that know
        something are a quorum without it: what any quorum has acknowledged, one of them has heard of."""
        orders = [order for order in range(len(self._group.links)) if order != self._vdisk.order]
        states = await asyncio.gather(*(self._pull(order) for order in orders))
        heard = sum(1 << order for order, state in zip(orders, states, strict=True) if state is not None)
        if self._vdisk.index.state == DiskState.FRESH:
            knowing = sum(1 << order for order, state in zip(orders, states, strict=True) if state not in (None, DiskState.FRESH))
            if group_quorum(self._group.erasure, knowing):
                await self._vdisk.reach(DiskState.SYNCED)
        if self._vdisk.doubts_keeps and group_quorum(self._group.erasure, self._told):
            self._vdisk.believe_keeps(self._kept)
        return heard

    async def _pull(self, order: int) -> DiskState | None:
        link = self._group.links[order]
        if link is None:
            return None
        incarnation, position = self._cursors[order]
        reply = await link.pull(self._group.generation, self._vdisk.order, incarnation, position)
        if reply.status is not Status.OK:
            return None
        absorbed = await self._vdisk.absorb(reply.items)
        if absorbed.status is not Status.OK:
            return None
        self._cursors[order] = (reply.incarnation, reply.position)
        if self._vdisk.doubts_keeps and reply.incarnation:
            self._kept.update(item.prefix for item in reply.items if isinstance(item, FlagsItem) and item.flags & KEEP)
            self._told |= 1 << order
        return reply.state
