"""The nodes of the cluster as a broker knows them (`OtherNodes`), and as the leader's uses them (`LedNodes`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.broker import PartitionStatus, Tablets, TopicPartition
from penstock.broker.errors import PartitionUnavailableError
from penstock.coordination import Coordination
from penstock.core.errors import UnavailableError
from penstock.placement import Placement, choose_groups
from penstock.queue import SourceWrite
from penstock.server.cluster.group_rooms import GroupRooms
from penstock.server.cluster.tablet_client import TabletClient


class ClusterNodes:
    """What every node knows, by coordination."""

    def __init__(self, node_id: int, coordination: Coordination) -> None:
        self.node_id = node_id
        self._coordination = coordination

    @property
    def leader(self) -> int | None:
        """See OtherNodes."""
        leader = self._coordination.leader
        return None if leader is None else leader.record.node_id

    def owner_of(self, tablet_id: int) -> int | None:
        """See OtherNodes."""
        return self._coordination.owner_of(tablet_id)

    def name_of(self, node_id: int) -> str:
        """See OtherNodes."""
        addresses = (member.addresses for member in self._coordination.members() if member.node_id == node_id)
        address = next((known.get("kafka") or known.get("kafka_tls") for known in addresses), None)
        return f"node {node_id}" if address is None else f"node {node_id} ({address})"


class LedClusterNodes(ClusterNodes):
    """What the leader does with the other nodes."""

    def __init__(
        self,
        node_id: int,
        coordination: Coordination,
        client: TabletClient,
        tablets: Tablets,
        placement: Placement,
        *,
        rooms: GroupRooms,
    ) -> None:
        super().__init__(node_id, coordination)
        self._client = client
        self._tablets = tablets
        self._placement = placement
        self._rooms = rooms

    @property
    def spread(self) -> int:
        """See TabletSpread."""
        return self._placement.spread

    def choose_groups(self, count: int) -> Sequence[int]:
        """See TabletSpread."""
        rooms = self._rooms.rooms()
        return choose_groups(rooms, count) if rooms else self._placement.choose_groups(count)

    async def place(self, tablets: Sequence[int]) -> None:
        """See LedNodes."""
        await self._placement.place(tablets)

    async def erase(self, tablets: Sequence[tuple[int, int | None]]) -> None:
        """See LedNodes. The owner erases its tablets: it may be the only one that has their disks. Those of a node that is away
        are erased here, if their disks can be reached from here. UnavailableError, after all others are erased, if not."""
        running = {member.node_id for member in self._coordination.members()}
        by_owner: dict[int, list[tuple[int, int | None]]] = {}
        for tablet_id, group in tablets:
            owner = self.owner_of(tablet_id)
            by_owner.setdefault(owner if owner in running else self.node_id, []).append((tablet_id, group))
        erasing = (self._erase_on(owner, owned) for owner, owned in by_owner.items())
        outcomes = await asyncio.gather(*erasing, return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome
        self._client.forget({tablet_id for tablet_id, _ in tablets})

    async def _erase_on(self, node_id: int, tablets: Sequence[tuple[int, int | None]]) -> None:
        if node_id != self.node_id:
            await self._client.erase(node_id, tablets)
            return
        known = {config.id for config in self._tablets.storage.groups()}
        reached = [(tablet_id, group) for tablet_id, group in tablets if group is None or group in known]
        await self._tablets.erase_all(reached)
        if len(reached) < len(tablets):
            raise UnavailableError(f"the data of {len(tablets) - len(reached)} tablets is on a node that is away")

    def status_of(self, tablet_id: int, number: int) -> PartitionStatus | None:
        """See LedNodes."""
        return self._client.statuses.get((tablet_id, number))

    async def settled_start(self, place: TopicPartition, tablet_id: int) -> int:
        """See LedNodes."""
        return await self._client.settled_start(self._other_owner(tablet_id), place)

    async def mark(self, place: TopicPartition, tablet_id: int, marker: bytes, source: SourceWrite) -> None:
        """See LedNodes."""
        await self._client.mark(self._other_owner(tablet_id), place, marker, source)

    def _other_owner(self, tablet_id: int) -> int:
        """The other node that owns a tablet. PartitionUnavailableError if there is none."""
        owner = self.owner_of(tablet_id)
        if owner is None or owner == self.node_id:
            raise PartitionUnavailableError(f"tablet {tablet_id} is starting; try again in a moment")
        return owner
