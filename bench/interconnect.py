"""What calls to another process of the same machine cost: CPU of a 4 KiB call on both sides, 1 MiB calls beside a raw socket."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count, islice
from pathlib import Path
from random import Random

import uvloop

from bench.measure import MIB, Duel, Row, Setting, bytes_rate, limit_row
from bench.process_cpu import cpu_s
from penstock.blob import BlobId, Erasure, LocalDisk, Status, VDisk, VDiskId
from penstock.blob.meta import BlockItem
from penstock.blob.remote_link import link_to_vdisk
from penstock.blob.vdisk_service import VDiskService
from penstock.core.clock import SystemClock
from penstock.core.memory import collect_seldom, keep_freed_memory
from penstock.interconnect import CallStatus, Interconnect, Link, NodeIdentity, Parts, ServedCall, SocketNetwork

STORE = 1
ANSWER = b"k" * 20
CALL_BYTES = 4096
GROUP = 0x82000000
TABLET = 1
RAW_PIECE = 64 << 10
CONNECT_S = 10.0


async def rows(setting: Setting) -> list[Row]:
    """Calls from many tasks, which is what the goal is for, and from one; then large bodies."""
    found: list[Row] = []
    async with _peer(setting.directory("interconnect")) as (link, pid):
        data = os.urandom(CALL_BYTES)
        for callers, goal in ((64, 15.0), (8, 15.0), (1, None)):
            caller_us: list[float] = []
            server_us: list[float] = []
            for number in range(setting.rounds(30) + 1):
                spent, spent_there = await _cpu_of_calls(link, pid, data, callers, 2000)
                if number:
                    caller_us.append(spent)
                    server_us.append(spent_there)
            name = f"interconnect: CPU of a 4 KiB call, caller's side, {callers} caller{'s' if callers > 1 else ''}"
            beside = f"other side {min(server_us):.3g} us"
            found.append(limit_row(name, caller_us, unit="us", goal=goal, beside=beside))
        found.append(await _throughput(setting, link))
        found += await _cpu_of_puts_and_gets(setting, link, pid)
    return found


async def _cpu_of_calls(link: Link, pid: int, data: bytes, callers: int, calls: int) -> tuple[float, float]:
    """Microseconds of CPU a call, here and there."""
    before, before_there = time.process_time(), cpu_s(pid)
    await _call_all(link, data, callers, calls)
    return (time.process_time() - before) / calls * 1e6, (cpu_s(pid) - before_there) / calls * 1e6


async def _cpu_of_puts_and_gets(setting: Setting, link: Link, pid: int) -> list[Row]:
    """Parts of 4 KiB to a VDisk of the other process, which stores and syncs them, and back from it."""
    vdisk = link_to_vdisk(link, GROUP, 0)
    body = os.urandom(CALL_BYTES)
    reply = await vdisk.block(1, BlockItem(BlobId(TABLET, 0, 1, 1, 0, 1).pack()[:8], 0, 1))
    if reply.status is not Status.OK:
        raise RuntimeError(f"the tablet cannot start: {reply}")
    calls = 2048
    steps = count(1)

    async def put_some() -> None:
        for step in islice(steps, calls // 64):
            blob_id = BlobId(TABLET, 0, 1, step, 0, CALL_BYTES).pack_part(1)
            if (reply := await vdisk.put(1, blob_id, body)).status is not Status.OK:
                raise RuntimeError(f"a put failed: {reply}")

    stored = [BlobId(TABLET, 0, 1, step, 0, CALL_BYTES).pack_part(1) for step in range(1, calls // 64 + 1)]

    async def get_some() -> None:
        for blob_id in stored:
            if (reply := await vdisk.get(1, blob_id, 0, CALL_BYTES)).status is not Status.OK:
                raise RuntimeError(f"a get failed: {reply}")

    found: list[Row] = []
    for what, work in (("put to", put_some), ("get from", get_some)):
        caller_us: list[float] = []
        server_us: list[float] = []
        for number in range(setting.rounds(30) + 1):
            before, before_there = time.process_time(), cpu_s(pid)
            async with asyncio.TaskGroup() as group:
                for _ in range(64):
                    group.create_task(work())
            if number:
                caller_us.append((time.process_time() - before) / calls * 1e6)
                server_us.append((cpu_s(pid) - before_there) / calls * 1e6)
        name = f"interconnect: CPU of a 4 KiB {what} another process, caller's side, 64 callers"
        found.append(limit_row(name, caller_us, unit="us", goal=15.0, beside=f"other side {min(server_us):.3g} us"))
    return found


async def _call_all(link: Link, data: bytes, callers: int, calls: int) -> None:
    async def caller() -> None:
        for _ in range(calls // callers):
            reply = await link.call(STORE, 1, (data,), timeout_s=30.0)
            if reply.status is not CallStatus.OK:
                raise RuntimeError(f"a call failed: {reply}")

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())


async def _throughput(setting: Setting, link: Link) -> Row:
    """Bodies of 1 MiB, four in flight, against a process that writes the same into a socket that another reads."""
    data = os.urandom(MIB)
    times = 64

    async def ours() -> float:
        await _call_all(link, data, 4, times)
        return times * MIB

    with _raw_reader() as raw:
        duel = await Duel().run(setting.rounds(30), lambda: _raw_send(raw, data, times), ours)
    return duel.row("interconnect: 1 MiB calls, 4 in flight", show=bytes_rate, goal=None)


@contextmanager
def _raw_reader() -> Iterator[socket.socket]:
    """A process that reads all that comes and acknowledges each MiB with a byte."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    pid = os.fork()
    if pid:
        far.close()
        try:
            yield near
        finally:
            near.close()
            os.waitpid(pid, 0)
        return
    near.close()
    buffer = bytearray(MIB)
    view = memoryview(buffer)
    held = 0
    while count := far.recv_into(view[held:]):
        held += count
        if held == MIB:
            held = 0
            far.sendall(b"k")
    os._exit(0)


def _raw_send(raw: socket.socket, data: bytes, times: int) -> float:
    unanswered = 0
    for _ in range(times):
        raw.sendall(data)
        unanswered += 1
        if unanswered == 4:
            unanswered -= len(raw.recv(4))
    while unanswered:
        unanswered -= len(raw.recv(4))
    return times * MIB


@asynccontextmanager
async def _peer(directory: Path) -> AsyncIterator[tuple[Link, int]]:
    """Another process that listens, and the link to it."""
    address = f"unix:{directory.relative_to(Path.cwd()) / 's'}"  # the path of a socket must be short
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.interconnect", address, str(directory / "disk"))
    own = _new_interconnect(1)
    try:
        link = own.link(2, address)
        deadline = time.monotonic() + CONNECT_S
        while not link.is_connected:
            if time.monotonic() > deadline:
                raise TimeoutError(link.why_down)
            await asyncio.sleep(0.01)
        yield link, process.pid
    finally:
        await own.close()
        process.kill()
        await process.wait()


def _new_interconnect(node_id: int) -> Interconnect:
    return Interconnect(
        NodeIdentity(b"benchmark-of-us!", node_id, time.time_ns()), SocketNetwork(), clock=SystemClock(), random=Random(node_id)
    )


async def _serve(address: str, directory: Path) -> None:
    async def store(call: ServedCall) -> Parts:
        return (ANSWER,)

    interconnect = _new_interconnect(2)
    interconnect.service.register(1, {STORE: store})
    vdisk = await VDisk.open(
        VDiskId.of_order(Erasure.NONE, GROUP, 1, 0), Erasure.NONE, await LocalDisk.open(directory), random=Random(1)
    )
    VDiskService(interconnect.service, GROUP, 0, lambda: vdisk)
    await interconnect.listen(address)
    await asyncio.Event().wait()


if __name__ == "__main__":
    # As a node does.
    keep_freed_memory()
    collect_seldom()
    uvloop.run(_serve(sys.argv[1], Path(sys.argv[2])))
