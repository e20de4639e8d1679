"""Groups on the wire: every version of the requests of members, and of those who look after groups."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from struct import pack
from typing import Any

import pytest

from penstock.broker import BrokerOptions
from penstock.broker.groups import GroupOptions
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from penstock.kafka.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import RunningGateway

_numbers = count()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A broker whose groups begin at once."""
    options = BrokerOptions(groups=GroupOptions(initial_rebalance_delay_ms=0, members_max=2))
    with RunningGateway(tmp_path_factory.mktemp("groups"), broker_options=options) as running:
        yield running


@pytest.fixture
def group() -> str:
    """A group for one test."""
    return f"group-{next(_numbers)}"


def subscription(*topics: str) -> bytes:
    """What a consumer says when it joins."""
    return pack(">hi", 0, len(topics)) + b"".join(pack(">h", len(name)) + name.encode() for name in topics) + pack(">i", -1)


def join_request(group: str, member_id: str = "", **fields: Any) -> JoinGroupRequest:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("read"))],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def join(client: RawClient, group: str, member_id: str = "", version: int = 9, **fields: Any) -> JoinGroupResponse:
    """Join, with as many requests as that takes."""
    joined = client.call(keys.JOIN_GROUP, version, join_request(group, member_id, **fields), JoinGroupResponse)
    if joined.error_code == errors.MEMBER_ID_REQUIRED:
        return join(client, group, joined.member_id, version, **fields)
    return joined


def sync(client: RawClient, group: str, joined: JoinGroupResponse, share: bytes = b"", version: int = 5) -> SyncGroupResponse:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=share)],
    )
    return client.call(keys.SYNC_GROUP, version, request, SyncGroupResponse)


def stable(client: RawClient, group: str, **fields: Any) -> JoinGroupResponse:
    """A group of one member, which has its share."""
    joined = join(client, group, **fields)
    assert joined.error_code == errors.NONE
    assert sync(client, group, joined, b"share").error_code == errors.NONE
    return joined


def beat(client: RawClient, group: str, member_id: str, generation: int, version: int = 4, *, instance: str | None = None) -> int:
    request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance)
    return client.call(keys.HEARTBEAT, version, request, HeartbeatResponse).error_code


def join_again(client: RawClient, group: str, joined: JoinGroupResponse) -> JoinGroupResponse:
    """Join once another member has begun a rebalance."""
    while beat(client, group, joined.member_id, joined.generation_id) != errors.REBALANCE_IN_PROGRESS:
        pass
    return join(client, group, joined.member_id)


def leave(client: RawClient, group: str, member_id: str) -> int:
    request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)])
    return client.call(keys.LEAVE_GROUP, 5, request, LeaveGroupResponse).members[0].error_code


def commit(
    client: RawClient, group: str, topic: str, offset: int, *, member_id: str = "", generation: int = -1, version: int = 9
) -> int:
    asked = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[asked])],
    )
    return client.call(keys.OFFSET_COMMIT, version, request, OffsetCommitResponse).topics[0].partitions[0].error_code


def committed(client: RawClient, group: str, topic: str) -> int:
    asked = OffsetFetchRequestGroup(group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])])
    response = client.call(keys.OFFSET_FETCH, 8, OffsetFetchRequest(groups=[asked]), OffsetFetchResponse)
    return response.groups[0].topics[0].partitions[0].committed_offset


def describe(client: RawClient, group: str, version: int = 6) -> DescribedGroup:
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
    return client.call(keys.DESCRIBE_GROUPS, version, request, DescribeGroupsResponse).groups[0]


def delete(client: RawClient, group: str, version: int = 2) -> int:
    request = DeleteGroupsRequest(groups_names=[group])
    return client.call(keys.DELETE_GROUPS, version, request, DeleteGroupsResponse).results[0].error_code


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_in_every_version(client: RawClient, group: str, version: int) -> None:
    first = client.call(keys.JOIN_GROUP, version, join_request(group), JoinGroupResponse)
    assert (first.error_code == errors.MEMBER_ID_REQUIRED) == (version >= 4)
    joined = join(client, group, first.member_id, version)
    assert (joined.error_code, joined.leader, joined.protocol_name) == (errors.NONE, joined.member_id, "range")
    assert [one.metadata for one in joined.members] == [subscription("read")]
    assert joined.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", range(6))
def test_a_member_is_given_its_share_in_every_version(client: RawClient, group: str, version: int) -> None:
    answer = sync(client, group, join(client, group), b"my share", version)
    assert (answer.error_code, answer.assignment) == (errors.NONE, b"my share")


@pytest.mark.parametrize("version", range(5))
def test_a_member_beats_in_every_version(client: RawClient, group: str, version: int) -> None:
    joined = stable(client, group)
    assert beat(client, group, joined.member_id, joined.generation_id, version) == errors.NONE
    assert beat(client, group, joined.member_id, joined.generation_id + 1, version) == errors.ILLEGAL_GENERATION
    assert beat(client, group, "stranger", joined.generation_id, version) == errors.UNKNOWN_MEMBER_ID
    assert beat(client, "no-such-group", joined.member_id, joined.generation_id, version) == errors.UNKNOWN_MEMBER_ID
    assert beat(client, "", joined.member_id, joined.generation_id, version) == errors.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves_in_every_version(client: RawClient, group: str, version: int) -> None:
    joined = stable(client, group)
    members = [MemberIdentity(member_id=name) for name in (joined.member_id, "stranger")]
    request = LeaveGroupRequest(group_id=group, member_id=joined.member_id, members=members)
    response = client.call(keys.LEAVE_GROUP, version, request, LeaveGroupResponse)
    assert response.error_code == errors.NONE
    if version >= 3:
        assert [one.error_code for one in response.members] == [errors.NONE, errors.UNKNOWN_MEMBER_ID]
    assert describe(client, group).group_state == "Empty"
    if version < 3:
        assert client.call(keys.LEAVE_GROUP, version, request, LeaveGroupResponse).error_code == errors.UNKNOWN_MEMBER_ID


def test_an_instance_is_put_out_by_its_name(client: RawClient, group: str) -> None:
    joined = stable(client, group, group_instance_id="one")
    assert beat(client, group, "older self", joined.generation_id, instance="one") == errors.FENCED_INSTANCE_ID
    members = [MemberIdentity(member_id="", group_instance_id=name) for name in ("one", "two")]
    request = LeaveGroupRequest(group_id=group, members=members)
    response = client.call(keys.LEAVE_GROUP, 5, request, LeaveGroupResponse)
    assert [one.error_code for one in response.members] == [errors.NONE, errors.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, errors.INVALID_GROUP_ID),
        ({"group_id": "", "session_timeout_ms": 1}, errors.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1, "protocols": [], "member_id": "stranger"}, errors.INVALID_SESSION_TIMEOUT),
        ({"protocols": [], "member_id": "stranger"}, errors.UNKNOWN_MEMBER_ID),
        ({"session_timeout_ms": 999}, errors.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, errors.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, errors.UNKNOWN_MEMBER_ID),
    ],
)
@pytest.mark.parametrize("version", [0, 9])
def test_a_join_that_cannot_be_is_refused(
    gateway: RunningGateway, group: str, fields: dict[str, Any], code: int, version: int
) -> None:
    request = join_request(group, **fields)
    with RawClient(gateway.port) as client:
        assert client.call(keys.JOIN_GROUP, version, request, JoinGroupResponse).error_code == code
    assert group not in [one.group_id for one in listed(gateway).groups]


def test_a_full_group_takes_nobody_more(gateway: RunningGateway, client: RawClient, group: str) -> None:
    first = stable(client, group)
    with RawClient(gateway.port) as second, RawClient(gateway.port) as third:
        second.send(keys.JOIN_GROUP, 3, join_request(group))
        join_again(client, group, first)
        assert second.receive(keys.JOIN_GROUP, 3, JoinGroupResponse)[1].error_code == errors.NONE
        full = third.call(keys.JOIN_GROUP, 3, join_request(group), JoinGroupResponse)
        assert full.error_code == errors.GROUP_MAX_SIZE_REACHED


def test_a_sync_without_its_protocol_is_refused(client: RawClient, group: str) -> None:
    joined = join(client, group)
    request = SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    assert client.call(keys.SYNC_GROUP, 5, request, SyncGroupResponse).error_code == errors.INCONSISTENT_GROUP_PROTOCOL


# Positions.


def test_positions_are_taken_from_members_of_this_generation_alone(client: RawClient, topic: str, group: str) -> None:
    assert commit(client, group, topic, 1, generation=1) == errors.ILLEGAL_GENERATION
    assert commit(client, group, topic, 1) == errors.NONE
    joined = join(client, group)
    member_id, generation = joined.member_id, joined.generation_id
    assert commit(client, group, topic, 2, member_id=member_id, generation=generation) == errors.REBALANCE_IN_PROGRESS
    sync(client, group, joined)
    assert commit(client, group, topic, 3, member_id=member_id, generation=generation) == errors.NONE
    assert commit(client, group, topic, 4, member_id=member_id, generation=generation - 1) == errors.ILLEGAL_GENERATION
    assert commit(client, group, topic, 5, member_id="stranger", generation=generation) == errors.UNKNOWN_MEMBER_ID
    assert commit(client, group, topic, 6) == errors.UNKNOWN_MEMBER_ID
    assert committed(client, group, topic) == 3
    assert leave(client, group, member_id) == errors.NONE
    assert commit(client, group, topic, 7) == errors.NONE
    assert committed(client, group, topic) == 7


@pytest.mark.parametrize("version", range(2, 11))
def test_positions_are_committed_and_found_in_every_version(
    gateway: RunningGateway, client: RawClient, topic: str, group: str, version: int
) -> None:
    topic_id = gateway.broker.catalog.topic(topic).id.bytes
    asked = OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata="so far")
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[asked])]
    )
    response = client.call(keys.OFFSET_COMMIT, version, request, OffsetCommitResponse)
    assert response.topics[0].partitions[0].error_code == errors.NONE
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[0, 9])]
        both = [
            OffsetFetchRequestGroup(group_id=group, topics=topics),
            OffsetFetchRequestGroup(group_id="absent", topics=topics),
            OffsetFetchRequestGroup(group_id=group, topics=None),
        ]
        request_many = OffsetFetchRequest(groups=both, require_stable=True)
        own, absent, everything = client.call(keys.OFFSET_FETCH, version, request_many, OffsetFetchResponse).groups
        assert [one.committed_offset for one in own.topics[0].partitions] == [42, -1]
        assert [one.committed_offset for one in absent.topics[0].partitions] == [-1, -1]
        assert [(one.committed_offset, one.metadata) for one in everything.topics[0].partitions] == [(42, "so far")]
        return
    wanted = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    request_one = OffsetFetchRequest(group_id=group, topics=wanted)
    found = client.call(keys.OFFSET_FETCH, version, request_one, OffsetFetchResponse)
    assert (found.topics[0].partitions[0].committed_offset, found.topics[0].partitions[0].metadata) == (42, "so far")


def test_positions_that_are_sent_one_after_another_are_set_in_that_order(client: RawClient, topic: str, group: str) -> None:
    for offset in range(200):
        asked = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[asked])])
        client.send(keys.OFFSET_COMMIT, 9, request)
    for _ in range(200):
        answer = client.receive(keys.OFFSET_COMMIT, 9, OffsetCommitResponse)[1]
        assert answer.topics[0].partitions[0].error_code == errors.NONE
    assert committed(client, group, topic) == 199


# Looking after groups.


def listed(gateway: RunningGateway, version: int = 5, **fields: Any) -> ListGroupsResponse:
    with RawClient(gateway.coordinator_port) as lister:
        return lister.call(keys.LIST_GROUPS, version, ListGroupsRequest(**fields), ListGroupsResponse)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_in_every_version(
    gateway: RunningGateway, client: RawClient, topic: str, group: str, version: int
) -> None:
    stable(client, group)
    commit(client, f"simple-{group}", topic, 1)
    found = {one.group_id: one for one in listed(gateway, version).groups}
    assert (found[group].protocol_type, found[f"simple-{group}"].protocol_type) == ("consumer", "")
    if version >= 4:
        assert (found[group].group_state, found[f"simple-{group}"].group_state) == ("Stable", "Empty")
    if version >= 5:
        assert (found[group].group_type, found[f"simple-{group}"].group_type) == ("classic", "classic")


def test_groups_are_listed_by_state_and_type(gateway: RunningGateway, client: RawClient, topic: str, group: str) -> None:
    stable(client, group)
    commit(client, f"simple-{group}", topic, 1)

    def names(**fields: Any) -> set[str]:
        return {one.group_id for one in listed(gateway, **fields).groups} & {group, f"simple-{group}"}

    assert names(states_filter=["stable"]) == {group}
    assert names(states_filter=["Empty", "Dead"]) == {f"simple-{group}"}
    assert names(types_filter=["Classic"]) == {group, f"simple-{group}"}
    assert names(types_filter=["consumer"]) == set()


@pytest.mark.parametrize("version", range(7))
def test_a_group_is_described_in_every_version(client: RawClient, group: str, version: int) -> None:
    joined = stable(client, group, group_instance_id="one")
    found = describe(client, group, version)
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "raw", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("read"), b"share")
    assert member.group_instance_id == ("one" if version >= 4 else None)
    assert (found.authorized_operations > 0) == (version >= 3)
    unknown = describe(client, "no-such-group", version)
    assert (unknown.group_state, unknown.error_code) == ("Dead", errors.GROUP_ID_NOT_FOUND if version >= 6 else errors.NONE)


def test_a_group_of_positions_alone_is_described(client: RawClient, topic: str, group: str) -> None:
    commit(client, group, topic, 1)
    found = describe(client, group)
    assert (found.error_code, found.group_state, found.members) == (errors.NONE, "Empty", [])


@pytest.mark.parametrize("version", range(3))
def test_a_group_is_deleted_when_its_members_have_left(client: RawClient, topic: str, group: str, version: int) -> None:
    joined = stable(client, group)
    commit(client, group, topic, 5, member_id=joined.member_id, generation=joined.generation_id)
    assert delete(client, group, version) == errors.NON_EMPTY_GROUP
    leave(client, group, joined.member_id)
    assert delete(client, group, version) == errors.NONE
    assert delete(client, group, version) == errors.GROUP_ID_NOT_FOUND
    assert committed(client, group, topic) == -1
    assert describe(client, group).group_state == "Dead"


def delete_offsets(client: RawClient, group: str, *topics: str) -> tuple[int, list[int]]:
    asked = [OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]) for name in topics]
    response = client.call(keys.OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group, topics=asked), OffsetDeleteResponse)
    return response.error_code, [one.partitions[0].error_code for one in response.topics]


def test_positions_are_deleted_in_topics_that_no_member_reads(
    gateway: RunningGateway, client: RawClient, topic: str, group: str
) -> None:
    gateway.create_topic(f"{topic}-other")
    assert delete_offsets(client, group, topic) == (errors.GROUP_ID_NOT_FOUND, [])
    commit(client, group, topic, 1)
    commit(client, group, f"{topic}-other", 2)
    read = [JoinGroupRequestProtocol(name="range", metadata=subscription(topic))]
    joined = stable(client, group, protocols=read)
    codes = [errors.GROUP_SUBSCRIBED_TO_TOPIC, errors.NONE, errors.UNKNOWN_TOPIC_OR_PARTITION]
    assert delete_offsets(client, group, topic, f"{topic}-other", "no-such-topic") == (errors.NONE, codes)
    assert (committed(client, group, topic), committed(client, group, f"{topic}-other")) == (1, -1)
    leave(client, group, joined.member_id)
    assert delete_offsets(client, group, topic) == (errors.NONE, [errors.NONE])
    assert committed(client, group, topic) == -1


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (("connect", b"whatever"), (errors.NON_EMPTY_GROUP, [])),
        (("consumer", b"\0\0\x7f\xff\xff\xff\0\1a"), (errors.NONE, [errors.GROUP_SUBSCRIBED_TO_TOPIC])),
        (("consumer", b""), (errors.NONE, [errors.GROUP_SUBSCRIBED_TO_TOPIC])),
    ],
)
def test_positions_stay_if_it_cannot_be_known_what_members_read(
    client: RawClient, topic: str, group: str, said: tuple[str, bytes], answer: tuple[int, list[int]]
) -> None:
    protocol_type, metadata = said
    commit(client, group, topic, 1)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    joined = join(client, group, protocol_type=protocol_type, protocols=protocols)
    assert joined.error_code == errors.NONE
    assert delete_offsets(client, group, topic) == answer
    assert committed(client, group, topic) == 1


def test_a_request_behind_a_join_waits_for_it(gateway: RunningGateway, client: RawClient, group: str) -> None:
    joined = stable(client, group)
    with RawClient(gateway.port) as other:
        other.send(keys.JOIN_GROUP, 3, join_request(group))
        other.send(keys.HEARTBEAT, 3, HeartbeatRequest(group_id=group, generation_id=9, member_id="x"))
        assert join_again(client, group, joined).generation_id == 2
        assert other.receive(keys.JOIN_GROUP, 3, JoinGroupResponse)[1].generation_id == 2
        assert other.receive(keys.HEARTBEAT, 3, HeartbeatResponse)[1].error_code == errors.UNKNOWN_MEMBER_ID


def test_members_that_wait_do_not_hold_up_a_stop(tmp_path_factory: pytest.TempPathFactory) -> None:
    with RunningGateway(tmp_path_factory.mktemp("stop")) as running:
        with RawClient(running.port) as client, RawClient(running.port) as other:
            stable(client, "g", version=3)
            other.send(keys.JOIN_GROUP, 3, join_request("g"))
            running.create_topic("something-in-between")
            running.restart()
            answer = other.receive(keys.JOIN_GROUP, 3, JoinGroupResponse)[1]
        assert answer.error_code == errors.NOT_COORDINATOR
