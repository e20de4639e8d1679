"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups whose partitions the broker assigns (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from penstock.broker import TopicPartition
from penstock.broker.groups import ConsumerGroup, Heartbeat, queues_by_topic
from penstock.broker.groups import Member as GroupMember
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.gateway.kafka.apis.authorized import ALL_GROUP_OPERATIONS
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.error_codes import coordinator_code
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
    DescribedGroup,
    Member,
)

JOIN_EPOCH = 0
PAUSE_EPOCH = -2
AS_BEFORE = -1
OWN_ID_FROM = 1  # from this version on a member brings its own id
CONSUMER_MEMBER = 1


async def heartbeat(call: Call, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    """Take what a member says of itself; tell it its epoch and, if that is news, its partitions."""
    coordinator = call.node.coordinator.groups.consumer
    try:
        _check(call, request)
        member_id = request.member_id or coordinator.new_member_id()
        answer = await coordinator.heartbeat(request.group_id, _heartbeat(call, request, member_id))
    except PenstockError as error:
        return ConsumerGroupHeartbeatResponse(
            error_code=coordinator_code(error), error_message=str(error), member_id=request.member_id or None, assignment=None
        )
    response = ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None,
    )
    if answer.assigned is not None:
        response.assignment = ConsumerGroupHeartbeatAssignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic.bytes, partitions=numbers)
                for topic, numbers in queues_by_topic(answer.assigned)
            ]
        )
    return response


async def describe(call: Call, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    """Groups of this kind with their members, current and target assignments."""
    response = ConsumerGroupDescribeResponse()
    for name in request.group_ids:
        group = call.node.coordinator.groups.consumer.group(name)
        if group is None:
            message = f"there is no group {name!r} whose partitions the broker assigns"
            described = DescribedGroup(
                group_id=name, error_code=errors.GROUP_ID_NOT_FOUND, error_message=message, group_state="Dead"
            )
        else:
            described = _described(call.node, group)
        if request.include_authorized_operations and group is not None:
            described.authorized_operations = ALL_GROUP_OPERATIONS
        response.groups.append(described)
    return response


def _check(call: Call, request: ConsumerGroupHeartbeatRequest) -> None:
    """InvalidRequestError unless the request says all that one of its kind must say."""
    epoch = request.member_epoch
    subscribes = request.subscribed_topic_names is not None or bool(request.subscribed_topic_regex)
    wrong = {
        "a member that joins gives its rebalance timeout": epoch == JOIN_EPOCH and request.rebalance_timeout_ms <= 0,
        "a member that joins owns no partitions, and says so": epoch == JOIN_EPOCH and request.topic_partitions != [],
        "a member that joins subscribes to names or to a regular expression": epoch == JOIN_EPOCH and not subscribes,
        "a rebalance timeout is a number of milliseconds above 0": request.rebalance_timeout_ms < AS_BEFORE,
        "a member epoch is -2 or more": epoch < PAUSE_EPOCH,
        "a member has an id": not request.member_id and (epoch != JOIN_EPOCH or call.version >= OWN_ID_FROM),
        "only a member with an instance id leaves to come back": epoch == PAUSE_EPOCH and request.instance_id is None,
        "an instance id is not empty": request.instance_id == "",
        "a rack id is not empty": request.rack_id == "",
    }
    for rule, is_broken in wrong.items():
        if is_broken:
            raise InvalidRequestError(f"the heartbeat is wrong: {rule}")


def _heartbeat(call: Call, request: ConsumerGroupHeartbeatRequest, member_id: str) -> Heartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return Heartbeat(
        member_id=member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=None if request.rebalance_timeout_ms == AS_BEFORE else request.rebalance_timeout_ms,
        names=None if names is None else frozenset(names),
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else frozenset(TopicPartition(UUID(bytes=topic.topic_id), number) for topic in owned for number in topic.partitions),
        client_id=call.client_id,
        client_host=f"/{call.peer.host}",
    )


def _described(node: Node, group: ConsumerGroup) -> DescribedGroup:
    names = {topic.id: topic.name for topic in node.broker.catalog.topics()}
    return DescribedGroup(
        group_id=group.name,
        group_state=group.state,
        group_epoch=group.record.epoch,
        assignment_epoch=group.record.assignment_epoch,
        assignor_name=group.assignor,
        members=[
            _member(member, group.targets.get(member.id, frozenset()), names) for _, member in sorted(group.members.items())
        ],
    )


def _member(member: GroupMember, target: frozenset[TopicPartition], names: dict[UUID, str]) -> Member:
    return Member(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.names),
        subscribed_topic_regex=member.pattern or None,
        assignment=_assignment(member.assigned, names),
        target_assignment=_assignment(target, names),
        member_type=CONSUMER_MEMBER,
    )


def _assignment(queues: Iterable[TopicPartition], names: dict[UUID, str]) -> ConsumerGroupDescribeAssignment:
    """Partitions by topic, without deleted topics."""
    return ConsumerGroupDescribeAssignment(
        topic_partitions=[
            ConsumerGroupDescribeTopicPartitions(topic_id=topic.bytes, topic_name=names[topic], partitions=numbers)
            for topic, numbers in queues_by_topic(queues)
            if topic in names
        ]
    )
