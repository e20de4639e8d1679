"""The YT listener: an HTTP proxy that speaks the API v4 of YT's clients."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from http import HTTPStatus
from random import Random
from ssl import SSLContext
from typing import Any

from aiohttp import web

from penstock import __version__
from penstock.broker import Broker
from penstock.broker.schema_registry import SchemaRegistry
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import PenstockError
from penstock.core.probe import FAILED, RequestProbe
from penstock.core.trace_context import TRACEPARENT
from penstock.gateway.forwarded_client import seen_through
from penstock.gateway.http_bodies import BodiesFullError, BodyLimits, IncomingBodies, MemoryBudget, SlowBodyError
from penstock.gateway.http_guard import ForeignRequestError, Handler, HttpGuard, add_data_headers, check_content_type, own_hosts
from penstock.gateway.http_port import HttpPort
from penstock.gateway.measured_request import MeasuredRequest, status_outcome
from penstock.gateway.yt import (
    cypress_commands,
    producer_sessions,
    queue_commands,
    read_command,
    read_locks,
    registration_commands,
    table_commands,
    transaction_commands,
)
from penstock.gateway.yt.call import Call, Command, Reply
from penstock.gateway.yt.cluster import Cluster
from penstock.gateway.yt.errors import AUTHENTICATION, GENERIC, NOT_AUTHORIZED, UNAVAILABLE, YtError, as_yt_error, error_headers
from penstock.gateway.yt.formats import text_yson, write_value
from penstock.gateway.yt.peers import PEER_HEADER, Peers
from penstock.gateway.yt.permissions import BadTokenError, Tokens
from penstock.gateway.yt.request import UNPACKED_BYTES_MAX, decompressed_body, parameters_of, size_max_of
from penstock.gateway.yt.response_keeper import KeptResponse, ResponseKeeper

log = logging.getLogger(__name__)

HEADER_BYTES_MAX = 256 << 10
BATCH_MAX = 1000


async def execute_batch(call: Call) -> Reply:
    """Execute several commands in order. Each has its own result or error."""
    requests = call.get("requests")
    if not isinstance(requests, list) or len(requests) > BATCH_MAX:
        raise YtError(GENERIC, f"requests is a list of at most {BATCH_MAX} commands")
    results: list[dict[str, Any]] = []
    for request in requests:
        try:
            results.append(await _execute(call, request))
        except PenstockError as error:
            results.append({"error": as_yt_error(error).to_yson()})
    return Reply({"results": results})


async def _execute(call: Call, request: Any) -> dict[str, Any]:
    name = request.get("command") if isinstance(request, dict) else None
    command = COMMANDS.get(str(name))
    if command is None or command.is_heavy or command.handler is execute_batch:
        raise YtError(GENERIC, f'Command "{name}" cannot be part of a batch')
    parameters = {**request.get("parameters", {}), "input_format": "yson"}
    body = text_yson(request["input"]) if "input" in request else b""
    reply = await command.handler(replace(call, name=str(name), parameters=parameters, body=body))
    return {} if reply.value in (None, {}) else {"output": reply.value}


COMMANDS: dict[str, Command] = {
    "execute_batch": Command(execute_batch, is_volatile=True),
    **cypress_commands.COMMANDS,
    **table_commands.COMMANDS,
    **queue_commands.COMMANDS,
    **registration_commands.COMMANDS,
    **producer_sessions.COMMANDS,
    **transaction_commands.COMMANDS,
    **read_command.COMMANDS,
    **read_locks.COMMANDS,
}
RESPONSES_TABLET = 9
HEAVY_AT_ONCE = 16  # each may hold a body of many megabytes
VERSIONS = ("v3", "v4")
# Any other error is one of the command, which clients do not retry.
_STATUSES: dict[type[PenstockError], int] = {SlowBodyError: 408, BodiesFullError: 503}
OUTCOME = "penstock.outcome"  # of a response whose status does not show it


class YtGateway:
    """Serves YT's clients on a port."""

    def __init__(
        self,
        broker: Broker,
        *,
        cluster_name: str,
        port: HttpPort,
        advertised_host: str | None = None,
        peers: Mapping[str, str] | None = None,
        peer_token: str | None = None,
        drain_timeout_s: float = 10.0,
        tls: SSLContext | None = None,
        body_limits: BodyLimits | None = None,
        clock: Clock | None = None,
        random: Random,
        registry: SchemaRegistry | None = None,
        forward_secret: bytes | None = None,
    ) -> None:
        self._port = port
        self._forward_secret = forward_secret  # of other nodes, which forward requests
        self._advertised_host = advertised_host or port.host
        self._drain_timeout_s = drain_timeout_s
        self._tls = tls
        self._peers = Peers(peers or {}, peer_token)
        self._cluster = Cluster(cluster_name, broker, self._peers, clock=clock or SystemClock(), random=random, registry=registry)
        self._heavy = asyncio.Semaphore(HEAVY_AT_ONCE)
        self._bodies = IncomingBodies(body_limits or BodyLimits(), clock or SystemClock())
        self._budget = MemoryBudget(UNPACKED_BYTES_MAX)
        self._guard = HttpGuard(own_hosts(port.host, advertised_host))
        self._tokens = Tokens(broker)
        self._runner: web.AppRunner | None = None
        self.probe = RequestProbe()
        self._clock = clock or SystemClock()
        self._responses: ResponseKeeper | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port.port

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        server = None if self._runner is None else self._runner.server
        return 0 if server is None else len(server.connections)

    async def start(self) -> None:
        """Listen. OSError if the address is not free."""
        self._responses = ResponseKeeper(await self._cluster.broker.system_tablet(RESPONSES_TABLET), self._clock)
        await producer_sessions.recover_sessions(self._cluster.broker)
        app = web.Application(client_max_size=0, middlewares=[seen_through(self._forward_secret), self._check_origin])
        app.on_response_prepare.append(add_data_headers)
        app.add_routes(
            [
                web.get("/api", self._versions),
                web.get("/api/{version}", self._commands),
                web.get("/hosts", self._hosts),
                web.get("/hosts/all", self._hosts),
                web.get("/ping", self._ping),
                web.get("/version", self._version),
                web.route("*", "/api/{version}/{command}", self._command),
            ]
        )
        self._runner = web.AppRunner(
            app,
            access_log=None,
            auto_decompress=False,  # a body declared as gzip may be zlib
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            shutdown_timeout=self._drain_timeout_s,
        )
        await self._port.serve(self._runner, self._tls)
        self._cluster.broker.queue_agent.remotes.clusters = self._peers

    async def stop(self) -> None:
        """Take no more requests, and finish those in flight."""
        self._cluster.broker.queue_agent.remotes.clusters = None
        if self._runner is not None:
            await self._runner.cleanup()
        if self._responses is not None:
            await self._responses.stop()
        await self._peers.close()

    @web.middleware
    async def _check_origin(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._guard.check(request)
        except ForeignRequestError as error:
            return self._error_response(request.path, YtError(NOT_AUTHORIZED, str(error)), status=403)
        return await handler(request)

    async def _versions(self, _: web.Request) -> web.Response:
        return web.json_response(list(VERSIONS))

    async def _commands(self, request: web.Request) -> web.Response:
        if request.match_info["version"] not in VERSIONS:
            return web.json_response({"error": f"there is no API version {request.match_info['version']}"}, status=404)
        return web.json_response([command.describe(name) for name, command in COMMANDS.items()])

    async def _hosts(self, _: web.Request) -> web.Response:
        host = f"[{self._advertised_host}]" if ":" in self._advertised_host else self._advertised_host
        return web.json_response([f"{host}:{self.port}"])

    async def _ping(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, _: web.Request) -> web.Response:
        return web.Response(text=f"penstock-{__version__}")

    async def _command(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["command"]
        api = name if name in COMMANDS else "unknown"
        with MeasuredRequest(self.probe, api, request.headers.get(TRACEPARENT), name=f"yt {api}") as measured:
            response = await self._execute_command(request, name)
            measured.outcome = response.get(OUTCOME, status_outcome(response.status))
        self.probe.bytes_in += request.content_length or 0
        self.probe.bytes_out += response.content_length or 0
        return response

    async def _execute_command(self, request: web.Request, name: str) -> web.StreamResponse:
        try:
            command = COMMANDS.get(name)
            if command is None or request.match_info["version"] not in VERSIONS:
                raise YtError(GENERIC, f'Command "{name}" is not registered in {request.match_info["version"]}')
            if request.method not in command.methods:
                return self._wrong_method(request.method, name, command)
            if request.method == "POST":
                check_content_type(request, "application/json or application/x-yt-yson-text")
            host, authorization = request.remote or "", request.headers.get("Authorization")
            user = await self._tokens.user(authorization, host)
            peer = await self._tokens.user(request.headers[PEER_HEADER], host) if PEER_HEADER in request.headers else ""
            async with self._bodies.read(request, size_max_of(command)) as raw:
                # Take the slot only once the whole body has arrived, so that slow clients do not block others.
                encoding = request.headers.get("Content-Encoding", "identity")
                async with self._heavy_slot(command), decompressed_body(self._budget, raw, encoding, command) as body:
                    parameters = await parameters_of(request, body, in_body=command.input_type is None)
                    call = Call(self._cluster, name, parameters, body, user, host, peer, authorization)
                    return await self._dispatch(request, call, command)
        except BadTokenError as error:
            return self._error_response(name, YtError(AUTHENTICATION, str(error)), status=401)
        except PenstockError as error:
            return self._error_response(name, error, status=_STATUSES.get(type(error), 400))
        except Exception:
            log.exception("command %s failed", name)
            response = self._error_response(name, YtError(GENERIC, f"command {name} failed within the node; see its log"))
            response[OUTCOME] = FAILED
            return response

    def _heavy_slot(self, command: Command) -> AbstractAsyncContextManager[None]:
        return nullcontext() if command.input_type is None else self._heavy

    async def _dispatch(self, request: web.Request, call: Call, command: Command) -> web.StreamResponse:
        _check_transaction(call, command)
        await self._cluster.broker.confirm()
        mutation_id = _mutation_id(call, command)
        if mutation_id is not None:
            return await self._execute_once(call, command, mutation_id)
        reply = await command.handler(call)
        if reply.stream is not None:
            return await self._stream_rows(request, call, reply)
        return _response(_encode_reply(call, command, reply))

    def _wrong_method(self, method: str, name: str, command: Command) -> web.Response:
        wanted = command.methods[0]
        response = self._error_response(
            name, YtError(GENERIC, f'Command "{name}" is called with the HTTP method {wanted}, not with {method}'), status=405
        )
        response.headers["Allow"] = ", ".join(command.methods)
        return response

    async def _execute_once(self, call: Call, command: Command, mutation_id: str) -> web.Response:
        """Execute a command, or return its kept response if it was executed before."""
        responses = self._responses
        assert responses is not None
        known = await responses.begin(mutation_id)
        if known is not None:
            return _response(known)
        response: KeptResponse | None = None
        try:
            response = _encode_reply(call, command, await command.handler(call))
        finally:
            responses.end(mutation_id, response, is_stored=not command.is_in_memory)
        return _response(response)

    async def _stream_rows(self, request: web.Request, call: Call, reply: Reply) -> web.StreamResponse:
        """Send rows as they are read. An error before the first row is answered like any other; later the connection is closed,
        and the client retries from where it is."""
        assert reply.stream is not None
        first = await anext(reply.stream, b"")
        response = web.StreamResponse(headers=_headers(reply))
        response.content_type = call.output_format().content_type
        await response.prepare(request)
        await response.write(first)
        try:
            async for chunk in reply.stream:
                await response.write(chunk)
        except PenstockError as error:
            log.warning("command %s failed while sending rows: %s", call.name, error)
            if request.transport is not None:
                request.transport.abort()
        else:
            await response.write_eof()
        return response

    def _error_response(self, name: str, cause: PenstockError, status: int = 400) -> web.Response:
        error = as_yt_error(cause)
        log.debug("command %s: %s", name, error)
        return _error_response(error, status)


def unavailable(message: str) -> web.Response:
    """The answer of a listener that cannot serve any command now; clients try again."""
    return _error_response(YtError(UNAVAILABLE, message), HTTPStatus.SERVICE_UNAVAILABLE)


def _error_response(error: YtError, status: int) -> web.Response:
    return web.Response(
        status=status,
        body=json.dumps(error.to_yson()).encode(),
        headers=error_headers(error),
        content_type="application/json",
    )


def _headers(reply: Reply) -> dict[str, str]:
    headers = {"X-YT-Proxy": socket.gethostname()}
    if reply.parameters is not None:
        headers["X-YT-Response-Parameters"] = text_yson(reply.parameters).decode("ascii")
    return headers


def _check_transaction(call: Call, command: Command) -> None:
    """Refuse a command in a transaction if it changes something at once."""
    if command.is_volatile and not command.takes_transaction and call.transaction_id is not None:
        raise YtError(GENERIC, f"{call.name} takes effect at once and cannot be part of a transaction; leave the transaction out")


def _mutation_id(call: Call, command: Command) -> str | None:
    mutation_id = call.get("mutation_id")
    return f"{call.user}/{mutation_id}" if command.is_volatile and isinstance(mutation_id, str) else None


def _encode_reply(call: Call, command: Command, reply: Reply) -> KeptResponse:
    format_ = call.output_format()
    content = reply.rows
    if content is None:
        content = b"" if command.output_type is None else write_value(format_, reply.value)
    return KeptResponse(content, {**_headers(reply), "Content-Type": format_.content_type})


def _response(kept: KeptResponse) -> web.Response:
    return web.Response(body=kept.body, headers=kept.headers)
