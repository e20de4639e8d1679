"""Nodes that call each other while routes are late, cut in one direction, reset and silent, and nodes crash, hang and return."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from penstock.interconnect import CallStatus, InterconnectOptions, ServedCall
from penstock.testing.sim_loop import ProcessDiedError, current_loop, run_simulation
from penstock.testing.sim_network import SimNetwork
from tests.interconnect_world import ECHO, HANG, SimNode, new_network

NODES = (1, 2, 3)
RUN_S = 40.0
OPTIONS = InterconnectOptions(window_bytes=2 << 20, body_bytes_max=4 << 20)
REFUSED = (CallStatus.UNREACHABLE, CallStatus.OVERLOADED, CallStatus.TOO_LARGE)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


class World:
    """The nodes, what they were asked, and what became of it."""

    def __init__(self) -> None:
        self.network: SimNetwork = new_network()
        self.random: Random = current_loop().fork_random("world")
        self.nodes: dict[int, SimNode] = {}
        self.incarnations: Counter[int] = Counter()
        self.runs: Counter[bytes] = Counter()  # how often a handler got each body
        self.refused: set[bytes] = set()
        self.outcomes: Counter[str] = Counter()
        self.trace: list[tuple[float, str]] = []

    async def start(self, node_id: int) -> None:
        """Start a node, for the first time or again, with links to the others."""
        self.incarnations[node_id] += 1
        node = SimNode(self.network, node_id, incarnation=self.incarnations[node_id], options=OPTIONS)

        async def echo(call: ServedCall) -> tuple[bytes]:
            body = bytes(call.body or b"")
            self.runs[body[:20]] += 1
            await asyncio.sleep(self.random.choice([0, 0, 0.001, 0.3]))
            return (body,)

        await node.start({ECHO: echo, HANG: node.hang})
        self.nodes[node_id] = node
        for other in NODES:
            if other != node_id:
                await node.process.call(self._link(node, other))

    async def _link(self, node: SimNode, other: int) -> None:
        node.interconnect.link(other, f"node-{other}:1")

    async def call(self, number: int) -> None:
        """One call from a node to another; it must end in time and with the right answer."""
        source, target = self.random.sample(NODES, 2)
        node = self.nodes[source]
        size = self.random.choice([0, 100, 4096, 100_000, 1_000_000])
        body = f"{source}>{target} {number}".encode().ljust(20) + self.random.randbytes(size)
        timeout_s = self.random.choice([0.05, 1.0, 5.0])
        method = HANG if self.random.random() < 0.05 else ECHO
        began = current_loop().time()

        async def make() -> None:
            future = node.interconnect.links[target].call(method, 1, (body,), timeout_s=timeout_s, reply_bytes=len(body))
            if self.random.random() < 0.05:
                await asyncio.sleep(self.random.random() / 5)
                future.cancel()
                self.outcomes["cancelled"] += 1
                return
            reply = await future
            self.outcomes[reply.status.name] += 1
            self.trace.append((current_loop().time(), reply.status.name))
            if reply.status is CallStatus.OK:
                assert bytes(reply.body) == body
                assert self.runs[body[:20]] == 1
            elif reply.status in REFUSED:
                self.refused.add(body[:20])
            assert current_loop().time() - began <= timeout_s + 0.01

        try:
            await node.process.call(make())
        except ProcessDiedError:
            self.outcomes["died"] += 1

    async def disturb(self) -> None:
        """One fault, to its end."""
        kind = self.random.choice(["cut", "cut", "delay", "reset", "silent", "crash", "power", "freeze"])
        first, second = self.random.sample(NODES, 2)
        a, b = f"node-{first}", f"node-{second}"
        lasts_s = self.random.choice([0.1, 0.5, 2.0, 12.0])
        self.trace.append((current_loop().time(), f"{kind} {first} {second}"))
        if kind == "cut":
            self.network.cut(a, b)
            await asyncio.sleep(lasts_s)
            self.network.restore(a, b)
        elif kind == "delay":
            self.network.delay(a, b, 0.0, self.random.choice([0.01, 0.2, 1.5]))
            await asyncio.sleep(lasts_s)
            self.network.delay(a, b, 0.0001, 0.001)
        elif kind == "freeze":
            self.network.freeze(a)
            await asyncio.sleep(lasts_s)
            self.network.thaw(a)
        elif kind in ("crash", "power"):
            if kind == "power":
                self.network.crash(a, silently=True)
            self.nodes[first].process.crash()
            await asyncio.sleep(lasts_s)
            await self.start(first)
        else:
            self.network.lose(a, b, silently=kind == "silent")
            await asyncio.sleep(lasts_s)

    async def run(self) -> None:
        """Calls and faults; then all is well again, and every link comes back."""
        for node_id in NODES:
            await self.start(node_id)
        loop = current_loop()
        calls: list[asyncio.Task[None]] = []

        async def disturbances() -> None:
            while loop.time() < RUN_S:
                await asyncio.sleep(self.random.random() * 3)
                await self.disturb()

        disturbing = asyncio.ensure_future(disturbances())
        while loop.time() < RUN_S:
            calls.append(asyncio.ensure_future(self.call(len(calls))))
            await asyncio.sleep(self.random.expovariate(8))
        await disturbing
        for task in calls:
            await task
        await asyncio.sleep(20.0)
        for node in self.nodes.values():
            for link in node.interconnect.links.values():
                assert link.is_connected, link.why_down
                reply = await link.call(ECHO, 1, (f"last {node.node_id} {link.node_id}".encode(),), timeout_s=1.0)
                assert reply.status is CallStatus.OK
            probe = node.interconnect.service.probe
            assert (probe.in_flight, probe.bytes_held, probe.strangers, probe.peers) == (0, 0, 0, 4)
        assert max(self.runs.values()) == 1
        assert not self.refused & self.runs.keys()


def simulate(seed: int) -> World:
    async def main() -> World:
        world = World()
        await world.run()
        return world

    return run_simulation(main(), seed=seed, timer_slack_s=0.001, shuffle_ties=True)


@pytest.mark.parametrize("seed", range(4))
def test_calls_end_in_time_run_at_most_once_and_links_come_back(seed: int) -> None:
    outcomes = simulate(seed).outcomes
    assert outcomes["OK"] > 50


@pytest.mark.soak
def test_so_they_do_under_many_seeds() -> None:
    total: Counter[str] = Counter()
    for seed in range(100, 600):
        total += simulate(seed).outcomes
    assert {"OK", "EXPIRED", "BROKEN", "UNREACHABLE", "OVERLOADED", "cancelled", "died"} <= total.keys()


def test_one_seed_gives_one_run() -> None:
    assert simulate(77).trace == simulate(77).trace
