"""Topics as Metadata shows them, kept from one request to the next: clients ask often, and little changes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from penstock.broker import INTERNAL_TOPICS, PartitionDamagedError, Topic
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.cluster_view import NO_EPOCH, NO_LEADER, Leader
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.metadata import MetadataResponsePartition, MetadataResponseTopic

if TYPE_CHECKING:
    from penstock.gateway.kafka.node import Node


class DescribedTopics:
    """The topics of a listener, until the catalog, a tablet or another node changes."""

    def __init__(self) -> None:
        self._version = (-1, -1, -1)
        self._partitions: dict[UUID, list[MetadataResponsePartition]] = {}

    def describe(self, node: Node, topic: Topic) -> MetadataResponseTopic:
        """Returns a topic with all its partitions. The partitions are shared: they are not to be changed."""
        version = (node.broker.catalog.version, node.broker.tablets.changes, node.view.version)
        if version != self._version:
            self._version = version
            self._partitions.clear()
        partitions = self._partitions.get(topic.id)
        if partitions is None:
            partitions = [describe_partition(node, topic, number) for number in range(topic.partitions)]
            if not any(partition.error_code for partition in partitions):
                self._partitions[topic.id] = partitions
        return MetadataResponseTopic(
            name=topic.name, topic_id=topic.id.bytes, is_internal=topic.name in INTERNAL_TOPICS, partitions=partitions
        )


def describe_partition(node: Node, topic: Topic, number: int) -> MetadataResponsePartition:
    """Returns where a partition is led and kept."""
    leader = find_leader(node, topic, number)
    replicas = node.view.replicas(topic, number, leader.node_id)
    return MetadataResponsePartition(
        error_code=errors.LEADER_NOT_AVAILABLE if leader.node_id == NO_LEADER else errors.NONE,
        partition_index=number,
        leader_id=leader.node_id,
        leader_epoch=leader.epoch,
        replica_nodes=replicas.nodes,
        isr_nodes=replicas.in_sync,
        offline_replicas=replicas.offline,
    )


def find_leader(node: Node, topic: Topic, number: int) -> Leader:
    """Returns the leader of a partition; its node is -1 if there is none. While the tablet starts here or is being handed over,
    this node is the leader, and requests to it are refused with an error that clients retry. A client that reads of no leader
    may take that for permanent: librdkafka answers offset queries from its cached metadata for minutes."""
    broker, tablet_id = node.broker, topic.tablets[number]
    if broker.others is None or broker.tablets.hosts(tablet_id):  # clients ask for thousands that are not here
        try:
            return Leader(node.node_id, broker.partition(topic, number).epoch)
        except PartitionDamagedError:
            # The partition has a leader, which reports the damage; without a leader clients would wait silently.
            return Leader(node.node_id, NO_EPOCH)
        except PenstockError:
            pass
    elsewhere = node.view.leader_elsewhere(tablet_id)
    if elsewhere is not None:
        return elsewhere
    return Leader(node.node_id if _is_expected_here(node, topic, number) else NO_LEADER, NO_EPOCH)


def _is_expected_here(node: Node, topic: Topic, number: int) -> bool:
    """Whether a partition that is not served should be in a moment, by this node."""
    broker = node.broker
    if broker.others is not None:
        return broker.owner_of(topic, number) == node.node_id
    state = broker.tablets.state(topic.tablets[number])
    return state is not None and not state.trouble
