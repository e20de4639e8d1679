"""The registry as a web application: on a port of its own, or mounted below a path of another."""

from __future__ import annotations

from collections.abc import Callable
from ssl import SSLContext
from typing import Final

from aiohttp import web

from penstock.broker import PartitionBroker
from penstock.broker.schema_registry import SchemaRegistry
from penstock.core.clock import Clock
from penstock.core.errors import UnavailableError
from penstock.gateway.basic_sign_in import BasicSignIn
from penstock.gateway.http_bodies import BodyLimits, IncomingBodies
from penstock.gateway.http_guard import HttpGuard, add_data_headers, own_hosts
from penstock.gateway.schema_registry.answers import answer_errors
from penstock.gateway.schema_registry.callers import RegistryCaller
from penstock.gateway.schema_registry.handlers import CallerOf, RegistryHandlers
from penstock.gateway.schema_registry.settings import SettingHandlers

KEEP_ALIVE_S: Final = 30.0
LINE_BYTES_MAX: Final = 32 << 10


def registry_app(
    registry: SchemaRegistry, cluster_name: str, clock: Clock, caller_of: CallerOf, guard: HttpGuard | None = None
) -> web.Application:
    """The application. Mounted within another, it has that one's guard and sign-in."""
    middlewares = [answer_errors] if guard is None else [answer_errors, guard.middleware()]
    app = web.Application(client_max_size=0, middlewares=middlewares)
    handlers = RegistryHandlers(registry, cluster_name, IncomingBodies(BodyLimits(), clock), caller_of)
    for method, path, handler in (*handlers.routes(), *SettingHandlers(handlers).routes()):
        app.router.add_route(method, path, handler)
        if path != "/":
            app.router.add_route(method, path + "/", handler)  # some tools end paths with a slash
            app.router.add_route(method, "/contexts/{context}" + path, handler)
    return app


def signed_in(broker_of: Callable[[], PartitionBroker | None]) -> CallerOf:
    """Has callers sign in by HTTP Basic authentication as users of the broker; None is a node that starts."""

    async def caller_of(request: web.Request) -> RegistryCaller:
        broker, host = broker_of(), request.remote or ""
        if broker is None:
            raise UnavailableError("this node is starting and does not know the users yet; try again in a moment")
        principal = await BasicSignIn(broker, "schema_registry").principal(request.headers.get("Authorization", ""), host)
        return RegistryCaller(principal, host, broker.access)

    return caller_of


class SchemaRegistryListener:
    """The registry on a port of its own."""

    def __init__(
        self,
        registry: SchemaRegistry,
        caller_of: CallerOf,
        *,
        cluster_name: str,
        clock: Clock,
        host: str,
        port: int,
        advertised_host: str,
        drain_timeout_s: float,
        tls: SSLContext | None,
    ) -> None:
        self._host = host
        self.port = port
        self._tls = tls
        guard = HttpGuard(own_hosts(host, advertised_host))
        app = registry_app(registry, cluster_name, clock, caller_of, guard)
        app.on_response_prepare.append(add_data_headers)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=KEEP_ALIVE_S,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            shutdown_timeout=drain_timeout_s,
        )

    async def start(self) -> None:
        """Listen. OSError if the address is not free."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self.port, ssl_context=self._tls).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Take no more requests, and finish those in flight."""
        await self._runner.cleanup()
