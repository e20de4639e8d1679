"""Three nodes with a mirror-3 group under load of a stock client: the node that runs the broker is killed -9, started again, and
then another; one is stopped for a while, and says nothing that is out of date when it goes on. Everything acknowledged is there
once, in order."""

from __future__ import annotations

import signal
from pathlib import Path

from penstock.kafka.protocol import decode_response, keys
from penstock.kafka.protocol.fetch import FetchResponse
from penstock.kafka.protocol.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.e2e.cluster.numbers import TOPIC, Writer, check_numbers
from tests.e2e.cluster.running_cluster import RunningCluster, running_cluster, until
from tests.e2e.kafka.raw_client import RawClient, fetch_request

FETCH_VERSION, LIST_OFFSETS_VERSION = 11, 1


def ask(client: RawClient, key: int) -> None:
    """Ask for the end of the partition, or for what is there from offset 0."""
    if key == keys.FETCH:
        client.send(key, FETCH_VERSION, fetch_request(TOPIC, 0, max_bytes=1000))
    else:
        latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
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


def check_stopped_node_says_nothing_old(cluster: RunningCluster, writer: Writer) -> None:
    """A node is stopped, another takes over, and then the first finds requests in its sockets."""
    active = cluster.active()
    with RawClient(cluster.kafka_port(active)) as asking, RawClient(cluster.kafka_port(active)) as fetching:
        for client, key in ((asking, keys.LIST_OFFSETS), (fetching, keys.FETCH)):
            ask(client, key)
            assert client.receive_frame(), "it answers while it serves"
        process = cluster.nodes[active].process
        process.send_signal(signal.SIGSTOP)
        ask(asking, keys.LIST_OFFSETS)
        ask(fetching, keys.FETCH)
        until("no other node serves", lambda: cluster.active() != active)
        writer.go_on()
        process.send_signal(signal.SIGCONT)
        for client, key in ((asking, keys.LIST_OFFSETS), (fetching, keys.FETCH)):
            frame = client.receive_frame()
            assert frame is None or error_of(key, frame), "an answer from memory, though another node has taken over"
    cluster.wait_ready(active)


def test_acknowledged_messages_survive_kills_of_any_node(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        writer = Writer(cluster.bootstrap, request_timeout_ms=3_000)
        writer.go_on()
        first = cluster.active()
        cluster.kill(first)
        writer.go_on()
        second = cluster.active()
        assert second != first
        cluster.start(first)
        cluster.wait_ready(first)
        standby = next(number for number in cluster.nodes if number not in (first, second))
        assert "penstock_ready 1" in cluster.metrics(standby)
        writer.go_on()
        cluster.kill(standby)
        writer.go_on()
        cluster.start(standby)
        cluster.wait_ready(standby)
        check_stopped_node_says_nothing_old(cluster, writer)
        last = cluster.active()
        assert cluster.nodes[last].stop() == 0, "an orderly stop hands the broker over"
        del cluster.nodes[last]
        writer.go_on()
        writer.end()
        assert cluster.active() != last
        check_numbers(writer, cluster.bootstrap)
        for number in (1, 2, 3):
            assert "Traceback" not in cluster.log(number).read_text(encoding="utf-8")
