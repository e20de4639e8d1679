"""Every short history of a mirror-3 group, on real VDisks: who acknowledged, who was wiped, who was away when.

A generation is blocked and a blob is put in it, both acknowledged by a pair or by all three. All come back, and one disk or none
is wiped. Some are away while metadata is synced, others while parts are refilled, others when a tablet boots. By then each disk
is up, away, fresh, being refilled or complete, and whatever is answered must be right, or ERROR. Disks that are away were closed,
or are only cut off and come back as they are, with no sync. The disks are alike, so the wiped one is always the last.
"""

from __future__ import annotations

from itertools import product

import pytest

from penstock.blob import Erasure, Status
from penstock.blob.member import Member
from penstock.blob.meta import DiskState
from tests.sim_group import SimGroup, blob_at, payload, run_group

Disks = tuple[int, ...]

DISKS: Disks = (0, 1, 2)
AWAY: tuple[Disks, ...] = ((), (0,), (1,), (0, 1))
AWAY_AT_BOOT: tuple[Disks, ...] = ((), (0,), (1,), (2,))
BLOB, DATA = blob_at(1, 100, generation=6), payload(100)
FENCED = blob_at(1, 4, generation=5)


class History:
    """A group whose disks go away and come back."""

    def __init__(self, group: SimGroup, *, cut: bool) -> None:
        self._group = group
        self._cut = cut
        self._cut_off: dict[int, Member] = {}

    async def keep_away(self, away: Disks) -> None:
        """From now on exactly these disks are away."""
        group, life = self._group, self._group.life
        for order in DISKS:
            is_away = order in group.absent or order in self._cut_off
            if order in away and not is_away and self._cut:
                self._cut_off[order] = life._members.pop(order)
                life.group.links[order] = None
            elif order in away and not is_away:
                await group.take_out(order)
            elif order not in away and order in self._cut_off:
                life._members[order] = member = self._cut_off.pop(order)
                life.group.links[order] = member.vdisk
            elif order not in away and is_away:
                await group.put_in(order)

    async def acknowledge(self, by: Disks) -> None:
        """Block a generation and put a blob in it, on these disks alone."""
        group = self._group
        await self.keep_away(tuple(order for order in DISKS if order not in by))
        assert (await group.do(group.proxy.block(1, 6, issuer=1))).status is Status.OK
        assert await group.put(BLOB, DATA) is Status.OK
        await group.do(group.life.group.drain())
        assert set(await group.holders(BLOB)) == set(by)

    async def wipe(self, order: int) -> None:
        """Put an empty disk in the place of one."""
        await self.keep_away(())
        await self._group.take_out(order)
        self._group.platters[order].wipe()

    async def boot(self) -> None:
        """Ask what a boot asks, and try what an older owner may try; all of it must be answered rightly or not at all."""
        group = self._group
        vdisks = group.life.vdisks.values()
        found = await group.do(group.proxy.discover(1))
        read = await group.get(BLOB)
        assert found.status is Status.ERROR or (found.blocked_generation, found.blobs) == (5, ((BLOB, DATA),))
        assert read in ((Status.OK, DATA), (Status.ERROR, b""))
        assert await group.put(FENCED, b"late") in (Status.BLOCKED, Status.ERROR)
        assert (await group.do(group.proxy.block(1, 6, issuer=2))).status in (Status.ALREADY, Status.BLOCKED, Status.ERROR)
        if sum(vdisk.index.state is DiskState.COMPLETE for vdisk in vdisks) >= 2:
            assert (found.status, read[0]) == (Status.OK, Status.OK), "two complete disks serve"


@pytest.mark.parametrize("cut", [False, True], ids=["closed", "cut-off"])
@pytest.mark.parametrize(
    ("by", "wiped"), [((0, 1), ()), ((0, 1, 2), ()), ((0, 1), (2,)), ((0, 2), (2,)), ((0, 1, 2), (2,))], ids=str
)
def test_every_history_of_mirror_3_is_answered_rightly_or_not_at_all(by: Disks, wiped: Disks, *, cut: bool) -> None:
    async def tell(group: SimGroup, at_sync: Disks, at_refill: Disks, at_boot: Disks) -> None:
        history = History(group, cut=cut)
        await history.acknowledge(by)
        for order in wiped:
            await history.wipe(order)
        await history.keep_away(at_sync)
        await group.do(group.life._sync_metadata())
        await history.keep_away(at_refill)
        await group.refill()
        await history.keep_away(at_boot)
        await history.boot()
        await group.settle()
        await history.boot()
        await history.keep_away(())
        await group.refill()
        assert {vdisk.index.state for vdisk in group.life.vdisks.values()} == {DiskState.COMPLETE}
        await history.boot()
        assert set(await group.holders(BLOB)) == set(DISKS)

    for sync, refill, boot in product(AWAY, AWAY, AWAY_AT_BOOT):
        run_group(Erasure.MIRROR_3, lambda group, s=sync, r=refill, b=boot: tell(group, s, r, b))  # type: ignore[misc]
