"""Classic groups: members, rebalances, their listing."""

from __future__ import annotations

from penstock.kafka.protocol.fields import Message, array, boolean, int16, int32, octets, string


class JoinGroupRequestProtocol(Message):
    """One item of `JoinGroupRequest.protocols`."""

    name: str = string()
    metadata: bytes = octets()


class JoinGroupRequest(Message):
    """Enters a classic group, or its next rebalance."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="0+", default=None)


class JoinGroupResponseMember(Message):
    """One item of `JoinGroupResponse.members`."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    metadata: bytes = octets()


class JoinGroupResponse(Message):
    """The member's id and generation; for the leader, all members."""

    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="0+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


class HeartbeatRequest(Message):
    """Tells the coordinator that a member of a classic group is alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)


class HeartbeatResponse(Message):
    """Whether the member still belongs, or must join again."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()


class MemberIdentity(Message):
    """One item of `LeaveGroupRequest.members`."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+", default=None)
    reason: str | None = string("5+", nullable="0+", default=None)


class LeaveGroupRequest(Message):
    """Takes members out of a classic group."""

    group_id: str = string()
    members: list[MemberIdentity] = array(MemberIdentity, "3+")
    member_id: str = string("0-2")


class MemberResponse(Message):
    """One item of `LeaveGroupResponse.members`."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    error_code: int = int16()


class LeaveGroupResponse(Message):
    """Whether each member has left."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")


class SyncGroupRequestAssignment(Message):
    """One item of `SyncGroupRequest.assignments`."""

    member_id: str = string()
    assignment: bytes = octets()


class SyncGroupRequest(Message):
    """Ends a rebalance: the leader hands in the assignments, each member asks for its own."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message):
    """The member's assignment."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignment: bytes = octets()


class DescribeGroupsRequest(Message):
    """Asks for the state and members of classic groups."""

    groups: list[str] = array(string())
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Message):
    """One item of `DescribedGroup.members`."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = octets()
    member_assignment: bytes = octets()


class DescribedGroup(Message):
    """One item of `DescribeGroupsResponse.groups`."""

    error_code: int = int16()
    error_message: str | None = string("6+", nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Message):
    """The state and members of each group."""

    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)


class ListGroupsRequest(Message):
    """Asks for the groups of this broker."""

    states_filter: list[str] = array(string(), "4+")
    types_filter: list[str] = array(string(), "5+")


class ListedGroup(Message):
    """One item of `ListGroupsResponse.groups`."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


class ListGroupsResponse(Message):
    """The groups, with their states and types."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


class DeleteGroupsRequest(Message):
    """Deletes groups that have no members."""

    groups_names: list[str] = array(string())


class DeletableGroupResult(Message):
    """One item of `DeleteGroupsResponse.results`."""

    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message):
    """Whether each group was deleted."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
