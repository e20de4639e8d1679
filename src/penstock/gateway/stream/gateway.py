"""The gRPC listener of the streams, with health checks and reflection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from penstock import minitoolstream as protos
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.gateway.grpc_server import GrpcServer
from penstock.gateway.stream.admission import Admission
from penstock.gateway.stream.services import admit_caller, services
from penstock.gateway.stream.statuses import statuses_of

log = logging.getLogger(__name__)

MESSAGE_BYTES_MAX: Final = 64 << 20
CALLS_MAX: Final = 10_000  # in flight, followers among them
_OPTIONS: Final = {
    "grpc.max_receive_message_length": MESSAGE_BYTES_MAX,
    "grpc.max_send_message_length": MESSAGE_BYTES_MAX,
}
SERVICES: Final = tuple(service.full_name for service in protos.SERVICES)


def stream_server(host: str, port: int, tls: tuple[Path, Path] | None) -> GrpcServer:
    """A server for clients of streams. `port` 0 picks a free one."""
    services = (*protos.SERVICES, *_services_of(health_pb2), *_services_of(reflection_pb2))
    methods = [f"/{service.full_name}/{method.name}" for service in services for method in service.methods]
    return GrpcServer(host=host, port=port, tls=tls, options=_OPTIONS, calls_max=CALLS_MAX, methods=methods)


def _services_of(module: Any) -> Iterable[Any]:
    services: dict[str, Any] = module.DESCRIPTOR.services_by_name
    return services.values()


class StreamGateway:
    """Serves streams over gRPC with a server, between `start` and `stop`."""

    def __init__(self, admission: Admission, *, server: GrpcServer, drain_timeout_s: float) -> None:
        self._admission = admission
        self._server = server
        self._drain_timeout_s = drain_timeout_s
        self.probe = admission.probe
        self._health: Any = None
        self._endless = _EndlessCalls()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port

    @property
    def connections(self) -> int:
        """How many clients have a call in flight; gRPC does not report the others."""
        return len(self._admission.calls_in_flight)

    async def start(self) -> None:
        """Listen. OSError if the port is not free."""
        for name, methods in services(self._admission).items():
            self._server.add_registered_method_handlers(name, methods)
        self._health = health.aio.HealthServicer()
        open_services = _OpenServices(self._server, self._admission, self._endless)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, open_services)
        names = (*SERVICES, health.SERVICE_NAME)
        for name in ("", *names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        reflection_servicer = reflection.aio.ReflectionServicer((*names, reflection.SERVICE_NAME))
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
            reflection_servicer, _SignedInServices(self._server, self._admission, self._endless)
        )
        await self._server.start()

    async def stop(self) -> None:
        """Take no more calls, end those that would go on for ever, and wait up to the drain timeout for the others."""
        self._admission.close()
        await self._health.enter_graceful_shutdown()
        self._endless.end()
        await self._server.stop(self._drain_timeout_s)


class _EndlessCalls:
    """Calls that last until their client ends them, or the gateway stops."""

    def __init__(self) -> None:
        self._calls: set[asyncio.Task[None]] = set()
        self._is_ended = False

    async def serve(self, work: Coroutine[Any, Any, None], context: Any) -> None:
        """Do the work of a call. Its client is told to try again if the gateway stops first."""
        call = asyncio.create_task(work)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            await call
        except asyncio.CancelledError:
            if not self._is_ended:
                raise  # the client has gone
            await context.abort(grpc.StatusCode.UNAVAILABLE, "streams are not served here any more; try again in a moment")

    def end(self) -> None:
        """End them all."""
        self._is_ended = True
        for call in self._calls:
            call.cancel()


class _OpenServices:
    """Adds services whose calls need no sign-in, and so may receive only small messages."""

    def __init__(self, server: GrpcServer, admission: Admission, endless: _EndlessCalls) -> None:
        self._server = server
        self._bodies = admission.bodies
        self._endless = endless

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing: generated code adds every service in this form as well."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Add the methods of the service."""
        self._server.add_registered_method_handlers(service, {name: self._guard(handler) for name, handler in handlers.items()})

    def _guard(self, handler: Any) -> Any:
        async def serve(_: Any, context: Any) -> Any:
            try:
                request = handler.request_deserializer(await self._bodies.receive_open(context))
            except (InvalidRequestError, DecodeError) as error:
                return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            if handler.response_streaming:
                return await self._endless.serve(handler.unary_stream(request, context), context)
            return await handler.unary_unary(request, context)

        kind = grpc.stream_stream_rpc_method_handler if handler.response_streaming else grpc.stream_unary_rpc_method_handler
        return kind(serve, response_serializer=handler.response_serializer)


class _SignedInServices(_OpenServices):
    """Adds services of bidirectional streams whose callers must sign in."""

    def __init__(self, server: GrpcServer, admission: Admission, endless: _EndlessCalls) -> None:
        super().__init__(server, admission, endless)
        self._admission = admission

    def _guard(self, handler: Any) -> Any:
        async def answer_all(requests: Any, context: Any) -> None:
            async for answer in handler.stream_stream(requests, context):
                await context.write(answer)

        async def serve(requests: Any, context: Any) -> None:
            try:
                await admit_caller(self._admission, context)
            except PenstockError as error:
                await context.abort(statuses_of(error).grpc, str(error))
            await self._endless.serve(answer_all(requests, context), context)

        return grpc.stream_stream_rpc_method_handler(
            serve, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )
