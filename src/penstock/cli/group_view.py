"""Groups as a command sees them: their members, their positions, and how far behind those are."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from struct import Struct, error
from typing import Final, NamedTuple

from penstock.cli.consumer import Consumer
from penstock.cli.failure import CommandError
from penstock.cli.kafka_client import CommandClient
from penstock.cli.positions import EARLIEST, LATEST, list_offsets
from penstock.kafka.client import RequestRefusedError
from penstock.kafka.protocol import cluster, consumer_groups, errors, groups, keys, offsets

GROUP_KEY: Final = 0
NO_STATES: Final = ("Empty", "Dead")
STREAM_PREFIX: Final = "stream:"
YT_PREFIX: Final = "//"

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")

Place = tuple[str, int]
"A topic and a partition."


class GroupListing(NamedTuple):
    """A group in a list, and the node that coordinates it."""

    name: str
    kind: str
    state: str
    node: int


class MemberView(NamedTuple):
    """A member and the partitions it has."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    places: tuple[Place, ...]


class GroupView(NamedTuple):
    """A group and its members."""

    name: str
    kind: str
    state: str
    assignor: str
    members: tuple[MemberView, ...]


class Lag(NamedTuple):
    """How a group stands in a partition. Without a position there is nothing to be behind of."""

    topic: str
    partition: int
    position: int | None
    end: int
    messages: int | None
    seconds: float | None


def list_groups(client: CommandClient) -> list[GroupListing]:
    """Every group of every node, by name. Several nodes may tell of one: those that do not lead pass the question on."""
    listings: dict[str, GroupListing] = {}
    answers = client.ask_each_node(keys.LIST_GROUPS, groups.ListGroupsRequest(), groups.ListGroupsResponse)
    for node_id, answer in answers.items():
        if answer.error_code:
            raise RequestRefusedError("groups", answer.error_code)
        for item in answer.groups:
            listing = GroupListing(item.group_id, kind_of(item.group_id, item.group_type), item.group_state, node_id)
            listings.setdefault(item.group_id, listing)
    return sorted(listings.values())


def kind_of(name: str, group_type: str) -> str:
    """The protocol of a group: classic or consumer (KIP-848), yt of a consumer in Cypress, stream of a durable consumer."""
    if name.startswith(STREAM_PREFIX):
        return "stream"
    return "yt" if name.startswith(YT_PREFIX) else group_type.lower()


def coordinator(client: CommandClient, name: str) -> int:
    """The node that looks after a group."""

    def ask() -> int:
        client.metadata([])
        request = cluster.FindCoordinatorRequest(key=name, key_type=GROUP_KEY, coordinator_keys=[name])
        answer = client.call(keys.FIND_COORDINATOR, request, cluster.FindCoordinatorResponse)
        for item in answer.coordinators:
            if item.error_code:
                raise RequestRefusedError(f"group {name!r}", item.error_code, item.error_message)
            return item.node_id
        raise CommandError("the node is too old to look up the coordinator of a group; upgrade it")

    return client.retry(ask)


def find_group(client: CommandClient, node: int, name: str) -> GroupView | None:
    """A group of either kind; None if there is none of that name."""
    if client.node(node).version_of(keys.CONSUMER_GROUP_DESCRIBE) >= 0:
        request = consumer_groups.ConsumerGroupDescribeRequest(group_ids=[name])
        answer = client.node_call(node, keys.CONSUMER_GROUP_DESCRIBE, request, consumer_groups.ConsumerGroupDescribeResponse)
        (group,) = answer.groups
        if not group.error_code:
            members = tuple(_member(member) for member in group.members)
            return GroupView(name, "consumer", group.group_state, group.assignor_name, members)
        if group.error_code != errors.GROUP_ID_NOT_FOUND:
            raise RequestRefusedError(f"group {name!r}", group.error_code, group.error_message)
    return _find_classic(client, node, name)


def positions(client: CommandClient, name: str) -> dict[Place, int]:
    """Every committed offset of a group."""
    return {(place.topic, place.partition): offset for place, offset in client.committed(name).items()}


def lags(client: CommandClient, committed: Mapping[Place, int], assigned: set[Place]) -> list[Lag]:
    """How far behind each position is, and which assigned partitions have none."""
    result = []
    for name in sorted({topic for topic, _ in committed.keys() | assigned}):
        topic = client.topic(name)
        numbers = sorted(number for other, number in committed.keys() | assigned if other == name)
        starts = list_offsets(client, topic, dict.fromkeys(numbers, EARLIEST))
        ends = list_offsets(client, topic, dict.fromkeys(numbers, LATEST))
        # Who stands before the start will go on there: what was trimmed cannot be read.
        begins = {number: max(committed[name, number], starts[number]) for number in numbers if (name, number) in committed}
        unread = {number: begin for number, begin in begins.items() if begin < ends[number]}
        limits = {number: ends[number] for number in unread}
        times = _first_times(Consumer(client, topic, unread, limits), limits)
        now_ms = time.time() * 1000
        for number in numbers:
            place = committed.get((name, number))
            messages = None if place is None else max(ends[number] - begins[number], 0)
            seconds = None if place is None else 0.0
            if number in unread:
                seconds = max(now_ms - times[number], 0) / 1000 if number in times else None
            result.append(Lag(name, number, place, ends[number], messages, seconds))
    return result


def _first_times(consumer: Consumer, limits: dict[int, int]) -> dict[int, int]:
    """The timestamp of the first message in each partition; none where only what is not shown is left."""
    times: dict[int, int] = {}
    for records in consumer.read():
        for number, record in records:
            if number not in times:
                times[number] = record.timestamp_ms
                limits[number] = 0  # nothing more is wanted of it
    return times


def _find_classic(client: CommandClient, node: int, name: str) -> GroupView | None:
    def ask() -> groups.DescribedGroup:
        request = groups.DescribeGroupsRequest(groups=[name])
        (group,) = client.node_call(node, keys.DESCRIBE_GROUPS, request, groups.DescribeGroupsResponse).groups
        if group.error_code and group.error_code != errors.GROUP_ID_NOT_FOUND:
            raise RequestRefusedError(f"group {name!r}", group.error_code, group.error_message)
        return group

    group = client.retry(ask)
    if group.error_code or group.group_state == "Dead":
        return None
    members = tuple(
        MemberView(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            tuple(sorted(_assigned(bytes(member.member_assignment)))),
        )
        for member in group.members
    )
    return GroupView(name, kind_of(name, "classic"), group.group_state, group.protocol_data, members)


def _member(member: consumer_groups.Member) -> MemberView:
    places = ((topic.topic_name, number) for topic in member.assignment.topic_partitions for number in topic.partitions)
    host = member.client_host.removeprefix("/")
    return MemberView(member.member_id, member.instance_id, member.client_id, host, tuple(sorted(places)))


def _assigned(raw: bytes) -> Iterator[Place]:
    """The partitions in a classic member's assignment, if it has the form that consumers use."""
    try:
        yield from list(_parse(raw))
    except (error, UnicodeDecodeError):
        return


def _parse(raw: bytes) -> Iterator[Place]:
    """version 2 | topics 4 | topics x (length 2 | name | partitions 4 | partitions x 4)"""
    if not raw:
        return
    at = _U16.size + _U32.size
    for _ in range(_U32.unpack_from(raw, _U16.size)[0]):
        size = _U16.unpack_from(raw, at)[0]
        name = raw[at + _U16.size : at + _U16.size + size].decode()
        at += _U16.size + size
        count = _U32.unpack_from(raw, at)[0]
        at += _U32.size
        yield from ((name, _U32.unpack_from(raw, at + number * _U32.size)[0]) for number in range(count))
        at += count * _U32.size


def commit(client: CommandClient, node: int, name: str, wanted: Mapping[Place, int]) -> None:
    """Set positions of a group that has no members."""
    topics: dict[str, list[offsets.OffsetCommitRequestPartition]] = {}
    for (topic, number), offset in wanted.items():
        item = offsets.OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
        topics.setdefault(topic, []).append(item)
    request = offsets.OffsetCommitRequest(
        group_id=name,
        topics=[offsets.OffsetCommitRequestTopic(name=topic, partitions=items) for topic, items in topics.items()],
    )
    client.retry(partial(_commit, client, node, name, request))


def _commit(client: CommandClient, node: int, name: str, request: offsets.OffsetCommitRequest) -> None:
    answer = client.node_call(node, keys.OFFSET_COMMIT, request, offsets.OffsetCommitResponse)
    for topic in answer.topics:
        for item in topic.partitions:
            if item.error_code in (errors.UNKNOWN_MEMBER_ID, errors.STALE_MEMBER_EPOCH, errors.REBALANCE_IN_PROGRESS):
                raise RequestRefusedError(f"group {name!r}", item.error_code, "it has members; stop them first")
            if item.error_code:
                raise RequestRefusedError(
                    f"group {name!r} in partition {item.partition_index} of {topic.name!r}", item.error_code
                )
