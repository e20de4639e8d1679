"""block-4-2: the code itself, what it costs in bytes, and puts on eight directories of one disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from bench.groups import open_group, start_tablet
from bench.measure import MIB, Duel, Row, Setting, bytes_rate, limit_row
from bench.none_puts import Puts
from bench.raw import RawLog, append_in_threads
from penstock.blob import Erasure
from penstock.blob.erasure import Codec, codec_for

TABLET = 1
DISKS = 8
CALLERS = 8
BLOBS_WEIGHED = 64


async def code_rows(setting: Setting) -> list[Row]:
    """Encoding, and decoding with two data parts lost; beside them, how fast memory is copied."""
    codec = codec_for(Erasure.BLOCK_4_2)
    found: list[Row] = []
    for size in (MIB, 8 * MIB):
        data = os.urandom(size)
        parts = {number: part for number, part in enumerate(codec.encode(data), start=1) if number > 2}
        if bytes(codec.join(size, parts)) != data:
            raise RuntimeError("block-4-2 gives other bytes than it was given")
        found.append(_code_row(setting, f"block-4-2: encode {size // MIB} MiB", data, partial(codec.encode, data), 4))
        name = f"block-4-2: decode {size // MIB} MiB, two lost"
        found.append(_code_row(setting, name, data, partial(codec.join, size, parts), 2))
    return found


def _code_row(setting: Setting, name: str, data: bytes, work: Callable[[], object], goal: float) -> Row:
    times = max(1, 16 * MIB // len(data))
    samples: list[float] = []
    copies: list[float] = []
    for _ in range(setting.rounds(60)):
        copies.append(_gigabytes(lambda: bytearray(data), len(data), times))
        samples.append(_gigabytes(work, len(data), times))
    return limit_row(name, samples, unit="GB/s", goal=goal, at_least=True, beside=f"copy {median(copies):.1f} GB/s")


def _gigabytes(work: Callable[[], object], size: int, times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        work()
    return size * times / (time.perf_counter() - started) / 1e9


async def put_rows(setting: Setting) -> list[Row]:
    """Bytes on disk for a byte of data, and all bytes a second on eight directories."""
    return [await _weight(setting), await _puts(setting)]


async def _weight(setting: Setting) -> Row:
    directory = setting.directory("block-weight")
    async with open_group(Erasure.BLOCK_4_2, directory) as life:
        await start_tablet(life.proxy, TABLET)
        data = await Puts(life.proxy).run(os.urandom(MIB), BLOBS_WEIGHED * MIB, CALLERS)
    stored = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    name = f"block-4-2: bytes in files, {BLOBS_WEIGHED} blobs of 1 MiB"
    return limit_row(name, [stored / data], unit="x data", goal=1.55, beside=f"{data / 1e6:.0f} MB of data")


async def _puts(setting: Setting) -> Row:
    directory = setting.directory("block-puts")
    codec: Codec = codec_for(Erasure.BLOCK_4_2)
    data = os.urandom(MIB)
    part = os.urandom(codec.part_size(len(data)))
    async with open_group(Erasure.BLOCK_4_2, directory) as life:
        await start_tablet(life.proxy, TABLET)
        puts = Puts(life.proxy)
        paths = [directory / f"raw-{number}" for number in range(DISKS)]
        logs = [RawLog(path) for path in paths]

        def raw() -> float:
            append_in_threads(logs, part, 8)
            return DISKS * 8 * len(part)

        async def ours() -> float:
            return await puts.run(data, 16 * MIB, CALLERS) / len(data) * codec.total_parts * len(part)

        duel = await Duel().run(setting.rounds(40), raw, ours)
        for log in logs:
            log.close()
    return duel.row(f"block-4-2: 1 MiB puts, {CALLERS} callers, eight directories, all bytes", show=bytes_rate, goal=0.8)
