"""Which apis there are, in which versions, and where their messages and codecs are found at first use."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from penstock.kafka.protocol import keys, private_keys
from penstock.kafka.protocol.fields import VERSION_MAX, Message

NEVER: Final = VERSION_MAX
"""The first flexible version of an api that has none."""


class Api:
    """One api: its key, its versions, and its two messages, whose module is imported when first asked for."""

    __slots__ = ("_request_class", "_response_class", "area", "first_flexible", "key", "max_version", "min_version", "name")

    def __init__(self, key: int, name: str, area: str, versions: tuple[int, int], first_flexible: int) -> None:
        self.key = key
        self.name = name
        self.area = area
        self.min_version, self.max_version = versions
        self.first_flexible = first_flexible
        self._request_class: type[Message] | None = None
        self._response_class: type[Message] | None = None

    def __repr__(self) -> str:
        return f"<Api {self.name} key {self.key} versions {self.min_version}-{self.max_version}>"

    @property
    def advertised_min(self) -> int:
        """The lowest version to announce: librdkafka drops compression, silently, unless Produce starts at 0."""
        return 0 if self.key == keys.PRODUCE else self.min_version

    @property
    def request_class(self) -> type[Message]:
        if self._request_class is None:
            self._request_class = self._load(f"{self.name}Request")
        return self._request_class

    @property
    def response_class(self) -> type[Message]:
        if self._response_class is None:
            self._response_class = self._load(f"{self.name}Response")
        return self._response_class

    def supports(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return version >= self.first_flexible

    def has_flexible_response_header(self, version: int) -> bool:
        """A client that asks for a version unknown to us could not read a newer header, so ApiVersions keeps the oldest."""
        return version >= self.first_flexible and self.key != keys.API_VERSIONS

    def _load(self, class_name: str) -> type[Message]:
        module = import_module(f"penstock.kafka.protocol.{self.area}")
        return cast(type[Message], getattr(module, class_name))


_ALL = (
    Api(keys.PRODUCE, "Produce", "produce", (3, 13), 9),
    Api(keys.FETCH, "Fetch", "fetch", (4, 18), 12),
    Api(keys.LIST_OFFSETS, "ListOffsets", "offsets", (1, 11), 6),
    Api(keys.METADATA, "Metadata", "metadata", (0, 13), 9),
    Api(keys.OFFSET_COMMIT, "OffsetCommit", "offsets", (2, 10), 8),
    Api(keys.OFFSET_FETCH, "OffsetFetch", "offsets", (1, 10), 6),
    Api(keys.FIND_COORDINATOR, "FindCoordinator", "cluster", (0, 6), 3),
    Api(keys.JOIN_GROUP, "JoinGroup", "groups", (0, 9), 6),
    Api(keys.HEARTBEAT, "Heartbeat", "groups", (0, 4), 4),
    Api(keys.LEAVE_GROUP, "LeaveGroup", "groups", (0, 5), 4),
    Api(keys.SYNC_GROUP, "SyncGroup", "groups", (0, 5), 4),
    Api(keys.DESCRIBE_GROUPS, "DescribeGroups", "groups", (0, 6), 5),
    Api(keys.LIST_GROUPS, "ListGroups", "groups", (0, 5), 3),
    Api(keys.SASL_HANDSHAKE, "SaslHandshake", "sasl", (0, 1), NEVER),
    Api(keys.API_VERSIONS, "ApiVersions", "cluster", (0, 4), 3),
    Api(keys.CREATE_TOPICS, "CreateTopics", "topics", (2, 7), 5),
    Api(keys.DELETE_TOPICS, "DeleteTopics", "topics", (1, 6), 4),
    Api(keys.DELETE_RECORDS, "DeleteRecords", "offsets", (0, 2), 2),
    Api(keys.INIT_PRODUCER_ID, "InitProducerId", "transactions", (0, 5), 2),
    Api(keys.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", "offsets", (2, 4), 4),
    Api(keys.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", "transactions", (0, 5), 3),
    Api(keys.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", "transactions", (0, 4), 3),
    Api(keys.END_TXN, "EndTxn", "transactions", (0, 5), 3),
    Api(keys.TXN_OFFSET_COMMIT, "TxnOffsetCommit", "transactions", (0, 5), 3),
    Api(keys.DESCRIBE_ACLS, "DescribeAcls", "acls", (1, 3), 2),
    Api(keys.CREATE_ACLS, "CreateAcls", "acls", (1, 3), 2),
    Api(keys.DELETE_ACLS, "DeleteAcls", "acls", (1, 3), 2),
    Api(keys.DESCRIBE_CONFIGS, "DescribeConfigs", "configs", (1, 4), 4),
    Api(keys.ALTER_CONFIGS, "AlterConfigs", "configs", (0, 2), 2),
    Api(keys.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", "quorum", (1, 2), 2),
    Api(keys.DESCRIBE_LOG_DIRS, "DescribeLogDirs", "cluster", (1, 5), 2),
    Api(keys.SASL_AUTHENTICATE, "SaslAuthenticate", "sasl", (0, 2), 2),
    Api(keys.CREATE_PARTITIONS, "CreatePartitions", "topics", (0, 3), 2),
    Api(keys.DELETE_GROUPS, "DeleteGroups", "groups", (0, 2), 2),
    Api(keys.ELECT_LEADERS, "ElectLeaders", "topics", (0, 2), 2),
    Api(keys.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", "configs", (0, 1), 1),
    Api(keys.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", "topics", (0, 1), 0),
    Api(keys.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", "topics", (0, 0), 0),
    Api(keys.OFFSET_DELETE, "OffsetDelete", "offsets", (0, 0), NEVER),
    Api(keys.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", "quotas", (0, 1), 1),
    Api(keys.ALTER_CLIENT_QUOTAS, "AlterClientQuotas", "quotas", (0, 1), 1),
    Api(keys.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", "sasl", (0, 0), 0),
    Api(keys.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", "sasl", (0, 0), 0),
    Api(keys.DESCRIBE_QUORUM, "DescribeQuorum", "quorum", (0, 2), 0),
    Api(keys.DESCRIBE_CLUSTER, "DescribeCluster", "cluster", (0, 2), 0),
    Api(keys.DESCRIBE_PRODUCERS, "DescribeProducers", "cluster", (0, 0), 0),
    Api(keys.DESCRIBE_TRANSACTIONS, "DescribeTransactions", "transactions", (0, 0), 0),
    Api(keys.LIST_TRANSACTIONS, "ListTransactions", "transactions", (0, 2), 0),
    Api(keys.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", "consumer_groups", (0, 1), 0),
    Api(keys.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", "consumer_groups", (0, 1), 0),
    Api(keys.LIST_CONFIG_RESOURCES, "ListConfigResources", "configs", (0, 1), 0),
    Api(keys.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", "metadata", (0, 0), 0),
    Api(keys.SHARE_GROUP_HEARTBEAT, "ShareGroupHeartbeat", "share_groups", (1, 1), 1),
    Api(keys.SHARE_GROUP_DESCRIBE, "ShareGroupDescribe", "share_groups", (1, 1), 1),
    Api(keys.SHARE_FETCH, "ShareFetch", "share_groups", (1, 2), 1),
    Api(keys.SHARE_ACKNOWLEDGE, "ShareAcknowledge", "share_groups", (1, 2), 1),
    Api(keys.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsets", "share_groups", (0, 1), 0),
    Api(keys.ALTER_SHARE_GROUP_OFFSETS, "AlterShareGroupOffsets", "share_groups", (0, 0), 0),
    Api(keys.DELETE_SHARE_GROUP_OFFSETS, "DeleteShareGroupOffsets", "share_groups", (0, 0), 0),
)

APIS: Final[dict[int, Api]] = {api.key: api for api in _ALL}

_PRIVATE = (
    Api(private_keys.COMMIT_TOGETHER, "CommitTogether", "private", (0, 0), 0),
    Api(private_keys.APPLICATION_RECORD, "ApplicationRecord", "private", (0, 0), 0),
    Api(private_keys.FIND_PIECES, "FindPieces", "private_reads", (0, 0), 0),
    Api(private_keys.TAKE_LEASE, "TakeLease", "private_leases", (0, 0), 0),
    Api(private_keys.RENEW_LEASE, "RenewLease", "private_leases", (0, 0), 0),
    Api(private_keys.RELEASE_LEASE, "ReleaseLease", "private_leases", (0, 0), 0),
)

PRIVATE_APIS: Final[dict[int, Api]] = {api.key: api for api in _PRIVATE}
"""Penstock's own, beside those of Kafka: only clients that call themselves `penstock` are told of them."""
