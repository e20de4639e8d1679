"""/storage: storage groups and their state; scrub and clock confirmation."""

from __future__ import annotations

import asyncio
import logging
from typing import Literal, NamedTuple, cast

from penstock.blob import GroupConfig, VDisk, VDiskHost, VDiskId, group_state
from penstock.broker import Operation
from penstock.core.errors import PenstockError
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, Resource, ResponseModel, Route

log = logging.getLogger(__name__)

GroupState = Literal["healthy", "degraded", "read-only", "lost"]
VDiskState = Literal["serving", "healing", "full", "failing", "out"]


class VDiskView(ResponseModel, frozen=True):
    """One VDisk. `used` is the size of its files, `live` the part that is not garbage; space is that of its disk."""

    id: str
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


class Space(NamedTuple):
    """Space on the file systems of the disks, each counted once."""

    used: int
    free: int
    total: int


class StorageResource(Resource):
    """The storage of a node."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._scrubbing: asyncio.Task[None] | None = None

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/storage", self.show, "storage groups and their disks"),
            Route("POST", "/storage/scrub", self.begin_scrub, "read and verify everything that is stored, in the background"),
            Route(
                "POST", "/storage/confirm-clock", self.confirm_clock, "the machine's clock is right: messages age by it at once"
            ),
        ]

    async def close(self) -> None:
        """Cancel the scrub."""
        if self._scrubbing is not None:
            self._scrubbing.cancel()
            await asyncio.gather(self._scrubbing, return_exceptions=True)

    async def show(self, call: Call[Nothing, Nothing, Nothing]) -> StorageView:
        """GET /storage."""
        call.caller.check_cluster(Operation.DESCRIBE)
        topics = (await self._context.figures.snapshot()).topics.values()
        return StorageView(
            groups=[await self._group(config) for config in self._context.storage.groups()],
            topic_bytes=sum(figures.size for figures in topics),
        )

    async def begin_scrub(self, call: Call[Nothing, Nothing, Nothing]) -> ScrubStart:
        """POST /storage/scrub."""
        call.caller.check_cluster(Operation.ALTER)
        if self._scrubbing is not None and not self._scrubbing.done():
            return ScrubStart(started=False)
        lives = [await self._context.storage.life(config.id) for config in self._context.storage.groups()]
        self._scrubbing = asyncio.create_task(_scrub(lives), name="scrub")
        return ScrubStart(started=True)

    async def confirm_clock(self, call: Call[Nothing, Nothing, Nothing]) -> ClockConfirmation:
        """POST /storage/confirm-clock."""
        call.caller.check_cluster(Operation.ALTER)
        return ClockConfirmation(behind_s=await self._context.broker.ages.confirm())

    async def _group(self, config: GroupConfig) -> GroupView:
        life = await self._context.storage.life(config.id)
        space = group_space(life)
        probe = life.probe
        state = cast("GroupState", group_state(life))
        return GroupView(
            id=config.id,
            name=f"{config.id:08x}",
            generation=life.group.generation,
            erasure=config.erasure.value,
            fail_realms=config.erasure.shape.realms,
            fail_domains=config.erasure.shape.domains,
            state=state,
            vdisks=[_vdisk(config, life, order) for order in range(len(config.disks))],
            used=space.used,
            free=space.free,
            total=space.total,
            restored=probe.parts_restored,
            scrub=ScrubView(
                is_running=self._scrubbing is not None and not self._scrubbing.done(),
                last_ms=probe.scrub_finished_ms or None,
                chunks=probe.chunks_scrubbed,
                found=probe.damaged_found,
            ),
        )


def group_space(life: VDiskHost) -> Space:
    """The bytes a group uses, and the space of its file systems, which disks may share."""
    known = {space.device: space for vdisk in life.vdisks.values() if (space := vdisk.space) is not None}.values()
    used = sum(_used(vdisk) for vdisk in life.vdisks.values())
    return Space(used, sum(space.free for space in known), sum(space.total for space in known))


def _used(vdisk: VDisk) -> int:
    """The size of the chunks; the active chunk's size is known only when it is full."""
    sealed = sum(use.size for number, use in vdisk.index.chunks.items() if number != vdisk.journal.chunk)
    return sealed + vdisk.journal.offset


def _vdisk(config: GroupConfig, life: VDiskHost, order: int) -> VDiskView:
    vdisk = life.vdisks.get(order)
    vdisk_id = VDiskId.of_order(config.erasure, config.id, life.group.generation, order)
    chunks = [] if vdisk is None else list(vdisk.index.chunks.values())
    state: VDiskState = "out"
    if vdisk is not None and not vdisk.closed:
        state = "serving" if vdisk.proves_absence else "healing"
        state = "full" if vdisk.full else "failing" if vdisk.is_failing else state
    elif vdisk is None and order in life.elsewhere:
        state = "serving" if life.elsewhere[order] else "healing"
    space = None if vdisk is None else vdisk.space
    return VDiskView(
        id=str(vdisk_id),
        order=order,
        fail_realm=vdisk_id.realm,
        fail_domain=vdisk_id.domain,
        path=str(config.disks[order]),
        state=state,
        used=0 if vdisk is None else _used(vdisk),
        live=sum(use.live for use in chunks),
        chunks=len(chunks),
        parts=0 if vdisk is None else vdisk.index.parts,
        to_heal=life.probe.to_heal.get(order, 0),
        free=None if space is None else space.free,
        total=None if space is None else space.total,
        losses=[] if vdisk is None else vdisk.recovered.losses[-10:],
    )


async def _scrub(lives: list[VDiskHost]) -> None:
    for life in lives:
        try:
            damaged = await life.scrub()
        except (OSError, PenstockError) as error:
            log.warning("the scrub of group %08x was cut short: %s", life.group.id, error)
        else:
            log.info("the scrub of group %08x found %d damaged parts", life.group.id, damaged)
