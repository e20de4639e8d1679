"""Puts to a `none` group, against appends and syncs of the same sizes."""

from __future__ import annotations

import os
from functools import partial
from itertools import count

from bench.groups import expect_ok, open_group, put_by_callers, start_tablet
from bench.measure import MIB, Duel, Row, Setting, bytes_rate, count_rate
from bench.raw import RawLog
from penstock.blob import BlobId, Erasure, GroupProxy

TABLET = 1
CALLERS = 256
SMALL = 4096


async def rows(setting: Setting) -> list[Row]:
    """Large blobs one after another and from four callers; small ones from many callers."""
    directory = setting.directory("none-puts")
    found: list[Row] = []
    async with open_group(Erasure.NONE, directory) as life:
        await start_tablet(life.proxy, TABLET)
        puts = Puts(life.proxy)
        found.append(await small_puts(setting, puts, RawLog(directory / "raw")))
        for size, amount, rounds in ((MIB, 4 * MIB, 60), (8 * MIB, 16 * MIB, 25)):
            for callers, preallocated in ((1, False), (1, True), (4, False)):
                log = RawLog(directory / "raw", preallocated=preallocated)
                data = os.urandom(size)
                duel = await Duel().run(
                    setting.rounds(rounds), partial(raw_puts, log, data, amount), partial(puts.run, data, amount, callers)
                )
                log.close()
                name = f"none: {size // MIB} MiB puts, {callers} caller{'s' if callers > 1 else ''}"
                name += ", raw preallocated" if preallocated else ""
                found.append(duel.row(name, show=bytes_rate, goal=None if preallocated else 0.85))
    return found


class Puts:
    """Blobs of ever new ids, from so many callers at once."""

    def __init__(self, proxy: GroupProxy, tablet: int = TABLET) -> None:
        self._proxy = proxy
        self._tablet = tablet
        self._steps = count(1)

    async def run(self, data: bytes, amount: int, callers: int) -> float:
        """Put `amount` bytes; how many that were."""
        return await put_by_callers(self._put, data, amount, callers)

    async def _put(self, data: bytes) -> None:
        expect_ok(await self._proxy.put(BlobId(self._tablet, 0, 1, next(self._steps), 0, len(data)), data))


def raw_puts(log: RawLog, data: bytes, amount: int) -> float:
    """Append `amount` bytes, each piece synced; how many that were."""
    for _ in range(amount // len(data)):
        log.append(data)
    return amount


async def small_puts(setting: Setting, puts: Puts, log: RawLog) -> Row:
    """4 KiB from 256 callers, against one raw append and sync at a time."""
    data = os.urandom(SMALL)
    duel = Duel()

    def raw() -> float:
        return raw_puts(log, data, 100 * SMALL) / SMALL

    async def ours() -> float:
        return await puts.run(data, CALLERS * 8 * SMALL, CALLERS) / SMALL

    await duel.run(setting.rounds(40), raw, ours)
    log.close()
    return duel.row(f"none: 4 KiB puts, {CALLERS} callers", show=count_rate, goal=20)
