"""A block-4-2 group whose VDisks are in four other processes, under load: one is stopped, one killed and started again, and once
that is refilled another is killed. No put fails, and everything acknowledged is read back."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import uvloop

from penstock.blob import BlobId, Status
from penstock.blob.membership import Membership
from penstock.blob.meta import BlockItem
from penstock.blob.storage import through_races
from tests.e2e.interconnect.node_program import new_interconnect
from tests.e2e.interconnect.running_peer import RunningPeer, connected, running_module
from tests.e2e.interconnect.vdisk_program import FIRST, HOSTS, membership_of

TABLET = 1
OTHER_TABLET = (99).to_bytes(8, "big")
WRITERS = 4
SIZES = (500, 20_000, 400_000)
STOPPED_S = 3.0
PUTS = 50  # between two faults, at least
WAIT_S = 60.0


class Writers:
    """Tasks that put blobs until they are told to end."""

    def __init__(self, membership: Membership) -> None:
        self._proxy = membership.proxy
        self.acknowledged: list[BlobId] = []
        self.failed: list[str] = []
        self._step = 0
        self._in_flight: set[BlobId] = set()
        self._ending = False
        self._tasks = [asyncio.ensure_future(self._write()) for _ in range(WRITERS)]

    async def go_on(self) -> None:
        """Wait for more puts."""
        wanted = len(self.acknowledged) + PUTS
        while len(self.acknowledged) < wanted and not self.failed:  # noqa: ASYNC110 - a test that looks on
            await asyncio.sleep(0.01)
        assert not self.failed, "\n".join(self.failed)

    async def settle(self) -> None:
        """Wait for the puts in flight, which may have met the fault before: with the next one it would be too many for them."""
        met = set(self._in_flight)
        while met & self._in_flight and not self.failed:  # noqa: ASYNC110 - a test that looks on
            await asyncio.sleep(0.01)
        assert not self.failed, "\n".join(self.failed)

    async def end(self) -> None:
        self._ending = True
        await asyncio.gather(*self._tasks)
        assert not self.failed, "\n".join(self.failed)

    async def _write(self) -> None:
        while not self._ending:
            self._step += 1
            blob_id = BlobId(TABLET, 0, 1, self._step, 0, SIZES[self._step % len(SIZES)])
            self._in_flight.add(blob_id)
            reply = await through_races(self._proxy, partial(self._proxy.put, blob_id, data_of(blob_id)))
            self._in_flight.discard(blob_id)
            if reply.status is Status.OK:
                self.acknowledged.append(blob_id)
            else:
                self.failed.append(f"{blob_id}: {reply}")
                return


def data_of(blob_id: BlobId) -> bytes:
    """The only bytes that a blob of this id may have."""
    return hashlib.shake_128(blob_id.pack()).digest(blob_id.size)


async def form(membership: Membership) -> None:
    """Let the empty disks of the new group begin, and decide that it serves."""
    links = [link for link in membership.group.links if link is not None]
    for link in links:
        assert (await link.form(1)).status is Status.OK
    formed = FIRST.formed()
    for link in links:
        assert (await link.configure(formed)).status is Status.OK
    membership.learn(formed)
    await in_step(membership, range(len(links)))


async def in_step(membership: Membership, orders: range) -> None:
    """Wait until VDisks have heard from their sisters, so that they take commands, and hold all that they should."""
    deadline = time.monotonic() + WAIT_S
    for order in orders:
        while True:
            link = membership.group.links[order]
            assert link is not None
            generation = membership.group.generation
            held = await link.channels(generation)
            blocked = await link.block(generation, BlockItem(OTHER_TABLET, 1, 1))
            if held.status is Status.OK and held.proves_absence and blocked.status in (Status.OK, Status.ALREADY):
                break
            assert time.monotonic() < deadline, (order, held, blocked)
            await asyncio.sleep(0.05)


async def use(peers: Hosts, directory: Path) -> None:
    own = new_interconnect(1)
    membership = membership_of(1, own, directory)
    for link in own.links.values():
        await connected(link)
    await form(membership)
    proxy = membership.proxy
    assert (await through_races(proxy, partial(proxy.block, TABLET, 1, 1))).status is Status.OK
    writers = Writers(membership)
    await writers.go_on()
    with peers.stopped(3):
        await asyncio.gather(asyncio.sleep(STOPPED_S), writers.go_on())
    await connected(own.links[3])
    await in_step(membership, range(2, 4))
    await writers.settle()
    peers.kill(5)
    await writers.go_on()
    peers.start(5)
    await connected(own.links[5])
    await in_step(membership, range(6, 8))
    await writers.go_on()
    await writers.settle()
    peers.kill(2)
    await writers.go_on()
    await writers.end()
    for blob_id in writers.acknowledged:
        result = await proxy.get(blob_id)
        assert (result.status, bytes(result.data) == data_of(blob_id)) == (Status.OK, True), (blob_id, result.reason)
    assert (await proxy.block(TABLET, 2, 7)).status is Status.OK
    late = BlobId(TABLET, 0, 1, 1_000_000, 0, 100)
    assert (await proxy.put(late, data_of(late))).status is Status.BLOCKED
    await membership.group.drain()
    await own.close()


class Hosts:
    """The processes that have the disks."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._running: dict[int, RunningPeer] = {}
        for node in HOSTS:
            self.start(node)

    def start(self, node: int) -> None:
        argv = ["tests.e2e.interconnect.vdisk_program", str(node), str(self._directory)]
        self._running[node] = self._stack.enter_context(running_module(argv, self._directory / "log"))

    def kill(self, node: int) -> None:
        self._running[node].process.kill()
        self._running[node].process.wait()

    @contextmanager
    def stopped(self, node: int) -> Iterator[None]:
        os.kill(self._running[node].process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._running[node].process.pid, signal.SIGCONT)


def test_no_put_fails_while_hosts_are_stopped_killed_and_refilled(tmp_path: Path) -> None:
    with ExitStack() as stack:
        uvloop.run(asyncio.wait_for(use(Hosts(tmp_path, stack), tmp_path), 110.0))
    assert "Traceback" not in (tmp_path / "log").read_text(encoding="utf-8")
