"""The interconnect of a node: links to other nodes, and a listener for theirs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from penstock.core.clock import Clock
from penstock.interconnect.connection import Connection
from penstock.interconnect.errors import PeerRefusedError, RefusalReason
from penstock.interconnect.hello import Admission, Hello, NodeIdentity, Peer, Role
from penstock.interconnect.link import Link
from penstock.interconnect.network import Network, NetworkListener
from penstock.interconnect.options import InterconnectOptions
from penstock.interconnect.service import Service
from penstock.interconnect.serving import CallerConnection

log = logging.getLogger(__name__)

SWEEP_S: Final = 0.5
STOPPED_S: Final = 2.0


class Interconnect:
    """All that connects this node to others. `service` has what it does for them."""

    def __init__(
        self,
        identity: NodeIdentity,
        network: Network,
        *,
        clock: Clock,
        random: Random,
        options: InterconnectOptions | None = None,
    ) -> None:
        self.identity = identity
        self.options = options or InterconnectOptions()
        self.service = Service(clock, self.options)
        self.links: dict[int, Link] = {}
        self._network = network
        self._clock = clock
        self._random = random
        self._admission = Admission(identity, clock, self.options.clock_skew_max_s)
        self._listeners: list[NetworkListener] = []
        self._strangers: dict[CallerConnection, None] = {}  # oldest first
        self._callers: dict[CallerConnection, None] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._watchers: list[Callable[[int, bool], None]] = []

    def watch(self, watcher: Callable[[int, bool], None]) -> None:
        """Have a function called with the id of a node whenever calls to it or from it can pass (True) or no longer can (False).
        What was sent last before that may be lost."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[int, bool], None]) -> None:
        """Call a function no more."""
        self._watchers.remove(watcher)

    def link(self, node_id: int, address: str) -> Link:
        """The link to a node; it connects by itself. An address that differs from the one it has is where the node is now."""
        link = self.links.get(node_id)
        if link is None:
            link = self.links[node_id] = Link(
                node_id,
                address,
                admission=self._admission,
                network=self._network,
                clock=self._clock,
                random=self._random,
                options=self.options,
            )
            link.watch(partial(self._notify, node_id))
            link.start()
        else:
            link.move(address)
        return link

    async def unlink(self, node_id: int) -> None:
        """End the link to a node that is no longer part of the cluster."""
        link = self.links.pop(node_id, None)
        if link is not None:
            await link.close()

    async def listen(self, address: str) -> str:
        """Accept connections of other nodes; returns the address with the port that was chosen. Raises OSError or ConfigError."""
        listener = await self._network.listen(address, self._accepted)
        self._listeners.append(listener)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep(), name="interconnect-sweep")
        return listener.address

    async def close(self) -> None:
        """Close everything; calls in flight fail, handlers are cancelled."""
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
            self._sweeping = None
        for node_id in list(self.links):
            await self.unlink(node_id)
        for caller in [*self._strangers, *self._callers]:
            caller.connection.abort("the node is shutting down")
        await asyncio.sleep(0)  # lets the transports report that they are closed

    # Accepted connections.

    def answer(self, caller: CallerConnection, hello: Hello) -> tuple[Peer, Hello]:
        """See Admitting."""
        if len(self._callers) >= self.options.connections_max:
            raise PeerRefusedError(
                RefusalReason.BUSY, f"node {self.identity.node_id} has {len(self._callers)} connections and takes no more"
            )
        peer = self._admission.admit(hello)
        for other in list(self._callers):
            known = other.peer
            if known is not None and known.identity.node_id == peer.identity.node_id and known.identity != peer.identity:
                other.connection.abort("the node was started again")
        self._strangers.pop(caller, None)
        self._callers[caller] = None
        self._count()
        if peer.role is Role.CALLS:
            link = self.links.get(peer.identity.node_id)
            if link is not None:
                link.hurry()
            self._notify(peer.identity.node_id, True)
        return peer, self._admission.hello(hello.role, hello.session)

    def forget(self, caller: CallerConnection, reason: str) -> None:
        """See Admitting."""
        if self._strangers.pop(caller, False) is None:
            refusal = caller.connection.refusal
            name = "STRANGER" if refusal is None else RefusalReason(refusal.reason).name
            self.service.probe.count_refused(name)
            log.log(logging.DEBUG if refusal is None else logging.ERROR, "a connection was refused: %s", reason)
        elif self._callers.pop(caller, False) is None and caller.peer is not None:
            peer = caller.peer
            log.debug("node %d disconnected: %s", peer.identity.node_id, reason)
            if peer.role is Role.HEARTBEAT:
                for other in list(self._callers):
                    if other.peer is not None and other.peer.session == peer.session:
                        other.connection.abort(f"the heartbeats of node {peer.identity.node_id} ended: {reason}")
            elif not any(_calls_of(other) == peer.identity.node_id for other in self._callers):
                # Otherwise the node has connected again, and this is the old connection, of which nothing more was to come.
                self._notify(peer.identity.node_id, False)
        self._count()

    def _accepted(self, secured: bool) -> Connection:
        while len(self._strangers) >= self.options.strangers_max:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            self.service.probe.count_refused("CROWDED_OUT")
            oldest.connection.abort("too many connections that do not say who they are")
        caller = CallerConnection(self.service, self, secured=secured)
        self._strangers[caller] = None
        self._count()
        return caller.connection

    async def _sweep(self) -> None:
        swept_at = self._clock.monotonic()
        while True:
            await asyncio.sleep(SWEEP_S)
            now, before = self._clock.monotonic(), swept_at
            swept_at = now
            if now - before > STOPPED_S:
                continue  # this process was stopped: what came meanwhile is read before anyone is called silent
            beating = {
                caller.peer.session for caller in self._callers if caller.peer is not None and caller.peer.role is Role.HEARTBEAT
            }
            for caller in [*self._strangers, *self._callers]:
                peer = caller.peer
                is_kept = peer is not None and peer.role is Role.CALLS and peer.session in beating
                caller.sweep(now, has_heartbeat=is_kept)

    def _notify(self, node_id: int, is_up: bool) -> None:
        for watcher in self._watchers:
            watcher(node_id, is_up)

    def _count(self) -> None:
        probe = self.service.probe
        probe.peers, probe.strangers = len(self._callers), len(self._strangers)


def _calls_of(caller: CallerConnection) -> int | None:
    """The node whose calls come on a connection; None if it is for heartbeats."""
    return caller.peer.identity.node_id if caller.peer is not None and caller.peer.role is Role.CALLS else None
