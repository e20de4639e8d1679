"""Starts of a tablet of which the last log entry is on too few disks: it was never acknowledged, or may have been."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from penstock.blob import BlobId, BlobStorage, ChannelHistory, Erasure, GroupConfig, Status, TabletInfo, VDiskHost
from penstock.core.errors import UnavailableError
from penstock.tablet import CHANNELS, KvTablet, RangeResult, ReadRange, Request, Write
from penstock.tablet.key_index import BlobRef, Chain
from penstock.tablet.log_format import LogEntry, encode_entry
from penstock.testing.sim_loop import SimClock, current_loop
from tests.sim_group import GROUP_ID, SMALL, SimGroup, options, run_group
from tests.sim_tablet import BY_HAND, DATA, LOG, TABLET, content

RESERVE = 8 * SMALL.chunk_size
SETTINGS = options(replace(SMALL, space_reserve=RESERVE))


class Tablets:
    """Starts the tablet over a group of mirror-3, one generation after the other."""

    def __init__(self, group: SimGroup) -> None:
        self.group = group
        self._generation = 0

    async def boot(self) -> KvTablet:
        """The next generation."""
        self._generation += 1
        return await self.group.do(self._boot(self._generation))

    async def _boot(self, generation: int) -> KvTablet:
        host: VDiskHost = self.group.life
        storage = BlobStorage(clock=SimClock(current_loop()), random=Random(1))
        storage.adopt(GroupConfig(GROUP_ID, Erasure.MIRROR_3, (Path("0"), Path("1"), Path("2"))), host)
        info = TabletInfo(TABLET, tuple(ChannelHistory([(0, GROUP_ID)]) for _ in range(CHANNELS)))
        return await KvTablet.boot(storage.tablet(info), generation, random=Random(generation), options=BY_HAND)

    async def served(self, count: int = 1) -> dict[bytes, bytes]:
        """What the last of so many more generations shows."""
        state: dict[bytes, bytes] = {}
        for _ in range(count):
            tablet = await self.boot()
            state = await self.group.do(_state(tablet))
            await self.group.do(tablet.stop())
        return state


async def _state(tablet: KvTablet) -> dict[bytes, bytes]:
    (listed,) = await tablet.execute(Request((ReadRange(with_values=True),)))
    assert isinstance(listed, RangeResult)
    return {info.key: bytes(info.value or b"") for info in listed.keys}


async def _first_generation(tablets: Tablets) -> None:
    """One that has written an entry, which is on all disks."""
    tablet = await tablets.boot()
    await tablets.group.do(tablet.execute(Request((Write(b"stored", b"1"),))))
    await tablets.group.do(tablet.stop())
    await tablets.group.do(tablets.group.life.group.drain())


async def _put_on(group: SimGroup, order: int, blob: BlobId, raw: bytes) -> None:
    """Put a copy of a blob on one disk, as a put does that failed on the others."""
    link = group.life.group.links[order]
    assert link is not None
    index = group.life.group.subgroup(blob.pack()[:21]).index(order)
    reply = await group.do(link.put_replica(group.life.group.generation, blob.pack_part(index + 1), raw))
    assert reply.status is Status.OK, reply


async def _fill(group: SimGroup, *orders: int) -> None:
    """Leave disks room for log entries of tablets that start, and not for blobs or restored parts."""
    for order in orders:
        group.faults[order].capacity = group.platters[order].used + RESERVE // 4
    await group.do(group.life.tend())


async def _entry_on_one_disk(group: SimGroup, order: int) -> None:
    """An entry that only one disk holds, though its data is on all of them."""
    blob = BlobId(TABLET, DATA, 1, 3, 0, 2000)
    entry = bytes(encode_entry(LogEntry(changes=((b"in doubt", Chain(b"", (BlobRef(blob, 0, 2000),))),))))
    for other in group.orders:
        await _put_on(group, other, blob, content(2000))
    await _put_on(group, order, BlobId(TABLET, LOG, 1, 3, 0, len(entry)), entry)


async def _data_on_one_disk(group: SimGroup, order: int) -> None:
    """An entry that all disks hold, of which only one holds the data."""
    blob = BlobId(TABLET, DATA, 1, 3, 0, 2000)
    entry = bytes(encode_entry(LogEntry(changes=((b"in doubt", Chain(b"", (BlobRef(blob, 0, 2000),))),))))
    await _put_on(group, order, blob, content(2000))
    for other in group.orders:
        await _put_on(group, other, BlobId(TABLET, LOG, 1, 3, 0, len(entry)), entry)


in_part = pytest.mark.parametrize("leave", [_entry_on_one_disk, _data_on_one_disk])
Leave = Callable[[SimGroup, int], Awaitable[None]]


@in_part
def test_an_entry_that_was_never_acknowledged_and_that_full_disks_do_not_take_never_counts(leave: Leave) -> None:
    async def scenario(group: SimGroup) -> None:
        tablets = Tablets(group)
        await _first_generation(tablets)
        await leave(group, 0)
        await _fill(group, 1, 2)
        assert await tablets.served() == {b"stored": b"1"}
        # Also when the disk that has it fails, and when it is back and there is room for it.
        await group.take_out(0)
        assert await tablets.served(2) == {b"stored": b"1"}
        await group.put_in(0)
        for order in (1, 2):
            group.faults[order].capacity = 1 << 30
        await group.do(group.life.tend())
        await group.refill()
        assert await tablets.served(2) == {b"stored": b"1"}

    run_group(Erasure.MIRROR_3, scenario, SETTINGS)


@in_part
def test_an_entry_that_may_have_been_acknowledged_is_waited_for_until_enough_disks_take_it(leave: Leave) -> None:
    async def scenario(group: SimGroup) -> None:
        tablets = Tablets(group)
        await _first_generation(tablets)
        await leave(group, 0)
        await _fill(group, 1)
        await group.take_out(2)
        with pytest.raises(UnavailableError):
            await tablets.boot()
        await group.put_in(2)
        await group.do(group.life.sync())
        await asyncio.sleep(1.0)
        wanted = {b"stored": b"1", b"in doubt": content(2000)}
        assert await tablets.served() == wanted
        await group.do(group.life.group.drain())
        await group.take_out(0)
        assert await tablets.served(2) == wanted

    run_group(Erasure.MIRROR_3, scenario, SETTINGS)
