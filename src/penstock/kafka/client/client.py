"""The cluster behind some addresses: connections, retries, topics with their leaders, offsets, coordinators."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from penstock.core.errors import PenstockError
from penstock.kafka.client.address import Address
from penstock.kafka.client.connection import Connection
from penstock.kafka.client.errors import BrokerUnreachableError, RequestRefusedError, is_retriable
from penstock.kafka.client.network import Network
from penstock.kafka.client.options import ClientOptions
from penstock.kafka.protocol import Message, errors, keys
from penstock.kafka.protocol.cluster import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.kafka.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.kafka.protocol.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

EARLIEST: Final = -2
LATEST: Final = -1
NO_OFFSET: Final = -1
GROUP: Final = 0
TRANSACTION: Final = 1
RETRY_PAUSE_S: Final = 0.05
RETRY_PAUSE_MAX_S: Final = 1.0
# A topic that was created a moment ago may not be known everywhere yet; one that is misspelt never will be.
UNKNOWN_TOPIC_TRIES: Final = 4

_log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R", bound=Message)


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicInfo(NamedTuple):
    """A topic as it is now. Its id changes when it is deleted and created again; an old cluster has no ids: all zeros."""

    name: str
    id: bytes
    leaders: dict[int, Address]


class KafkaClient:
    """A client of one cluster. Calls retry while the failure may pass and the api timeout has not."""

    def __init__(self, options: ClientOptions, network: Network) -> None:
        self.options = options
        self.network = network
        self._connections: dict[Address, Connection] = {}
        self.nodes: dict[int, Address] = {}
        "The nodes by their ids, as the last metadata named them."
        self._has_reached_one = False
        self._coordinators: dict[tuple[int, str], Address] = {}

    def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def connect(self, address: Address) -> Connection:
        """Return the connection to one node, opened if there is none."""
        connection = self._connections.get(address)
        if connection is None:
            connection = await Connection.open(address, self.options, self.network, self._connect_timeout_s())
            self._has_reached_one = True
            existing = self._connections.setdefault(address, connection)
            if existing is not connection:
                connection.close()  # another task was quicker
                connection = existing
        return connection

    def _connect_timeout_s(self) -> float:
        """How long one node is tried; before the first is reached, all of them together no longer than `first_node_timeout_s`."""
        if self._has_reached_one:
            return self.options.request_timeout_s
        return min(self.options.request_timeout_s, self.options.first_node_timeout_s / len(self.options.bootstrap))

    def forget(self, address: Address) -> None:
        """Close the connection to one node; the next use opens another."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    async def any_node(self) -> Connection:
        """Return a connection to the first node that can be reached."""
        failures: list[BrokerUnreachableError] = []
        for address in dict.fromkeys([*self._connections, *self.nodes.values(), *self.options.bootstrap]):
            try:
                return await self.connect(address)
            except BrokerUnreachableError as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise BrokerUnreachableError(f"no node can be reached: {'; '.join(map(str, failures))}")

    async def node(self, node_id: int) -> Connection:
        """Return a connection to a node that the last metadata named."""
        if node_id not in self.nodes:
            raise RequestRefusedError(f"node {node_id}", errors.LEADER_NOT_AVAILABLE)
        return await self.connect(self.nodes[node_id])

    async def call(self, key: int, request: Message, response: type[R]) -> R:
        """Send a request that any node serves, in one attempt."""
        return await self.call_on(await self.any_node(), key, request, response)

    async def call_on(
        self,
        connection: Connection,
        key: int,
        request: Message,
        response: type[R],
        *,
        version: int | None = None,
        wait_s: float = 0.0,
    ) -> R:
        """Send a request on a connection of this client, in one attempt; a connection that fails is forgotten."""
        try:
            return await connection.call(key, request, response, version=version, wait_s=wait_s)
        except BaseException:  # also when cancelled between a request and its reply, which closes it
            if self._connections.get(connection.address) is connection:
                self.forget(connection.address)
            raise

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat until it succeeds, fails for good, or the api timeout is over. Not for what must not happen twice."""
        started = self.network.monotonic()
        deadline = started + self.options.api_timeout_s
        pause_s = RETRY_PAUSE_S
        while True:
            try:
                return await attempt()
            except PenstockError as error:
                is_over = self.network.monotonic() + pause_s >= deadline
                waited_s = self.network.monotonic() - started
                if is_over or not is_retriable(error) or not self._waits_out(error, waited_s):
                    raise
                _log.info("retrying: %s", error)
            await self.network.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_PAUSE_MAX_S)

    def _waits_out(self, error: PenstockError, waited_s: float) -> bool:
        """Whether an unreachable cluster is worth waiting for."""
        if self._has_reached_one or not isinstance(error, BrokerUnreachableError):
            return True
        return self.options.waits_for_first_node and waited_s < self.options.first_node_timeout_s

    async def metadata(self, topics: Iterable[str] | None, *, create: bool = False) -> MetadataResponse:
        """Ask for the nodes and for some topics, or all of them, in one attempt; `create` creates those that are missing."""
        requested = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=requested, allow_auto_topic_creation=create)
        reply = await self.call(keys.METADATA, request, MetadataResponse)
        self.nodes = {broker.node_id: Address(broker.host, broker.port) for broker in reply.brokers}
        return reply

    async def topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Return some topics, or all but the internal ones. RequestRefusedError for one that does not exist."""
        requested = None if names is None else sorted(set(names))
        topics = await self.known_topics(requested)
        for attempt in range(UNKNOWN_TOPIC_TRIES):
            if all(name in topics for name in requested or ()):
                break
            await self.network.sleep(RETRY_PAUSE_S * 2**attempt)
            topics = await self.known_topics(requested)
        for name in requested or ():
            if name not in topics:
                raise RequestRefusedError(f"topic {name!r}", errors.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
        return topics

    async def known_topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Return those of some topics that exist; None asks for all but the internal ones."""
        requested = None if names is None else list(names)
        return await self.retry(lambda: self.ask_topics(requested))

    async def ask_topics(self, names: Iterable[str] | None, *, create: bool = False) -> dict[str, TopicInfo]:
        """As `known_topics`, in one attempt."""
        topics = {}
        for topic in (await self.metadata(names, create=create)).topics:
            if topic.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            if topic.error_code:
                raise RequestRefusedError(f"topic {topic.name!r}", topic.error_code)
            if names is None and topic.is_internal:
                continue
            for partition in topic.partitions:
                if partition.leader_id not in self.nodes:
                    raise RequestRefusedError(f"{topic.name}-{partition.partition_index}", errors.LEADER_NOT_AVAILABLE)
            leaders = {partition.partition_index: self.nodes[partition.leader_id] for partition in topic.partitions}
            topics[topic.name] = TopicInfo(topic.name, topic.topic_id, dict(sorted(leaders.items())))
        return topics

    async def offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool, topics: Mapping[str, TopicInfo] | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset from a time on (in ms), or EARLIEST or LATEST, of each partition; NO_OFFSET for none. With
        `committed`, records of open transactions do not count. `topics` is who leads, as far as it is known."""
        if not wanted:
            return {}
        known = [topics]

        async def attempt() -> dict[TopicPartition, int]:
            current = known.pop() if known else None
            return await self._ask_offsets(wanted, committed, current or await self.ask_topics({place.topic for place in wanted}))

        return await self.retry(attempt)

    async def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a consumer group that has no members."""
        if offsets:
            await self.retry(lambda: self._commit(group, offsets))

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return every committed offset of a consumer group."""
        return await self.retry(lambda: self._committed(group))

    async def coordinator(self, kind: int, key: str) -> Connection:
        """Return a connection to the coordinator of a GROUP or a TRANSACTION, which is remembered until a request to it fails."""
        address = self._coordinators.get((kind, key))
        if address is None:
            request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
            reply = await self.call(keys.FIND_COORDINATOR, request, FindCoordinatorResponse)
            answer = reply.coordinators[0] if reply.coordinators else reply
            if answer.error_code:
                raise RequestRefusedError(f"the coordinator of {key!r}", answer.error_code)
            address = self._coordinators[kind, key] = Address(answer.host, answer.port)
        try:
            return await self.connect(address)
        except PenstockError:
            self.forget_coordinator(kind, key)
            raise

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Look the coordinator up before the next request: it may have moved."""
        self._coordinators.pop((kind, key), None)

    async def _ask_offsets(
        self, wanted: Mapping[TopicPartition, int], committed: bool, topics: Mapping[str, TopicInfo]
    ) -> dict[TopicPartition, int]:
        by_leader: dict[Address, dict[str, list[ListOffsetsPartition]]] = {}
        for place, timestamp in wanted.items():
            info = topics.get(place.topic)
            if info is None or place.partition not in info.leaders:
                raise RequestRefusedError(str(place), errors.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic or partition")
            offsets_of = by_leader.setdefault(info.leaders[place.partition], {}).setdefault(place.topic, [])
            offsets_of.append(ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp))
        offsets = {}
        for leader, by_topic in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(committed),
                topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
                timeout_ms=int(self.options.request_timeout_s * 1000),
            )
            reply = await self.call_on(await self.connect(leader), keys.LIST_OFFSETS, request, ListOffsetsResponse)
            for topic in reply.topics:
                for partition in topic.partitions:
                    place = TopicPartition(topic.name, partition.partition_index)
                    if partition.error_code:
                        raise RequestRefusedError(f"the offsets of {place}", partition.error_code)
                    offsets[place] = partition.offset
        return offsets

    async def _committed(self, group: str) -> dict[TopicPartition, int]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        connection = await self.coordinator(GROUP, group)
        (answer,) = (await self.call_on(connection, keys.OFFSET_FETCH, request, OffsetFetchResponse)).groups
        if answer.error_code:
            self.forget_coordinator(GROUP, group)
            raise RequestRefusedError(f"group {group!r}", answer.error_code)
        committed = {}
        for topic in answer.topics:
            for item in topic.partitions:
                place = TopicPartition(topic.name, item.partition_index)
                if item.error_code:
                    raise RequestRefusedError(f"the offset of {group!r} in {place}", item.error_code)
                if item.committed_offset >= 0:
                    committed[place] = item.committed_offset
        return committed

    async def _commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for place, offset in offsets.items():
            topics.setdefault(place.topic, []).append(
                OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=offset)
            )
        request = OffsetCommitRequest(
            group_id=group,
            topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )
        reply = await self.call_on(await self.coordinator(GROUP, group), keys.OFFSET_COMMIT, request, OffsetCommitResponse)
        for topic in reply.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    self.forget_coordinator(GROUP, group)
                    raise RequestRefusedError(
                        f"committing the offset of {group!r} in {topic.name}-{partition.partition_index}",
                        partition.error_code,
                        f"is {group!r} in use by a group of other consumers?",
                    )
