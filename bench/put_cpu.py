"""CPU that a put of a small blob costs on the event loop, on top of copying and checking its bytes."""

from __future__ import annotations

import os
import time

from bench.groups import open_group, start_tablet
from bench.measure import Row, Setting, limit_row
from bench.none_puts import Puts
from penstock.blob import Erasure
from penstock.core.checksum import crc32c

TABLET = 1


async def rows(setting: Setting) -> list[Row]:
    """A `none` group from many callers, which is what the goal is for; from one, and block-4-2, to know."""
    found: list[Row] = []
    for kind, callers, goal in ((Erasure.NONE, 256, 25.0), (Erasure.NONE, 1, None), (Erasure.BLOCK_4_2, 256, None)):
        async with open_group(kind, setting.directory(f"cpu-{kind.value}-{callers}")) as life:
            await start_tablet(life.proxy, TABLET)
            puts = Puts(life.proxy)
            for size in (100, 4096):
                data = os.urandom(size)
                samples: list[float] = []
                extra: list[float] = []
                times = callers * 16 if callers > 1 else 200
                for number in range(setting.rounds(30) + 1):
                    started = time.thread_time()
                    await puts.run(data, size * times, callers)
                    spent = (time.thread_time() - started) / times * 1e6
                    bytes_only = copy_and_check_us(data)
                    if number:
                        samples.append(spent - bytes_only)
                        extra.append(bytes_only)
                name = f"{kind.value}: CPU of a {size} B put, {callers} caller{'s' if callers > 1 else ''}"
                beside = f"copy and checksum {min(extra):.2f} us"
                found.append(limit_row(name, samples, unit="us", goal=goal, beside=beside))
    return found


def copy_and_check_us(data: bytes) -> float:
    """The part of a put that its bytes cost."""
    started = time.thread_time()
    for _ in range(1000):
        crc32c(bytearray(data))
    return (time.thread_time() - started) * 1e3
