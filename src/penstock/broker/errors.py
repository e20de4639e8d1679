"""What can go wrong with topics and consumers, beyond the kinds every layer has."""

from __future__ import annotations

from penstock.core.errors import InvalidRequestError, UnavailableError


class UnknownTopicError(InvalidRequestError):
    """There is no such topic, or no such partition of it."""

    code = "unknown_topic"


class TopicExistsError(InvalidRequestError):
    """A topic of this name is there already."""

    code = "topic_exists"


class InvalidTopicNameError(InvalidRequestError):
    """A name that topics cannot have."""

    code = "invalid_topic_name"


class InvalidPartitionsError(InvalidRequestError):
    """A number of partitions that cannot be had: partitions are added, never taken away."""

    code = "invalid_partitions"


class LimitReachedError(InvalidRequestError):
    """There is as much of something as the node is set to allow; delete some of it, or raise the limit."""

    code = "limit_reached"


class InvalidConfigError(InvalidRequestError):
    """A configuration key that is not known, or a value that it does not take."""

    code = "invalid_config"


class SystemTabletUnavailableError(UnavailableError):
    """A tablet of the broker itself is starting again; what was asked of it may have been done. Ask once more in a moment."""

    code = "system_tablet_unavailable"


class PartitionUnavailableError(UnavailableError):
    """The tablet of a partition is starting, or starting again; ask once more in a moment."""

    code = "partition_unavailable"


class PartitionDamagedError(PartitionUnavailableError):
    """Part of what is stored of a partition is lost for good; it serves again once that is given up."""

    code = "partition_damaged"
    retriable = False


class InvalidTimestampError(InvalidRequestError):
    """A message claims a time further from the broker's clock than its topic allows."""

    code = "invalid_timestamp"


class UnknownLeaseError(InvalidRequestError):
    """There is no such lease, or no more."""

    code = "unknown_lease"


class LeaseLimitError(InvalidRequestError):
    """There are as many leases as there may be."""

    code = "too_many_leases"


class LeaseSpentError(InvalidRequestError):
    """A lease has held the same messages for as long as one may."""

    code = "lease_spent"
