"""The storage groups of the cluster as this node has them: their configurations, the VDisks that live here, and the service of
those to other nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from random import Random
from typing import Final, NamedTuple

from penstock.blob import (
    DYNAMIC_GROUPS_FROM,
    BlobStorage,
    Configuration,
    Disk,
    DiskLink,
    GroupOptions,
    Membership,
    VDiskHost,
    VDiskService,
    group_quorum,
    link_to_vdisk,
)
from penstock.coordination import Coordination, Entry
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.interconnect import Interconnect
from penstock.server.cluster.disks import NodeDisks, group_config
from penstock.server.cluster.left_vdisks import LeftVDisks
from penstock.server.cluster.peers import Peers

log = logging.getLogger(__name__)

SURVEY_S: Final = 1.0


def system_group(coordination: Coordination) -> int:
    """The group of the system tablets: the first one, which is that of a single node if the cluster was made of one."""
    return min(group_ids(coordination), default=DYNAMIC_GROUPS_FROM)


def group_ids(coordination: Coordination) -> frozenset[int]:
    """The groups that coordination knows."""
    return frozenset(Configuration.unpack(entry.value).group for entry in coordination.groups().values())


class GroupRisk(NamedTuple):
    """A group that can lose nothing more, or that `is_lost` because it has lost too much."""

    message: str
    is_lost: bool = False


class ClusterGroups:
    """Every group of the cluster. `follow` brings them to what coordination says; what VDisks know is learned by itself."""

    def __init__(
        self,
        node_id: int,
        coordination: Coordination,
        interconnect: Interconnect,
        disks: NodeDisks,
        storage: BlobStorage,
        *,
        clock: Clock,
        random: Random,
        options: GroupOptions,
    ) -> None:
        self.memberships: dict[int, Membership] = {}
        self.hosts: dict[int, VDiskHost] = {}
        self.peers: Peers | None = None  # set before the first group is followed
        self._node_id = node_id
        self._coordination = coordination
        self._interconnect = interconnect
        self._disks = disks
        self._left = LeftVDisks(node_id, disks)
        self._storage = storage
        self._clock = clock
        self._random = random
        self._options = options
        self._troubles: dict[str, str] = {}

    async def start(self) -> None:
        """Take the configurations that coordination has, and have it know groups that only disks here have."""
        stored, _ = await asyncio.to_thread(self._disks.configurations)
        await self._restore(configuration for _, configuration in stored)
        await self.follow()

    async def follow(self) -> None:
        """Take every configuration that coordination has by now, and have it know those that only disks here have."""
        try:
            await self._restore([membership.configuration for membership in self.memberships.values()])
        except PenstockError as error:
            log.warning("the rebuilt store does not know a storage group yet, trying again: %s", error)
        for entry in self._coordination.groups().values():
            try:
                await self._take(entry)
            except (PenstockError, OSError) as error:
                if self._troubles.get(entry.key) != str(error):
                    self._troubles[entry.key] = str(error)
                    log.error("a storage group cannot be used here: %s", error)
            else:
                self._troubles.pop(entry.key, None)

    async def _restore(self, configurations: Iterable[Configuration]) -> None:
        """Have a store that was rebuilt from the disks of other nodes know the groups of which VDisks are here."""
        if not self._coordination.identity.recoveries:
            return
        known = group_ids(self._coordination)
        for configuration in configurations:
            if configuration.group not in known:
                log.warning("group %08x is not known to the rebuilt store, and is restored there", configuration.group)
                await self._coordination.restore_group(configuration.group, configuration.pack())

    def configurations(self) -> dict[str, int]:
        """The generation of each group's configuration, as known here."""
        return {f"{group:08x}": membership.configuration.generation for group, membership in self.memberships.items()}

    def troubles(self) -> list[str]:
        """Why VDisks that live here do not serve, or groups cannot be used."""
        reasons = list(self._troubles.values())
        for host in self.hosts.values():
            for order in host.hosted:
                vdisk = host.vdisks.get(order)
                if vdisk is None:
                    reasons.append(f"VDisk {host.group.vdisk_id(order)} is out")
                elif not vdisk.in_step:
                    reasons.append(f"VDisk {vdisk.id} has not heard from enough others yet")
                elif not vdisk.proves_absence:
                    reasons.append(f"VDisk {vdisk.id} is being refilled")
                elif not host.has_compared(order):
                    reasons.append(f"VDisk {vdisk.id} is getting what it missed while this node was away")
        return reasons

    def nodes_in_step(self, group: int) -> frozenset[int]:
        """The nodes all of whose VDisks of a group hold what they should, as far as is known here."""
        host, membership = self.hosts.get(group), self.memberships.get(group)
        if host is None or membership is None:
            return frozenset()
        behind: set[int] = set()
        for order, seat in enumerate(membership.configuration.seats):
            if not _is_whole(host, order) or (order in host.hosted and not host.has_compared(order)):
                behind.add(seat.node)
        return frozenset(seat.node for seat in membership.configuration.seats) - behind

    def behind(self) -> frozenset[int]:
        """The groups of which a VDisk here has not yet got what was written while this node was away. Only this node knows."""
        hosts = self.hosts.items()
        return frozenset(group for group, host in hosts if not all(host.has_compared(order) for order in host.hosted))

    def risks(self) -> list[GroupRisk]:
        """Groups that can lose no further VDisk, or have lost too many, as far as this node knows."""
        risks: list[GroupRisk] = []
        for group, membership in self.memberships.items():
            host, erasure = self.hosts[group], membership.configuration.erasure
            orders = range(len(membership.configuration.seats))
            whole = {order for order in orders if _is_whole(host, order)}
            if len(whole) == len(orders) or not membership.configuration.is_formed:
                continue
            if not group_quorum(erasure, _mask(whole)):
                lost = f"group {group:08x} has lost too many VDisks: {_named(host, set(orders) - whole)}"
                risks.append(GroupRisk(lost, is_lost=True))
            elif not all(group_quorum(erasure, _mask(whole - {order})) for order in whole):
                out = _named(host, set(orders) - whole)
                risks.append(GroupRisk(f"group {group:08x} can lose nothing more: {out} is out or being refilled"))
        return risks

    async def survey(self) -> None:
        """Ask now and then how the VDisks on other nodes are."""
        while True:
            for group, membership in list(self.memberships.items()):
                host, configuration = self.hosts[group], membership.configuration
                whole = await membership.survey()
                if membership.configuration is configuration:
                    await self._left.remove(configuration, whole)
                host.elsewhere = {order: is_whole for order, is_whole in whole.items() if order not in host.hosted}
                self._storage.adopt(group_config(membership.configuration, self._node_id, self._disks), host)
            await asyncio.sleep(SURVEY_S)

    async def _take(self, entry: Entry) -> None:
        configuration = Configuration.unpack(entry.value)
        membership = self.memberships.get(configuration.group)
        if membership is None:
            await self._open(configuration)
        else:
            membership.learn(configuration)

    async def _open(self, configuration: Configuration) -> None:
        group = configuration.group
        membership = Membership(configuration, self._connect, self._clock)
        host = VDiskHost.of_node(
            self._node_id,
            membership,
            lambda order: self._open_disk(membership, order),
            clock=self._clock,
            random=self._random,
            options=self._options,
        )
        services = [
            VDiskService(self._interconnect.service, group, order, lambda order=order: host.vdisks.get(order))  # type: ignore[misc]
            for order in range(len(configuration.seats))
        ]
        # From the beginning: a link that breaks while disks are opened and synced must not go unnoticed.
        self._interconnect.watch(host.note_link)
        try:
            await host.start()
        except BaseException:
            self._interconnect.unwatch(host.note_link)
            for service in services:
                service.close()
            raise
        self.memberships[group], self.hosts[group] = membership, host
        self._storage.adopt(group_config(membership.configuration, self._node_id, self._disks), host)
        log.info("group %08x is open: %s, %d VDisks here", group, configuration.erasure.value, len(host.hosted))

    def _connect(self, configuration: Configuration, order: int) -> DiskLink | None:
        seat = configuration.seats[order]
        if seat.node == self._node_id:
            return None
        assert self.peers is not None
        return link_to_vdisk(self.peers.link(seat.node), configuration.group, order)

    async def _open_disk(self, membership: Membership, order: int) -> Disk:
        configuration = membership.configuration
        path = await asyncio.to_thread(self._disks.open_blocking, configuration.seats[order].disk)
        config = group_config(configuration, self._node_id, self._disks)
        assert config.disks[order] == path
        return await self._disks.open(config.vdisk_directory(order))


def _is_whole(host: VDiskHost, order: int) -> bool:
    """Whether a VDisk serves and has all that it should, by what was heard last if it is elsewhere."""
    if order not in host.hosted:
        return host.elsewhere.get(order, False)
    vdisk = host.vdisks.get(order)
    return vdisk is not None and vdisk.in_step and vdisk.proves_absence


def _mask(orders: set[int]) -> int:
    return sum(1 << order for order in orders)


def _named(host: VDiskHost, orders: set[int]) -> str:
    return ", ".join(f"VDisk {host.group.vdisk_id(order)}" for order in sorted(orders))
