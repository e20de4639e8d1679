"""A million blobs on one disk: the memory they take and the time it takes to open them; and whether their size matters to that.

Memory is only clean in a fresh process, so filling and opening run as `python -m bench.million fill|open DIRECTORY COUNT SIZE`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from itertools import count
from pathlib import Path
from statistics import median

import uvloop

from bench.groups import expect_ok, open_group, start_tablet
from bench.measure import Row, Setting, limit_row
from penstock.blob import BlobId, Erasure
from penstock.blob.upkeep import Upkeep

ROOT = Path(__file__).resolve().parents[1]
TABLET = 1
CALLERS = 1000
MILLION = 1_000_000


async def rows(setting: Setting) -> list[Row]:
    """In a quick run a tenth of the blobs, and the figures scaled up to a million."""
    blobs = MILLION // 10 if setting.quick else MILLION
    scale = MILLION / blobs
    directory = setting.directory("million")
    filled = await _in_process("fill", directory, blobs, 100)
    opened = [await _in_process("open", directory, blobs, 100) for _ in range(3)]
    note = f"scaled from {blobs:,}" if scale > 1 else f"{blobs:,} blobs"
    return [
        limit_row("none: memory of a million blobs, put", [filled["rss_mb"] * scale], unit="MB", goal=250, beside=note),
        limit_row(
            "none: memory of a million blobs, opened", [one["rss_mb"] * scale for one in opened], unit="MB", goal=250, beside=note
        ),
        limit_row(
            "none: opening a million blobs from a checkpoint", [one["s"] * scale for one in opened], unit="s", goal=3, beside=note
        ),
        await _by_size(setting),
    ]


async def _by_size(setting: Setting) -> Row:
    """The same number of blobs with ten times the bytes."""
    blobs = 2_000 if setting.quick else 20_000
    small, large = setting.directory("open-small"), setting.directory("open-large")
    await _in_process("fill", small, blobs, 4_000)
    await _in_process("fill", large, blobs, 40_000)
    seconds: dict[Path, list[float]] = {small: [], large: []}
    pair = [(small, 4_000), (large, 40_000)]
    for _ in range(setting.rounds(15)):
        pair.reverse()  # each goes first in turn
        for directory, size in pair:
            seconds[directory].append((await _in_process("open", directory, blobs, size))["s"])
    ratios = [ours / raw for ours, raw in zip(seconds[large], seconds[small], strict=True)]
    name = f"none: opening with ten times the bytes, {blobs:,} blobs"
    beside = f"{median(seconds[small]) * 1e3:.0f} ms with {blobs * 4_000 / 1e6:.0f} MB"
    ours = f"{median(seconds[large]) * 1e3:.0f} ms"
    return limit_row(name, ratios, unit="x", goal=1.25, beside=beside, ours=ours)


async def _in_process(task: str, directory: Path, blobs: int, size: int) -> dict[str, float]:
    arguments = ["-m", "bench.million", task, str(directory), str(blobs), str(size)]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{task} of {blobs} blobs failed; its error is above")
    result: dict[str, float] = json.loads(out)
    return result


async def fill(directory: Path, blobs: int, size: int) -> dict[str, float]:
    """Put so many blobs and checkpoint; the memory they took."""
    data = bytes(size)
    async with open_group(Erasure.NONE, directory, durable=False) as life:
        await start_tablet(life.proxy, TABLET)
        steps = count(1)
        before = resident_mb()

        async def caller() -> None:
            for _ in range(blobs // CALLERS or 1):
                expect_ok(await life.proxy.put(BlobId(TABLET, 0, 1, next(steps), 0, size), data))

        await asyncio.gather(*(caller() for _ in range(min(CALLERS, blobs))))
        gc.collect()
        grown = resident_mb() - before
        await Upkeep(life.vdisks[0]).checkpoint()
    return {"rss_mb": grown}


async def reopen(directory: Path, blobs: int) -> dict[str, float]:
    """Open them again; the time and the memory."""
    gc.collect()
    before = resident_mb()
    started = time.perf_counter()
    async with open_group(Erasure.NONE, directory, durable=False) as life:
        seconds = time.perf_counter() - started
        if life.vdisks[0].index.parts != blobs:
            raise RuntimeError(f"{life.vdisks[0].index.parts} blobs were found, not {blobs}")
        gc.collect()
        return {"s": seconds, "rss_mb": resident_mb() - before}


def resident_mb() -> float:
    """Memory of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1e3
    raise RuntimeError("the system does not tell")


if __name__ == "__main__":
    _task, _directory, _blobs, _size = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    _work = fill(_directory, _blobs, _size) if _task == "fill" else reopen(_directory, _blobs)
    print(json.dumps(uvloop.run(_work)))
