"""Sync of blocks, barriers and keep flags between the disks of a group: what a quorum knows reaches all of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from penstock.blob.group import Group
from penstock.blob.meta import KEEP, DiskState, FlagsItem
from penstock.blob.quorum import group_quorum
from penstock.blob.sisters import UNTOLD, SisterMark, went_back
from penstock.blob.status import Status
from penstock.blob.vdisk import VDisk

log = logging.getLogger(__name__)


class Syncer:
    """Pulls metadata from the sister disks of one VDisk. It only ever reads from them; each pulls for itself."""

    def __init__(self, vdisk: VDisk, group: Group) -> None:
        self._vdisk = vdisk
        self._group = group
        self._orders = [order for order in range(len(group.links)) if order != vdisk.order]
        self._introduced = 0  # the sisters that have heard of this opening, as a mask
        self._went_back = False
        self._lives = -1  # the latest that any sister has known this disk in
        self._in_flight = 0  # the sisters that have not answered yet, as a mask
        self._epoch = 0
        self.unheard = 0  # the sisters that have not been heard since a link to them broke, as a mask
        self._breaks = [0] * len(group.links)
        self._forget_cursors()

    def note_broken_link(self, orders: Iterable[int]) -> None:
        """Links to these sisters broke. If the others and this disk are no quorum, it may have missed what the group blocked and
        collected, and takes no commands until it has pulled from enough of them again."""
        for order in orders:
            self._breaks[order] += 1
            self.unheard |= 1 << order
        self._weigh_links()

    def _note_heard(self, order: int, breaks: int) -> None:
        """A sister that knows something has answered what was asked when its link had broken so many times."""
        if self.unheard >> order & 1 and breaks == self._breaks[order]:
            self.unheard &= ~(1 << order)
            self._weigh_links()

    def _weigh_links(self) -> None:
        everyone = (1 << len(self._group.links)) - 1
        self._vdisk.note_cut_off(not group_quorum(self._group.erasure, everyone & ~self.unheard))

    def _forget_cursors(self) -> None:
        self._epoch += 1  # an answer to what was asked before counts no more
        # Where this disk stands in each sister's sync log: (incarnation, position).
        self._cursors = [(0, -1)] * len(self._group.links)
        # While this disk doubts its own Keep flags: those that sisters know, and the sisters that have told all of theirs.
        self._kept: set[bytes] = set()
        self._told = 0

    async def round(self) -> int:
        """Pull from every sister once; the mask of those that were heard. A fresh disk becomes synced once the sisters that know
        something are a quorum without it: what any quorum has acknowledged, one of them has heard of. One that was only closed
        is in step again once these and it are a quorum."""
        states = await self._pull_all()
        if self._went_back:
            await self._start_over()
            states = await self._pull_all()
        vdisk, erasure = self._vdisk, self._group.erasure
        heard = sum(1 << order for order, state in states.items() if state is not None)
        knowing = sum(1 << order for order, state in states.items() if state not in (None, DiskState.FRESH))
        is_fresh = vdisk.index.state == DiskState.FRESH
        if is_fresh:
            knowing &= sum(1 << order for order in self._orders if self._cursors[order][0])  # those that have told all they know
        own = 0 if is_fresh else 1 << vdisk.order
        if vdisk.doubts_keeps and group_quorum(erasure, self._told | own):
            await vdisk.believe_keeps(self._kept)
        if group_quorum(erasure, knowing | own) and not (is_fresh and vdisk.doubts_keeps):
            if is_fresh:
                await vdisk.begin_life(self._lives + 1, DiskState.SYNCED)
            vdisk.in_step = vdisk.index.state != DiskState.FRESH
        vdisk.save_marks()
        return heard

    async def _start_over(self) -> None:
        log.error(
            "VDisk %s went back in time: it holds less than it had acknowledged (is it an old copy?). It learns from the others "
            "what it has missed, and counts for nothing until then",
            self._vdisk.id,
        )
        await self._vdisk.start_over()
        self._went_back = False
        self._forget_cursors()

    async def _pull_all(self) -> dict[int, DiskState | None]:
        """Pull from the sisters; what they answered. One that is late is not waited for once enough have answered: its answer is
        taken in when it comes, and until then it is not asked again."""
        erasure, own = self._group.erasure, 1 << self._vdisk.order
        asks = {order: self._pull(order, self._epoch) for order in self._orders if not self._in_flight >> order & 1}
        for order in asks:
            self._in_flight |= 1 << order

        def suffices(states: dict[int, DiskState | None]) -> bool:
            heard = sum(1 << order for order, state in states.items() if state not in (None, DiskState.FRESH))
            return group_quorum(erasure, heard | (0 if self._vdisk.index.state == DiskState.FRESH else own))

        return await self._group.ask(asks, suffices)

    def _mark(self, order: int) -> SisterMark | None:
        """What this disk says of itself to a sister; nothing while it is fresh."""
        vdisk = self._vdisk
        if vdisk.index.state == DiskState.FRESH:
            return None
        place = vdisk.journal.reached if self._introduced >> order & 1 else vdisk.recovered.last
        return vdisk.sisters.own._replace(place=place if vdisk.disk.outlives_power_loss else UNTOLD)

    async def _pull(self, order: int, epoch: int) -> DiskState | None:
        try:
            return await self._pull_from(order, epoch)
        finally:
            self._in_flight &= ~(1 << order)

    async def _pull_from(self, order: int, epoch: int) -> DiskState | None:
        link, vdisk = self._group.links[order], self._vdisk
        if link is None:
            return None
        incarnation, position = self._cursors[order]
        breaks = self._breaks[order]
        mark = self._mark(order)
        reply = await link.pull(self._group.generation, vdisk.order, incarnation, position, mark)
        if reply.status is Status.RACE:
            self._group.note_race()
        if reply.status is not Status.OK or epoch != self._epoch or vdisk.closed:
            return None
        if reply.known is not None:
            self._lives = max(self._lives, reply.known.life)
            self._went_back |= mark is not None and went_back(mark, reply.known)
        self._introduced |= (mark is not None) << order
        vdisk.disorders = max(vdisk.disorders, reply.disorders)
        absorbed = await vdisk.absorb(reply.items)
        if absorbed.status is not Status.OK or epoch != self._epoch:
            return None
        self._cursors[order] = (reply.incarnation, reply.position)
        if vdisk.doubts_keeps and reply.incarnation:
            self._kept.update(item.prefix for item in reply.items if isinstance(item, FlagsItem) and item.flags & KEEP)
            self._told |= 1 << order
        if reply.state != DiskState.FRESH:
            self._note_heard(order, breaks)
        return reply.state
