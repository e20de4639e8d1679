"""The controller of dynamic groups (BS_CONTROLLER): which disks there are, and which groups live on them.

It keeps its state in the static group, as a tablet does: each change is one blob in channel 0 holding the whole state as JSON,

    {"version": 2, "next_group": 2181038080, "disks": [{"id", "path", "realm", "domain", "suspect"}],
     "groups": [{"id", "erasure", "generation", "disks": [disk ids in order], "formed"}]}

and a controller that starts blocks all earlier ones. One that gets BLOCKED stops. A group is not `formed` until its disks have
begun; version 1 did not record this, so there every group counts as formed and no disk as suspect.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

from penstock.blob.blob_id import BlobId
from penstock.blob.channel_history import ChannelHistory, TabletInfo
from penstock.blob.config import DYNAMIC_GROUPS_FROM, GroupConfig
from penstock.blob.placement import PlacedDisk, choose_disks, choose_spare
from penstock.blob.quorum import fits_fail_model
from penstock.blob.status import Reply, Status
from penstock.blob.storage import BlobStorage
from penstock.blob.topology import Erasure
from penstock.blob.vdisk_host import OnFormed, VDiskHost
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError, FencedError, InvalidRequestError, UnavailableError

log = logging.getLogger(__name__)

CONTROLLER_TABLET = 1
STATE_VERSION = 2
HEAL_AFTER_S = 3600.0


class DiskRecord(NamedTuple):
    """A disk as the controller keeps it."""

    id: int
    path: str
    realm: str
    domain: str
    suspect: bool = False  # a VDisk was moved off it: it gets none until it is trusted again


class GroupRecord(NamedTuple):
    """A group as the controller keeps it; `disks` are disk ids in order of its VDisks."""

    id: int
    erasure: str
    generation: int
    disks: tuple[int, ...]
    formed: bool = True


class ControllerState(NamedTuple):
    """All that the controller knows. A change makes a new one."""

    next_group: int = DYNAMIC_GROUPS_FROM
    disks: tuple[DiskRecord, ...] = ()
    groups: tuple[GroupRecord, ...] = ()

    def pack(self) -> bytes:
        """The stored form."""
        state = {
            "version": STATE_VERSION,
            "next_group": self.next_group,
            "disks": [disk._asdict() for disk in self.disks],
            "groups": [group._asdict() for group in self.groups],
        }
        return json.dumps(state).encode()

    @classmethod
    def unpack(cls, raw: bytes) -> ControllerState:
        """The state whose stored form is `raw`."""
        state = json.loads(raw)
        if not 1 <= state["version"] <= STATE_VERSION:
            raise ConfigError(
                f"the controller's state has version {state['version']}, this version of Penstock reads up to {STATE_VERSION}; "
                "upgrade Penstock"
            )
        disks = tuple(DiskRecord(**disk) for disk in state["disks"])
        groups = tuple(GroupRecord(**{**group, "disks": tuple(group["disks"])}) for group in state["groups"])
        return cls(state["next_group"], disks, groups)

    def config(self, group: GroupRecord) -> GroupConfig:
        """A group as the storage takes it."""
        paths = {disk.id: Path(disk.path) for disk in self.disks}
        return GroupConfig(group.id, Erasure(group.erasure), tuple(paths[disk] for disk in group.disks), group.generation)

    def placed(self) -> list[PlacedDisk]:
        """The disks with how much is on each."""
        used = Counter(disk for group in self.groups for disk in group.disks)
        return [PlacedDisk(disk.id, disk.realm, disk.domain, used[disk.id], disk.suspect) for disk in self.disks]


class Controller:
    """Creates groups and moves their VDisks. Make it with `start`; every change is durable before it takes effect."""

    def __init__(self, storage: BlobStorage, static_group: int, generation: int, clock: Clock) -> None:
        self._storage = storage
        self._tablet = storage.tablet(_tablet_info(static_group))
        self._clock = clock
        self._generation = generation
        self._step = 0
        self._state = ControllerState()
        self._changing = asyncio.Lock()
        self._out_since: dict[tuple[int, int], float] = {}

    @classmethod
    async def start(cls, storage: BlobStorage, static_group: int, *, clock: Clock, random: Random) -> Controller:
        """Take over from any earlier controller and make its groups known to the storage."""
        generation = await storage.tablet(_tablet_info(static_group)).next_generation()
        controller = cls(storage, static_group, generation, clock)
        _expect_ok(await controller._tablet.block(controller._generation, 1 + random.getrandbits(63)))
        # Only now is it certain that no earlier controller writes any more.
        latest = await controller._tablet.discover()
        if latest.status not in (Status.OK, Status.NODATA):
            raise UnavailableError(f"the controller's state cannot be read: {latest.reason}")
        state = ControllerState.unpack(bytes(latest.blobs[0][1] or b"")) if latest.blobs else ControllerState()
        await controller._commit(state)
        for group in state.groups:
            storage.add_group(state.config(group), None if group.formed else controller._formed(group.id))
        return controller

    def groups(self) -> list[GroupConfig]:
        """The dynamic groups."""
        return [self._state.config(group) for group in self._state.groups]

    async def add_disk(self, path: Path, *, realm: str = "1", domain: str | None = None) -> int:
        """Make a disk available; by default it is a fail domain of its own. Its id."""
        async with self._changing:
            state = self._state
            if any(Path(disk.path) == path for disk in state.disks):
                raise InvalidRequestError(f"disk {path} is there already")
            disk_id = max((disk.id for disk in state.disks), default=0) + 1
            disk = DiskRecord(disk_id, str(path), realm, domain if domain is not None else str(disk_id))
            await self._commit(state._replace(disks=(*state.disks, disk)))
            return disk_id

    async def create_group(self, erasure: Erasure) -> GroupConfig:
        """A new group on disks of which no two share a fail domain. ConfigError if there are too few."""
        async with self._changing:
            state = self._state
            group = GroupRecord(state.next_group, erasure.value, 1, choose_disks(erasure, state.placed()), formed=False)
            await self._commit(state._replace(next_group=state.next_group + 1, groups=(*state.groups, group)))
            config = self._state.config(group)
            self._storage.add_group(config, self._formed(group.id))
            return config

    async def move_vdisk(self, group_id: int, order: int, to_disk: int | None = None) -> GroupConfig:
        """Move a VDisk to another disk, chosen by the controller unless one is named. The group's generation rises. Raises
        UnavailableError while the group cannot serve without this VDisk, ConfigError if no disk is free."""
        if group_id in {group.id for group in self._state.groups}:
            await self._storage.life(group_id)  # a new group forms first, which changes the state, too
        async with self._changing:
            group = next((group for group in self._state.groups if group.id == group_id), None)
            if group is None or not 0 <= order < len(group.disks):
                raise InvalidRequestError(f"VDisk {order} of group {group_id:08x} is not one of the controller's")
            _expect_spare(await self._storage.life(group_id), order)
            before = self._state.config(group)
            moved = await self._place_elsewhere(group, order, to_disk)
            groups = tuple(moved if other.id == group_id else other for other in self._state.groups)
            await self._commit(self._state._replace(groups=groups))
            config = self._state.config(moved)
            await self._storage.move_vdisk(config, order)
            try:
                await self._storage.wipe_vdisk(before, order)
            except (OSError, ConfigError) as error:
                log.warning("what VDisk %d of group %08x has left on its old disk stays there: %s", order, group_id, error)
            return config

    async def _place_elsewhere(self, group: GroupRecord, order: int, to_disk: int | None) -> GroupRecord:
        """The group with a VDisk on another disk, which works and holds nothing of it: what an earlier stay left is wiped."""
        while True:
            placed = [disk._replace(suspect=False) if disk.id == to_disk else disk for disk in self._state.placed()]
            spares = [disk for disk in placed if to_disk is None or disk.id in (to_disk, *group.disks)]
            spare = choose_spare(Erasure(group.erasure), spares, group.disks, order)
            members = (*group.disks[:order], spare, *group.disks[order + 1 :])
            moved = group._replace(generation=group.generation + 1, disks=members)
            try:
                await self._storage.wipe_vdisk(self._state.config(moved), order)
            except (OSError, ConfigError):
                await self._set_suspect(spare, suspect=True)
                if to_disk is not None:
                    raise
            else:
                return moved

    async def trust_disk(self, disk_id: int) -> None:
        """Trust a repaired disk: VDisks may be placed on it again."""
        async with self._changing:
            await self._set_suspect(disk_id, suspect=False)

    async def self_heal(self, after_s: float = HEAL_AFTER_S) -> list[tuple[int, int]]:
        """Move every VDisk whose disk has been out or failing for so long, where a disk is free. The one it leaves gets no VDisks
        until it is trusted again. Call it now and then; (group, order) moved."""
        moved: list[tuple[int, int]] = []
        now = self._clock.monotonic()
        for group in self._state.groups:
            life = await self._storage.life(group.id)
            for order in range(len(group.disks)):
                vdisk = life.vdisks.get(order)
                if vdisk is not None and not vdisk.closed and not vdisk.is_failing:
                    self._out_since.pop((group.id, order), None)
                elif now - self._out_since.setdefault((group.id, order), now) >= after_s:
                    async with self._changing:
                        await self._set_suspect(group.disks[order], suspect=True)
                    try:
                        await self.move_vdisk(group.id, order)
                    except (ConfigError, UnavailableError) as error:
                        log.warning("VDisk %d of group %08x stays where it is: %s", order, group.id, error)
                        continue
                    self._out_since.pop((group.id, order), None)
                    moved.append((group.id, order))
        return moved

    async def _set_suspect(self, disk_id: int, *, suspect: bool) -> None:
        disks = tuple(disk._replace(suspect=suspect) if disk.id == disk_id else disk for disk in self._state.disks)
        if disks != self._state.disks:
            await self._commit(self._state._replace(disks=disks))

    def _formed(self, group_id: int) -> OnFormed:
        async def note() -> None:
            async with self._changing:
                groups = (group._replace(formed=group.formed or group.id == group_id) for group in self._state.groups)
                await self._commit(self._state._replace(groups=tuple(groups)))

        return note

    async def _commit(self, state: ControllerState) -> None:
        """Store a new state, and only then take it."""
        raw = state.pack()
        self._step += 1
        _expect_ok(await self._tablet.put(BlobId(CONTROLLER_TABLET, 0, self._generation, self._step, 0, len(raw)), raw))
        self._state = state
        before = (self._generation, self._step - 1)
        _expect_ok(await self._tablet.collect_garbage(0, self._generation, self._step, barrier=before))


def _tablet_info(static_group: int) -> TabletInfo:
    return TabletInfo(CONTROLLER_TABLET, (ChannelHistory([(0, static_group)]),))


def _expect_spare(life: VDiskHost, order: int) -> None:
    """The next disk may only be given up once the group can do without it and all that are not whole."""
    whole = {other for other, vdisk in life.vdisks.items() if vdisk.proves_absence and not vdisk.closed}
    lacking = sum(1 << other for other in range(len(life.group.links)) if other == order or other not in whole)
    if not fits_fail_model(life.group.erasure, lacking):
        raise UnavailableError(f"group {life.group.id:08x} cannot do without VDisk {order} now: others are out or being refilled")


def _expect_ok(reply: Reply) -> None:
    if reply.status in (Status.BLOCKED, Status.ALREADY):
        raise FencedError("another controller has taken over; this one stops")
    if reply.status is not Status.OK:
        raise UnavailableError(f"the controller's state cannot be stored: {reply.status.value}: {reply.reason}")
