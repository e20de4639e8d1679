"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: members of classic groups, and what they divide among themselves."""

from __future__ import annotations

from penstock.broker.groups import JoinRequest, MemberIdRequiredError, OfferedProtocol
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.error_codes import coordinator_code
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

REBALANCE_TIMEOUT_FROM = 1
MEMBER_ID_FIRST_FROM = 4
NULL_PROTOCOL_FROM = 7
SKIPS_ASSIGNMENT_FROM = 9
MANY_LEAVE_FROM = 3
SYNC_PROTOCOL_FROM = 5


async def join_group(call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    """Become part of the next generation of a group; answered when it begins."""
    join = JoinRequest(
        member_id=request.member_id,
        protocol_type=request.protocol_type,
        protocols=tuple(OfferedProtocol(offered.name, bytes(offered.metadata)) for offered in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        # The first version knows only one timeout, for both.
        rebalance_timeout_ms=request.rebalance_timeout_ms
        if call.version >= REBALANCE_TIMEOUT_FROM
        else request.session_timeout_ms,
        instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=f"/{call.peer.host}",
        takes_id_first=call.version >= MEMBER_ID_FIRST_FROM,
        skips_assignment=call.version >= SKIPS_ASSIGNMENT_FROM,
    )
    try:
        joined = await call.node.coordinator.groups.classic.join(request.group_id, join)
    except PenstockError as error:
        return JoinGroupResponse(
            error_code=coordinator_code(error),
            member_id=error.member_id if isinstance(error, MemberIdRequiredError) else request.member_id,
            protocol_name=None if call.version >= NULL_PROTOCOL_FROM else "",
        )
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        leader=joined.leader_id,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata)
            for member in joined.members
        ],
    )


async def sync_group(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    """The share of a member; answered when the leader has brought everyone's."""
    if call.version >= SYNC_PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=errors.INCONSISTENT_GROUP_PROTOCOL)
    try:
        assigned = await call.node.coordinator.groups.classic.sync(
            request.group_id,
            request.member_id,
            request.generation_id,
            {member.member_id: bytes(member.assignment) for member in request.assignments},
            instance_id=request.group_instance_id,
            protocol=(request.protocol_type, request.protocol_name),
        )
    except PenstockError as error:
        return SyncGroupResponse(error_code=coordinator_code(error))
    return SyncGroupResponse(
        protocol_type=assigned.protocol_type, protocol_name=assigned.protocol_name, assignment=assigned.assignment
    )


async def heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """A member is alive."""
    try:
        call.node.coordinator.groups.classic.heartbeat(
            request.group_id, request.member_id, request.generation_id, request.group_instance_id
        )
    except PenstockError as error:
        return HeartbeatResponse(error_code=coordinator_code(error))
    return HeartbeatResponse()


async def leave_group(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Members leave, or are put out."""
    if not request.group_id:
        return LeaveGroupResponse(error_code=errors.INVALID_GROUP_ID)
    if call.version < MANY_LEAVE_FROM:
        return LeaveGroupResponse(error_code=_leave(call, request.group_id, MemberIdentity(member_id=request.member_id)))
    response = LeaveGroupResponse()
    for member in request.members:
        code = _leave(call, request.group_id, member)
        response.members.append(
            MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code)
        )
    return response


def _leave(call: Call, group: str, member: MemberIdentity) -> int:
    try:
        call.node.coordinator.groups.classic.leave(group, member.member_id, member.group_instance_id)
    except PenstockError as error:
        return coordinator_code(error)
    return errors.NONE
