"""The same parts as of puts over processes, over plain sockets, with a checksum on both sides, a write into room that is set
aside, and a sync: what those puts are measured against. The checksum of equal copies is computed once, and a put to mirror-3 is
over when two of three copies are stored, as there.

`python -m bench.raw_nodes DIRECTORY LENGTH DISK...` is one of the processes: it takes parts of this length for these disks.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path

from bench.groups import put_by_callers
from penstock.blob import Erasure
from penstock.blob.disk import Buffer
from penstock.blob.erasure import codec_for
from penstock.blob.file_write import set_aside
from penstock.blob.local_disk import SET_ASIDE_BYTES
from penstock.core.checksum import crc32c

BATCH = 4  # parts that share a sync, as many as there are callers
CHECKSUM_BYTES = 4
SEND_BYTES = 512 << 10  # that the kernel holds, as between nodes


class RawNodes:
    """Processes that store parts, and the sockets to them, one for each disk."""

    def __init__(self, kind: Erasure, links: list[RawLink]) -> None:
        self._codec = codec_for(kind)
        self._links = links
        self._needed = 2 if kind is Erasure.MIRROR_3 else len(links)
        self._storing: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def started(cls, kind: Erasure, directory: Path, size: int, nodes: int) -> AsyncIterator[RawNodes]:
        """As many processes as the group has nodes, with a disk for each part of a blob."""
        codec = codec_for(kind)
        directory = directory.relative_to(Path.cwd())  # the path of a socket must be short
        parts = range(codec.total_parts)
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.raw_nodes", str(directory), str(codec.part_size(size))),
                *(str(part) for part in parts if part % nodes == node),
            )
            for node in range(nodes)
        ]
        try:
            links = [await RawLink.connected(directory / f"{part}.socket") for part in parts]
            yield cls(kind, links)
            for link in links:
                link.close()  # which ends the processes
        finally:
            for process in processes:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def run(self, data: bytes, amount: int, callers: int) -> float:
        """Store `amount` bytes; how many that were."""
        return await put_by_callers(self._put, data, amount, callers)

    async def _put(self, data: bytes) -> None:
        parts = self._codec.encode(data)
        checksums = {
            id(part): crc32c(part).to_bytes(CHECKSUM_BYTES, "big") for part in {id(part): part for part in parts}.values()
        }
        tasks = [
            asyncio.create_task(link.store(part, checksums[id(part)])) for link, part in zip(self._links, parts, strict=True)
        ]
        self._storing.update(tasks)
        for task in tasks:
            task.add_done_callback(self._storing.discard)
        for done in islice(asyncio.as_completed(tasks), self._needed):
            await done


class RawLink:
    """A socket to one disk. Parts are acknowledged in order."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = asyncio.Lock()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._hearing = asyncio.create_task(self._hear())

    @classmethod
    async def connected(cls, path: Path) -> RawLink:
        """Connect as soon as the process listens."""
        connection = socket.socket(socket.AF_UNIX)
        while True:
            try:
                connection.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(0.02)
            else:
                connection.setblocking(False)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
                return cls(connection)

    async def store(self, part: Buffer, checksum: bytes) -> None:
        """Send a part with its checksum, and wait until it is stored."""
        loop = asyncio.get_running_loop()
        async with self._sending:
            stored: asyncio.Future[None] = loop.create_future()
            self._waiting.append(stored)
            await loop.sock_sendall(self._socket, checksum)
            await loop.sock_sendall(self._socket, part)
        await stored

    def close(self) -> None:
        """Close the socket."""
        self._hearing.cancel()
        self._socket.close()

    async def _hear(self) -> None:
        loop = asyncio.get_running_loop()
        while replies := await loop.sock_recv(self._socket, 4096):
            for _ in replies:
                self._waiting.popleft().set_result(None)


def _serve(directory: Path, length: int, disk: str) -> None:
    """Store what comes for one disk; parts that are there already share a sync."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / f"{disk}.socket"))
    listener.listen()
    connection, _ = listener.accept()
    buffers = [memoryview(bytearray(CHECKSUM_BYTES + length)) for _ in range(BATCH)]
    file = os.open(directory / f"{disk}.raw", os.O_WRONLY | os.O_CREAT)
    end = set_aside_to = 0
    while True:
        count = 0
        while count < BATCH and (not count or select.select([connection], [], [], 0)[0]):
            at = 0
            while at < len(buffers[count]):
                received = connection.recv_into(buffers[count][at:])
                if not received:
                    return
                at += received
            told = int.from_bytes(buffers[count][:CHECKSUM_BYTES], "big")
            if crc32c(buffers[count][CHECKSUM_BYTES:]) != told:
                raise AssertionError("a part came with other bytes")
            count += 1
        size = count * len(buffers[0])
        if end + size > set_aside_to:
            set_aside_to += SET_ASIDE_BYTES
            set_aside(file, set_aside_to)
        os.pwritev(file, buffers[:count], end)
        end += size
        os.fdatasync(file)
        connection.sendall(bytes(count))


if __name__ == "__main__":
    for own in sys.argv[3:]:
        threading.Thread(target=_serve, args=(Path(sys.argv[1]), int(sys.argv[2]), own)).start()
