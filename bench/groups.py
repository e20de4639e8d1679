"""Groups to measure: over local directories, with no background work unless the benchmark asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from penstock.blob import Disk, Erasure, GroupOptions, GroupProxy, LocalDisk, LocalGroup, Reply, Status
from penstock.core.clock import SystemClock

GROUP = 0x82000000
QUIET = GroupOptions(sync_interval=None, scrub_interval=None)


@asynccontextmanager
async def open_group(
    kind: Erasure, directory: Path, *, durable: bool = True, options: GroupOptions = QUIET
) -> AsyncIterator[LocalGroup]:
    """A group over one directory a disk."""

    async def open_disk(order: int) -> Disk:
        return await LocalDisk.open(directory / str(order), durable=durable)

    async def note_formed() -> None:
        formed.touch()

    formed = directory / "formed"
    on_formed = None if formed.exists() else note_formed
    life = LocalGroup(GROUP, 1, kind, open_disk, clock=SystemClock(), random=Random(1), options=options, on_formed=on_formed)
    await life.start()
    try:
        yield life
    finally:
        await life.stop()


async def start_tablet(proxy: GroupProxy, tablet: int) -> None:
    """Begin generation 1 of a tablet."""
    expect_ok(await proxy.block(tablet, 1, 1))


def expect_ok(reply: Reply) -> None:
    """A benchmark of failures measures nothing."""
    if reply.status is not Status.OK:
        raise RuntimeError(f"{reply.status.value}: {reply.reason}")


async def put_by_callers(put: Callable[[bytes], Awaitable[None]], data: bytes, amount: int, callers: int) -> float:
    """Put `amount` bytes in blobs of `data`, from so many callers at once; how many that were."""
    each = max(1, amount // len(data) // callers)

    async def caller() -> None:
        for _ in range(each):
            await put(data)

    await asyncio.gather(*(caller() for _ in range(callers)))
    return each * callers * len(data)
