"""The HTTP listener of a standby: health and readiness, what is mounted, and for the rest the address of the node that serves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from ssl import SSLContext
from typing import Any

from aiohttp import web

from penstock.server.metrics import Observatory
from penstock.server.metrics.exposition import chosen_format, exposed
from penstock.server.metrics.metric import Tier

Describe = Callable[[], dict[str, Any]]
"""What /readyz shows: `status` is ready or not, the rest is for people and scripts."""


class StandbyHttp:
    """Listens until this node runs the broker, which brings a listener of its own. Without an observatory there are no metrics:
    a standby knows no users, so that it cannot tell who may see them."""

    def __init__(
        self,
        address: tuple[str, int],
        describe: Describe,
        where: Callable[[], str],
        *,
        observatory: Observatory | None,
        mount: Callable[[web.Application], None],
        tls: SSLContext | None,
    ) -> None:
        self._host, self.port = address
        self._observatory = observatory
        self._mount = mount
        self._tls = tls
        self._describe = describe
        self._where = where
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen; raises OSError."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        if self._observatory is not None:
            app.router.add_get("/metrics", partial(_metrics, self._observatory))
        self._mount(app)
        app.router.add_route("*", "/{path:.*}", self._elsewhere)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port, ssl_context=self._tls, shutdown_timeout=1.0)
        try:
            await site.start()
        except OSError:
            await self.stop()
            raise
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _readyz(self, request: web.Request) -> web.Response:
        described = self._describe()
        return web.json_response(described, status=200 if described["status"] == "ready" else 503)

    async def _elsewhere(self, request: web.Request) -> web.Response:
        error = {"code": "standby", "message": f"this node is a standby; {self._where()}"}
        return web.json_response({"error": error}, status=503, headers={"Retry-After": "1"})


async def _metrics(observatory: Observatory, request: web.Request) -> web.Response:
    content_type = chosen_format(request.headers.get("Accept", ""))
    samples = await observatory.scrape(Tier.PUBLIC)
    return web.Response(body=exposed(samples, content_type), headers={"Content-Type": content_type})
