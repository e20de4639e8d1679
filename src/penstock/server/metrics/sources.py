"""The monitored parts of a node: storage, broker and gateways."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from penstock.blob import Erasure, LocalDisk, VDiskHost, group_state
from penstock.broker import Broker
from penstock.broker.streams import Streams
from penstock.core.probe import Durations, RequestProbe
from penstock.server.listener_checks import ListenerChecks
from penstock.server.metrics.alerts import DiskFacts
from penstock.server.metrics.disk_damage import DiskDamage
from penstock.server.pipelines import DeploymentKeeper


class Gateway(Protocol):
    """A listener that counts its requests. It may have `connections` and `memory_used` too."""

    @property
    def probe(self) -> RequestProbe:
        """What it counts."""
        ...


class Space(NamedTuple):
    """Bytes stored, and free and total space of the file systems."""

    used: int = 0
    free: int = 0
    total: int = 0


@dataclass(slots=True)
class Sources:
    """The parts of a node. Gateways are listed with the name they are counted under; several may share one."""

    broker: Broker
    life: VDiskHost
    listeners: Mapping[str, object]
    expected: frozenset[str]  # the configured listeners
    read_pipelines: Callable[[], Awaitable[list[dict[str, Any]]]] | None = None
    read_damage: Callable[[], Awaitable[DiskDamage]] | None = None
    streams: Streams | None = None  # if they are kept in the node itself
    gateways: list[tuple[str, Gateway]] = field(default_factory=list)
    deployments: DeploymentKeeper | None = None  # if pipelines can be deployed
    checks: ListenerChecks | None = None  # of the listeners, if they are checked

    def probes(self) -> Iterator[tuple[str, RequestProbe]]:
        """Every probe of requests, each once."""
        seen: set[int] = set()
        for name, gateway in self.gateways:
            if id(gateway.probe) not in seen:
                seen.add(id(gateway.probe))
                yield name, gateway.probe

    def syncs(self) -> Iterator[tuple[int, Durations]]:
        """How long syncs took, by VDisk."""
        for order, vdisk in self.life.vdisks.items():
            if isinstance(vdisk.disk, LocalDisk):
                yield order, vdisk.disk.probe.syncs

    def disks(self) -> list[DiskFacts]:
        """Every VDisk and its disk."""
        facts: list[DiskFacts] = []
        vdisks = self.life.vdisks
        for order, path in enumerate(self.broker.data_directories()):
            vdisk = vdisks.get(order)
            space = None if vdisk is None else vdisk.space
            is_up = vdisk is not None and not vdisk.closed and vdisk.proves_absence and not vdisk.is_failing
            is_up = is_up or (vdisk is None and self.life.elsewhere.get(order, False))
            is_full = vdisk is not None and vdisk.full
            free, size = (-1, -1) if space is None else (space.free, space.total)
            facts.append(DiskFacts(order, str(path), is_up, is_full, free, size))
        return facts

    def unknown_losses(self) -> list[str]:
        """Lost parts of the log of an only disk, of which nothing is known."""
        if self.life.group.erasure is not Erasure.NONE:
            return []
        lost = [vdisk.recovered for vdisk in self.life.vdisks.values() if vdisk.recovered.unknown_loss]
        return [loss for recovered in lost for loss in recovered.losses]

    def used(self) -> int:
        """Bytes of chunks on all disks."""
        total = 0
        for vdisk in self.life.vdisks.values():
            total += sum(use.size for use in vdisk.index.chunks.values()) + vdisk.journal.offset
        return total

    def space(self) -> Space:
        """Used and free space; a file system shared by several disks counts once."""
        seen = {space.device: space for vdisk in self.life.vdisks.values() if (space := vdisk.space) is not None}
        return Space(self.used(), sum(space.free for space in seen.values()), sum(space.total for space in seen.values()))

    def silent_listeners(self) -> dict[str, str]:
        """Listeners that do not answer, and why."""
        return {} if self.checks is None else self.checks.silent

    def state(self) -> str:
        """The state of the storage group."""
        return group_state(self.life)
