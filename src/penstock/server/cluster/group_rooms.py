"""The storage groups that new tablets of a cluster can go to, with the free space of each, as the leader knows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from penstock.blob import DYNAMIC_GROUPS_FROM, BlobStorage, Configuration
from penstock.coordination import Coordination
from penstock.placement import GroupRoom
from penstock.server.cluster.tablet_client import TabletClient
from penstock.server.storage_report import GroupReport, merged_reports, storage_report

POLL_S: Final = 5.0


class GroupRooms:
    """Polls the disks of all nodes while there is more than one storage group to choose from. `partitions` counts the
    partitions of each group; `first_group` is the group of tablets that name none."""

    def __init__(
        self,
        coordination: Coordination,
        client: TabletClient,
        storage: BlobStorage,
        *,
        first_group: int,
        partitions: Callable[[], Mapping[int, int]],
    ) -> None:
        self._coordination = coordination
        self._client = client
        self._storage = storage
        self._first_group = first_group
        self._partitions = partitions
        self._reports: dict[int, GroupReport] = {}

    async def poll(self) -> None:
        """Keep the free space of groups up to date until cancelled."""
        while True:
            if self._has_choice(self._candidates()):
                own, others = await storage_report(self._storage), await self._client.storage_reports()
                merged = merged_reports(own, [group for groups in others.values() for group in groups])
                self._reports = {group.id: group for group in merged}
            await asyncio.sleep(POLL_S)

    def rooms(self) -> list[GroupRoom]:
        """Returns the groups that there are to choose from; none if all new tablets go to the first group."""
        candidates = self._candidates()
        if not self._has_choice(candidates):
            return []
        partitions = self._partitions()
        return [_room(group, partitions.get(group, 0), self._reports.get(group)) for group in candidates]

    def _candidates(self) -> list[int]:
        """The groups of the cluster's own kind that serve: a topic must survive what its replication factor says. The group of a
        single node that the cluster was made of gets nothing new."""
        known = [Configuration.unpack(entry.value) for entry in self._coordination.groups().values()]
        return sorted(group.group for group in known if self._can_get_tablets(group))

    def _can_get_tablets(self, group: Configuration) -> bool:
        is_own_kind = group.erasure.value == self._coordination.identity.kind
        return group.group >= DYNAMIC_GROUPS_FROM and group.is_formed and is_own_kind

    def _has_choice(self, candidates: list[int]) -> bool:
        return bool(candidates) and candidates != [self._first_group]


def _room(group: int, partitions: int, report: GroupReport | None) -> GroupRoom:
    if report is None:
        return GroupRoom(group, partitions)
    # A full VDisk takes no messages, though its disk keeps some bytes free for making room.
    free = [0 if vdisk.state == "full" else vdisk.free for vdisk in report.vdisks if vdisk.free is not None]
    return GroupRoom(group, partitions, min(free, default=None), report.state in ("healthy", "degraded"))
