"""Our own client against a real broker: the same calls on asyncio and on blocking sockets, and what happens when they fail."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from penstock.kafka.client import (
    EARLIEST,
    LATEST,
    Address,
    BlockingClient,
    BrokerRefusedError,
    BrokerUnreachableError,
    ClientOptions,
    OpenTransaction,
    ProducerClient,
    RequestRefusedError,
    TopicPartition,
)
from penstock.kafka.client.asyncio_network import AsyncioNetwork
from penstock.kafka.client.connection import Connection
from penstock.kafka.client.network import BlockingNetwork, Network, finish
from penstock.kafka.protocol import keys
from penstock.kafka.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.kafka.protocol.metadata import MetadataRequest, MetadataResponse
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.ports import free_ports

T = TypeVar("T")
Work = Callable[[ProducerClient], Awaitable[T]]


@pytest.fixture
def gateway(tmp_path: Path) -> RunningGateway:
    return RunningGateway(tmp_path)


def options_of(port: int, **changes: float) -> ClientOptions:
    return ClientOptions((Address("127.0.0.1", port),), **changes)  # type: ignore[arg-type] # timeouts only


def run(kind: str, options: ClientOptions, work: Work[T]) -> T:
    """Run some calls on one of the two networks."""

    async def whole(network: Network) -> T:
        client = ProducerClient(options, network)
        try:
            return await work(client)
        finally:
            client.close()

    return asyncio.run(whole(AsyncioNetwork())) if kind == "asyncio" else finish(whole(BlockingNetwork()))


both = pytest.mark.parametrize("kind", ["asyncio", "blocking"])


@both
def test_topics_offsets_and_commits_are_the_same_on_both_networks(kind: str, gateway: RunningGateway) -> None:
    async def work(client: ProducerClient) -> None:
        topics = await client.topics(["t"])
        assert list(topics["t"].leaders) == [0, 1]
        places = {TopicPartition("t", number): EARLIEST for number in (0, 1)}
        assert set((await client.offsets(places, committed=True)).values()) == {0}
        await client.commit("g", dict.fromkeys(places, 0))

    with gateway:
        gateway.create_topic("t", 2)
        run(kind, options_of(gateway.port), work)


@both
def test_transactions_are_committed_together_once(kind: str, gateway: RunningGateway) -> None:
    async def work(client: ProducerClient) -> None:
        assert await client.commits_together()
        producer = await client.initialise("one", 60_000)
        transaction = OpenTransaction("one", producer.id, producer.epoch)
        await client.abort(transaction)
        assert await client.record("job") is None
        assert await client.commit_together([], ("job", b"1"), None)
        assert not await client.commit_together([], ("job", b"1"), None)
        assert await client.record("job") == b"1"
        assert await client.open_transactions("o") == []

    with gateway:
        run(kind, options_of(gateway.port), work)


@both
def test_an_unknown_topic_is_refused_and_not_waited_for(kind: str, gateway: RunningGateway) -> None:
    async def work(client: ProducerClient) -> None:
        with pytest.raises(RequestRefusedError, match="there is no such topic"):
            await client.topics(["none"])

    with gateway:
        run(kind, options_of(gateway.port), work)


@both
def test_a_node_that_restarts_is_waited_for(kind: str, gateway: RunningGateway) -> None:
    with gateway:
        gateway.create_topic("t")

        async def work(client: ProducerClient) -> None:
            await client.topics(["t"])
            restarting = threading.Thread(target=gateway.restart)
            restarting.start()
            assert "t" in await client.known_topics(["t"])
            restarting.join()
            assert "t" in await client.known_topics(["t"])

        run(kind, options_of(gateway.port), work)


@both
def test_nothing_listening_is_an_error_that_names_the_setting(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    async def work(client: ProducerClient) -> None:
        with pytest.raises(BrokerUnreachableError, match=r"cannot connect to 127\.0\.0\.1.*bootstrap"):
            await client.topics(["t"])

    run(kind, options_of(port, api_timeout_s=0.2), work)


@both
def test_all_addresses_where_nothing_listens_are_named(kind: str) -> None:
    addresses = tuple(Address("127.0.0.1", port) for port in free_ports(2))

    async def work(client: ProducerClient) -> None:
        with pytest.raises(BrokerUnreachableError, match=f"no node can be reached.*:{addresses[0].port}.*:{addresses[1].port}"):
            await client.topics(["t"])

    run(kind, replace(options_of(addresses[0].port, api_timeout_s=0.2), bootstrap=addresses), work)


@both
@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4\0\0\0\7", b"\0\0\0\0"])
def test_something_that_is_not_kafka_is_told(kind: str, said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()

        async def work(client: ProducerClient) -> None:
            with pytest.raises((BrokerRefusedError, BrokerUnreachableError)):
                await client.any_node()

        run(kind, options_of(server.getsockname()[1], request_timeout_s=5), work)
        thread.join()


def test_replies_find_their_requests_when_many_tasks_share_a_connection(gateway: RunningGateway) -> None:
    async def work(client: ProducerClient) -> None:
        connection = await client.any_node()

        async def long_poll() -> FetchResponse:
            asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            request = FetchRequest(max_wait_ms=300, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[asked])])
            return await connection.call(keys.FETCH, request, FetchResponse, wait_s=0.3)

        async def metadata() -> MetadataResponse:
            return await connection.call(keys.METADATA, MetadataRequest(topics=[]), MetadataResponse)

        replies = await asyncio.gather(long_poll(), *(metadata() for _ in range(50)), long_poll())
        assert [type(reply) for reply in replies] == [FetchResponse, *[MetadataResponse] * 50, FetchResponse]

    with gateway:
        gateway.create_topic("t")
        run("asyncio", options_of(gateway.port), work)


def test_a_cancelled_call_closes_its_connection_and_the_next_one_works(gateway: RunningGateway) -> None:
    async def work(client: ProducerClient) -> None:
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[asked])])
        connection = await client.any_node()
        call = asyncio.create_task(connection.call(keys.FETCH, request, FetchResponse, wait_s=30))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert "t" in await client.known_topics(["t"])

    with gateway:
        gateway.create_topic("t")
        run("asyncio", options_of(gateway.port), work)


def test_a_closed_connection_ends_the_wait_of_another_thread(gateway: RunningGateway) -> None:
    with gateway, BlockingClient(options_of(gateway.port)) as client:
        gateway.create_topic("t")
        connection = client.any_node()
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[asked])])
        threading.Timer(0.2, connection.close).start()
        with pytest.raises(BrokerUnreachableError):
            connection.call(keys.FETCH, request, FetchResponse, wait_s=30)


def test_a_coordinator_is_looked_up_once(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    send = Connection.send

    async def counted(self: Connection, key: int, *arguments: object, **options: object) -> object:
        sent.append(key)
        return await send(self, key, *arguments, **options)  # type: ignore[arg-type] # passed on as it is

    monkeypatch.setattr(Connection, "send", counted)
    with gateway, BlockingClient(options_of(gateway.port)) as client:
        gateway.create_topic("t")
        for offset in (0, 0, 0):
            client.commit("g", {TopicPartition("t", 0): offset})
        assert client.offsets({TopicPartition("t", 0): LATEST}, committed=False) == {TopicPartition("t", 0): 0}
    assert sent.count(keys.FIND_COORDINATOR) == 1
