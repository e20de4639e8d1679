"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: where partitions are led and kept.

The storage group below keeps the copies and mends them by itself, and a tablet that has no node is given one. What is left to
ask for is another leader: with it move all partitions of its tablet. A move is over when it is answered, so none is ever listed.
"""

from __future__ import annotations

from penstock.broker import UnknownTopicError
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.gateway.kafka.apis.topic_lookup import find_topic, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.cluster_view import NO_LEADER
from penstock.gateway.kafka.described_topics import find_leader
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
    """Moves partitions to the first of the nodes that are named for each."""
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    for topic in request.topics:
        moved = [await _move(call.node, topic.name, requested) for requested in topic.partitions]
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=moved))
    return response


async def list_partition_reassignments(
    _call: Call, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Returns no reassignments: each is over when it is answered."""
    return ListPartitionReassignmentsResponse(error_message=None)


def _elect(node: Node, name: str, number: int, election_type: int) -> PartitionResult:
    result = PartitionResult(partition_id=number)
    try:
        topic = find_topic(node, name)
        if not 0 <= number < topic.partitions:
            raise UnknownTopicError(f"topic {name!r} has partitions 0..{topic.partitions - 1}, not {number}")
    except PenstockError as error:
        result.error_code, result.error_message = topic_code(error), str(error)
        return result
    leader = find_leader(node, topic, number)
    if leader.node_id == NO_LEADER:
        is_preferred = election_type == PREFERRED
        result.error_code = errors.PREFERRED_LEADER_NOT_AVAILABLE if is_preferred else errors.ELIGIBLE_LEADERS_NOT_AVAILABLE
        result.error_message = "the tablet of the partition is being started; try again in a moment"
    else:
        result.error_code = errors.ELECTION_NOT_NEEDED
        result.error_message = f"the partition is led by broker {leader.node_id}"
    return result


async def _move(node: Node, name: str, requested: ReassignablePartition) -> ReassignablePartitionResponse:
    number = requested.partition_index
    result = ReassignablePartitionResponse(partition_index=number, error_message=None)
    try:
        topic = find_topic(node, name)
        if not 0 <= number < topic.partitions:
            raise UnknownTopicError(f"topic {name!r} has partitions 0..{topic.partitions - 1}, not {number}")
        if requested.replicas is None:
            result.error_code, result.error_message = errors.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being moved"
        else:
            await node.view.move(topic, number, requested.replicas)
    except InvalidRequestError as error:
        is_unknown = isinstance(error, UnknownTopicError)
        result.error_code = topic_code(error) if is_unknown else errors.INVALID_REPLICA_ASSIGNMENT
        result.error_message = str(error)
    except PenstockError as error:
        result.error_code, result.error_message = errors.REQUEST_TIMED_OUT, str(error)
    return result
