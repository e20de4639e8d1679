"""Nodes with an interconnect each on a simulated network, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from penstock.interconnect import Handler, Interconnect, InterconnectOptions, Link, NodeIdentity, Parts, ServedCall
from penstock.testing.sim_loop import SimClock, SimLoop, SimProcess, current_loop
from penstock.testing.sim_network import SimNetwork

CLUSTER = b"c" * 16
ECHO, HANG, FAIL, BUG, SLOW = 1, 2, 3, 4, 5


class SimNode:
    """A node in a process of its own. `served` are the bodies of the calls that it began to serve."""

    def __init__(
        self, network: SimNetwork, node_id: int, *, incarnation: int = 1, options: InterconnectOptions | None = None
    ) -> None:
        self.network = network
        self.node_id = node_id
        self.name = f"node-{node_id}"
        self.address = f"{self.name}:1"
        self.served: list[bytes] = []
        self.cancelled = 0
        loop = current_loop()
        self.process = SimProcess(loop, f"{self.name}-{incarnation}")
        self.interconnect = Interconnect(
            NodeIdentity(CLUSTER, node_id, incarnation),
            network.host(self.name),
            clock=SimClock(loop),
            random=loop.fork_random(f"{self.name}-{incarnation}"),
            options=options,
        )

    async def start(self, handlers: Mapping[int, Handler] | None = None) -> SimNode:
        """Listen, with one destination, number 1."""
        self.interconnect.service.register(1, handlers or {ECHO: self.echo, HANG: self.hang, FAIL: self.fail, BUG: self.bug})
        self.process.on_crash(lambda: self.network.crash(self.name))
        await self.process.call(self.interconnect.listen(self.address))
        return self

    async def link_to(self, other: SimNode, *, waits: bool = True) -> Link:
        """The link to another node, connected."""

        async def make() -> Link:
            return self.interconnect.link(other.node_id, other.address)

        link = await self.process.call(make())
        while waits and not link.is_connected:  # noqa: ASYNC110 - simulated time is free
            await asyncio.sleep(0.01)
        return link

    async def echo(self, call: ServedCall) -> Parts:
        """Give back what came."""
        body = bytes(call.body or b"")
        self.served.append(body)
        return (body,)

    async def hang(self, call: ServedCall) -> Parts:
        """Never answer."""
        self.served.append(bytes(call.body or b""))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ()

    def fail(self, call: ServedCall) -> Parts:
        """Fail as a handler is meant to."""
        from penstock.core.errors import OutOfSpaceError

        raise OutOfSpaceError("the disk is full")

    async def bug(self, call: ServedCall) -> Parts:
        """Fail as it is not meant to."""
        raise KeyError("oops")


def new_network(loop: SimLoop | None = None) -> SimNetwork:
    """A network on the running loop."""
    return SimNetwork(loop or current_loop())
