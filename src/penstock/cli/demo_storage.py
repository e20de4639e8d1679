"""`penstock demo --storage`: BlobStorage in a scratch directory, surviving in turn what it should survive.

The writer runs in a process of its own, so that it can be killed; whatever it has acknowledged it says on its standard output.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import shutil
import sys
import time
from pathlib import Path

from penstock.blob import BlobId, Erasure, GroupOptions, LocalDisk, LocalGroup, Status, VDiskOptions
from penstock.core.clock import SystemClock

GROUP = 0x82000000
TABLET = 42
WRITERS = 8
WRITE_SECONDS = 1.5
ACKNOWLEDGED = "acknowledged"


def show_storage(path: Path) -> int:
    """Run all acts; 0 if everything held."""
    return asyncio.run(_Demo(path).run())


def write_until_killed(path: Path) -> int:
    """The writer's process: it ends by being killed."""
    asyncio.run(_write(path))
    return 1


def _content(blob_id: BlobId) -> bytes:
    """Bytes that follow from the id, so that anyone can tell whether they are right."""
    seed = hashlib.sha256(str(blob_id).encode()).digest()
    return (seed * (blob_id.size // len(seed) + 1))[: blob_id.size]


def _group(path: Path) -> LocalGroup:
    formed = path / "formed"

    async def note_formed() -> None:
        formed.touch()

    async def open_disk(order: int) -> LocalDisk:
        return await LocalDisk.open(path / f"disk{order}")

    quiet = GroupOptions(VDiskOptions(chunk_size=4 << 20, space_reserve=64 << 20), scrub_interval=None, sync_interval=None)
    return LocalGroup(
        GROUP,
        1,
        Erasure.BLOCK_4_2,
        open_disk,
        clock=SystemClock(),
        random=random.Random(),
        options=quiet,
        on_formed=None if formed.exists() else note_formed,
    )


async def _write(path: Path) -> None:
    life = _group(path)
    await life.start()
    await life.proxy.block(TABLET, 1, issuer=1)
    sizes = (100, 4_000, 60_000, 1_000_000)

    async def writer(number: int) -> None:
        step = 0
        while True:
            step += 1
            blob_id = BlobId(TABLET, 0, 1, step, number, sizes[(step + number) % len(sizes)])
            reply = await life.proxy.put(blob_id, _content(blob_id))
            if reply.status is Status.OK:
                sys.stdout.write(f"{ACKNOWLEDGED} {blob_id}\n")
                sys.stdout.flush()

    await asyncio.gather(*(writer(number) for number in range(WRITERS)))


class _Demo:
    """The acts of the demo, in order, on one block-4-2 group of eight directories."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._acknowledged: list[BlobId] = []
        self._life = _group(path)
        self._held = True

    async def run(self) -> int:
        print("Penstock storage: a block-4-2 group, eight disks, any two of which may be lost.\n")
        await self._kill_the_writer()
        await self._reopen()
        await self._lose_two_disks()
        await self._rot_a_disk()
        await self._fence_an_old_tablet()
        await self._collect_garbage()
        await self._life.stop()
        print("\nEverything held." if self._held else "\nA check failed; see the lines marked FAILED.")
        return 0 if self._held else 1

    def _say(self, what: str, *, held: bool) -> None:
        self._held &= held
        print(f"  {'ok    ' if held else 'FAILED'}  {what}")

    async def _kill_the_writer(self) -> None:
        print(f"1. {WRITERS} writers store blobs of 100 B to 1 MB; then kill -9.")
        command = [sys.executable, "-m", "penstock.cli.main", "demo", "--storage", "--writer", "--dir", str(self._path)]
        writer = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert writer.stdout is not None
        first = await writer.stdout.readline()
        await asyncio.sleep(WRITE_SECONDS)
        writer.kill()
        rest = await writer.stdout.read()
        await writer.wait()
        for line in (first + rest).decode().splitlines(keepends=True):
            if line.startswith(ACKNOWLEDGED) and line.endswith("\n"):
                self._acknowledged.append(BlobId.parse(line.split()[1]))
        total = sum(blob.size for blob in self._acknowledged)
        self._say(f"{len(self._acknowledged)} blobs, {total / 1e6:.0f} MB acknowledged before it died", held=total > 0)

    async def _reopen(self) -> None:
        print("2. Open the disks again, torn tails and all.")
        started = time.perf_counter()
        await self._life.start()
        took = time.perf_counter() - started
        self._say(f"open after {took * 1000:.0f} ms", held=len(self._life.vdisks) == 8)
        await self._check_all("every acknowledged blob reads back byte for byte")

    async def _check_all(self, what: str) -> None:
        wrong = [blob for blob in self._acknowledged if (await self._life.proxy.get(blob)).data != _content(blob)]
        self._say(what if not wrong else f"{what}: not so for {len(wrong)}, such as {wrong[0]}", held=not wrong)

    async def _lose_two_disks(self) -> None:
        print("3. Lose two whole disks while serving.")
        for order in (2, 5):
            await self._life.take_out(order)
            await asyncio.to_thread(shutil.rmtree, self._path / f"disk{order}")
        await self._check_all("all of it still reads, decoded from four of the six parts")
        blob = BlobId(TABLET, 0, 1, 1_000_000, 0, 50_000)
        reply = await self._life.proxy.put(blob, _content(blob))
        self._say("writes go on, through the handoff disks", held=reply.status is Status.OK)
        self._acknowledged.append(blob)
        for order in (2, 5):
            await self._life.put_in(order)
        await self._life.sync()
        await self._life.replicate()
        refilled = [self._life.vdisks[order].index.parts for order in (2, 5)]
        self._say(f"two empty disks put in their place are refilled: {refilled[0]} and {refilled[1]} parts", held=all(refilled))

    async def _rot_a_disk(self) -> None:
        print("4. Flip bits on a disk.")
        chunk = min((self._path / "disk0").glob("*.chunk"))
        content = bytearray(await asyncio.to_thread(chunk.read_bytes))
        for at in range(1000, len(content), max(len(content) // 20, 1)):
            content[at] ^= 0xFF
        await asyncio.to_thread(chunk.write_bytes, content)
        damaged = await self._life.scrub()
        self._say(f"scrub finds {damaged} damaged parts", held=damaged > 0)
        await self._life.replicate()
        self._say("and they are restored from the others", held=await self._life.scrub() == 0)
        await self._check_all("no wrong byte was ever returned")

    async def _fence_an_old_tablet(self) -> None:
        print("5. A second instance of the tablet starts, generation 2.")
        proxy = self._life.proxy
        started = await proxy.block(TABLET, 2, issuer=2)
        late = BlobId(TABLET, 0, 1, 2_000_000, 0, 3)
        reply = await proxy.put(late, b"old")
        self._say(
            f"the first instance is told {reply.status.value} from now on",
            held=started.status is Status.OK and reply.status is Status.BLOCKED,
        )

    async def _collect_garbage(self) -> None:
        print("6. The tablet moves its barrier over everything and keeps one blob.")
        proxy = self._life.proxy
        kept, *gone = self._acknowledged
        await proxy.collect_garbage(TABLET, 0, 2, 1, barrier=(1, 2**32 - 1), keep=[kept])
        await self._life.sync()
        before = self._bytes_on_disk()
        for _ in range(3):
            await self._life.tend()
        blobs = await proxy.range(BlobId(TABLET, 0, 0, 0, 0, 0), BlobId(TABLET, 0, 9, 0, 0, 0))
        self._say(f"{len(gone)} blobs are gone, 1 is kept", held=[blob for blob, _ in blobs.blobs] == [kept])
        after = self._bytes_on_disk()
        self._say(f"the disks went from {before / 1e6:.0f} MB to {after / 1e6:.0f} MB", held=after < before / 2)

    def _bytes_on_disk(self) -> int:
        return sum(path.stat().st_blocks * 512 for path in self._path.rglob("*") if path.is_file())
