"""Requests about leases: taken, moved, renewed and released over the wire, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker import BrokerOptions, Topic
from penstock.broker.leases import LeaseOptions
from penstock.kafka.protocol import errors, private_keys
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
from penstock.testing.batches import make_batch
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import RunningGateway

ID, OTHER_ID = b"\1" * 16, b"\2" * 16


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway that gives one lease, for ten seconds at a time."""
    options = BrokerOptions(leases=LeaseOptions(leases_max=1, duration_s_max=10.0))
    with RunningGateway(tmp_path, broker_options=options) as running:
        yield running


@pytest.fixture
def made(gateway: RunningGateway, client: RawClient) -> Topic:
    """A topic with ten messages in its first partition, of which three are gone."""
    topic = gateway.create_topic("t", 2)
    client.produce("t", make_batch([b"%d" % number for number in range(10)]))
    gateway.run(gateway.partition(topic.name).trim(3))
    return topic


def take(client: RawClient, topic_id: bytes, lease_id: bytes = ID, **partitions: int) -> TakeLeaseResponse:
    leased = [LeasedPartition(partition=int(name[1:]), offset=offset) for name, offset in partitions.items()]
    topics = [LeasedTopic(topic_id=topic_id, partitions=leased)]
    request = TakeLeaseRequest(lease_id=lease_id, owner="test", duration_ms=60_000, topics=topics)
    return client.call(private_keys.TAKE_LEASE, 0, request, TakeLeaseResponse)


def renew(client: RawClient, lease_id: bytes = ID) -> RenewLeaseResponse:
    return client.call(private_keys.RENEW_LEASE, 0, RenewLeaseRequest(lease_id=lease_id), RenewLeaseResponse)


def release(client: RawClient, lease_id: bytes = ID) -> ReleaseLeaseResponse:
    return client.call(private_keys.RELEASE_LEASE, 0, ReleaseLeaseRequest(lease_id=lease_id), ReleaseLeaseResponse)


def test_a_lease_is_taken_renewed_and_released(gateway: RunningGateway, client: RawClient, made: Topic) -> None:
    taken = take(client, made.id.bytes, p0=1, p1=0)
    assert (taken.error_code, taken.error_message) == (errors.NONE, None)
    assert 9_000 < taken.granted_ms <= 10_000  # less than was asked for
    assert [(one.partition, one.offset) for one in taken.topics[0].partitions] == [(0, 3), (1, 0)]
    assert (gateway.broker.needed_from(made, 0), gateway.broker.needed_from(made, 1)) == (1, 0)
    assert take(client, made.id.bytes, p0=7).error_code == errors.NONE
    assert (gateway.broker.needed_from(made, 0), gateway.broker.needed_from(made, 1)) == (7, None)
    assert 9_000 < renew(client).granted_ms <= 10_000
    assert release(client).error_code == release(client).error_code == errors.NONE
    assert gateway.broker.needed_from(made, 0) is None


def test_what_cannot_be_is_refused_with_a_reason(gateway: RunningGateway, client: RawClient, made: Topic) -> None:
    assert take(client, made.id.bytes, p2=0).error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert take(client, bytes(15) + b"\1", p0=0).error_code == errors.UNKNOWN_TOPIC_ID
    assert take(client, made.id.bytes).error_code == errors.INVALID_REQUEST
    assert take(client, made.id.bytes, p0=-1).error_code == errors.INVALID_REQUEST
    assert renew(client).error_code == errors.RESOURCE_NOT_FOUND
    assert len(gateway.broker.leases) == 0
    take(client, made.id.bytes, p0=0)
    refused = take(client, made.id.bytes, OTHER_ID, p0=0)
    assert refused.error_code == errors.POLICY_VIOLATION
    assert "there are 1 leases already" in (refused.error_message or "")
