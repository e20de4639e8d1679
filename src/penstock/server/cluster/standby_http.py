"""The HTTP listener of a node that does not lead: health, readiness and metrics of its own, and what is mounted;
everything else is forwarded to the node that leads, so that the console and the API work on every node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from ssl import SSLContext
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from penstock.broker import Operation, PartitionBroker
from penstock.core.errors import PenstockError
from penstock.gateway.http_guard import HttpGuard, own_hosts
from penstock.gateway.http_port import HttpPort
from penstock.server.cluster.http_forwarder import HttpForwarder
from penstock.server.metrics import Observatory
from penstock.server.metrics.exposition import chosen_format, exposed
from penstock.server.metrics.metric import Tier

Describe = Callable[[], dict[str, Any]]
"""What /readyz shows: `status` is ready or not, the rest is for people and scripts."""


class StandbyHttp:
    """Listens until this node runs the broker, which brings a listener of its own. `broker` knows the users who may see metrics;
    None while it starts."""

    def __init__(
        self,
        port: HttpPort,
        describe: Describe,
        forwarder: HttpForwarder,
        *,
        advertised_host: str,
        broker: Callable[[], PartitionBroker | None],
        observatory: Observatory,
        mount: Callable[[web.Application], None],
        tls: SSLContext | None,
    ) -> None:
        self._port = port
        self._observatory = observatory
        self._mount = mount
        self._tls = tls
        self._describe = describe
        self._forwarder = forwarder
        self._broker = broker
        self._hosts = own_hosts(port.host, advertised_host)
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen; raises OSError."""
        app = web.Application(middlewares=[_catch_errors, HttpGuard(self._hosts, serves_pages=True).middleware()])
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/metrics/internal", self._metrics)
        self._mount(app)
        app.router.add_route("*", "/{path:.*}", self._forwarder.forward)
        self._runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=1.0)
        await self._port.serve(self._runner, self._tls)

    async def stop(self) -> None:
        """Stop listening."""
        await self._forwarder.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _readyz(self, request: web.Request) -> web.Response:
        described = self._describe()
        return web.json_response(described, status=200 if described["status"] == "ready" else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        broker = self._broker()
        if broker is None:
            raise web.HTTPServiceUnavailable(text="this node does not know the users of the cluster yet; try again in a moment")
        if broker.access is not None or broker.options.security is not None:
            await _check_may_describe(broker, request)
        tier = Tier.INTERNAL if request.path.endswith("/internal") else Tier.PUBLIC
        content_type = chosen_format(request.headers.get("Accept", ""))
        samples = await self._observatory.scrape(tier)
        return web.Response(body=exposed(samples, content_type), headers={"Content-Type": content_type})


async def _check_may_describe(broker: PartitionBroker, request: web.Request) -> None:
    """Raises what the admin API raises for a caller who may not describe the cluster."""
    # The API takes a while to import, and a worker starts without it.
    caller = await asyncio.to_thread(import_module, "penstock.server.http.caller")
    from penstock.gateway.basic_sign_in import BasicSignIn

    remote = request.remote or ""
    principal = await BasicSignIn(broker, "http").principal(request.headers.get("Authorization", ""), remote)
    caller.Caller(principal, remote, broker.access).check_cluster(Operation.DESCRIBE)


@web.middleware
async def _catch_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except PenstockError as error:
        errors = await asyncio.to_thread(import_module, "penstock.server.http.errors")
        response: web.Response = errors.error_response_of(error)
        return response
