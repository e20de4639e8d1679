"""A block-4-2 group whose VDisks are in four other processes: one of them is stopped and one killed, and no put fails."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop

from penstock.blob import BlobId, GroupProxy, Status
from penstock.blob.group import Group
from penstock.blob.remote_link import RemoteLink
from penstock.core.clock import SystemClock
from penstock.interconnect import Interconnect
from tests.e2e.interconnect.node_program import new_interconnect
from tests.e2e.interconnect.running_peer import RunningPeer, connected, running_module
from tests.e2e.interconnect.vdisk_program import ERASURE, GROUP

HOSTS = (2, 3, 4, 5)
TABLET = 1
WRITERS = 4
SIZES = (500, 20_000, 400_000)
STOPPED_S = 3.0


class Writers:
    """Tasks that put blobs until they are told to end."""

    def __init__(self, proxy: GroupProxy) -> None:
        self._proxy = proxy
        self.acknowledged: list[BlobId] = []
        self.failed: list[str] = []
        self._step = 0
        self._tasks = [asyncio.ensure_future(self._write()) for _ in range(WRITERS)]
        self._ending = False

    async def until(self, more: int) -> None:
        """Wait for so many more puts."""
        wanted = len(self.acknowledged) + more
        while len(self.acknowledged) < wanted and not self.failed:  # noqa: ASYNC110 - a test that looks on
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        self._ending = True
        await asyncio.gather(*self._tasks)

    async def _write(self) -> None:
        while not self._ending:
            self._step += 1
            blob_id = BlobId(TABLET, 0, 1, self._step, 0, SIZES[self._step % len(SIZES)])
            reply = await self._proxy.put(blob_id, data_of(blob_id))
            if reply.status is Status.OK:
                self.acknowledged.append(blob_id)
            else:
                self.failed.append(f"{blob_id}: {reply}")
                return


def data_of(blob_id: BlobId) -> bytes:
    """The only bytes that a blob of this id may have."""
    return hashlib.shake_128(blob_id.pack()).digest(blob_id.size)


async def open_group(own: Interconnect, peers: dict[int, RunningPeer]) -> GroupProxy:
    """The group as a node without disks sees it."""
    links: list[Any] = []
    for order in range(ERASURE.shape.disks):
        node_id = HOSTS[order // 2]
        links.append(RemoteLink(await connected(own.link(node_id, peers[node_id].address)), GROUP, order))
    return GroupProxy(Group(GROUP, 1, ERASURE, links), SystemClock())


async def use(peers: dict[int, RunningPeer]) -> None:
    own = new_interconnect(1)
    proxy = await open_group(own, peers)
    assert (await proxy.block(TABLET, 1, 1)).status is Status.OK
    writers = Writers(proxy)
    await writers.until(60)
    os.kill(peers[3].process.pid, signal.SIGSTOP)
    try:
        await asyncio.gather(asyncio.sleep(STOPPED_S), writers.until(60))
    finally:
        os.kill(peers[3].process.pid, signal.SIGCONT)
    await connected(own.links[3])
    await writers.until(60)
    peers[5].process.kill()
    await writers.until(60)
    await writers.end()
    assert writers.failed == []
    for blob_id in writers.acknowledged:
        result = await proxy.get(blob_id)
        assert (result.status, bytes(result.data) == data_of(blob_id)) == (Status.OK, True), (blob_id, result.reason)
    assert (await proxy.block(TABLET, 2, 7)).status is Status.OK
    late = BlobId(TABLET, 0, 1, 1_000_000, 0, 100)
    assert (await proxy.put(late, data_of(late))).status is Status.BLOCKED
    await proxy.group.drain()
    await own.close()


def test_no_put_fails_while_a_host_of_two_disks_is_stopped_or_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        peers = {}
        for at, node_id in enumerate(HOSTS):
            argv = [str(node_id), f"unix:{tmp_path}/node-{node_id}", str(tmp_path), f"{2 * at},{2 * at + 1}"]
            module = ["tests.e2e.interconnect.vdisk_program", *argv]
            peers[node_id] = stack.enter_context(running_module(module, tmp_path / "log"))
        uvloop.run(asyncio.wait_for(use(peers), 100.0))
    assert "Traceback" not in (tmp_path / "log").read_text(encoding="utf-8")
