"""The stage of the placement simulation: nodes that agree through a simulated store, reach each other or not, and host tablets
on one storage, which has no faults of its own here.

Each node is a process with the real coordination, the real tablets, and the real placement while it leads. What lies between
nodes is simple: links that break at once when a process dies and after a second of silence, and calls that may be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar, cast

from penstock.blob import BlobStorage, Confirmations, Erasure, GroupProxy, TabletInfo, TabletStorage
from penstock.broker import Tablets
from penstock.coordination import ClusterIdentity, Coordination, MemberRecord, OwnerMap
from penstock.coordination.key_layout import OWNERS
from penstock.core.errors import PenstockError
from penstock.placement import CatalogTablet, GroupNodes, HostOrder, Placement, TabletLoads, TabletState
from penstock.queue import PartitionConfig
from penstock.testing.coordination_model import SimCoordination
from penstock.testing.fault_ledger import InvariantError
from penstock.testing.fault_world import GROUP_ID
from penstock.testing.queue_ledger import PartitionLedger, SizeProfile
from penstock.testing.queue_world import QueueWorld, RemoteStorage, Wire
from penstock.testing.sim_loop import ProcessDiedError, SimClock, SimLoop, SimProcess, outside_context

T = TypeVar("T")

IDENTITY = ClusterIdentity(cluster_id="c1", name="sim", kind="mirror-3")
TTL_S = 5.0
TICK_S = 0.05
SILENCE_S = 1.0
LOOK_S = 0.1
SILENT_S = 0.3
ASK_S = 0.5
STATES_S = 1.0
DELAY_S_MAX = 0.005
CALM_S = 10.0
"""A node that nothing was wrong with for so long is reached by all, and all know it."""
FIRST_TABLET = 1000
CONFIG = PartitionConfig(low_watermark=1000, retention_bytes=None, retention_ms=None)


@dataclass(slots=True)
class SimLink:
    """What one node thinks of its connection to another."""

    is_up: bool = False
    down_since: float = 0.0
    silent_since: float | None = None


@dataclass(slots=True)
class HostedLedger:
    """What is known of one tablet: its messages, and the newest generation that acknowledged one."""

    tablet: CatalogTablet
    messages: PartitionLedger
    generation: int = 0


class PlacementWorld:
    """Nodes, the store and the storage, and all that can be wrong between them."""

    def __init__(self, loop: SimLoop, rng: Random, count: int) -> None:
        self.loop = loop
        self.random = rng
        self.store = SimCoordination(loop.fork_random("store"))
        self.queue = QueueWorld(loop, Erasure.NONE, loop.fork_random("storage"))
        self.wire = Wire(delay_s=rng.choice([0.0, 0.001, 0.005]), stray_rate=0.0, stray_s=0.0, timeout_s=5.0)
        self.members = {number: Member(self, number) for number in range(1, count + 1)}
        self.links: dict[tuple[int, int], SimLink] = {}
        self.cut: set[frozenset[int]] = set()  # pairs between which nothing passes
        self.ledgers: dict[int, HostedLedger] = {}
        self.next_tablet = FIRST_TABLET
        # When something was last wrong, by node, by pair of nodes, "store", or `Member.process_name` for the process of a node.
        self.disturbed_at: dict[object, float] = {}
        self.counts: dict[str, int] = {}
        self.log: list[str] = []
        self._carrying: set[asyncio.Task[None]] = set()
        self.poison: set[int] = set()  # tablets that kill the process which starts them
        self.operated: set[int] = set()  # tablets that an operator has asked to move

    def note(self, what: str) -> None:
        """Keep what happened and when."""
        self.log.append(f"{self.loop.time():9.3f} {what}")

    def count(self, what: str) -> None:
        """Keep a tally for the summary."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def disturb(self, what: object) -> None:
        """Something is wrong with a node or the store, at this time."""
        self.disturbed_at[what] = self.loop.time()

    def is_calm(self, what: object) -> bool:
        """Whether nothing was wrong with it for a while."""
        return self.loop.time() - self.disturbed_at.get(what, 0.0) >= CALM_S

    def new_tablets(self, count: int, partitions: int | None = None) -> list[int]:
        """Put tablets of a new topic into the catalog."""
        first = self.next_tablet
        self.next_tablet += count
        partitions = self.random.choice([1, 1, 2, 4]) if partitions is None else partitions
        for tablet_id in range(first, first + count):
            ledger = PartitionLedger(0, 0, SizeProfile(20, 200, 10))
            self.ledgers[tablet_id] = HostedLedger(CatalogTablet(tablet_id, f"t{first}", partitions, GROUP_ID), ledger)
        return list(range(first, first + count))

    # Between nodes.

    def reaches(self, source: int, target: int) -> bool:
        """Whether what one node sends gets to another, and is heard there."""
        return self.members[source].runs and self.members[target].runs and frozenset({source, target}) not in self.cut

    async def keep_links(self) -> None:
        """Let nodes notice that they reach others, or do not."""
        while True:
            now = self.loop.time()
            for source in self.members:
                for target in self.members:
                    if source != target:
                        self._keep_link(self.links.setdefault((source, target), SimLink()), source, target, now)
            await asyncio.sleep(TICK_S)

    def _keep_link(self, link: SimLink, source: int, target: int, now: float) -> None:
        if self.reaches(source, target):
            link.is_up, link.silent_since = True, None
            return
        link.silent_since = now if link.silent_since is None else link.silent_since
        is_refused = not self.members[target].is_up
        if link.is_up and (is_refused or now - link.silent_since >= SILENCE_S):
            link.is_up, link.down_since = False, now

    async def call(
        self, source: int, target: int, work: Callable[[Member], Coroutine[Any, Any, T]], timeout_s: float
    ) -> T | None:
        """Have another node do something; None if no answer comes in time, and then it may have done it."""
        if source == target:
            return await work(self.members[source])
        if not self.links[source, target].is_up:
            return None
        reply: asyncio.Future[T | None] = self.loop.create_future()
        self._carrying.add(
            carrying := self.loop.create_task(self._carry(source, target, work, reply), name="call", context=outside_context())
        )
        carrying.add_done_callback(self._carrying.discard)
        done, _ = await asyncio.wait([reply], timeout=timeout_s)
        return reply.result() if done else None

    async def _carry(
        self, source: int, target: int, work: Callable[[Member], Coroutine[Any, Any, T]], reply: asyncio.Future[T | None]
    ) -> None:
        await asyncio.sleep(self.random.uniform(0, DELAY_S_MAX))
        member = self.members[target]
        if frozenset({source, target}) in self.cut or member.process is None or member.process.crashed:
            return
        try:
            answer = await member.process.call(work(member))
        except ProcessDiedError:
            return
        await asyncio.sleep(self.random.uniform(0, DELAY_S_MAX))
        if self.reaches(source, target) and not reply.done():
            reply.set_result(answer)

    # What must hold.

    def judge_host(self, member: Member, tablet_id: int) -> None:
        """No node is told to start what another runs that most can reach, nor what it does not own."""
        leader = next((other for other in self.members.values() if other.is_up and other.placement is not None), None)
        if leader is None or not all(map(self.is_calm, (member.process_name, leader.process_name, "store"))):
            return
        for other in self.members.values():
            if other is member or not other.runs or tablet_id not in other.tablets.generations():
                continue
            if self._is_reached_by_most(other, leader):
                raise InvariantError(f"node {member.number} starts tablet {tablet_id}, which node {other.number} runs")
        owner = OwnerMap(self.store.table.scan(OWNERS).entries).owner_of(tablet_id)
        if owner != member.number and self.is_calm(member.number) and self.is_calm(leader.number):
            raise InvariantError(f"node {member.number} starts tablet {tablet_id}, which node {owner} owns")

    def _is_reached_by_most(self, member: Member, leader: Member) -> bool:
        """Whether more than half of the nodes beside the leader have reached a node for a while: then it is not lost, whatever
        the leader sees of it."""
        others = [other for other in self.members.values() if other not in (member, leader)]
        reaching = sum(
            other.runs and self.is_calm(other.process_name) and self.is_calm(frozenset({member.number, other.number}))
            for other in others
        )
        is_whole = self.is_calm(member.process_name)
        return is_whole and (self.is_calm(member.number) or 2 * reaching > len(others))

    def judge_write(self, tablet_id: int, generation: int) -> None:
        """Once a newer generation has acknowledged a write, no older one does."""
        ledger = self.ledgers[tablet_id]
        if generation < ledger.generation:
            raise InvariantError(f"generation {generation} of tablet {tablet_id} wrote after {ledger.generation} had")
        ledger.generation = generation


@dataclass
class SimStorage:
    """The storage, as a node on another machine uses it."""

    world: PlacementWorld
    random: Random

    def __post_init__(self) -> None:
        self.confirmations = Confirmations(self._proxy, now=self.world.loop.time)

    def tablet(self, info: TabletInfo) -> TabletStorage:
        """One tablet's view of it."""
        return RemoteStorage(self.world.queue, self.world.wire, self.random, info, self.confirmations)

    async def _proxy(self, _: int) -> GroupProxy:
        return cast("GroupProxy", RemoteStorage(self.world.queue, self.world.wire, self.random))


class Member:
    """A node: one process after another."""

    def __init__(self, world: PlacementWorld, number: int) -> None:
        self._world = world
        self.number = number
        self.name = f"n{number}"
        self.process: SimProcess | None = None
        self.placement: Placement | None = None
        self.process_name = f"process {number}"
        self._lives = 0
        self._placing: asyncio.Task[None] | None = None
        self._leader_revision = 0

    @property
    def is_up(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and not self.process.crashed

    @property
    def runs(self) -> bool:
        """Whether its process lives and is not stopped."""
        return self.process is not None and not self.process.crashed and not self.process.is_paused

    async def start(self) -> None:
        """Start a process, which joins by itself."""
        self._lives += 1
        world = self._world
        self._disturb()
        self.process = SimProcess(world.loop, f"{self.name}-{self._lives}")
        self.placement = self._placing = None
        self._leader_revision = 0
        self._loads = TabletLoads()
        rng = world.loop.fork_random(f"{self.name}/{self._lives}")
        self.coordination = Coordination(world.store.client(self.name), now=world.loop.time)
        self.storage = SimStorage(world, rng)
        storage = cast("BlobStorage", self.storage)
        clock = SimClock(world.loop)
        self.tablets = Tablets(storage, GROUP_ID, cache_bytes=1 << 20, clock=clock, random=rng, on_fenced=self._note_fenced)
        _ = self.process.spawn(self._run())
        _ = self.process.spawn(self.storage.confirmations.run())

    def kill(self) -> None:
        """End the process at once."""
        self._disturb()
        if self.process is not None:
            self.process.crash()

    async def stop(self) -> None:
        """End the process in order."""
        self._disturb()
        if self.process is not None and self.runs:
            try:
                await self.process.call(self._leave())
            except ProcessDiedError:
                return
            self.process.crash()

    def _disturb(self) -> None:
        self._world.disturb(self.number)
        self._world.disturb(self.process_name)

    async def _leave(self) -> None:
        await self._stop_placing()
        await self.tablets.stop()
        await self.coordination.close()

    def _note_fenced(self, tablet_id: int) -> None:
        self._world.note(f"tablet {tablet_id} is fenced on node {self.number}")
        self._world.count("fenced")

    # Its life.

    async def _run(self) -> None:
        coordination = self.coordination
        while True:
            try:
                await coordination.create_cluster(IDENTITY)
                await coordination.open()
                await coordination.claim_node_id(self.name, self.name, known_id=self.number)
                record = MemberRecord(node_id=self.number, name=self.name, directory_id=self.name, instance_id=str(self._lives))
                await coordination.register(record, TTL_S)
                break
            except PenstockError:
                await asyncio.sleep(1.0)
                self.coordination = coordination = Coordination(self._world.store.client(self.name), now=self._world.loop.time)
        coordination.campaign()
        self._world.note(f"node {self.number} has joined")
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._follow_leader()
            except PenstockError as error:
                self._world.note(f"node {self.number}: {error}")

    async def _follow_leader(self) -> None:
        """Place tablets while this node leads; otherwise see whether the leader is lost."""
        coordination = self.coordination
        leader = coordination.leader
        if coordination.leadership is not None:
            if self._placing is None:
                await coordination.take_system_tablets()
                self._world.note(f"node {self.number} leads")
                self._world.count("lead")
                self.placement = Placement(
                    coordination,
                    self,
                    SimNodeTablets(self._world, self),
                    SimInventory(self._world),
                    SimClock(self._world.loop),
                )
                self._placing = asyncio.create_task(self.placement.run())
            return
        if leader is None or leader.record.node_id == self.number:
            return
        await self._stop_placing()
        lost_id = leader.record.node_id
        if not self.is_doubtful(lost_id) or not coordination.status.is_usable:
            return
        if await self.is_given_up(lost_id) and await coordination.challenge(leader):
            self._world.note(f"node {self.number} leads in place of {lost_id}")

    async def _stop_placing(self) -> None:
        placing, self._placing, self.placement = self._placing, None, None
        if placing is not None:
            placing.cancel()
            await asyncio.gather(placing, return_exceptions=True)

    # Whom it reaches.

    def is_connected(self, node_id: int) -> bool:
        """Whether this node reaches another one, or is it."""
        return node_id == self.number or self._world.links[self.number, node_id].is_up

    def is_doubtful(self, node_id: int) -> bool:
        """Whether nothing answers at its address, or nothing comes for long."""
        is_gone = not self._world.members[node_id].is_up and frozenset({self.number, node_id}) not in self._world.cut
        return not self.is_connected(node_id) and (is_gone or self.down_s(node_id) >= SILENT_S)

    def down_s(self, node_id: int) -> float:
        """How long it has not reached it."""
        return 0.0 if self.is_connected(node_id) else self._world.loop.time() - self._world.links[self.number, node_id].down_since

    async def is_given_up(self, node_id: int) -> bool:
        """Whether most of the nodes do not reach another one."""
        members = [member.node_id for member in self.coordination.members()]
        others = [other for other in members if other not in (self.number, node_id)]
        asked = (self._world.call(self.number, other, lambda member: member.tell_reaches(node_id), ASK_S) for other in others)
        answers = [answer for answer in await asyncio.gather(*asked) if answer is not None]
        return 2 * answers.count(False) >= len(others) and 2 * (1 + len(answers)) > len(members)

    async def tell_reaches(self, node_id: int) -> bool:
        """Whether this node reaches another one, for one that asks."""
        return self.is_connected(node_id)

    # What the leader asks of it.

    async def host(self, orders: Sequence[HostOrder], revision: int) -> list[TabletState] | None:
        """Host tablets, unless a later leader was heard of."""
        if revision < self._leader_revision:
            return None
        self._leader_revision = revision
        for order in orders:
            if not self.tablets.hosts(order.tablet_id):
                self._world.judge_host(self, order.tablet_id)
                self._world.note(f"node {self.number} hosts tablet {order.tablet_id}")
                self._world.count("host")
        if self._world.poison & {order.tablet_id for order in orders}:
            self._world.note(f"node {self.number} dies of a tablet")
            self._world.count("poisoned")
            self._world.loop.call_soon(self.kill, context=outside_context())
            await asyncio.sleep(1)  # it gets no further
        await asyncio.gather(*map(self._host, orders))
        wanted = {order.tablet_id for order in orders}
        return [state for state in self._states() if state.tablet_id in wanted]

    async def _host(self, order: HostOrder) -> None:
        with contextlib.suppress(PenstockError):
            await self.tablets.host(order.tablet_id, {0}, CONFIG, is_new=order.is_new)

    async def release(self, tablet_ids: Sequence[int], revision: int) -> list[int] | None:
        """Stop tablets, unless a later leader was heard of."""
        if revision < self._leader_revision:
            return None
        self._leader_revision = revision
        await asyncio.gather(*map(self.tablets.release, tablet_ids))
        return [tablet_id for tablet_id in tablet_ids if not self.tablets.hosts(tablet_id)]

    async def tell_states(self) -> list[TabletState]:
        """All tablets that are hosted here."""
        return self._states()

    def _states(self) -> list[TabletState]:
        self._loads.update(self._world.loop.time(), self.tablets.traffic())
        return [TabletState(*state, self._loads.rate(state.tablet)) for state in self.tablets.states()]


class SimNodeTablets:
    """The tablets of all nodes, as a leader reaches them."""

    def __init__(self, world: PlacementWorld, leader: Member) -> None:
        self._world = world
        self._leader = leader

    async def host(self, node_id: int, orders: Sequence[HostOrder], timeout_s: float) -> list[TabletState] | None:
        """Host tablets on a node."""
        revision = self._revision
        return await self._world.call(self._leader.number, node_id, lambda member: member.host(orders, revision), timeout_s)

    async def release(self, node_id: int, tablet_ids: Sequence[int], timeout_s: float) -> list[int] | None:
        """Stop tablets on a node."""
        revision = self._revision
        self._world.count("release")
        return await self._world.call(
            self._leader.number, node_id, lambda member: member.release(tablet_ids, revision), timeout_s
        )

    async def states(self, node_id: int) -> list[TabletState] | None:
        """All tablets of a node."""
        return await self._world.call(self._leader.number, node_id, lambda member: member.tell_states(), STATES_S)

    @property
    def _revision(self) -> int:
        leader = self._leader.coordination.leadership
        return 0 if leader is None else leader.revision


class SimInventory:
    """The catalog, which all nodes know here."""

    def __init__(self, world: PlacementWorld) -> None:
        self._world = world

    def tablets(self) -> list[CatalogTablet]:
        """The tablets of all topics."""
        return [ledger.tablet for ledger in self._world.ledgers.values()]

    def group(self, group_id: int) -> GroupNodes:
        """Some nodes have disks of the only group."""
        assert group_id == GROUP_ID
        return GroupNodes(frozenset({1, 2, 3}))

    def own_group(self, _: int) -> int | None:
        """All nodes share it."""
        return None
