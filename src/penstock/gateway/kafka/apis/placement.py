"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: where partitions are led and kept.

Every partition is led by this node and has this node as its one replica; the storage group below keeps the copies and mends
them by itself. So there is never an election or a reassignment in progress, and these calls say so.
"""

from __future__ import annotations

from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.topic_lookup import find_topic, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

PREFERRED, UNCLEAN = 0, 1


async def elect_leaders(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Nothing to do wherever there is a leader; where there is none, its tablet is being started again already."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=errors.INVALID_REQUEST)
    is_for_all = request.topic_partitions is None
    requested = (
        {topic.name: list(range(topic.partitions)) for topic in call.node.broker.catalog.topics()}
        if request.topic_partitions is None
        else {topic.topic: topic.partitions for topic in request.topic_partitions}
    )
    response = ElectLeadersResponse()
    for name, numbers in requested.items():
        results = [_elect(call.node, name, number, request.election_type) for number in numbers]
        if is_for_all:
            results = [result for result in results if result.error_code != errors.ELECTION_NOT_NEEDED]
        if results:
            response.replica_election_results.append(ReplicaElectionResult(topic=name, partition_result=results))
    return response


async def alter_partition_reassignments(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """A partition can be asked to be where it is; there is nowhere else."""
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    for topic in request.topics:
        moved = [_move(call.node, topic.name, requested) for requested in topic.partitions]
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=moved))
    return response


async def list_partition_reassignments(
    _call: Call, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Returns no reassignments: there never are any."""
    return ListPartitionReassignmentsResponse(error_message=None)


def _elect(node: Node, name: str, number: int, election_type: int) -> PartitionResult:
    result = PartitionResult(partition_id=number)
    try:
        node.broker.partition(find_topic(node, name), number)
    except PenstockError as error:
        code = topic_code(error)
        if error.retriable:
            is_preferred = election_type == PREFERRED
            code = errors.PREFERRED_LEADER_NOT_AVAILABLE if is_preferred else errors.ELIGIBLE_LEADERS_NOT_AVAILABLE
        result.error_code, result.error_message = code, str(error)
        return result
    result.error_code, result.error_message = errors.ELECTION_NOT_NEEDED, f"the partition is led by broker {node.node_id}"
    return result


def _move(node: Node, name: str, requested: ReassignablePartition) -> ReassignablePartitionResponse:
    result = ReassignablePartitionResponse(partition_index=requested.partition_index, error_message=None)
    try:
        topic = find_topic(node, name)
    except PenstockError as error:
        result.error_code, result.error_message = topic_code(error), str(error)
        return result
    if not 0 <= requested.partition_index < topic.partitions:
        result.error_code = errors.UNKNOWN_TOPIC_OR_PARTITION
        result.error_message = f"topic {name!r} has partitions 0..{topic.partitions - 1}"
    elif requested.replicas is None:
        result.error_code, result.error_message = errors.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being moved"
    elif requested.replicas != [node.node_id]:
        result.error_code = errors.INVALID_REPLICA_ASSIGNMENT
        result.error_message = f"replicas can be on broker {node.node_id} alone, not on {requested.replicas}"
    return result
