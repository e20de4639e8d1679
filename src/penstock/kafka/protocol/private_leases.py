"""Apis of Penstock's own: leases, by which a reader holds automatic deletion back from what it is about to read."""

from __future__ import annotations

from penstock.kafka.protocol.fields import Message, array, int16, int32, int64, string, uuid


class LeasedPartition(Message):
    """One item of `LeasedTopic.partitions`: asked for, the first offset that is needed; answered, where the partition begins."""

    partition: int = int32()
    offset: int = int64()


class LeasedTopic(Message):
    """One item of `TakeLeaseRequest.topics`, and of `TakeLeaseResponse.topics`."""

    topic_id: bytes = uuid()
    partitions: list[LeasedPartition] = array(LeasedPartition)


class TakeLeaseRequest(Message):
    """Takes a lease under an id of the client's choice, or moves the one it has under it. The owner is a name for people."""

    lease_id: bytes = uuid()
    owner: str = string()
    duration_ms: int = int32()
    topics: list[LeasedTopic] = array(LeasedTopic)


class TakeLeaseResponse(Message):
    """For how long it is granted, which may be less than was asked for; and where the partitions begin, now that it is."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    granted_ms: int = int32()
    topics: list[LeasedTopic] = array(LeasedTopic)


class RenewLeaseRequest(Message):
    """Lets a lease live on as it is."""

    lease_id: bytes = uuid()


class RenewLeaseResponse(Message):
    """For how long from now."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    granted_ms: int = int32()


class ReleaseLeaseRequest(Message):
    """Ends a lease; one that is not there is no error."""

    lease_id: bytes = uuid()


class ReleaseLeaseResponse(Message):
    """Whether that could be done."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
