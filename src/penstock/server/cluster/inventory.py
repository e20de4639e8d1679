"""What the leader places: the tablets of its catalog, and the storage groups that coordination knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from penstock.blob import Configuration, Erasure
from penstock.broker import INTERNAL_TOPICS, Broker, Topic
from penstock.coordination import Coordination
from penstock.placement import CatalogTablet, GroupNodes


class CatalogInventory:
    """The catalog of the leader's broker, once that has started. `own_group` returns the storage group of a node that does not
    share one."""

    def __init__(
        self,
        coordination: Coordination,
        broker: Callable[[], Broker | None],
        first_group: int,
        own_group: Callable[[int], int | None],
    ) -> None:
        self._coordination = coordination
        self._broker = broker
        self._first_group = first_group
        self.own_group = own_group
        self._version = -1  # of the catalog, for which the tablets were listed
        self._tablets: list[CatalogTablet] = []
        self._groups: dict[str, tuple[int, int, GroupNodes]] = {}  # revision, group and nodes, by key

    def tablets(self) -> Sequence[CatalogTablet]:
        """The tablets of all topics, by id."""
        broker = self._broker()
        if broker is None:
            return ()
        catalog = broker.catalog
        if catalog.version != self._version:
            self._version = catalog.version
            self._tablets = sorted(
                CatalogTablet(
                    tablet_id,
                    topic.name,
                    len(numbers),
                    self._group_of(topic, tablet_id),
                    follows_leader=topic.name in INTERNAL_TOPICS,
                    is_deleting=topic.deleting,
                )
                for topic in (*catalog.topics(), *catalog.deleting())
                for tablet_id, numbers in topic.by_tablet().items()
            )
        return self._tablets

    def group(self, group_id: int) -> GroupNodes:
        """The nodes that have a disk of a group. One without a second copy is used on its own node only."""
        for key, entry in self._coordination.groups().items():
            known = self._groups.get(key)
            if known is None or known[0] != entry.revision:
                configuration = Configuration.unpack(entry.value)
                nodes = frozenset(seat.node for seat in configuration.seats)
                known = (entry.revision, configuration.group, GroupNodes(nodes, configuration.erasure is Erasure.NONE))
                self._groups[key] = known
            if known[1] == group_id:
                return known[2]
        return GroupNodes()

    def partitions_by_group(self) -> Counter[int]:
        """How many partitions each storage group has."""
        counts: Counter[int] = Counter()
        for tablet in self.tablets():
            counts[tablet.group] += tablet.partitions
        return counts

    def _group_of(self, topic: Topic, tablet_id: int) -> int:
        group = topic.group_of(tablet_id)
        return self._first_group if group is None else group
