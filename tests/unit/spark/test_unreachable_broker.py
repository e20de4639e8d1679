"""Source and sink report a broker that is down within about 15 s, in one sentence."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.kafka.client import Address, BrokerUnreachableError, ClientSecurity, KafkaClient
from penstock.kafka.client.network import ByteStream
from penstock.spark import PenstockDataSource, kafka_options
from penstock.spark.kafka_options import client_options, planning_client

VALUE = StructType([StructField("value", BinaryType())])


class DeadNetwork:
    """A network on which no node answers: a connection is refused at once, or its packets are dropped."""

    def __init__(self, *, drops_packets: bool) -> None:
        self._drops_packets = drops_packets
        self.now_s = 0.0

    async def connect(self, _address: Address, _security: ClientSecurity, timeout_s: float) -> ByteStream:
        if not self._drops_packets:
            raise ConnectionRefusedError(111, "Connection refused")
        self.now_s += timeout_s
        raise TimeoutError("timed out")

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s

    def nonce(self) -> str:
        return ""

    def lock(self) -> AbstractAsyncContextManager[object]:
        return asyncio.Lock()


@pytest.mark.parametrize("drops_packets", [False, True])
@pytest.mark.parametrize("servers", ["a:1", "a:1,b:1,c:1"])
def test_nodes_that_cannot_be_reached_are_given_up_after_15_s(servers: str, drops_packets: bool) -> None:
    network = DeadNetwork(drops_packets=drops_packets)
    with planning_client(client_options({"kafka.bootstrap.servers": servers})) as planning:
        client = KafkaClient(planning.options, network)
    with pytest.raises(BrokerUnreachableError):
        asyncio.run(client.known_topics(["t"]))
    assert 14 < network.now_s < 17


def test_without_a_limit_for_the_first_node_each_is_tried_for_the_request_timeout() -> None:
    network = DeadNetwork(drops_packets=True)
    options = replace(client_options({"kafka.bootstrap.servers": "a:1,b:1"}), waits_for_first_node=False)
    with pytest.raises(BrokerUnreachableError):
        asyncio.run(KafkaClient(options, network).known_topics(["t"]))
    assert network.now_s == 2 * options.request_timeout_s


def test_source_and_sink_name_a_closed_port_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_options, "FIRST_NODE_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        bootstrap = f"127.0.0.1:{closed.getsockname()[1]}"
    source = PenstockDataSource({"kafka.bootstrap.servers": bootstrap, "subscribe": "t"})
    sink = PenstockDataSource({"kafka.bootstrap.servers": bootstrap, "topic": "t"})
    said = (
        f"cannot connect to {bootstrap}: Connection refused; is a node running there? `penstock up` starts one, "
        "kafka.bootstrap.servers says where to look first"
    )
    for attempt in (
        lambda: source.reader(VALUE).partitions(),
        lambda: source.streamReader(VALUE).initialOffset(),
        lambda: sink.writer(VALUE, overwrite=False),
        lambda: sink.streamWriter(VALUE, overwrite=False),
    ):
        with pytest.raises(BrokerUnreachableError) as raised:
            attempt()
        assert str(raised.value) == said
