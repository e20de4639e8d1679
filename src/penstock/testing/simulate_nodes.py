"""The fault simulation of a group over nodes: `python -m penstock.testing.simulate --world nodes`.

A run is one group of a kind that the seed chooses, with VDisks on several nodes, a few tablets on another node, and a nemesis:
nodes are killed or lose power, are stopped with requests in their sockets, cut off one way or both, their connections are slow or
lost; disks are wiped, go back in time, hang, are slow or fail; VDisks move to other nodes while some of the others do not hear of
it; old configurations are offered to any of them, and processes start with one. Every answer is judged, and so is the whole group
whenever it has healed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from penstock.blob import Erasure, GroupOptions
from penstock.blob.quorum import fits_fail_model
from penstock.testing.fault_checks import check_settled, settle
from penstock.testing.fault_ledger import InvariantError, Ledger
from penstock.testing.fault_nemesis import is_sound
from penstock.testing.fault_tablet import Tablet
from penstock.testing.fault_world import draw_options
from penstock.testing.node_world import CLIENT, NodeWorld
from penstock.testing.seed_runs import Run, simulate
from penstock.testing.sim_disk import DiskFaults, Operation
from penstock.testing.sim_loop import ProcessDiedError, current_loop

CHANNELS = (0, 1, 2)
TIME_S_MAX = 3600.0
REPAIR_S = 120.0
KINDS = (Erasure.MIRROR_3, Erasure.MIRROR_3, Erasure.BLOCK_4_2, Erasure.MIRROR_3_DC)

Fault = Callable[[int], Coroutine[Any, Any, None]]


def run_seed(seed: int, erasure: Erasure | None = None) -> Run:
    """Run one simulation; SeedFailedError if anything is not as promised."""
    run = Run(seed, erasure or KINDS[seed % len(KINDS)])
    return simulate(run, _main(run, f"nodes/{run.erasure.value}"), world="nodes", time_s_max=TIME_S_MAX)


async def _main(run: Run, name: str) -> None:
    loop = current_loop()
    rng = loop.fork_random(name)
    vdisk = draw_options(rng).vdisk
    options = GroupOptions(
        vdisk=vdisk, sync_interval=rng.choice([0.1, 0.4]), replication_interval=rng.choice([0.2, 1.0]), scrub_interval=None
    )
    world = NodeWorld(loop, run.erasure, options, rng)
    ledger = Ledger(run.erasure, range(1, rng.randint(2, 3)), CHANNELS)
    run.counts, run.faults = ledger.counts, world.log
    nemesis = NodeNemesis(world, ledger, loop.fork_random(f"{name}/nemesis"))
    tablets = [Tablet(world, ledger, tablet, loop.fork_random(f"{name}/{tablet}")) for tablet in ledger.tablets]
    await world.form()
    for _ in range(rng.randint(1, 2)):
        await _epoch(world, nemesis, tablets, bursts=rng.randint(5, 20))
        await world.let_client_learn()
        await settle(world)
        await check_settled(world, ledger)
        run.crashes = world.crashes
    await nemesis.restart_all(rng)
    await world.let_client_learn()
    await settle(world)
    await check_settled(world, ledger)
    await world.stop()


async def _epoch(world: NodeWorld, nemesis: NodeNemesis, tablets: Sequence[Tablet], *, bursts: int) -> None:
    """Work and faults together until the work is done, then healing."""
    loop = world.loop
    work = [loop.create_task(tablet.run(bursts), name="tablet") for tablet in tablets]
    torment = loop.create_task(nemesis.torment(), name="torment")
    pending: set[asyncio.Task[None]] = set(work)
    while pending:
        done, _ = await asyncio.wait([*pending, torment], timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        pending -= done
        nemesis.raise_failures()
    torment.cancel()
    await asyncio.gather(torment, return_exceptions=True)
    await nemesis.heal()


class NodeNemesis:
    """Injects faults into nodes and the routes between them, until told to stop; `heal` waits until none is left.

    A node with a fault, and whatever it has to repair afterwards, counts as failed. Mostly no more fails at once than the group
    must bear; now and then much more does, but then nothing is wiped, and only what is answered must still be right.
    """

    def __init__(self, world: NodeWorld, ledger: Ledger, rng: Random) -> None:
        self._world = world
        self._ledger = ledger
        self._random = rng
        self._calm = rng.choice([0.1, 0.4, 1.5])
        faults: list[Fault] = [
            self._kill,
            self._freeze,
            self._cut,
            self._cut_one_way,
            self._slow,
            self._reset,
            self._wipe,
            self._roll_back,
            self._hang_disk,
            self._slow_disk,
            self._fail_disk,
        ]
        self._kinds = rng.sample(faults, rng.randint(2, len(faults)))
        self._moves = rng.random() < 0.7
        self._faults: dict[asyncio.Task[None], int] = {}

    async def torment(self) -> None:
        """One fault after another, for as long as the task lives."""
        world = self._world
        while True:
            await asyncio.sleep(self._random.expovariate(1 / self._calm))
            draw = self._random.random()
            node = self._random.choice(world.storage_nodes)
            if draw < 0.05:
                self._start(self._restart_client, CLIENT)
            elif draw < 0.15 and self._moves:
                self._start(self._move, node)
            elif draw < 0.18 and self._moves:
                self._start(self._offer_old, CLIENT)
            elif draw < 0.25:
                for victim in self._random.sample(world.storage_nodes, self._random.randint(1, len(world.storage_nodes))):
                    self._start(self._random.choice([self._kill, self._freeze, self._cut, self._cut_one_way]), victim)
            elif world.may_impair(*world.orders_on(node)):
                self._start(self._random.choice(self._kinds), node)

    async def heal(self) -> None:
        """Wait until all faults have passed and what they did is repaired."""
        while self._faults:
            await asyncio.wait(self._faults, return_when=asyncio.FIRST_COMPLETED)
            self.raise_failures()
        await self._world.up.wait()

    def raise_failures(self) -> None:
        """Raise what went wrong in the course of a fault."""
        for task in list(self._faults):
            if task.done():
                del self._faults[task]
                task.result()

    async def restart_all(self, rng: Random) -> None:
        """Kill or stop every node, and start them in any order, each with a configuration that may be old."""
        world = self._world
        numbers = rng.sample(list(world.nodes), len(world.nodes))
        for number in numbers:
            node = world.nodes[number]
            if rng.random() < 0.5 and node.process is not None:
                await node.process.call(node.host.stop())
            node.kill()
        world.note("all nodes start again")
        for number in numbers:
            if number != CLIENT:
                await world.nodes[number].start(rng.choice(world.configurations[1:]))
        await world.start()
        for order in world.orders:
            await self._until_sound(order)

    # What can happen to a node. Each coroutine is the whole story of one fault, to its end.

    async def _kill(self, node: int) -> None:
        self._world.nodes[node].kill(silently=self._random.random() < 0.3)
        self._world.crashes += 1
        await self._last(0.0, 3.0)

    async def _freeze(self, node: int) -> None:
        """Its process is stopped; what comes for it waits in its sockets."""
        process = self._world.nodes[node].process
        if process is None:
            return
        process.pause()
        await self._last(0.1, self._random.choice([0.5, 5.0, 15.0]))
        process.resume()

    async def _cut(self, node: int) -> None:
        self._world.cut([node], self._others(node))
        await self._last(0.1, 8.0)

    async def _cut_one_way(self, node: int) -> None:
        others = [other for other in self._others(node) if self._random.random() < 0.7]
        these, those = ([node], others) if self._random.random() < 0.5 else (others, [node])
        self._world.cut(these, those, one_way=True)
        await self._last(0.1, 8.0)

    async def _slow(self, node: int) -> None:
        delay_s = self._random.choice([0.02, 0.2, 3.0])
        names = [(self._world.nodes[node].name, self._world.nodes[other].name) for other in self._others(node)]
        for here, there in names:
            self._world.network.delay(here, there, delay_s, 2 * delay_s)
            self._world.network.delay(there, here, delay_s, 2 * delay_s)
        await self._last(0.1, 5.0)

    async def _reset(self, node: int) -> None:
        """Its connections are lost again and again, some without a word."""
        network, nodes = self._world.network, self._world.nodes
        for _ in range(self._random.randint(1, 8)):
            for other in self._others(node):
                if self._random.random() < 0.5:
                    network.lose(nodes[node].name, nodes[other].name, silently=self._random.random() < 0.3)
            await self._last(0.0, 0.8)

    async def _hang_disk(self, node: int) -> None:
        await self._impair_disks(node, lambda faults: setattr(faults, "hung", True), self._random.choice([1.0, 5.0, 30.0]))

    async def _slow_disk(self, node: int) -> None:
        factor = self._random.choice([5.0, 50.0, 500.0])
        await self._impair_disks(node, lambda faults: setattr(faults, "slow_factor", factor), 5.0)

    async def _fail_disk(self, node: int) -> None:
        operations: list[Operation] = ["flush", "read", "delete", "space"]
        rates = {operation: self._random.choice([0.05, 0.3, 1.0]) for operation in operations if self._random.random() < 0.5}
        await self._impair_disks(node, lambda faults: setattr(faults, "error_rate", rates), 3.0)

    async def _impair_disks(self, node: int, impair: Callable[[DiskFaults], None], seconds_max: float) -> None:
        faults = [self._world.faults[order] for order in self._world.orders_on(node)]
        for each in faults:
            impair(each)
        await self._last(0.1, seconds_max)
        for each in faults:
            each.hung, each.slow_factor, each.error_rate = False, 1.0, {}

    async def _roll_back(self, node: int) -> None:
        """Its machine loses power, and its disks lose what they had called durable since a while."""
        world = self._world
        orders = world.orders_on(node)
        platters = {order: world.platters[order] for order in orders}
        copies = {order: platter.snapshot() for order, platter in platters.items()}
        await self._last(0.0, 2.0)
        world.nodes[node].kill(silently=True)
        for order, platter in platters.items():
            if world.platters[order] is platter:
                platter.wipe()
                for name, content in copies[order].items():
                    platter.write(name, content)
                world.note(f"VDisk {order} went back")
        await self._last(0.0, 1.0)

    async def _wipe(self, node: int) -> None:
        world = self._world
        orders = world.orders_on(node)
        if not world.may_impair(*orders):
            return
        world.nodes[node].kill()
        for order in orders:
            if self._random.random() < 0.7:
                world.platters[order].wipe()
                world.note(f"VDisk {order} is empty")

    async def _move(self, node: int) -> None:
        world = self._world
        orders = [order for order in world.orders if world.configuration.seats[order].node != node]
        taken = {seat.node for seat in world.configuration.seats}
        if not orders or node in taken:
            return
        order = self._random.choice(orders)
        client = world.nodes[CLIENT]
        if client.process is None or not client.is_up:
            return
        try:
            if trouble := await client.process.call(client.membership.trouble_with_moving(order)):
                world.note(f"VDisk {order} stays: {trouble}")
                return
        except ProcessDiedError:
            return
        if not world.may_impair(order):
            return
        told = self._random.sample(world.orders, self._random.randint(0, len(world.orders)))
        world.impair(order)
        world.note(f"VDisk {order} moves to node {node}, VDisks {told} are told")
        await world.move_vdisk(order, node, told)
        await self._until_sound(order)
        world.end_move()

    async def _offer_old(self, _: int) -> None:
        """Somebody who knows of an old configuration only offers it to any VDisks: none goes back."""
        world = self._world
        old = self._random.choice(world.configurations[1:])
        for order in self._random.sample(world.orders, self._random.randint(1, len(world.orders))):
            if not world.nodes[CLIENT].is_up:
                return
            with suppress(ProcessDiedError):
                reply = await world.offer(old, order, world.configuration.seats[order].node)
                if reply.current is not None and reply.current.generation < old.generation:
                    raise InvariantError(f"VDisk {order} is offered {old.generation} and stays in {reply.current.generation}")

    async def _restart_client(self, node: int) -> None:
        world = self._world
        if not world.nodes[node].is_up:
            return
        world.nodes[node].kill()
        await self._last(0.0, 1.0)
        await world.start()

    # The course of a fault.

    def _others(self, node: int) -> list[int]:
        return [other for other in self._world.nodes if other != node]

    def _start(self, fault: Fault, node: int) -> None:
        world = self._world
        if node in self._faults.values():
            return
        for order in world.orders_on(node):
            world.impair(order)
        world.note(f"{fault.__name__.strip('_')} {node}")
        task = world.loop.create_task(self._tell(fault, node), name=f"fault{fault.__name__}-{node}")
        self._faults[task] = node

    async def _tell(self, fault: Fault, node: int) -> None:
        world = self._world
        await fault(node)
        if node == CLIENT:
            return
        world.mend(node)
        while not world.nodes[node].is_up:
            await world.nodes[node].start(self._random.choice(world.configurations[1:]))
        for order in world.orders_on(node):
            await self._until_sound(order)
        world.note(f"repaired {node}")

    async def _last(self, seconds_min: float, seconds_max: float) -> None:
        await asyncio.sleep(self._random.uniform(seconds_min, seconds_max))

    async def _until_sound(self, order: int) -> None:
        """Wait until a VDisk holds all that it should by itself; others may be out so that it cannot, which is waited for too."""
        world = self._world
        deadline = world.loop.time() + REPAIR_S
        while True:
            vdisk = world.vdisks().get(order) if world.up.is_set() else None
            is_heard = (
                vdisk is not None
                and vdisk.in_step
                and not vdisk.is_cut_off
                and world.is_heard(order)
                and world.is_reachable(order)
                and world.is_in_touch(order)
            )
            if vdisk is not None and is_heard and is_sound(world, self._ledger, vdisk):
                world.impaired.discard(order)
                return
            others = sum(1 << other for other in world.impaired if other != order)
            if not fits_fail_model(world.erasure, others | 1 << order):
                deadline = world.loop.time() + REPAIR_S
            if world.loop.time() > deadline:
                state = None if vdisk is None else (vdisk.id, vdisk.index.state, vdisk.in_step, vdisk.proves_absence)
                raise InvariantError(f"VDisk {order} is not sound {REPAIR_S:g} s after its fault: {state}")
            await asyncio.sleep(0.1)
