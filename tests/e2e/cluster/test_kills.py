"""Three nodes with a mirror-3 group under load of a stock client, each with partitions: the node that leads is killed -9, started
again, and then another; one is stopped for a while, and says nothing that is out of date when it goes on. Everything acknowledged
is there once, in order. Schemas are registered through all nodes the while: each gets one id, and no two the same."""

from __future__ import annotations

import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from penstock.kafka.protocol import decode_response, errors, keys, private_keys
from penstock.kafka.protocol.fetch import FetchResponse
from penstock.kafka.protocol.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.kafka.protocol.private_leases import LeasedPartition, LeasedTopic, TakeLeaseRequest, TakeLeaseResponse
from tests.e2e.cluster.numbers import PARTITIONS, TOPIC, Writer, check_numbers
from tests.e2e.cluster.registrations import Registrar, check_validation
from tests.e2e.cluster.running_cluster import RunningCluster, running_cluster, until
from tests.e2e.kafka.raw_client import RawClient, fetch_request

FETCH_VERSION, LIST_OFFSETS_VERSION = 11, 1


def leaders(cluster: RunningCluster) -> dict[int, int]:
    """The number of the node that leads each partition, by the metadata of some node."""
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}).list_topics(TOPIC, timeout=20)
    numbers = {cluster.kafka_port(number): number for number in cluster.nodes}
    ports = {broker.id: broker.port for broker in metadata.brokers.values()}
    led = metadata.topics[TOPIC].partitions.values()
    return {partition.id: numbers[ports[partition.leader]] for partition in led if ports.get(partition.leader) in numbers}


def check_spread(cluster: RunningCluster) -> None:
    """Partitions are on all nodes; a transaction, a setting and a deletion reach all of them, whichever node is asked."""
    until("all nodes lead partitions", lambda: set(leaders(cluster).values()) == set(cluster.nodes))
    bootstrap: dict[str, str | int | float] = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    admin = AdminClient(bootstrap)
    admin.create_topics([NewTopic("sums", PARTITIONS)])["sums"].result(30)
    producer = Producer({**bootstrap, "transactional.id": "adder"})
    producer.init_transactions(30)
    for value, end in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("sums", value, partition=partition)
        producer.flush(30)
        end(30)
    consumer = Consumer({**bootstrap, "group.id": "sums", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("sums", partition, 0) for partition in range(PARTITIONS)])
    read = [message for _ in range(PARTITIONS) for message in consumer.consume(1, 20.0)]
    assert [message.value() for message in read] == [b"kept"] * PARTITIONS
    assert not consumer.consume(1, 0.5)
    consumer.close()
    entry = ConfigEntry("max.message.bytes", "100", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "sums", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    for partition in range(PARTITIONS):
        until("the setting is not everywhere", partial(is_too_large, cluster, partition))
    admin.delete_topics(["sums"])["sums"].result(30)


def check_leases(cluster: RunningCluster) -> None:
    """A lease protects partitions of all nodes, whichever node is asked for it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    described = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(30)
    halves = (described.topic_id.get_most_significant_bits(), described.topic_id.get_least_significant_bits())
    topic_id = b"".join((half % (1 << 64)).to_bytes(8, "big") for half in halves)
    leased = [LeasedPartition(partition=partition, offset=5) for partition in range(PARTITIONS)]
    for number in cluster.nodes:
        topics = [LeasedTopic(topic_id=topic_id, partitions=leased)]
        request = TakeLeaseRequest(lease_id=bytes([number]) * 16, owner="test", duration_ms=1_000, topics=topics)
        with RawClient(cluster.kafka_port(number)) as client:
            taken = client.call(private_keys.TAKE_LEASE, 0, request, TakeLeaseResponse)
        assert (taken.error_code, taken.error_message) == (errors.NONE, None)
        assert [begin.offset for begin in taken.topics[0].partitions] == [0] * PARTITIONS


def is_too_large(cluster: RunningCluster, partition: int) -> bool:
    """Whether a partition refuses a message of 1000 bytes."""
    refused: list[bool] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce("sums", bytes(1000), partition=partition, on_delivery=lambda error, _: refused.append(error is not None))
    producer.flush(20)
    return refused == [True]


def ask(client: RawClient, key: int, partition: int) -> None:
    """Ask for the end of a partition, or for what is there from offset 0."""
    if key == keys.FETCH:
        client.send(key, FETCH_VERSION, fetch_request(TOPIC, 0, max_bytes=1000, partition=partition))
    else:
        latest = ListOffsetsPartition(partition_index=partition, timestamp=-1)
        topic = ListOffsetsTopic(name=TOPIC, partitions=[latest])
        client.send(key, LIST_OFFSETS_VERSION, ListOffsetsRequest(replica_id=-1, topics=[topic]))


def error_of(key: int, frame: bytes) -> int:
    """The error code that the partition is answered with."""
    if key == keys.FETCH:
        fetched = decode_response(key, FETCH_VERSION, frame)[1]
        assert isinstance(fetched, FetchResponse)
        return fetched.responses[0].partitions[0].error_code
    listed = decode_response(key, LIST_OFFSETS_VERSION, frame)[1]
    assert isinstance(listed, ListOffsetsResponse)
    return listed.topics[0].partitions[0].error_code


def give_partition(cluster: RunningCluster, number: int) -> None:
    """Have a node lead a partition: balance counts tablets of all topics, and may leave it with those of others alone."""
    nodes = cluster.api(number, "/nodes")["nodes"]
    node_id = next(node["node_id"] for node in nodes if node["name"] == f"n{number}")
    tablets = [tablet for tablet in cluster.api(number, "/tablets?limit=500")["items"] if tablet["topic"] == TOPIC]
    if all(tablet["node"] != node_id for tablet in tablets):
        cluster.api(number, f"/tablets/{tablets[0]['tablet']}/move", {"node": node_id}, "POST")


def check_stopped_node_says_nothing_old(cluster: RunningCluster, writer: Writer) -> None:
    """A node is stopped, another takes over, and then the first finds requests in its sockets."""
    active = cluster.active()
    give_partition(cluster, active)
    with RawClient(cluster.kafka_port(active)) as asking, RawClient(cluster.kafka_port(active)) as fetching:

        def answers(client: RawClient, key: int, partition: int) -> bool:
            ask(client, key, partition)
            frame = client.receive_frame()
            assert frame, "it answers while it serves"
            return error_of(key, frame) == 0

        def served() -> list[int]:
            """The partitions that it answers for; balance may have moved one since the metadata was told."""
            led = [at for at, number in leaders(cluster).items() if number == active]
            return [at for at in led if answers(asking, keys.LIST_OFFSETS, at) and answers(fetching, keys.FETCH, at)]

        led = until("it serves no partition", served)[0]
        process = cluster.nodes[active].process
        process.send_signal(signal.SIGSTOP)
        ask(asking, keys.LIST_OFFSETS, led)
        ask(fetching, keys.FETCH, led)
        until("no other node serves", lambda: cluster.active() != active)
        writer.go_on()
        process.send_signal(signal.SIGCONT)
        for client, key in ((asking, keys.LIST_OFFSETS), (fetching, keys.FETCH)):
            frame = client.receive_frame()
            assert frame is None or error_of(key, frame), "an answer from memory, though another node has taken over"
    cluster.wait_ready(active)


@contextmanager
def never_refused(cluster: RunningCluster, numbers: Iterable[int]) -> Iterator[None]:
    """New HTTP connections to some nodes are accepted all the time, also while one of them begins to lead."""
    refused: list[str] = []
    ending = threading.Event()

    def visit(number: int) -> None:
        while not ending.is_set():
            try:
                urllib.request.urlopen(f"{cluster.url(number)}/healthz", timeout=30).close()
            except (ConnectionError, urllib.error.URLError) as error:
                cause = getattr(error, "reason", error)
                if isinstance(
                    cause, ConnectionRefusedError
                ):  # a connection that is closed while a listener ends is another thing
                    refused.append(f"n{number}: {cause}")
            time.sleep(0.005)

    visitors = [threading.Thread(target=visit, args=(number,)) for number in numbers]
    for visitor in visitors:
        visitor.start()
    try:
        yield
    finally:
        ending.set()
        for visitor in visitors:
            visitor.join()
    assert not refused


def test_acknowledged_messages_survive_kills_of_any_node(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        writer = Writer(cluster.bootstrap, request_timeout_ms=3_000)
        writer.go_on()
        check_spread(cluster)
        check_leases(cluster)
        check_validation(cluster)
        registrar = Registrar(cluster)
        registrar.go_on()
        first = cluster.active()
        with never_refused(cluster, set(cluster.nodes) - {first}):
            killed_ms = time.time() * 1000
            cluster.kill(first)
            writer.go_on()
            registrar.go_on()
            second = cluster.active()
        assert second != first
        assert cluster.api(second, "/cluster")["started_ms"] < killed_ms, "it has been up since before it led"
        cluster.start(first)
        cluster.wait_ready(first)
        standby = next(number for number in cluster.nodes if number not in (first, second))
        assert "penstock_ready 1" in cluster.metrics(standby)
        writer.go_on()
        cluster.kill(standby)
        writer.go_on()
        registrar.go_on()
        cluster.start(standby)
        cluster.wait_ready(standby)
        check_stopped_node_says_nothing_old(cluster, writer)
        last = cluster.active()
        assert cluster.nodes[last].stop() == 0, "an orderly stop hands the broker over"
        del cluster.nodes[last]
        writer.go_on()
        writer.end()
        registrar.go_on()
        registrar.end()
        assert cluster.active() != last
        check_numbers(writer, cluster.bootstrap)
        for number in (1, 2, 3):
            assert "Traceback" not in cluster.log(number).read_text(encoding="utf-8")
