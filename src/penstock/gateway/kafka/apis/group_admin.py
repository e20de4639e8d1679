"""ListGroups, DescribeGroups, DeleteGroups and OffsetDelete: administration of groups."""

from __future__ import annotations

from penstock.broker import TopicPartition
from penstock.broker.groups import CLASSIC, EMPTY_STATE, GroupDescription
from penstock.broker.namespace import group_name
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.authorized import ALL_GROUP_OPERATIONS
from penstock.gateway.kafka.apis.topic_lookup import find_topic, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.error_codes import coordinator_code
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.kafka.protocol.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

DEAD = "Dead"
NOT_FOUND_FROM = 6


async def list_groups(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """Every group, or those in some states and of some types."""
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    broker = call.node.coordinator
    try:
        groups = broker.groups.listed()
        paths = sorted(node.path for node in broker.namespace.consumers() if group_name(node.path) is None)
    except PenstockError as error:
        return ListGroupsResponse(error_code=coordinator_code(error))
    listed = [
        ListedGroup(
            group_id=group.name,
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.kind,
        )
        for group in groups
        if (not states or group.state.lower() in states) and (not kinds or group.kind in kinds)
    ]
    if (not states or EMPTY_STATE.lower() in states) and (not kinds or CLASSIC in kinds):
        # Consumers of YT have no members: to Kafka's tools they are groups that commit offsets, and nothing else.
        listed += (ListedGroup(group_id=path, group_state=EMPTY_STATE, group_type=CLASSIC) for path in paths)
    return ListGroupsResponse(groups=listed)


async def describe_groups(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """The state and members of classic groups."""
    response = DescribeGroupsResponse()
    for name in request.groups:
        described = DescribedGroup(group_id=name)
        response.groups.append(described)
        try:
            _describe(described, _find_group(call.node, name))
        except PenstockError as error:
            described.error_code, described.error_message = coordinator_code(error), str(error)
        if described.error_code == errors.GROUP_ID_NOT_FOUND:
            described.group_state = DEAD
            if call.version < NOT_FOUND_FROM:
                # Before, a group that is not there was described as one that is no more.
                described.error_code = errors.NONE
        elif request.include_authorized_operations:
            described.authorized_operations = ALL_GROUP_OPERATIONS
    return response


async def delete_groups(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete groups without members, with their committed offsets; a consumer of YT is deleted with its Cypress node."""
    broker = call.node.coordinator
    response = DeleteGroupsResponse()
    for name in request.groups_names:
        result = DeletableGroupResult(group_id=name)
        try:
            if broker.namespace.offsets_name(name) != name:
                await broker.namespace.remove(name)
            else:
                await broker.groups.delete(name)
        except PenstockError as error:
            result.error_code = coordinator_code(error)
        response.results.append(result)
    return response


async def delete_offsets(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete positions of a group in topics that none of its members reads."""
    broker = call.node.coordinator
    response = OffsetDeleteResponse()
    queues: list[TopicPartition] = []
    try:
        broker.groups.check_known(request.group_id)
        for topic in request.topics:
            response.topics.append(_find_positions(call.node, request.group_id, topic, queues))
        await broker.consumers.forget(request.group_id, queues)
    except PenstockError as error:
        return OffsetDeleteResponse(error_code=coordinator_code(error))
    return response


def _find_group(node: Node, name: str) -> GroupDescription:
    broker = node.coordinator
    if broker.namespace.offsets_name(name) != name:
        return GroupDescription(name, EMPTY_STATE, "", "", ())
    return broker.groups.describe_classic(name)


def _describe(described: DescribedGroup, group: GroupDescription) -> None:
    described.group_state = group.state
    described.protocol_type, described.protocol_data = group.protocol_type, group.protocol_name
    described.members = [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata,
            member_assignment=member.assignment,
        )
        for member in group.members
    ]


def _find_positions(
    node: Node, group: str, requested: OffsetDeleteRequestTopic, queues: list[TopicPartition]
) -> OffsetDeleteResponseTopic:
    """What becomes of the positions in one topic; those that can be deleted are noted."""
    code = errors.NONE
    try:
        topic = find_topic(node, requested.name)
    except PenstockError as error:
        code = topic_code(error)
    else:
        try:
            node.coordinator.groups.check_topic_unused(group, requested.name)
        except PenstockError as error:
            code = coordinator_code(error)
            if code == errors.NON_EMPTY_GROUP:
                raise
        if code == errors.NONE:
            queues += (TopicPartition(topic.id, partition.partition_index) for partition in requested.partitions)
    outcomes = [
        OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code)
        for partition in requested.partitions
    ]
    return OffsetDeleteResponseTopic(name=requested.name, partitions=outcomes)
