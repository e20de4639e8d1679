"""The YDB listener: a gRPC server in the node's event loop, with the services that YDB's SDK needs for topics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any, Final

import grpc

from penstock.broker import BadTokenError, Broker, TopicPartition
from penstock.core.errors import PenstockError
from penstock.core.probe import OK, REFUSED, RequestProbe
from penstock.gateway.grpc_bodies import RequestBodies, source_of
from penstock.gateway.grpc_server import GrpcServer
from penstock.gateway.measured_request import MeasuredRequest
from penstock.gateway.ydb import describe, query_service, topic_admin
from penstock.gateway.ydb.call import Call
from penstock.gateway.ydb.probe import traceparent_of
from penstock.gateway.ydb.protos import Status, auth, discovery, operation, topic
from penstock.gateway.ydb.query_sessions import QuerySessions
from penstock.gateway.ydb.read_stream import ReadStream
from penstock.gateway.ydb.readers import Readers
from penstock.gateway.ydb.sign_in import Caller, SignIn
from penstock.gateway.ydb.standby import DISCOVERY_SERVICE, Endpoint, listed
from penstock.gateway.ydb.statuses import StatusError, decode_message, issues_of, status_of
from penstock.gateway.ydb.stream import Stream, serve_stream
from penstock.gateway.ydb.write_speed import WriteSpeed
from penstock.gateway.ydb.write_stream import WriteStream
from penstock.gateway.ydb.writers import Writers

log = logging.getLogger(__name__)

MESSAGE_BYTES_MAX: Final = 64_000_000  # the SDK's own limit
FOLLOW_S: Final = 0.5
CALLS_MAX: Final = 10_000  # in flight at a time, streams among them
_OPTIONS: Final = {
    "grpc.max_receive_message_length": MESSAGE_BYTES_MAX,
    "grpc.max_send_message_length": -1,
    # Clients send keepalive pings often.
    "grpc.http2.min_recv_ping_interval_without_data_ms": 5000,
    "grpc.keepalive_permit_without_calls": 1,
}
TICKET: Final = "x-ydb-auth-ticket"
DATABASE: Final = "x-ydb-database"

TOPIC_SERVICE: Final = "Ydb.Topic.V1.TopicService"
AUTH_SERVICE: Final = "Ydb.Auth.V1.AuthService"

Unary = Callable[[Broker, Call, Any], Awaitable[Any]]

_TOPIC_CALLS: Final[dict[str, Unary]] = {
    "CreateTopic": topic_admin.create_topic,
    "AlterTopic": topic_admin.alter_topic,
    "DropTopic": topic_admin.drop_topic,
    "CommitOffset": topic_admin.commit_offset,
    "UpdateOffsetsInTransaction": topic_admin.update_offsets_in_transaction,
    "DescribeTopic": describe.describe_topic,
    "DescribePartition": describe.describe_partition,
    "DescribeConsumer": describe.describe_consumer,
}
_METHODS: Final = {
    TOPIC_SERVICE: (*_TOPIC_CALLS, "StreamWrite", "StreamRead"),
    DISCOVERY_SERVICE: ("ListEndpoints", "WhoAmI"),
    AUTH_SERVICE: ("Login",),
    query_service.NAME: query_service.METHODS,
}


def ydb_server(host: str, port: int, tls: tuple[Path, Path] | None) -> GrpcServer:
    """A server for YDB's clients. `port` 0 picks a free one."""
    methods = [f"/{service}/{name}" for service, names in _METHODS.items() for name in names]
    return GrpcServer(host=host, port=port, tls=tls, options=_OPTIONS, calls_max=CALLS_MAX, methods=methods)


class YdbGateway:
    """Serves YDB's clients with a server; they are told the advertised host."""

    def __init__(
        self,
        broker: Broker,
        *,
        server: GrpcServer,
        node_id: int,
        advertised_host: str,
        drain_timeout_s: float,
        random: Random,
        has_tls: bool,
    ) -> None:
        self._broker = broker
        self._node_id = node_id
        self._server = server
        self._advertised_host = advertised_host
        self._drain_timeout_s = drain_timeout_s
        self._random = random
        self._has_tls = has_tls
        self._writers = Writers(WriteSpeed(broker.clock))
        self._readers = Readers(broker)
        self._sign_in = SignIn(broker)
        self._bodies = RequestBodies()
        self._transactions = QuerySessions(broker, self._readers, random)
        self._following: asyncio.Task[None] | None = None
        self._streams: set[Stream] = set()
        self.probe = RequestProbe()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port

    @property
    def connections(self) -> int:
        """How many streams are open; gRPC does not report connections."""
        return len(self._streams)

    def readers_of(self, consumer: str) -> dict[str, list[TopicPartition]]:
        """The readers of a consumer by session id, and the partitions of each."""
        return self._readers.shares(consumer)

    async def start(self) -> None:
        """Listen. OSError if the address is not free."""
        for name, handlers in self._services().items():
            self._server.add_registered_method_handlers(name, handlers)
        await self._server.start()
        self._following = asyncio.create_task(self._follow_topics(), name="ydb-topics")

    async def stop(self) -> None:
        """Take no more calls, end the streams, and finish calls in flight."""
        if self._following is not None:
            self._following.cancel()
        self._transactions.close()
        for stream in list(self._streams):
            stream.end(StatusError(Status.UNAVAILABLE, "the node is shutting down"))
        await self._server.stop(self._drain_timeout_s)

    async def _follow_topics(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_S)
            self._readers.follow_topics()

    def _services(self) -> dict[str, dict[str, Any]]:
        calls = {name: self._unary(name, topic, handler) for name, handler in _TOPIC_CALLS.items()}
        calls["StreamWrite"] = self._streaming(topic.StreamWriteMessage, self._write_stream)
        calls["StreamRead"] = self._streaming(topic.StreamReadMessage, self._read_stream)
        queries = query_service.QueryService(self._transactions, self._call, self._node_id, self.probe, self._bodies)
        return {
            TOPIC_SERVICE: calls,
            DISCOVERY_SERVICE: {
                "ListEndpoints": self._unary("ListEndpoints", discovery, self._list_endpoints),
                "WhoAmI": self._unary("WhoAmI", discovery, self._who_am_i),
            },
            query_service.NAME: queries.handlers(),
            AUTH_SERVICE: {"Login": self._unary("Login", auth, self._login, is_open=True)},
        }

    def _unary(self, name: str, protos: Any, handler: Unary, *, is_open: bool = False) -> Any:
        respond = getattr(protos, name + "Response")
        decode = getattr(protos, name + "Request").FromString

        async def serve(_: Any, context: Any) -> Any:
            answer = operation.Operation(ready=True, status=Status.SUCCESS)
            try:
                with MeasuredRequest(self.probe, name, traceparent_of(context), name=f"ydb {name}"):
                    call = self._call(context, is_open=is_open)
                    receiving = (
                        nullcontext(await self._bodies.receive_open(context)) if is_open else self._bodies.receive(context)
                    )
                    async with receiving as body:
                        await self._broker.confirm()
                        answer.result.Pack(await handler(self._broker, call, decode_message(decode, body)))
            except BadTokenError as error:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
            except PenstockError as error:
                log.debug("%s is refused: %s", name, error)
                answer.status = status_of(error)
                answer.issues.extend(issues_of(error))
            return respond(operation=answer)

        # Declared as a stream of requests, so that gRPC receives nothing before sign-in; clients see no difference.
        return grpc.stream_unary_rpc_method_handler(serve, response_serializer=respond.SerializeToString)

    def _streaming(self, protos: Any, job: Callable[[Stream], Awaitable[None]]) -> Any:
        async def serve(_: Any, context: Any) -> None:
            unknown_caller = Caller(self._broker, "", "")
            stream = Stream(context, protos, unknown_caller, "", self.probe)
            self._streams.add(stream)
            try:
                if await serve_stream(stream, self._admit(stream, context, job)) is not OK:
                    self.probe.note(protos.__name__.removesuffix("Message"), REFUSED, 0.0)
            except BadTokenError as error:
                self.probe.note(protos.__name__.removesuffix("Message"), REFUSED, 0.0)
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
            finally:
                self._streams.discard(stream)

        # Stream decodes and encodes messages itself.
        return grpc.stream_stream_rpc_method_handler(serve)

    async def _admit(self, stream: Stream, context: Any, job: Callable[[Stream], Awaitable[None]]) -> None:
        call = self._call(context)
        stream.caller, stream.database = call.caller, call.database
        await job(stream)

    def _call(self, context: Any, *, is_open: bool = False) -> Call:
        metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        host = source_of(context)
        caller = Caller(self._broker, "", host) if is_open else self._sign_in.caller(metadata.get(TICKET, ""), host)
        return Call(caller, metadata.get(DATABASE, ""), self._readers, self._transactions, self._node_id)

    async def _write_stream(self, stream: Stream) -> None:
        writing = WriteStream(
            stream,
            self._broker,
            self._writers,
            transactions=self._transactions,
            sign_in=self._sign_in,
            random=self._random,
        )
        await writing.serve()

    async def _read_stream(self, stream: Stream) -> None:
        await ReadStream(stream, self._broker, self._readers, self._sign_in, self._random).serve()

    async def _list_endpoints(self, broker: Broker, call: Call, request: Any) -> Any:
        return listed(Endpoint(self._node_id, self._advertised_host, self._server.port, self._has_tls))

    async def _who_am_i(self, broker: Broker, call: Call, request: Any) -> Any:
        return discovery.WhoAmIResult(user=call.caller.user)

    async def _login(self, broker: Broker, call: Call, request: Any) -> Any:
        return auth.LoginResult(token=await self._sign_in.token(request.user, request.password, call.caller.host))
