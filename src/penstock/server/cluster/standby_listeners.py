"""The listeners of a node that does not lead, other than Kafka's: HTTP requests are forwarded to the leader, and gRPC calls
refused with an error that clients retry and that names it. YDB's clients are told its address, where their SDK connects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from ssl import SSLContext
from typing import TYPE_CHECKING, Final, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from penstock.gateway.http_guard import ForeignRequestError, HttpGuard, own_hosts
from penstock.gateway.http_port import HttpPort
from penstock.server.cluster.http_forwarder import HEADER_BYTES_MAX, HttpForwarder, client_tls, console_refusal
from penstock.server.cluster.known_nodes import ServingNode
from penstock.server.config import NodeConfig
from penstock.server.listener import Listener, advertised_host, cannot_listen
from penstock.server.node_ports import NodePorts
from penstock.server.security import tls_context

if TYPE_CHECKING:
    from penstock.gateway.grpc_server import GrpcServer
    from penstock.gateway.ydb import Endpoint

FORWARDED: Final = ("http", "yt", "stream_http")
REFUSED: Final = ("ydb", "stream")
STOP_S: Final = 1.0  # for requests in flight


class HttpListener(Protocol):
    """Serves HTTP from `start`, which may raise OSError, until `stop`."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class StandbyListeners:
    """They listen from `start` until the port of each is released to a gateway of the broker. `serving` returns the node that
    serves a listener, by its name; `new_http` makes the listener with the console and the admin API."""

    def __init__(
        self,
        config: NodeConfig,
        ports: NodePorts,
        serving: Callable[[str], ServingNode],
        secret: bytes,
        new_http: Callable[[HttpPort, HttpForwarder], HttpListener],
    ) -> None:
        self._config = config
        self._ports = ports
        self._serving = serving
        self._secret = secret
        self._new_http = new_http
        self._http: dict[str, HttpListener] = {}
        self._grpc: dict[str, GrpcServer] = {}

    async def start(self) -> dict[str, Listener]:
        """Listen, where a port is set and this does not listen yet. Returns where, by name. Raises ConfigError."""
        listeners: dict[str, Listener] = {}
        for name in (*FORWARDED, *REFUSED):
            port = getattr(self._config, f"{name}_port")
            if port is None or name in self._http or name in self._grpc:
                continue
            try:
                bound = await (self._forward(name) if name in FORWARDED else self._refuse(name))
            except OSError as error:
                raise cannot_listen(f"{name}_port", self._config.host, port, error) from error
            listeners[name] = Listener(self._config.host, bound)
        return listeners

    async def release(self, name: str) -> None:
        """Leave a port to the next listener: clients that connect meanwhile wait for it."""
        listener, server = self._http.pop(name, None), self._grpc.pop(name, None)
        if listener is not None:
            await listener.stop()
        if server is not None:
            await server.stop(STOP_S)

    async def stop(self) -> None:
        """Release all ports."""
        for name in (*self._grpc, *self._http):
            await self.release(name)

    async def _forward(self, name: str) -> int:
        config, port = self._config, self._ports.http(f"{name}_port")
        forwarder = HttpForwarder(partial(self._serving, name), self._secret, client_tls(config), _refusal_of(name))
        if name == "http":
            listener = self._new_http(port, forwarder)
        else:
            guard = HttpGuard(own_hosts(config.host, advertised_host(config)))
            listener = ForwardingListener(port, forwarder, guard, tls_context(config))
        await listener.start()
        self._http[name] = listener
        return port.port

    async def _refuse(self, name: str) -> int:
        from penstock.gateway.grpc_server import refusing

        def refusal() -> str:
            return self._serving(name).refusal

        if name == "ydb":
            server = self._ports.ydb()
            from penstock.gateway.ydb import add_standby_handlers

            add_standby_handlers(server, self._ydb_endpoint, refusal)
        else:
            server = self._ports.stream()
            server.add_to_all_methods(refusing(refusal))
        await server.start()
        self._grpc[name] = server
        return server.port

    def _ydb_endpoint(self) -> Endpoint | None:
        from penstock.gateway.ydb import Endpoint

        node = self._serving("ydb")
        if node.address is None or node.node_id is None:
            return None
        host, _, port = node.address.rpartition(":")
        return Endpoint(node.node_id, host.strip("[]"), int(port), self._config.tls_cert is not None)


class ForwardingListener:
    """Forwards all requests."""

    def __init__(self, port: HttpPort, forwarder: HttpForwarder, guard: HttpGuard, tls: SSLContext | None) -> None:
        self._port = port
        self._forwarder = forwarder
        self._tls = tls
        # What tells a page of another site is checked here: it is not passed on.
        app = web.Application(client_max_size=0, middlewares=[_checking(guard)])
        app.router.add_route("*", "/{path:.*}", forwarder.forward)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            auto_decompress=False,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            shutdown_timeout=STOP_S,
        )

    async def start(self) -> None:
        """Listen; raises OSError."""
        await self._port.serve(self._runner, self._tls)

    async def stop(self) -> None:
        """End the requests in flight, and close the connections."""
        await self._forwarder.close()
        await self._runner.cleanup()


def _checking(guard: HttpGuard) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            guard.check(request)
        except ForeignRequestError as error:
            return web.json_response({"error": error.code, "message": str(error)}, status=403)
        return await handler(request)

    return check


def _refusal_of(name: str) -> Callable[[str], web.Response]:
    """How a gateway tells its clients that no node serves them now."""
    if name == "yt":
        from penstock.gateway.yt import unavailable

        return unavailable
    return console_refusal if name == "http" else _stream_refusal


def _stream_refusal(message: str) -> web.Response:
    return web.json_response({"error": "standby", "message": message}, status=503, headers={"Retry-After": "1"})
