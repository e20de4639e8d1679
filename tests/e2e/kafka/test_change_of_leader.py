"""Another node begins to lead: clients of both nodes stay connected, are served for their partitions all the time, and have
the next leader answer what needs one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.kafka.protocol.groups import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.kafka.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.kafka.protocol.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from penstock.kafka.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from penstock.testing.batches import make_batch
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import RunningGateway

WAIT_S = 20.0
TOPIC = "t"
PARTITIONS = 6
FIRST, NEXT, OTHER = 1, 2, 3


class SteadyWriter:
    """Writes to a partition over one connection, one batch after the other, and takes no refusal."""

    def __init__(self, port: int, partition: int) -> None:
        self.stored = 0
        self.trouble: BaseException | None = None
        self._client = RawClient(port)
        self._partition = partition
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def end(self) -> None:
        """Raises what went wrong."""
        self._ending.set()
        self._thread.join(WAIT_S)
        self._client.socket.close()
        if self.trouble is not None:
            raise self.trouble

    def _write(self) -> None:
        try:
            while not self._ending.is_set():
                produced = self._client.produce(TOPIC, make_batch([b"x"]), partition=self._partition)
                assert (produced.error_code, produced.base_offset) == (errors.NONE, self.stored)
                self.stored += 1
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.trouble = error


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningGateway]:
    with RunningGateway(tmp_path, nodes=3) as running:
        running.create_topic(TOPIC, PARTITIONS, is_spread=True)
        yield running


def port(cluster: RunningGateway, number: int) -> int:
    """Where a node listens."""
    return cluster.cluster.ports[number - 1]


def led(client: RawClient) -> dict[int, int]:
    """A partition of each node, as a node tells."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    parts = client.call(keys.METADATA, 12, asked, MetadataResponse).topics[0].partitions
    return {part.leader_id: part.partition_index for part in parts}


def controller(client: RawClient) -> int:
    """The node that leads, as a node tells."""
    return client.call(keys.METADATA, 12, MetadataRequest(topics=[]), MetadataResponse).controller_id


def create(client: RawClient, name: str) -> int:
    """The error code of making a topic."""
    asked = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=10_000)
    return client.call(keys.CREATE_TOPICS, 7, asked, CreateTopicsResponse).topics[0].error_code


def new_producer(client: RawClient) -> int:
    """The error code of asking the leader for a producer id."""
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    return client.call(keys.INIT_PRODUCER_ID, 4, asked, InitProducerIdResponse).error_code


def test_clients_stay_connected_and_partitions_are_served_while_the_leader_changes(cluster: RunningGateway) -> None:
    with RawClient(port(cluster, FIRST)) as first, RawClient(port(cluster, NEXT)) as following:
        partitions = led(first)
        writers = [SteadyWriter(port(cluster, number), partitions[number]) for number in (FIRST, NEXT, OTHER)]
        try:
            cluster.run_unsettled(cluster.cluster.take_over(NEXT))
            assert create(following, "by-the-next") == errors.NONE
            cluster.run(cluster.cluster.stop_former_leaders())
            stored = [writer.stored for writer in writers]
            assert create(first, "by-the-former") == errors.NONE, "the next leader is asked"
            assert new_producer(first) == new_producer(following) == errors.NONE
            assert (controller(first), controller(following)) == (NEXT, NEXT)
        finally:
            for writer in writers:
                writer.end()
        assert all(before < writer.stored for before, writer in zip(stored, writers, strict=True))
        assert led(first) == led(following) == partitions


def test_a_former_leader_that_knows_no_other_serves_its_partitions(cluster: RunningGateway) -> None:
    with RawClient(port(cluster, FIRST)) as first:
        writer = SteadyWriter(port(cluster, FIRST), led(first)[FIRST])
        cluster.run_unsettled(cluster.cluster.step_down())
        stored = writer.stored
        assert new_producer(first) == errors.COORDINATOR_NOT_AVAILABLE
        writer.end()
        assert writer.stored > stored
        assert led(first)[FIRST] is not None


def test_a_member_that_waits_for_its_group_is_sent_to_the_next_leader(cluster: RunningGateway) -> None:
    with RawClient(port(cluster, FIRST)) as first:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        asked = JoinGroupRequest(
            group_id="g", session_timeout_ms=30_000, rebalance_timeout_ms=60_000, protocol_type="consumer", protocols=protocols
        )
        first.send(keys.JOIN_GROUP, 3, asked)
        cluster.run_unsettled(cluster.cluster.take_over(NEXT))
        cluster.run(cluster.cluster.stop_former_leaders())
        _, joined = first.receive(keys.JOIN_GROUP, 3, JoinGroupResponse)
        assert joined.error_code in {errors.NONE, errors.NOT_COORDINATOR}
        assert new_producer(first) == errors.NONE, "it is still connected"


def test_a_fetch_that_waits_is_answered_with_what_comes_after_the_change(cluster: RunningGateway) -> None:
    with RawClient(port(cluster, FIRST)) as reader, RawClient(port(cluster, FIRST)) as writer:
        partition = led(writer)[FIRST]
        wanted = FetchPartition(partition=partition, partition_max_bytes=1 << 20)
        asked = FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])])
        reader.send(keys.FETCH, 11, asked)
        cluster.run_unsettled(cluster.cluster.take_over(NEXT))
        cluster.run(cluster.cluster.stop_former_leaders())
        assert writer.produce(TOPIC, make_batch([b"late"]), partition=partition).error_code == errors.NONE
        _, fetched = reader.receive(keys.FETCH, 11, FetchResponse)
        part = fetched.responses[0].partitions[0]
        assert (part.error_code, part.high_watermark) == (errors.NONE, 1)
