"""Errors of topics and consumers."""

from __future__ import annotations

from penstock.core.errors import ConfigError, InvalidRequestError, UnavailableError


class UnknownTopicError(InvalidRequestError):
    """The topic or partition does not exist."""

    code = "unknown_topic"


class TopicExistsError(InvalidRequestError):
    """A topic of this name exists already."""

    code = "topic_exists"


class InvalidTopicNameError(InvalidRequestError):
    """The topic name is invalid."""

    code = "invalid_topic_name"


class InvalidPartitionsError(InvalidRequestError):
    """The number of partitions is invalid: partitions can be added, not removed."""

    code = "invalid_partitions"


class LimitReachedError(InvalidRequestError):
    """A limit of the node is reached; delete something, or raise the limit."""

    code = "limit_reached"


class InvalidConfigError(InvalidRequestError):
    """A configuration key is unknown, or its value is invalid."""

    code = "invalid_config"


class SystemTabletUnavailableError(UnavailableError):
    """A system tablet of the broker is restarting; the request may have been executed. Retry in a moment."""

    code = "system_tablet_unavailable"


class PartitionUnavailableError(UnavailableError):
    """The tablet of a partition is starting; retry in a moment."""

    code = "partition_unavailable"


class PartitionElsewhereError(PartitionUnavailableError):
    """Another node runs the partition; ask that one. `node_id` is None if no node is known to."""

    code = "partition_elsewhere"

    def __init__(self, message: str, node_id: int | None = None) -> None:
        super().__init__(message)
        self.node_id = node_id


class PartitionDamagedError(PartitionUnavailableError):
    """Part of a partition's data is lost for good; it serves again once that data is given up."""

    code = "partition_damaged"
    retriable = False


class InvalidTimestampError(InvalidRequestError):
    """The timestamp of a message is further from the broker's clock than its topic allows."""

    code = "invalid_timestamp"


class UnknownLeaseError(InvalidRequestError):
    """The lease does not exist or has expired."""

    code = "unknown_lease"


class LeaseLimitError(InvalidRequestError):
    """The limit of leases is reached."""

    code = "too_many_leases"


class LeaseSpentError(InvalidRequestError):
    """A lease has protected the same messages for the maximum time."""

    code = "lease_spent"


class StorageGroupMissingError(ConfigError):
    """A topic is in a storage group that is not there."""

    code = "storage_group_missing"

    def __init__(self, topic: str, group: int) -> None:
        super().__init__(f"topic {topic!r} has partitions in storage group {group}, which is not there")
        self.topic = topic
        self.group = group
