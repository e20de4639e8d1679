"""ConsumerGroupHeartbeat, ConsumerGroupDescribe and what belongs to them, request by request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.cluster import ApiVersionsRequest, ApiVersionsResponse
from penstock.kafka.protocol.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
)
from penstock.kafka.protocol.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.kafka.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import RunningGateway

JOIN, LEAVE, PAUSE = 0, -1, -2
CLASSIC_VERSION = 3
_numbers = count()


class Speaker:
    """Speaks for the members of one group."""

    def __init__(self, client: RawClient, topic: str, lister: RawClient | None = None) -> None:
        self.client = client
        self.lister = lister or client
        self.topic = topic
        self.group = f"group-{next(_numbers)}"

    def beat(self, member: str, epoch: int, version: int = 1, **more: object) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=member, member_epoch=epoch, topic_partitions=None)
        for name, value in more.items():
            setattr(request, name, value)
        return self.client.call(keys.CONSUMER_GROUP_HEARTBEAT, version, request, ConsumerGroupHeartbeatResponse)

    def join(self, member: str, version: int = 1, **more: object) -> ConsumerGroupHeartbeatResponse:
        fields = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [self.topic], "topic_partitions": []}
        return self.beat(member, JOIN, version, **{**fields, **more})

    def describe(self) -> DescribedGroup:
        request = ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=True)
        return self.client.call(keys.CONSUMER_GROUP_DESCRIBE, 1, request, ConsumerGroupDescribeResponse).groups[0]

    def commit(self, member: str, epoch: int, offset: int, version: int = 9) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self.group,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        answer = self.client.call(keys.OFFSET_COMMIT, version, request, OffsetCommitResponse)
        return answer.topics[0].partitions[0].error_code

    def committed(self, member: str | None = None, epoch: int = -1) -> tuple[int, list[int]]:
        asked = OffsetFetchRequestGroup(group_id=self.group, member_id=member, member_epoch=epoch, topics=None)
        found = self.client.call(keys.OFFSET_FETCH, 9, OffsetFetchRequest(groups=[asked]), OffsetFetchResponse).groups[0]
        return found.error_code, [one.committed_offset for topic in found.topics for one in topic.partitions]

    def listed(self, version: int = 5, **filters: list[str]) -> list[tuple[str, str, str]]:
        request = ListGroupsRequest(**filters)
        found = self.lister.call(keys.LIST_GROUPS, version, request, ListGroupsResponse).groups
        return [(one.group_type, one.group_state, one.protocol_type) for one in found if one.group_id == self.group]

    def delete(self) -> int:
        request = DeleteGroupsRequest(groups_names=[self.group])
        return self.client.call(keys.DELETE_GROUPS, 2, request, DeleteGroupsResponse).results[0].error_code

    def join_classic(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=6000,
            rebalance_timeout_ms=6000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        return self.client.call(keys.JOIN_GROUP, CLASSIC_VERSION, request, JoinGroupResponse)

    def leave_classic(self, member: str) -> None:
        request = LeaveGroupRequest(group_id=self.group, member_id=member)
        assert self.client.call(keys.LEAVE_GROUP, 2, request, LeaveGroupResponse).error_code == errors.NONE


@pytest.fixture
def speaker(gateway: RunningGateway, client: RawClient, topic: str) -> Iterator[Speaker]:
    with RawClient(gateway.coordinator_port) as lister:
        yield Speaker(client, topic, lister)


def test_a_member_joins_and_leaves(speaker: Speaker, gateway: RunningGateway) -> None:
    answer = speaker.join("one")
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (0, "one", 1, 5000)
    assert answer.assignment is not None
    topic_id = gateway.broker.catalog.topic(speaker.topic).id.bytes
    assert [(one.topic_id, one.partitions) for one in answer.assignment.topic_partitions] == [(topic_id, [0])]
    again = speaker.beat("one", 1)
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 1, None)
    owned = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=[0])]
    assert speaker.beat("one", 1, topic_partitions=owned).assignment is None
    gone = speaker.beat("one", LEAVE)
    assert (gone.error_code, gone.member_epoch) == (0, LEAVE)
    assert speaker.describe().group_state == "Empty"


def test_in_the_first_version_the_broker_makes_the_id(speaker: Speaker) -> None:
    answer = speaker.join("", version=0)
    assert answer.error_code == errors.NONE
    assert answer.member_id
    assert speaker.beat(answer.member_id, 1, version=0).error_code == errors.NONE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, errors.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, errors.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -7}, errors.INVALID_REQUEST),
        ({"topic_partitions": None}, errors.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, errors.INVALID_REQUEST),
        ({"instance_id": ""}, errors.INVALID_REQUEST),
        ({"rack_id": ""}, errors.INVALID_REQUEST),
        ({"member_epoch": -3}, errors.INVALID_REQUEST),
        ({"member_epoch": PAUSE}, errors.INVALID_REQUEST),
        ({"group_id": ""}, errors.INVALID_GROUP_ID),
        ({"member_id": "x" * 2000}, errors.INVALID_REQUEST),
        ({"server_assignor": "sideways"}, errors.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, errors.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, errors.GROUP_ID_NOT_FOUND),
        ({"member_epoch": LEAVE}, errors.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_wrong_heartbeat_is_refused_and_leaves_no_group(speaker: Speaker, fields: dict[str, object], code: int) -> None:
    answer = speaker.join("one", 1, **fields)
    assert answer.error_code == code
    assert answer.error_message
    assert speaker.listed() == []


def test_a_member_that_is_behind_or_unknown_is_told(speaker: Speaker) -> None:
    speaker.join("one")
    assert speaker.beat("one", 5).error_code == errors.FENCED_MEMBER_EPOCH
    assert speaker.beat("two", 1).error_code == errors.UNKNOWN_MEMBER_ID


def test_a_static_member_is_replaced_only_after_it_has_left(speaker: Speaker) -> None:
    speaker.join("one", instance_id="host")
    assert speaker.join("two", instance_id="host").error_code == errors.UNRELEASED_INSTANCE_ID
    assert speaker.beat("one", PAUSE, instance_id="host").member_epoch == PAUSE
    assert speaker.join("two", instance_id="host").member_epoch == 1
    assert speaker.beat("one", 1, instance_id="host").error_code == errors.FENCED_INSTANCE_ID


def test_positions_are_taken_and_told_by_epoch(speaker: Speaker) -> None:
    speaker.join("one")
    assert speaker.commit("one", 1, 7) == errors.NONE
    assert speaker.commit("one", 0, 9) == errors.STALE_MEMBER_EPOCH
    assert speaker.commit("two", 1, 9) == errors.UNKNOWN_MEMBER_ID
    assert speaker.commit("", -1, 9) == errors.UNKNOWN_MEMBER_ID
    assert speaker.commit("one", 1, 9, version=8) == errors.UNSUPPORTED_VERSION
    assert speaker.committed() == (errors.NONE, [7])
    assert speaker.committed("one", 1) == (errors.NONE, [7])
    assert speaker.committed("one", 2) == (errors.STALE_MEMBER_EPOCH, [])
    assert speaker.committed("two", 1) == (errors.UNKNOWN_MEMBER_ID, [])


def test_a_group_is_described(speaker: Speaker) -> None:
    speaker.join("one", subscribed_topic_regex="x.*", server_assignor="range", rack_id="left")
    group = speaker.describe()
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == ("Stable", 1, 1, "range")
    assert group.authorized_operations > 0
    member = group.members[0]
    assert (member.member_id, member.rack_id, member.member_epoch, member.client_id) == ("one", "left", 1, "raw")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex, member.member_type) == ([speaker.topic], "x.*", 1)
    for assignment in (member.assignment, member.target_assignment):
        assert [(one.topic_name, one.partitions) for one in assignment.topic_partitions] == [(speaker.topic, [0])]
    assert member.client_host == "/127.0.0.1"


def test_what_is_no_such_group_is_not_described(speaker: Speaker) -> None:
    assert speaker.describe().error_code == errors.GROUP_ID_NOT_FOUND
    speaker.join_classic()
    described = speaker.describe()
    assert (described.error_code, described.group_state) == (errors.GROUP_ID_NOT_FOUND, "Dead")


def test_groups_are_listed_by_kind_and_deleted_when_empty(speaker: Speaker) -> None:
    speaker.join("one")
    assert speaker.listed() == [("consumer", "Stable", "consumer")]
    assert speaker.listed(types_filter=["classic"]) == []
    assert speaker.listed(types_filter=["consumer"], states_filter=["Stable"]) == [("consumer", "Stable", "consumer")]
    assert speaker.delete() == errors.NON_EMPTY_GROUP
    speaker.commit("one", 1, 3)
    speaker.beat("one", LEAVE)
    assert speaker.listed() == [("consumer", "Empty", "consumer")]
    assert speaker.delete() == errors.NONE
    assert (speaker.listed(), speaker.committed()) == ([], (errors.NONE, []))


def test_an_empty_group_changes_its_kind_and_keeps_its_positions(speaker: Speaker) -> None:
    speaker.join("one")
    speaker.commit("one", 1, 5)
    refused = speaker.join_classic()
    assert refused.error_code == errors.INCONSISTENT_GROUP_PROTOCOL
    speaker.beat("one", LEAVE)
    classic = speaker.join_classic()
    assert classic.error_code == errors.NONE
    assert [kind for kind, _, _ in speaker.listed()] == ["classic"]
    assert speaker.join("one").error_code == errors.GROUP_ID_NOT_FOUND
    speaker.leave_classic(classic.member_id)
    assert speaker.join("one").error_code == errors.NONE
    assert [kind for kind, _, _ in speaker.listed()] == ["consumer"]
    assert speaker.committed() == (errors.NONE, [5])


def test_the_feature_is_advertised(client: RawClient) -> None:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    answer = client.call(keys.API_VERSIONS, 4, request, ApiVersionsResponse)
    assert {one.name: (one.min_version, one.max_version) for one in answer.supported_features}["group.version"] == (1, 1)
    assert {one.name: one.max_version_level for one in answer.finalized_features}["group.version"] == 1
    assert answer.finalized_features_epoch >= 0


def test_a_group_survives_a_restart(gateway: RunningGateway, topic: str) -> None:
    with RawClient(gateway.port) as client:
        before = Speaker(client, topic)
        before.join("one")
        before.commit("one", 1, 4)
    gateway.restart()
    with RawClient(gateway.port) as client:
        after = Speaker(client, topic)
        after.group = before.group
        assert after.beat("one", 1).error_code == errors.NONE
        assert after.committed("one", 1) == (errors.NONE, [4])
        assert after.join("two").member_epoch == 2


def test_a_change_of_kind_survives_a_restart(gateway: RunningGateway, topic: str) -> None:
    with RawClient(gateway.port) as client:
        before = Speaker(client, topic)
        before.leave_classic(before.join_classic().member_id)
        before.join("one")
        before.beat("one", LEAVE)
    gateway.restart()
    with RawClient(gateway.port) as client:
        after = Speaker(client, topic)
        after.group = before.group
        with RawClient(gateway.coordinator_port) as after.lister:
            assert after.listed() == [("consumer", "Empty", "consumer")]
        assert after.join("two").member_epoch == 3
