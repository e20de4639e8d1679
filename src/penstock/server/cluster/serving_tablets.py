"""Which tablets serve on which node, with their generations. Every node sends changes to all others.

So any node can return the leader and leader epoch of a partition to clients, and which replicas are in sync. A node long-polls
each of the others: the answer comes when the tablets there have changed, or after a while without a change. It also says how busy
each tablet is, so that a node that becomes the leader knows the load of the tablets of its predecessor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from random import Random
from typing import Final

import msgspec

from penstock.core.periodic import cancel_tasks
from penstock.interconnect import CallStatus, Interconnect, Link, Parts, ServedCall

log = logging.getLogger(__name__)

TABLETS_DESTINATION: Final = 3
SERVING: Final = 1  # the one method
ASK_S: Final = 10.0
ANSWER_S: Final = 7.0  # while nothing changes
RETRY_S: Final = 0.25
UNKNOWN_S: Final = 10.0  # until a node is asked again whose answer was not understood
GATHER_S: Final = 0.01  # changes that follow each other so quickly are told at once: a node may start hundreds of tablets
REPLY_BYTES: Final = 2 << 20  # some hundred thousand tablets


class _Serving(msgspec.Struct, frozen=True, array_like=True):
    version: int
    generations: dict[int, int] | None  # None: as the asker knows them
    loads: dict[int, float] = {}  # of the busiest tablets, in bytes a second
    behind: list[int] = []  # storage groups of which disks there have not yet got what they missed


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Serving).decode


class ServingTablets:
    """The tablets of all nodes. `own` returns those of this node, and `own_loads` how busy they are; call `changed` whenever they
    are others. `own_behind` returns the storage groups of which disks here have not yet got what they missed."""

    def __init__(
        self,
        node_id: int,
        interconnect: Interconnect,
        link_to: Callable[[int], Link],
        *,
        own: Callable[[], Mapping[int, int]],
        own_loads: Callable[[], dict[int, float]],
        own_behind: Callable[[], frozenset[int]],
        random: Random,
        on_change: Callable[[], None],
    ) -> None:
        self.elsewhere: dict[int, dict[int, int]] = {}  # by node, then by tablet
        self._node_id = node_id
        self._link_to = link_to
        self._own = own
        self._own_loads = own_loads
        self._own_behind = own_behind
        self._told_behind = own_behind()
        self._behind: dict[int, list[int]] = {}  # by node
        self._loads: dict[int, dict[int, float]] = {}  # by node, also of nodes that are gone: others take their tablets over
        self._on_change = on_change
        self._version = random.getrandbits(62)  # another one after a restart
        self._changing = asyncio.Event()
        self._asking: dict[int, asyncio.Task[None]] = {}
        interconnect.service.register(TABLETS_DESTINATION, {SERVING: self._serve})

    def changed(self) -> None:
        """Tablets of this node came up or went down."""
        self._version += 1
        self._changing.set()
        self._changing = asyncio.Event()

    def check_behind(self) -> None:
        """Tell the others if disks here are behind in other groups than before; to be called now and then."""
        if self._told_behind != (behind := self._own_behind()):
            self._told_behind = behind
            self.changed()

    def are_behind(self, group: int) -> frozenset[int]:
        """The other nodes whose disks in a group have not yet got what they missed, as each told last."""
        return frozenset(node_id for node_id, groups in self._behind.items() if group in groups)

    def loads(self) -> dict[int, float]:
        """Bytes a second of the tablets of other nodes, as each told last."""
        return {tablet_id: load for loads in self._loads.values() for tablet_id, load in loads.items()}

    def follow(self, nodes: Iterable[int]) -> None:
        """Ask these nodes from now on, and forget others."""
        wanted = set(nodes) - {self._node_id}
        for node_id in self._asking.keys() - wanted:
            self._asking.pop(node_id).cancel()
            self.elsewhere.pop(node_id, None)
            self._behind.pop(node_id, None)
        for node_id in wanted - self._asking.keys():
            self._asking[node_id] = asyncio.create_task(self._ask(node_id), name=f"serving-tablets-{node_id}")

    async def stop(self) -> None:
        """Ask no more."""
        await cancel_tasks(self._asking.values())
        self._asking.clear()

    async def _ask(self, node_id: int) -> None:
        known = 0
        while True:
            link = self._link_to(node_id)
            reply = await link.call(SERVING, TABLETS_DESTINATION, (_encode(known),), timeout_s=ASK_S, reply_bytes=REPLY_BYTES)
            if reply.status is not CallStatus.OK:
                await asyncio.sleep(RETRY_S)
                continue
            try:
                serving = _decode(reply.body)
            except msgspec.MsgspecError as error:  # of another version
                log.error("what node %d serves is not understood, and asked again in %g s: %s", node_id, UNKNOWN_S, error)
                await asyncio.sleep(UNKNOWN_S)
                continue
            known = serving.version
            self._loads[node_id] = serving.loads
            self._behind[node_id] = serving.behind
            if serving.generations is not None:
                self.elsewhere[node_id] = serving.generations
                self._on_change()

    async def _serve(self, served: ServedCall) -> Parts:
        assert served.body is not None
        known = msgspec.msgpack.decode(served.body, type=int)
        if known == self._version:
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_S):
                    await self._changing.wait()
                    await asyncio.sleep(GATHER_S)
        generations = None if known == self._version else dict(self._own())
        return (_encode(_Serving(self._version, generations, self._own_loads(), sorted(self._own_behind()))),)
