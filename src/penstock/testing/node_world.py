"""The stage of the fault simulation over nodes: one group whose VDisks are on several nodes, and tablets on a node of their own.

Each node is a process with the VDisks that the group's configuration seats on it. It starts with the configuration it is told,
which may be an old one. All that nodes say to each other goes over the interconnect and a simulated network.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from random import Random
from typing import Any, TypeVar, cast

from penstock.blob import BlobId, Disk, Erasure, GetResult, GroupOptions, Status
from penstock.blob.configuration import Configuration, ConfigurationReply, Seat
from penstock.blob.link import DiskLink
from penstock.blob.membership import Membership
from penstock.blob.quorum import group_quorum
from penstock.blob.remote_link import link_to_vdisk
from penstock.blob.storage import through_races
from penstock.blob.vdisk import VDisk
from penstock.blob.vdisk_host import VDiskHost
from penstock.blob.vdisk_service import VDiskService
from penstock.interconnect import Interconnect, NodeIdentity
from penstock.testing.fault_ledger import InvariantError
from penstock.testing.fault_world import AT_ONCE_RATE, GROUP_ID, World
from penstock.testing.sim_disk import SimDisk, SimPlatter
from penstock.testing.sim_loop import ProcessDiedError, SimClock, SimLoop, SimProcess
from penstock.testing.sim_network import SimNetwork

T = TypeVar("T")

CLIENT = 100  # the node of the tablets, which has no disks
CLUSTER_ID = b"simulated-nodes!"
CONNECT_S = 10.0
LINK_TIMEOUT_S = 2.0
WATCH_S_MAX = 20.0
DELAY_S = (0.0001, 0.001)
LAYOUTS = {  # how many VDisks each node has, by order of the VDisks
    Erasure.MIRROR_3: ((1, 1, 1),),
    Erasure.BLOCK_4_2: ((2, 2, 2, 2), (1,) * 8),
    Erasure.MIRROR_3_DC: ((3, 3, 3), (1,) * 9),
}


class Node:
    """A node: one process after another, with the membership of the group and a host of the VDisks that are seated on it."""

    def __init__(self, world: NodeWorld, number: int) -> None:
        self._world = world
        self.number = number
        self.name = f"node-{number}"
        self._lives = 0
        self.process: SimProcess | None = None

    @property
    def is_up(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and not self.process.crashed

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self.name}:1"

    async def start(self, configuration: Configuration) -> None:
        """Start a process that knows this configuration, unless its disks know a newer one."""
        self._lives += 1
        self.process = process = SimProcess(self._world.loop, f"{self.name}-{self._lives}")
        await process.call(self._begin(configuration))
        self._watching = process.spawn(self._watch())

    async def _begin(self, configuration: Configuration) -> None:
        world, clock = self._world, SimClock(self._world.loop)
        self.interconnect = interconnect = Interconnect(
            NodeIdentity(CLUSTER_ID, self.number, self._lives),
            world.network.host(self.name),
            clock=clock,
            random=world.loop.fork_random(f"{self.name}/{self._lives}"),
        )
        self.membership = Membership(configuration, self._connect, clock)
        self.host = host = VDiskHost.of_node(
            self.number, self.membership, self._open_disk, clock=clock, random=world.disk_random, options=world.options
        )
        interconnect.watch(host.note_link)
        for order in world.orders:
            VDiskService(interconnect.service, GROUP_ID, order, partial(_vdisk_of, host, order))
        await interconnect.listen(self.address)
        await host.start()

    async def _watch(self) -> None:
        """Hear of the configuration where it is decided, some time after the start and then now and then."""
        while True:
            await asyncio.sleep(self._world.watch_random.uniform(0, WATCH_S_MAX))
            self.membership.learn(self._world.configuration)

    def hear(self, configuration: Configuration) -> None:
        """Learn a configuration where it is decided, if the process lives."""

        async def learn() -> None:
            self.membership.learn(configuration)

        if self.process is not None and self.is_up:
            _ = self.process.spawn(learn())

    def kill(self, *, silently: bool = False) -> None:
        """End the process at once; silently, if its machine lost power."""
        if self.process is not None and not self.process.crashed:
            self.process.crash()
            self._world.network.crash(self.name, silently=silently)

    def _connect(self, configuration: Configuration, order: int) -> DiskLink | None:
        number = configuration.seats[order].node
        return None if number == self.number else self.link(number, order)

    def link(self, number: int, order: int) -> DiskLink:
        """The link to a VDisk on another node; called in the process."""
        link = self.interconnect.link(number, self._world.nodes[number].address)
        return link_to_vdisk(link, GROUP_ID, order, timeout_s=LINK_TIMEOUT_S)

    async def _open_disk(self, order: int) -> Disk:
        seat = self.membership.configuration.seats[order]
        if seat.node != self.number:
            raise OSError(errno.ENODEV, f"VDisk {order} is on node {seat.node}")
        return SimDisk(self._world.platter(seat), self._world.disk_random, self._world.faults[order], at_once_rate=AT_ONCE_RATE)


def _vdisk_of(host: VDiskHost, order: int) -> VDisk | None:
    return host.vdisks.get(order)


class GroupOfNodes:
    """The group as the tablets use it, and rounds by hand on all of its nodes; takes the place of a LocalGroup."""

    def __init__(self, world: NodeWorld) -> None:
        self._world = world
        self.membership = world.nodes[CLIENT].membership
        self.group = self.membership.group

    @property
    def proxy(self) -> Any:
        """The proxy of the tablets' node, which sends a command again when it is told RACE."""
        return _RaceProxy(self.membership)

    @property
    def vdisks(self) -> dict[int, VDisk]:
        """The VDisks that are open where the configuration seats them."""
        found: dict[int, VDisk] = {}
        for order, seat in enumerate(self._world.configuration.seats):
            node = self._world.nodes[seat.node]
            if node.is_up and (vdisk := node.host.vdisks.get(order)) is not None:
                found[order] = vdisk
        return found

    async def sync(self) -> None:
        """A round of sync on every node."""
        await self._on_all(lambda host: host.sync())

    async def replicate(self) -> None:
        """A round of replication on every node."""
        await self._on_all(lambda host: host.replicate())

    async def tend(self) -> None:
        """A step of upkeep on every node."""
        await self._on_all(lambda host: host.tend())

    async def scrub(self) -> int:
        """Verify everything that is stored, once; the number of damaged parts found."""
        return sum(await self._on_all(lambda host: host.scrub()))

    async def _on_all(self, run: Callable[[VDiskHost], Coroutine[Any, Any, T]]) -> list[T]:
        nodes = [node for node in self._world.nodes.values() if node.is_up]
        return [await node.process.call(run(node.host)) for node in nodes if node.process is not None]


class _RaceProxy:
    """The commands of a proxy, as a tablet gets them."""

    def __init__(self, membership: Membership) -> None:
        self._proxy = membership.proxy

    async def get_many(self, queries: Sequence[tuple[BlobId, int, int | None]]) -> list[GetResult]:
        """Read several ranges at once."""
        return list(await asyncio.gather(*(self.get(*query) for query in queries)))

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        command = getattr(self._proxy, name)

        async def send(*args: Any, **kwargs: Any) -> Any:
            return await through_races(self._proxy, lambda: command(*args, **kwargs))

        return send


class NodeWorld(World):
    """One group over nodes and all that can be wrong with it. The world decides on configurations, one after another."""

    def __init__(self, loop: SimLoop, erasure: Erasure, options: GroupOptions, rng: Random) -> None:
        super().__init__(loop, erasure, options)
        layout = rng.choice(LAYOUTS[erasure])
        seats = [Seat(node, f"disk-{disk}") for node, disks in enumerate(layout, start=1) for disk in range(disks)]
        self.configurations = [Configuration(GROUP_ID, 1, erasure, tuple(seats), is_formed=False)]
        self._platters = dict(zip(seats, self.platters, strict=True))
        self.storage_nodes = range(1, len(layout) + 3)  # two of them have no VDisk at first
        self.watch_random = loop.fork_random("watches")
        self.network = SimNetwork(loop)
        self.nodes = {number: Node(self, number) for number in (CLIENT, *self.storage_nodes)}

    @property
    def configuration(self) -> Configuration:
        """The configuration that was decided on last."""
        return self.configurations[-1]

    def orders_on(self, node: int) -> list[int]:
        """The VDisks that are seated on a node."""
        return [order for order, seat in enumerate(self.configuration.seats) if seat.node == node]

    def cut(self, these: Iterable[int], those: Iterable[int], *, one_way: bool = False) -> None:
        """Deliver nothing from these nodes to those, nor back unless only one way is cut."""
        for source, target in product(these, those):
            self.network.cut(self.nodes[source].name, self.nodes[target].name)
            if not one_way:
                self.network.cut(self.nodes[target].name, self.nodes[source].name)

    def platter(self, seat: Seat) -> SimPlatter:
        """The medium of a seat, which is empty at first."""
        return self._platters.setdefault(seat, SimPlatter())

    async def offer(self, configuration: Configuration, order: int, node: int) -> ConfigurationReply:
        """Push a configuration to a VDisk of a node, from the node of the tablets."""
        return await self.do(self._configure(configuration, order, node))

    async def _configure(self, configuration: Configuration, order: int, node: int) -> ConfigurationReply:
        return await self.nodes[CLIENT].link(node, order).configure(configuration)

    async def form(self) -> None:
        """Start all nodes, let the empty disks of the new group begin, and decide that it serves."""
        for number in self.storage_nodes:
            await self.nodes[number].start(self.configuration)
        await self.start()
        await self.wait(self._is_connected, CONNECT_S, "the nodes are not connected")
        links = [link for link in self.nodes[CLIENT].membership.group.links if link is not None]
        replies = [await self.do(link.form(1)) for link in links]
        begun = sum(1 << order for order, reply in enumerate(replies) if reply.status is Status.OK)
        if not group_quorum(self.erasure, begun):
            raise InvariantError(f"the new group does not form: {replies}")
        await self.decide(self.configuration.formed(), range(len(links)))
        await self.wait(lambda: all(vdisk.in_step for vdisk in self.vdisks().values()), 10.0, "the new group does not serve")

    async def decide(self, configuration: Configuration, told: range | list[int]) -> None:
        """Take a configuration as decided, and tell some VDisks of it; the others hear of it from these. Who tells them may die
        before all are told."""
        self.configurations.append(configuration)
        self.platters = [self.platter(seat) for seat in configuration.seats]
        client = self.nodes[CLIENT]
        for order in told:
            if client.is_up:
                with suppress(ProcessDiedError):
                    await self.offer(configuration, order, configuration.seats[order].node)

    def _is_connected(self) -> bool:
        return all(link.is_connected for node in self.nodes.values() for link in node.interconnect.links.values())

    async def let_client_learn(self) -> None:
        """Let the node of the tablets learn the newest configuration and connect to all nodes of it, so that none of its commands
        takes a VDisk that has moved for one that is out."""
        self.nodes[CLIENT].hear(self.configuration)
        await self.wait(self._is_connected, CONNECT_S, "the nodes are not connected")

    async def move_vdisk(self, order: int, node: int, told: list[int]) -> None:
        """Let a VDisk live on another node. Its new node is told, as by its watch, and some VDisks."""
        seat = Seat(node, f"moved-{self.configuration.generation}")
        self._moves += 1
        for interval in self._intervals:
            interval.moved = True
        await self.decide(self.configuration.moved(order, seat), [other for other in told if other != order])
        self.nodes[node].hear(self.configuration)

    def end_move(self) -> None:
        """From now on no command may be told RACE."""
        self._moves -= 1

    def mend(self, node: int) -> None:
        """Let everything to and from a node pass again."""
        for other in self.nodes:
            if other != node:
                for source, target in ((node, other), (other, node)):
                    self.network.delay(self.nodes[source].name, self.nodes[target].name, *DELAY_S)
                    self.network.restore(self.nodes[source].name, self.nodes[target].name)

    async def start(self, crash_after: int | None = None) -> None:
        """Start the node of the tablets, which may know of an old configuration only."""
        node = self.nodes[CLIENT]
        known = self._life_random.choice(self.configurations[-2:])
        await node.start(known)
        if node.process is None:
            raise InvariantError("the node of the tablets does not start")
        self.process = node.process
        self.life = cast("Any", GroupOfNodes(self))
        self.process.on_crash(self._went_down)
        deadline = self.loop.time() + CONNECT_S
        while not all(self.is_reachable(order) for order in self.orders if order not in self.impaired):
            if self.loop.time() > deadline:
                raise InvariantError("the node of the tablets does not reach nodes that have no fault")
            await asyncio.sleep(0.01)
        self.down.clear()
        self.up.set()

    async def stop(self) -> None:
        """End all processes as on a shutdown."""
        self.up.clear()
        for node in self.nodes.values():
            if node.is_up and node.process is not None:
                await node.process.call(node.host.stop())
                await node.process.call(node.interconnect.close())
                node.kill()

    def is_reachable(self, order: int) -> bool:
        """Whether the node of the tablets has a connection to the node of a VDisk."""
        client = self.nodes[CLIENT]
        link = client.interconnect.links.get(client.membership.configuration.seats[order].node)
        return link is not None and link.is_connected

    def is_in_touch(self, order: int) -> bool:
        """Whether the node of a VDisk and those of all that have no fault can call each other, and not only believe so: what was
        lost without a word, or is late, is a fault of it until both have noticed or it has arrived."""
        seats = self.configuration.seats
        node = seats[order].node
        others = {seat.node for other, seat in enumerate(seats) if other not in self.impaired and seat.node != node}
        return all(self._can_call(node, other) and self._can_call(other, node) for other in (CLIENT, *others))

    def _can_call(self, source: int, target: int) -> bool:
        here, there = self.nodes[source], self.nodes[target]
        link = here.interconnect.links.get(target)
        if link is None:
            return True
        has_heartbeats = link.is_connected and link._missed <= 1  # the last of them may be on its way
        return has_heartbeats and self.network.is_sound(here.name, there.name)

    def is_heard(self, order: int) -> bool:
        """Whether every other VDisk has heard of this one since a link to it broke."""
        hosts = [node.host for node in self.nodes.values() if node.is_up]
        return not any(member.syncer.unheard >> order & 1 for host in hosts for member in host._members.values())

    def check_tasks(self) -> None:
        """No task of a host may have ended by itself."""
        for node in self.nodes.values():
            for task in node.host.keepers.values() if node.is_up else ():
                if task.done():
                    error = None if task.cancelled() else task.exception()
                    raise InvariantError(f"the task {task.get_name()} of {node.name} has ended: {error!r}") from error

    async def wait(self, ready: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until something is so."""
        deadline = self.loop.time() + timeout_s
        while not ready():
            if self.loop.time() > deadline:
                raise InvariantError(f"{what} within {timeout_s:g} s")
            await asyncio.sleep(0.1)
