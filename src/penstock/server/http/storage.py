"""/storage: storage groups and their state; scrub and clock confirmation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from penstock.blob import Erasure, VDiskId
from penstock.broker import Operation
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, Resource, ResponseModel, Route
from penstock.server.scrub import Scrub
from penstock.server.storage_report import GroupReport, GroupState, VDiskReport, VDiskState, merged_reports, storage_report


class VDiskView(ResponseModel, frozen=True):
    """One VDisk. `used` is the size of its files, `live` the part that is not garbage, `damaged` how many parts cannot be read;
    space is that of its disk. `node` is the one that it lives on; null if there is only one, or that node does not answer."""

    id: str
    node: int | None
    order: int
    fail_realm: int
    fail_domain: int
    path: str
    state: VDiskState
    used: int
    live: int
    chunks: int
    parts: int
    to_heal: int
    damaged: int
    free: int | None
    total: int | None
    losses: list[str]


class ScrubView(ResponseModel, frozen=True):
    """The scrub, which verifies stored data: slowly all the time, and at full speed on request."""

    is_running: bool
    last_ms: int | None
    chunks: int
    found: int


class GroupView(ResponseModel, frozen=True):
    """A group of VDisks."""

    id: int
    name: str
    generation: int
    erasure: str
    fail_realms: int
    fail_domains: int
    state: GroupState
    vdisks: list[VDiskView]
    used: int
    free: int
    total: int
    restored: int
    scrub: ScrubView


class StorageView(ResponseModel, frozen=True):
    """All storage of the node. `topic_bytes` is the size of all messages, as topics show it: one copy, without garbage."""

    groups: list[GroupView]
    topic_bytes: int


class ScrubStart(ResponseModel, frozen=True):
    """Whether a scrub was started; false if one is running already."""

    started: bool


class ClockConfirmation(ResponseModel, frozen=True):
    """How far the age of messages was behind the machine's clock."""

    behind_s: float


class StorageResource(Resource):
    """The storage of a node."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._scrub = Scrub(context.storage)

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/storage", self.show, "storage groups and their disks"),
            Route(
                "POST",
                "/storage/scrub",
                self.begin_scrub,
                "read and verify all that is stored, on all nodes, in the background",
            ),
            Route(
                "POST", "/storage/confirm-clock", self.confirm_clock, "the machine's clock is right: messages age by it at once"
            ),
        ]

    async def close(self) -> None:
        """Cancel the scrub."""
        await self._scrub.close()

    async def show(self, call: Call[Nothing, Nothing, Nothing]) -> StorageView:
        """GET /storage."""
        call.caller.check_cluster(Operation.DESCRIBE)
        topics = (await self._context.figures.snapshot()).topics.values()
        cluster = self._context.cluster
        own = {self._context.node_id: await storage_report(self._context.storage)}
        told = own if cluster is None else {**await cluster.storage_reports(), **own}
        groups = merged_reports(own[self._context.node_id], [group for groups in told.values() for group in groups])
        nodes = {} if cluster is None else _nodes_of(told)
        hosts = {} if cluster is None else cluster.hosts()
        return StorageView(
            groups=[self._group(group, nodes, hosts) for group in groups],
            topic_bytes=sum(figures.size for figures in topics),
        )

    async def begin_scrub(self, call: Call[Nothing, Nothing, Nothing]) -> ScrubStart:
        """POST /storage/scrub."""
        call.caller.check_cluster(Operation.ALTER)
        cluster = self._context.cluster
        begins = [self._scrub.begin(), *(() if cluster is None else (cluster.begin_scrubs(),))]
        return ScrubStart(started=any(await asyncio.gather(*begins)))

    async def confirm_clock(self, call: Call[Nothing, Nothing, Nothing]) -> ClockConfirmation:
        """POST /storage/confirm-clock."""
        call.caller.check_cluster(Operation.ALTER)
        return ClockConfirmation(behind_s=await self._context.broker.ages.confirm())

    def _group(self, group: GroupReport, nodes: Mapping[tuple[int, int], int], hosts: Mapping[int, str]) -> GroupView:
        shape = Erasure(group.erasure).shape
        # Disks may share a file system, and nodes a machine.
        spaces = {
            (hosts.get(nodes.get((group.id, vdisk.order), 0), ""), vdisk.device): vdisk
            for vdisk in group.vdisks
            if vdisk.total is not None
        }.values()
        return GroupView(
            id=group.id,
            name=f"{group.id:08x}",
            generation=group.generation,
            erasure=group.erasure,
            fail_realms=shape.realms,
            fail_domains=shape.domains,
            state=group.state,
            vdisks=[_vdisk(group, vdisk, nodes.get((group.id, vdisk.order))) for vdisk in group.vdisks],
            used=sum(vdisk.used for vdisk in group.vdisks),
            free=sum(vdisk.free or 0 for vdisk in spaces),
            total=sum(vdisk.total or 0 for vdisk in spaces),
            restored=group.restored,
            scrub=ScrubView(
                is_running=self._scrub.is_running,
                last_ms=group.scrubbed_ms or None,
                chunks=group.chunks_scrubbed,
                found=group.damaged_found,
            ),
        )


def _nodes_of(told: Mapping[int, Sequence[GroupReport]]) -> dict[tuple[int, int], int]:
    """The node that each VDisk lives on, by group and order."""
    return {
        (group.id, vdisk.order): node_id
        for node_id, groups in told.items()
        for group in groups
        for vdisk in group.vdisks
        if not vdisk.is_elsewhere
    }


def _vdisk(group: GroupReport, vdisk: VDiskReport, node: int | None) -> VDiskView:
    vdisk_id = VDiskId.of_order(Erasure(group.erasure), group.id, group.generation, vdisk.order)
    return VDiskView(
        id=vdisk.id,
        node=node,
        order=vdisk.order,
        fail_realm=vdisk_id.realm,
        fail_domain=vdisk_id.domain,
        path=vdisk.path,
        state=vdisk.state,
        used=vdisk.used,
        live=vdisk.live,
        chunks=vdisk.chunks,
        parts=vdisk.parts,
        to_heal=vdisk.to_heal,
        damaged=vdisk.damaged,
        free=vdisk.free,
        total=vdisk.total,
        losses=vdisk.losses,
    )
