"""The cluster as a query sees it: topics with their ids, where each partition begins and ends, and positions of consumers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from penstock.core.errors import PenstockError
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
)
from penstock.spark.connection import Address, ClientOptions, Connection
from penstock.spark.errors import BrokerRefusedError, BrokerUnreachableError

EARLIEST: Final = -2
LATEST: Final = -1
NO_OFFSET: Final = -1
PAUSE_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0
# A topic that was made a moment ago may not be known everywhere yet; one that is misspelt never will be.
UNKNOWN_TRIES: Final = 4

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
    """A topic as it is now: its id changes when it is deleted and made again. An old cluster has no ids: all zeros."""

    name: str
    id: bytes
    leaders: dict[int, Address]


class RefusedError(BrokerRefusedError):
    """A node answered with an error code."""

    def __init__(self, what: str, code: int, hint: str = "") -> None:
        super().__init__(f"{what}: {errors.error_name(code)}{'; ' if hint else ''}{hint}")
        self.error_code = code


class Cluster:
    """Whoever is behind the bootstrap addresses. Calls try again while what fails may pass and the api timeout has not."""

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self._connections: dict[Address, Connection] = {}
        self._nodes: dict[int, Address] = {}

    def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connect(self, address: Address) -> Connection:
        """The connection to one node."""
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = Connection(address, self.options)
        return connection

    def forget(self, address: Address) -> None:
        """Close the connection to one node; it is made anew when it is next needed."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Some topics, or all but the internal ones. RefusedError for one that does not exist."""
        asked = None if names is None else sorted(set(names))
        found = self.known_topics(asked)
        for attempt in range(UNKNOWN_TRIES):
            missing = [name for name in asked or () if name not in found]
            if not missing:
                break
            time.sleep(PAUSE_S * 2**attempt)
            found = self.known_topics(asked)
        for name in asked or ():
            if name not in found:
                raise RefusedError(f"topic {name!r}", errors.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
        return found

    def known_topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Those of some topics that exist; None asks for all but the internal ones."""
        return self.persist(lambda: self.ask_topics(names))

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool, topics: Mapping[str, TopicInfo] | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset from a time on (in ms), or EARLIEST or LATEST, of each partition; NO_OFFSET where there is none. With
        `committed`, what open transactions have written is not there yet. `topics` is who leads, as far as it is known."""
        if not wanted:
            return {}
        fresh = [topics]

        def attempt() -> dict[TopicPartition, int]:
            known = fresh.pop() if fresh else None
            return self._ask_offsets(wanted, committed, known or self.ask_topics({place.topic for place in wanted}))

        return self.persist(attempt)

    def commit(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Keep the positions of a consumer in the cluster."""
        if positions:
            self.persist(lambda: self._commit(group, positions))

    def persist(self, attempt: Callable[[], T]) -> T:
        """Try until it works, as long as what fails may pass and there is time. Not for what must not happen twice."""
        deadline = time.monotonic() + self.options.api_timeout_s
        pause = PAUSE_S
        while True:
            try:
                return attempt()
            except PenstockError as error:
                passing = errors.is_retriable(error.error_code) if isinstance(error, RefusedError) else error.retriable
                if not passing or time.monotonic() + pause >= deadline:
                    raise
                _log.info("trying again: %s", error)
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX_S)

    def any_node(self) -> Connection:
        """A connection to whichever node answers first."""
        failures: list[PenstockError] = []
        for address in dict.fromkeys([*self._connections, *self._nodes.values(), *self.options.bootstrap]):
            try:
                return self.connect(address)
            except BrokerUnreachableError as error:
                failures.append(error)
        raise failures[0]

    def ask_topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """As `known_topics`, in one attempt."""
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        answer = self._call_any(keys.METADATA, MetadataRequest(topics=asked, allow_auto_topic_creation=False), MetadataResponse)
        self._nodes = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        found = {}
        for topic in answer.topics:
            if topic.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            if topic.error_code:
                raise RefusedError(f"topic {topic.name!r}", topic.error_code)
            if names is None and topic.is_internal:
                continue
            for partition in topic.partitions:
                if partition.leader_id not in self._nodes:
                    raise RefusedError(f"{topic.name}-{partition.partition_index}", errors.LEADER_NOT_AVAILABLE)
            leaders = {partition.partition_index: self._nodes[partition.leader_id] for partition in topic.partitions}
            found[topic.name] = TopicInfo(topic.name, topic.topic_id, dict(sorted(leaders.items())))
        return found

    def _ask_offsets(
        self, wanted: Mapping[TopicPartition, int], committed: bool, topics: Mapping[str, TopicInfo]
    ) -> dict[TopicPartition, int]:
        by_leader: dict[Address, dict[str, list[ListOffsetsPartition]]] = {}
        for place, timestamp in wanted.items():
            info = topics.get(place.topic)
            if info is None or place.partition not in info.leaders:
                raise RefusedError(str(place), errors.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic or partition")
            asked = by_leader.setdefault(info.leaders[place.partition], {}).setdefault(place.topic, [])
            asked.append(ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp))
        found = {}
        for leader, by_topic in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(committed),
                topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
                timeout_ms=int(self.options.request_timeout_s * 1000),
            )
            answer = self._call(self.connect(leader), keys.LIST_OFFSETS, request, ListOffsetsResponse)
            for topic in answer.topics:
                for partition in topic.partitions:
                    place = TopicPartition(topic.name, partition.partition_index)
                    if partition.error_code:
                        raise RefusedError(f"the offsets of {place}", partition.error_code)
                    found[place] = partition.offset
        return found

    def _commit(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for place, offset in positions.items():
            topics.setdefault(place.topic, []).append(
                OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=offset)
            )
        request = OffsetCommitRequest(
            group_id=group, topics=[OffsetCommitRequestTopic(name=name, partitions=found) for name, found in topics.items()]
        )
        answer = self._call(self.connect(self._coordinator(group)), keys.OFFSET_COMMIT, request, OffsetCommitResponse)
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    hint = f"is {group!r} in use by a group of other consumers?"
                    what = f"the position of consumer {group!r} in {topic.name}-{partition.partition_index}"
                    raise RefusedError(what, partition.error_code, hint)

    def _coordinator(self, group: str) -> Address:
        asked = FindCoordinatorRequest(key=group, coordinator_keys=[group])
        answer = self._call_any(keys.FIND_COORDINATOR, asked, FindCoordinatorResponse)
        if answer.coordinators:
            found = answer.coordinators[0]
            code, address = found.error_code, Address(found.host, found.port)
        else:
            code, address = answer.error_code, Address(answer.host, answer.port)
        if code:
            raise RefusedError(f"the coordinator of consumer {group!r}", code)
        return address

    def call(self, key: int, request: Message, response: type[R]) -> R:
        """Ask whichever node answers first, in one attempt."""
        return self._call_any(key, request, response)

    def _call_any(self, key: int, request: Message, response: type[R]) -> R:
        return self._call(self.any_node(), key, request, response)

    def _call(self, connection: Connection, key: int, request: Message, response: type[R], version: int | None = None) -> R:
        try:
            return connection.call(key, request, response, version=version)
        except PenstockError:
            self._connections.pop(connection.address, None)
            raise
