"""Clients that are not Kafka's, at nodes that lead and nodes that do not, and while another node begins to lead."""

from __future__ import annotations

import json
import signal
import socket
import threading
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
import ydb
import yt.wrapper

from tests.e2e.cluster.running_cluster import RunningCluster, running_cluster, until
from tests.e2e.stream.stream_client import StreamClient
from tests.e2e.yt.yt_clusters import NO_CLIENT_RETRIES
from tests.ports import free_ports

LISTENERS: Final = ("yt", "ydb", "stream", "stream-http", "schema-registry")
NODES: Final = (1, 2, 3)
WAIT_S: Final = 60.0
READY: Final = grpc.ChannelConnectivity.READY

# The client of YT leaves the connections of answers that are errors to the garbage collector.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

Ports = dict[int, dict[str, int]]
"""By node and listener."""


@contextmanager
def cluster_with_gateways(directory: Path, *more: str) -> Iterator[tuple[RunningCluster, Ports]]:
    """Three nodes with all gateways, and more options."""
    numbers = iter(free_ports(len(NODES) * len(LISTENERS)))
    ports = {node: {name: next(numbers) for name in LISTENERS} for node in NODES}
    named = {node: [word for name, port in ports[node].items() for word in (f"--{name}-port", str(port))] for node in NODES}
    options = {node: [*words, *more] for node, words in named.items()}
    with running_cluster(directory, options=options) as cluster:
        until("not all listen", lambda: all(_accepts(port) for of_node in ports.values() for port in of_node.values()))
        yield cluster, ports


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=WAIT_S).close()
    except ConnectionRefusedError:
        return False
    return True


def use_yt(port: int, directory: str) -> None:
    """Make a directory, with YT's client."""
    client = yt.wrapper.YtClient(f"127.0.0.1:{port}", config=NO_CLIENT_RETRIES)
    client.create("map_node", f"//{directory}")
    assert directory in client.list("/")


def use_ydb(port: int, topic: str) -> None:
    """Create a topic, with YDB's SDK."""
    with ydb.Driver(ydb.DriverConfig(f"grpc://127.0.0.1:{port}", "/local")) as driver:
        driver.wait(WAIT_S, fail_fast=True)
        driver.topic_client.create_topic(f"/local/{topic}")
        assert driver.topic_client.describe_topic(f"/local/{topic}").partitions


def ask(url: str) -> Any:
    """What an HTTP listener answers."""
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        return json.loads(answer.read())


def watch(client: StreamClient) -> list[grpc.ChannelConnectivity]:
    """The states of a client's connection, as they change."""
    seen: list[grpc.ChannelConnectivity] = []
    client.channel.subscribe(seen.append, try_to_connect=True)
    return seen


@contextmanager
def never_refused(ports: Sequence[int]) -> Iterator[None]:
    """Ports accept connections all the time."""
    refused: list[int] = []
    ending = threading.Event()

    def visit() -> None:
        while not ending.wait(0.005):
            refused.extend(port for port in ports if not _accepts(port))

    visitor = threading.Thread(target=visit)
    visitor.start()
    try:
        yield
    finally:
        ending.set()
        visitor.join()
    assert not refused


def test_clients_find_the_leader_through_any_node_and_no_port_closes_while_it_changes(tmp_path: Path) -> None:
    with cluster_with_gateways(tmp_path) as (cluster, ports), ExitStack() as stack:
        leader = cluster.active()
        followers = [node for node in NODES if node != leader]
        clients = {node: stack.enter_context(StreamClient(f"127.0.0.1:{ports[node]['stream']}")) for node in NODES}
        for node in NODES:
            use_yt(ports[node]["yt"], f"made-at-{node}")
            use_ydb(ports[node]["ydb"], f"made-at-{node}")
            assert ask(f"http://127.0.0.1:{ports[node]['stream-http']}/streams") == []
            assert ask(f"http://127.0.0.1:{ports[node]['schema-registry']}/subjects") == []
        assert clients[leader].last_sequence("none") == 0
        for node in followers:
            named = f"node {cluster.readiness(node)['active_node']} does, ask it at 127.0.0.1:{ports[leader]['stream']}"
            with pytest.raises(grpc.RpcError, match=named) as refused:
                clients[node].last_sequence("none")
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

        states = {node: watch(clients[node]) for node in followers}
        until("not all are connected", lambda: all(seen[-1:] == [READY] for seen in states.values()))
        with never_refused([port for node in followers for port in ports[node].values()]):
            cluster.kill(leader)
            following = cluster.active()
            for node in followers:
                use_yt(ports[node]["yt"], f"made-later-at-{node}")
                use_ydb(ports[node]["ydb"], f"made-later-at-{node}")
                assert ask(f"http://127.0.0.1:{ports[node]['stream-http']}/streams") == []
            assert clients[following].last_sequence("none") == 0
        assert all(set(seen[seen.index(READY) :]) == {READY} for seen in states.values()), "connections are kept"


def test_a_leader_that_is_superseded_ends_its_streams_and_serves_on_as_a_follower(tmp_path: Path) -> None:
    with cluster_with_gateways(tmp_path) as (cluster, ports):
        leader = cluster.active()
        own = ports[leader]
        with StreamClient(f"127.0.0.1:{own['stream']}") as client, never_refused(list(own.values())):
            states = watch(client)
            subscribed = client.subscribe("none", "reader")
            until("it is not connected", lambda: states[-1:] == [READY])
            process = cluster.nodes[leader].process
            process.send_signal(signal.SIGSTOP)
            try:
                others = [node for node in NODES if node != leader]
                until("no other node leads", lambda: any(cluster.readiness(node).get("role") == "active" for node in others))
            finally:
                process.send_signal(signal.SIGCONT)
            with pytest.raises(grpc.RpcError) as ended:
                next(iter(subscribed))
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
            until("it follows", lambda: cluster.readiness(leader).get("role") == "standby")
            use_yt(own["yt"], "made-later")
            use_ydb(own["ydb"], "made-later")
            assert ask(f"http://127.0.0.1:{own['stream-http']}/streams") == []
            with pytest.raises(grpc.RpcError, match="does, ask it at"):
                client.last_sequence("none")
            assert set(states[states.index(READY) :]) == {READY}, "its connection is kept"


def test_a_wrong_password_is_counted_for_the_client_not_for_the_node_that_forwards_it(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("open sesame")
    secured = ("--sasl", "true", "--admin-password-file", str(tmp_path / "password"))
    with cluster_with_gateways(tmp_path, *secured) as (cluster, ports):
        leader = cluster.active()
        follower = next(node for node in NODES if node != leader)
        guess = {"Authorization": "Basic " + b64encode(b"admin:guess").decode()}
        connection = HTTPConnection("127.0.0.1", ports[follower]["stream-http"], timeout=WAIT_S, source_address=("127.0.0.9", 0))
        connection.request("GET", "/streams", headers=guess)
        assert connection.getresponse().status == HTTPStatus.UNAUTHORIZED
        connection.close()
        until("it is not told", lambda: b"127.0.0.9: wrong password" in cluster.log(leader).read_bytes())
