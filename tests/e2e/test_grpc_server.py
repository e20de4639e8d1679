"""Listeners of gRPC outlive whatever a stranger sends, and the calls of others are not disturbed by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import grpc
import pytest
import ydb

from penstock.gateway.grpc_server import CAN_MATCH_BYTES, GrpcServer
from tests.e2e.kafka.secured import CERTIFICATE, KEY
from tests.e2e.running_node import RunningNode, running_node
from tests.http2 import END_HEADERS, END_STREAM, HEADERS, Http2Connection, call_headers

BAD_PATHS = (b"/\xff", b"\xc3\x28", b"/Ydb.Topic.V1.TopicService/StreamRead\xff", b"", b"/" + b"\x80" * 4000)


@pytest.fixture(scope="module", params=["plain", "tls"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node that serves YDB and streams, with and without TLS."""
    path = tmp_path_factory.mktemp("node")
    argv = ["--data-dir", str(path / "data"), "--ydb-port", "0", "--stream-port", "0"]
    if request.param == "tls":
        argv += ["--tls-cert", str(CERTIFICATE), "--tls-key", str(KEY)]
    with running_node(path / "log", argv) as running:
        running.ready["log"] = path / "log"
        running.ready["tls"] = request.param == "tls"
        yield running


def _call(port: int, path: bytes, *, tls: bool = False) -> bytes:
    """The headers that one call without a body is answered with."""
    with Http2Connection(port, tls=tls) as connection:
        connection.send(HEADERS, END_HEADERS | END_STREAM, 1, call_headers(path))
        return connection.answer(1)


@pytest.mark.parametrize("listener", ["ydb", "stream"])
def test_a_path_that_is_no_text_ends_nothing(node: RunningNode, listener: str) -> None:
    port = node.ready["listeners"][listener]["port"]
    scheme = "grpcs" if node.ready["tls"] else "grpc"
    certificate = CERTIFICATE.read_bytes() if node.ready["tls"] else None
    options = {"root_certificates": certificate} if certificate else {}
    config = ydb.DriverConfig(f"{scheme}://localhost:{node.ready['listeners']['ydb']['port']}", "/local", **options)
    with ydb.Driver(config) as driver:
        driver.wait(30, fail_fast=True)
        path = f"/local/{listener}"
        driver.topic_client.create_topic(path)
        with driver.topic_client.writer(path, producer_id="one") as writer:
            for bad in BAD_PATHS:
                _call(port, bad, tls=node.ready["tls"])
                writer.write_with_ack(b"still served", timeout=30)
    assert b"is restarted" not in node.ready["log"].read_bytes()


def test_an_unknown_method_is_answered_and_a_known_one_served(node: RunningNode) -> None:
    port = node.ready["listeners"]["stream"]["port"]
    # Status 12: there is no such method.
    assert b"\x0212" in _call(port, b"/no.such.Service/Method", tls=node.ready["tls"])
    assert b"\x0212" in _call(port, b"/\xff\xfe", tls=node.ready["tls"])


def test_malformed_calls_do_not_fill_the_log(node: RunningNode) -> None:
    headers = call_headers(b"/no.such.Service/Method", grpc_timeout=b"no time")
    with Http2Connection(node.ready["listeners"]["ydb"]["port"], tls=node.ready["tls"]) as connection:
        connection.send(HEADERS, END_HEADERS | END_STREAM, 1, headers)
        connection.answer(1)
    assert b"hpack_parser" not in node.ready["log"].read_bytes()


@pytest.mark.parametrize("matches_bytes", [False, True])
def test_a_server_that_ends_is_back_on_its_port(matches_bytes: bool) -> None:
    if matches_bytes and not CAN_MATCH_BYTES:
        pytest.skip("this grpcio is restarted instead")

    async def echo(request: bytes, context: object) -> bytes:
        return request

    async def scenario() -> None:
        server = GrpcServer(host="127.0.0.1", port=0, tls=None, options={}, calls_max=100, matches_bytes=matches_bytes)
        server.add_registered_method_handlers("test.Echo", {"Say": grpc.unary_unary_rpc_method_handler(echo)})
        await server.start()
        port = server.port
        try:
            for round_ in range(3):
                with suppress(AssertionError, ConnectionError):  # a server that ends may answer or not
                    await asyncio.to_thread(_call, port, b"/\xff")
                async with asyncio.timeout(5), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                    said = await channel.unary_unary("/test.Echo/Say")(b"%d" % round_, wait_for_ready=True)
                    assert said == b"%d" % round_
            assert server.restarts == (0 if matches_bytes else 3)
            assert server.port == port
        finally:
            await server.stop(1.0)

    asyncio.run(scenario())


def test_calls_above_the_limit_are_refused_and_others_go_on() -> None:
    async def scenario() -> None:
        release = asyncio.Event()

        async def wait(request: bytes, context: object) -> bytes:
            await release.wait()
            return request

        server = GrpcServer(host="127.0.0.1", port=0, tls=None, options={}, calls_max=2)
        server.add_registered_method_handlers("test.Echo", {"Wait": grpc.unary_unary_rpc_method_handler(wait)})
        await server.start()
        try:
            async with asyncio.timeout(30), grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                call = channel.unary_unary("/test.Echo/Wait")
                first = [asyncio.ensure_future(call(b"first")) for _ in range(2)]
                await asyncio.sleep(0.2)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(b"one too many")
                assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                release.set()
                assert await asyncio.gather(*first) == [b"first", b"first"]
                assert await call(b"again") == b"again"
        finally:
            await server.stop(1.0)

    asyncio.run(scenario())


@asynccontextmanager
async def kept_server() -> AsyncIterator[GrpcServer]:
    """A server whose handlers may be replaced, with the first of them."""
    server = GrpcServer(host="127.0.0.1", port=0, tls=None, options={}, calls_max=10, methods=["/test.Echo/Say"])
    server.is_kept = True
    try:
        await start_saying(server, b"first")
        yield server
    finally:
        await server.close()
        await server.stop(0.0)


async def start_saying(server: GrpcServer, answer: bytes) -> None:
    """Answer every call with this."""

    async def say(_: bytes, context: object) -> bytes:
        return answer

    await start_with(server, say)


async def start_with(server: GrpcServer, say: Callable[[bytes, object], Awaitable[bytes]]) -> None:
    """Serve calls by this."""
    server.add_registered_method_handlers("test.Echo", {"Say": grpc.unary_unary_rpc_method_handler(say)})
    await server.start()


needs_kept_server = pytest.mark.skipif(not CAN_MATCH_BYTES, reason="with this grpcio a server ends with its handlers")


@needs_kept_server
def test_a_call_between_two_sets_of_handlers_waits_and_its_connection_is_kept() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(30), kept_server() as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = channel.unary_unary("/test.Echo/Say")
            assert await call(b"") == b"first"
            await server.stop(1.0)
            between = asyncio.ensure_future(call(b""))
            await asyncio.sleep(0.1)
            assert not between.done()
            assert channel.get_state() is grpc.ChannelConnectivity.READY
            await start_saying(server, b"second")
            assert await between == b"second"

    asyncio.run(scenario())


@needs_kept_server
def test_a_call_that_has_begun_is_finished_by_the_handlers_it_began_with() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(30), kept_server() as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            begun, release = asyncio.Event(), asyncio.Event()

            async def wait(_: bytes, context: object) -> bytes:
                begun.set()
                await release.wait()
                return b"slow"

            await server.stop(1.0)
            await start_with(server, wait)
            call = channel.unary_unary("/test.Echo/Say")
            slow = asyncio.ensure_future(call(b""))
            await begun.wait()
            stopping = asyncio.create_task(server.stop(20.0))
            await asyncio.sleep(0.1)
            assert not stopping.done()
            release.set()
            await stopping
            assert await slow == b"slow"

    asyncio.run(scenario())


@needs_kept_server
def test_a_call_that_does_not_end_in_time_is_ended_and_the_port_serves_on() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(30), kept_server() as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            begun = asyncio.Event()

            async def hang(_: bytes, context: object) -> bytes:
                begun.set()
                await asyncio.Event().wait()
                return b""

            await server.stop(1.0)
            await start_with(server, hang)
            call = channel.unary_unary("/test.Echo/Say")
            hanging = asyncio.ensure_future(call(b""))
            await begun.wait()
            await server.stop(0.1)
            with pytest.raises(grpc.aio.AioRpcError):
                await hanging
            await start_saying(server, b"next")
            assert await call(b"", wait_for_ready=True) == b"next"

    asyncio.run(scenario())


@needs_kept_server
def test_a_closed_server_listens_until_its_handlers_end() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(30), kept_server() as server:
            await server.close()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                assert await channel.unary_unary("/test.Echo/Say")(b"") == b"first"
            await server.stop(1.0)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", server.port)

    asyncio.run(scenario())
