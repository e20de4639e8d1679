"""TakeLease, RenewLease and ReleaseLease: a reader protects what it plans to read from automatic deletion.

A lease needs READ on its topics. It belongs to its user: others can neither renew nor release it.
"""

from __future__ import annotations

from uuid import UUID

from penstock.broker import Operation, TopicPartition
from penstock.broker.leases import Lease, LeaseKey
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.apis.topic_lookup import find_topic, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.security.authorization import may_topic
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.private_leases import (
    LeasedPartition,
    LeasedTopic,
    ReleaseLeaseRequest,
    ReleaseLeaseResponse,
    RenewLeaseRequest,
    RenewLeaseResponse,
    TakeLeaseRequest,
    TakeLeaseResponse,
)

DENIED = "only who may read a topic may hold it"


async def take_lease(call: Call, request: TakeLeaseRequest) -> TakeLeaseResponse:
    """Take or move a lease, and tell where its partitions begin from then on."""
    if not all(may_topic(call, Operation.READ, topic.topic_id) for topic in request.topics):
        return TakeLeaseResponse(error_code=errors.TOPIC_AUTHORIZATION_FAILED, error_message=DENIED)
    try:
        broker = call.node.coordinator
        topics = {topic.topic_id: find_topic(call.node, topic.topic_id) for topic in request.topics}
        positions = {
            TopicPartition(UUID(bytes=topic.topic_id), leased.partition): leased.offset
            for topic in request.topics
            for leased in topic.partitions
        }
        for queue in positions:
            broker.check_partition(topics[queue.topic_id.bytes], queue.partition)  # before anything is kept
        lease = await broker.leases.take(_key(call, request.lease_id), request.owner, request.duration_ms / 1000, positions)
        # A trim that began before the lease may still be in flight: it is waited for.
        starts = {queue: await broker.settled_start(topics[queue.topic_id.bytes], queue.partition) for queue in positions}
    except PenstockError as error:
        return TakeLeaseResponse(error_code=topic_code(error), error_message=str(error))
    return TakeLeaseResponse(granted_ms=_granted_ms(call, lease), topics=[_begins(topic, starts) for topic in request.topics])


async def renew_lease(call: Call, request: RenewLeaseRequest) -> RenewLeaseResponse:
    """Let a lease live on, unless its user may not read any more what it holds."""
    leases, key = call.node.coordinator.leases, _key(call, request.lease_id)
    try:
        lease = leases.renew(key)
        if not all(may_topic(call, Operation.READ, topic_id.bytes) for topic_id in {queue.topic_id for queue in lease.positions}):
            await leases.release(key)
            return RenewLeaseResponse(error_code=errors.TOPIC_AUTHORIZATION_FAILED, error_message=DENIED)
    except PenstockError as error:
        return RenewLeaseResponse(error_code=topic_code(error), error_message=str(error))
    return RenewLeaseResponse(granted_ms=_granted_ms(call, lease))


async def release_lease(call: Call, request: ReleaseLeaseRequest) -> ReleaseLeaseResponse:
    """End a lease."""
    try:
        await call.node.coordinator.leases.release(_key(call, request.lease_id))
    except PenstockError as error:
        return ReleaseLeaseResponse(error_code=topic_code(error), error_message=str(error))
    return ReleaseLeaseResponse()


def _granted_ms(call: Call, lease: Lease) -> int:
    return int((lease.expires_s - call.node.broker.clock.monotonic()) * 1000)


def _key(call: Call, lease_id: bytes) -> LeaseKey:
    return LeaseKey(UUID(bytes=lease_id), call.user)


def _begins(topic: LeasedTopic, starts: dict[TopicPartition, int]) -> LeasedTopic:
    topic_id = UUID(bytes=topic.topic_id)
    begins = [
        LeasedPartition(partition=leased.partition, offset=starts[TopicPartition(topic_id, leased.partition)])
        for leased in topic.partitions
    ]
    return LeasedTopic(topic_id=topic.topic_id, partitions=begins)
