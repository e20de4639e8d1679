"""A group whose VDisks are in other processes of this machine: puts beside the same group in one, and what a refill costs.

`python -m bench.nodes KIND NODE DIRECTORY WORK` is one of the processes; its work decides how often disks look after themselves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from statistics import median

import uvloop

from bench.groups import GROUP, expect_ok, open_group, start_tablet
from bench.measure import MIB, Row, Setting, bytes_rate, limit_row, quartiles
from bench.none_puts import Puts
from bench.process_cpu import cpu_s
from bench.raw_nodes import RawNodes
from penstock.blob import BlobId, Disk, Erasure, GroupOptions, LocalDisk, Status
from penstock.blob.configuration import Configuration, Seat
from penstock.blob.link import DiskLink
from penstock.blob.membership import Membership
from penstock.blob.remote_link import link_to_vdisk
from penstock.blob.storage import through_races
from penstock.blob.vdisk_host import VDiskHost
from penstock.blob.vdisk_service import VDiskService
from penstock.core.clock import SystemClock
from penstock.core.memory import collect_seldom, keep_freed_memory
from penstock.interconnect import Interconnect, NodeIdentity, SocketNetwork

TABLET, OTHER_TABLET = 1, 2
WRITER = 100  # the node of the benchmark itself
WAIT_S = 120.0
NODES = {Erasure.MIRROR_3: 3, Erasure.BLOCK_4_2: 4}
# Puts go beside the background work that a node has; what is measured of refills must begin soon.
OPTIONS = {"puts": GroupOptions(), "refills": GroupOptions(sync_interval=0.2, replication_interval=1.0, scrub_interval=None)}
REFILLED = 3  # the node whose disk is wiped
OTHERS_SIZE, OTHERS = 4 << 10, 16  # what others put during a refill, and how many do


async def rows(setting: Setting) -> list[Row]:
    """Large puts of both kinds, then refills."""
    logging.getLogger("penstock").setLevel(logging.ERROR)  # processes are killed here, and links to them break
    found = [row for kind in NODES for row in await _puts(setting, kind)]
    return [*found, *await _refills(setting)]


async def _puts(setting: Setting, kind: Erasure) -> list[Row]:
    """1 MiB puts from four callers, by turns to the group over processes, to the same in this one, and to processes that do no
    more than they must."""
    data = os.urandom(MIB)
    apart: list[float] = []
    together: list[float] = []
    bare: list[float] = []
    spent: dict[int, list[float]] = {}  # microseconds of all processors for 1 MiB, by the side that was put to
    directory, raw = setting.directory(f"one-{kind.value}"), setting.directory(f"raw-{kind.value}")
    async with (
        Nodes.started(kind, setting.directory(f"n-{kind.value}"), "puts") as nodes,
        open_group(kind, directory, options=OPTIONS["puts"]) as life,
        RawNodes.started(kind, raw, len(data), NODES[kind]) as raw_nodes,
    ):
        await start_tablet(life.proxy, TABLET)
        sides: list[tuple[Puts | RawNodes, list[float]]]
        sides = [(Puts(nodes.membership.proxy), apart), (Puts(life.proxy), together), (raw_nodes, bare)]
        for number in range(setting.rounds(40) + 1):
            for puts, rates in sides if number % 2 else reversed(sides):
                began, cpu = time.perf_counter(), nodes.cpu_s()
                amount = await puts.run(data, 16 * MIB, 4)
                if number:
                    rates.append(amount / (time.perf_counter() - began))
                    spent.setdefault(id(rates), []).append((nodes.cpu_s() - cpu) * 1e6 * MIB / amount)
    name = f"{kind.value}: 1 MiB puts, 4 callers, over {NODES[kind]} processes"
    found: list[Row] = []
    for peer, rates, goal in (("one", together, 0.8), ("sockets", bare, None)):
        ratios = [ours / beside for ours, beside in zip(apart, rates, strict=True)]
        beside = f"{peer} {bytes_rate(median(rates))}"
        found.append(Row(name, bytes_rate(median(apart)), beside, median(ratios), "x", goal, True, *quartiles(ratios)))
    beside = f"one {median(spent[id(together)]):.0f} us"
    found.append(limit_row(f"{name}: CPU of all", spent[id(apart)], unit="us", goal=None, beside=beside))
    return found


async def _refills(setting: Setting) -> list[Row]:
    """How quickly a wiped disk of mirror-3 is refilled, alone and while others write, and what is left to those."""
    stored = (64 if setting.quick else 256) * MIB
    kept: list[float] = []
    speeds: list[float] = []
    alone: list[float] = []
    async with Nodes.started(Erasure.MIRROR_3, setting.directory("n-refill"), "refills") as nodes:
        await Puts(nodes.membership.proxy).run(os.urandom(MIB), stored, 4)
        others = Others(nodes.membership)
        for _ in range(2 if setting.quick else 6):
            await nodes.wipe(REFILLED)
            alone.append((stored + others.bytes_put) / await nodes.time_refill(REFILLED))
            async with others.writing():
                before = await others.rate(2.0)
                await nodes.wipe(REFILLED)
                count, began, lacking = others.count, time.perf_counter(), stored + others.bytes_put
                speeds.append(lacking / await nodes.time_refill(REFILLED))
                during = (others.count - count) / (time.perf_counter() - began)
                kept.append(during / ((before + await others.rate(2.0)) / 2))
    rate = f"{OTHERS} writers of {OTHERS_SIZE >> 10} KiB"
    return [
        limit_row("mirror-3: others keep while a disk is refilled", kept, unit="x", goal=0.7, at_least=True, beside=rate),
        limit_row(
            "mirror-3: refill over processes while others write",
            [speed / 1e6 for speed in speeds],
            unit="MB/s",
            goal=None,
            beside=f"alone {bytes_rate(median(alone))}",
        ),
    ]


class Others:
    """Writers that put one blob after another, and how many puts were acknowledged."""

    def __init__(self, membership: Membership) -> None:
        self._proxy = membership.proxy
        self._step = 0
        self.count = 0

    @property
    def bytes_put(self) -> int:
        """What they have put so far: a refilled disk needs that too."""
        return self.count * OTHERS_SIZE

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """They write meanwhile."""
        data = os.urandom(OTHERS_SIZE)
        tasks = [asyncio.create_task(self._write(data)) for _ in range(OTHERS)]
        yield
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def rate(self, seconds: float) -> float:
        """Puts a second in the next seconds."""
        before, began = self.count, time.perf_counter()
        await asyncio.sleep(seconds)
        return (self.count - before) / (time.perf_counter() - began)

    async def _write(self, data: bytes) -> None:
        while True:
            self._step += 1
            blob_id = BlobId(OTHER_TABLET, 0, 1, self._step, 0, len(data))
            # A node that was wiped begins with an old configuration, and answers RACE until it has heard of the newer one.
            expect_ok(await through_races(self._proxy, partial(self._proxy.put, blob_id, data)))
            self.count += 1


class Nodes:
    """The processes of a group, and the group as this process uses it."""

    def __init__(self, kind: Erasure, directory: Path, work: str) -> None:
        self._kind = kind
        self._work = work
        self._directory = directory
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self.interconnect = _new_interconnect(WRITER)
        self.membership = _membership(kind, WRITER, self.interconnect, directory)

    @classmethod
    @asynccontextmanager
    async def started(cls, kind: Erasure, directory: Path, work: str) -> AsyncIterator[Nodes]:
        """A new group that serves."""
        nodes = cls(kind, directory.relative_to(Path.cwd()), work)  # the path of a socket must be short
        try:
            for node in range(1, NODES[kind] + 1):
                await nodes._start(node)
            await nodes._form()
            for tablet in (TABLET, OTHER_TABLET):
                await start_tablet(nodes.membership.proxy, tablet)
            yield nodes
        finally:
            await nodes.interconnect.close()
            for process in nodes._processes.values():
                process.kill()
                await process.wait()

    def cpu_s(self) -> float:
        """The processor time that this process and those of the group have used."""
        return cpu_s(os.getpid()) + sum(cpu_s(process.pid) for process in self._processes.values())

    async def wipe(self, node: int) -> None:
        """Kill a process, and start it again with empty disks."""
        self._processes[node].kill()
        await self._processes[node].wait()
        for seat in self.membership.configuration.seats:
            if seat.node == node:
                shutil.rmtree(self._directory / seat.disk)
        await self._start(node)

    async def time_refill(self, node: int) -> float:
        """Wait until the VDisks of a node hold all that they should; how long that took since they began."""
        orders = [order for order, seat in enumerate(self.membership.configuration.seats) if seat.node == node]
        await self._wait(orders, whole=False)
        began = time.perf_counter()
        await self._wait(orders, whole=True)
        return time.perf_counter() - began

    async def _start(self, node: int) -> None:
        self._processes[node] = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.nodes", self._kind.value, str(node), str(self._directory), self._work
        )

    async def _form(self) -> None:
        links = [link for link in self.membership.group.links if link is not None]
        first = self.membership.configuration
        deadline = time.monotonic() + WAIT_S
        for link in links:
            while (reply := await link.form(1)).status is not Status.OK:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the group does not form: {reply.reason}")
                await asyncio.sleep(0.05)
        for link in links:
            await link.configure(first.formed())
        self.membership.learn(first.formed())
        await self._wait(range(len(links)), whole=True)
        # Rounds of sync, after which they take commands.
        await asyncio.sleep(1.0 + 2 * (OPTIONS[self._work].sync_interval or 0.0))

    async def _states(self, orders: list[int] | range) -> list[tuple[Status, bool]]:
        links = [link for order in orders if (link := self.membership.group.links[order]) is not None]
        replies = [await link.channels(self.membership.group.generation) for link in links]
        return [(reply.status, reply.proves_absence) for reply in replies]

    async def _wait(self, orders: list[int] | range, *, whole: bool) -> None:
        """Wait until VDisks answer, and hold all that they should if `whole`."""
        deadline = time.monotonic() + WAIT_S
        while True:
            states = await self._states(orders)
            if all(status is Status.OK and (is_whole or not whole) for status, is_whole in states):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"the VDisks are not ready: {states}")
            await asyncio.sleep(0.02)


def _membership(kind: Erasure, node: int, interconnect: Interconnect, directory: Path) -> Membership:
    """The group as a node knows it at first."""
    nodes, disks = NODES[kind], kind.shape.disks
    seats = tuple(Seat(1 + disk * nodes // disks, f"disk-{disk}") for disk in range(disks))

    def connect(configuration: Configuration, order: int) -> DiskLink | None:
        other = configuration.seats[order].node
        if other == node:
            return None
        return link_to_vdisk(interconnect.link(other, _address(other, directory)), GROUP, order)

    return Membership(Configuration(GROUP, 1, kind, seats, is_formed=False), connect, SystemClock())


def _address(node: int, directory: Path) -> str:
    return f"unix:{directory}/{node}"


def _new_interconnect(node: int) -> Interconnect:
    return Interconnect(
        NodeIdentity(b"benchmark-nodes!", node, time.time_ns()), SocketNetwork(), clock=SystemClock(), random=Random(node)
    )


async def _serve(kind: Erasure, node: int, directory: Path, options: GroupOptions) -> None:
    interconnect = _new_interconnect(node)
    membership = _membership(kind, node, interconnect, directory)

    async def open_disk(order: int) -> Disk:
        return await LocalDisk.open(directory / membership.configuration.seats[order].disk)

    host = VDiskHost.of_node(node, membership, open_disk, clock=SystemClock(), random=Random(), options=options)
    interconnect.watch(host.note_link)
    for order in host.hosted:
        VDiskService(interconnect.service, GROUP, order, lambda order=order: host.vdisks.get(order))  # type: ignore[misc]
    await interconnect.listen(_address(node, directory))
    await host.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.getLogger("penstock").setLevel(logging.ERROR)
    # As a node does.
    keep_freed_memory()
    collect_seldom()
    uvloop.run(_serve(Erasure(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), OPTIONS[sys.argv[4]]))
